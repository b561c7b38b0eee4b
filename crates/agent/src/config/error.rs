//! What can be wrong with a configuration, in words that say where and what to write instead.

use std::path::PathBuf;

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file is there and cannot be read.
    #[error("{path} cannot be read: {source}; correct its permissions or move it away", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file is there and is not one that may be read.
    #[error("{0}; move it away or put a regular file in its place")]
    Refused(boundary::file::FileError),
    /// What was written is no TOML.
    #[error("{origin} is not valid TOML: {message}")]
    Syntax {
        /// Where it stands.
        origin: String,
        /// What the parser says, with the line.
        message: String,
    },
    /// A key has a value it cannot have.
    #[error("{key} {objection} (from {origin})")]
    Value {
        /// The key.
        key: String,
        /// What is wrong and what would be right.
        objection: String,
        /// Where it stands.
        origin: String,
    },
    /// There is no such key, and going on without it could do harm or not what was asked.
    #[error("there is no key {key} (from {origin}){}", did_you_mean(.nearest))]
    Unknown {
        /// The key.
        key: String,
        /// The valid key most like it.
        nearest: Option<String>,
        /// Where it stands.
        origin: String,
    },
    /// There is no such profile.
    #[error("there is no profile {name:?}; {}", known_profiles(.known))]
    Profile {
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
    /// There is no such provider, or it lacks something.
    #[error("the provider {name:?} {problem}")]
    Provider {
        /// Its name.
        name: String,
        /// What is wrong and what to do.
        problem: String,
    },
}

pub(crate) fn did_you_mean(nearest: &Option<String>) -> String {
    match nearest {
        Some(key) => format!("; did you mean {key}?"),
        None => "; `flint config keys` lists all".to_owned(),
    }
}

fn known_profiles(known: &[String]) -> String {
    match known {
        [] => "none is configured; add a table [profiles.NAME] to config.toml".to_owned(),
        known => format!("there are {}", known.join(", ")),
    }
}

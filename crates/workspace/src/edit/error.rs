//! Why a change was not made. The text goes back to the model, so it says what the file has and what to send instead.

use std::path::PathBuf;

/// Why a change was not made. The files are as they were.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// There is no such file.
    #[error("{} does not exist; check the path, or send the whole file to create it", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The way back could not be kept, so the change was not made.
    #[error("{why}")]
    NotKept {
        /// What happened and what to do.
        why: String,
    },
    /// A file that was to be created is there.
    #[error("{} exists already; send a change of it, or choose another name", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The text to be replaced is nowhere.
    #[error("{}: these lines are not in the file:\n{wanted}\n{nearest}", path.display())]
    NotFound {
        /// The file.
        path: PathBuf,
        /// What was looked for.
        wanted: String,
        /// What the file has in the place most like it, and what to do.
        nearest: String,
    },
    /// The change fits several places.
    #[error("{}: {what} fits {} places: {}; {hint}", path.display(), places.len(), places.join(", "))]
    Ambiguous {
        /// The file.
        path: PathBuf,
        /// What fits.
        what: String,
        /// Where, in words.
        places: Vec<String>,
        /// How to say which.
        hint: &'static str,
    },
    /// The answer leaves something out.
    #[error("{}: the answer leaves out code at its line {line} ({text}); send it again with every line written out", path.display())]
    Fragment {
        /// The file.
        path: PathBuf,
        /// Line of the answer, from 1.
        line: usize,
        /// That line.
        text: String,
    },
    /// The answer cannot be understood as a change.
    #[error("{}: {why}", path.display())]
    Unclear {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what to send.
        why: String,
    },
    /// A patch does not follow its format.
    #[error("line {line} of the patch: {why}")]
    Patch {
        /// Line of the patch, from 1.
        line: usize,
        /// What is wrong, and what to send.
        why: String,
    },
    /// Somebody else wrote the file since it was read.
    #[error("{} changed on disk since it was read; read it again and repeat the change", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// The path leads out of the workspace, or to what must not be edited.
    #[error("{}: {why}", path.display())]
    Forbidden {
        /// The path as given.
        path: PathBuf,
        /// Why, and what to do.
        why: &'static str,
    },
    /// The file cannot be edited as text.
    #[error("{} cannot be edited as text: {why}", path.display())]
    NotText {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// The file system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What it said.
        source: std::io::Error,
    },
}

//! Edits that apply: from what a model wrote to what stands in the files.
//!
//! A [`Change`] is resolved against the text that was read ([`resolve`]), and a [`Batch`] writes the results, one atomic
//! rename per file and nothing unless all resolve. Matching forgives what models get wrong without meaning it (spaces at
//! line ends, indentation, moved lines) and never chooses between two places: a wrong edit costs more than a second
//! question. [`EditError`] is written for the model to act on.

mod additions;
mod batch;
mod elision;
mod error;
mod file;
mod function;
mod imports;
mod lines;
mod locate;
mod members;
pub mod patch;
mod text;
mod whole;

use std::path::{Path, PathBuf};

use index::outline::Language;

pub use batch::{Batch, Written};
pub use error::EditError;
pub use file::{BYTES_MAX, Encoding, LineEnds, TextFile, is_leftover, write_atomic};
pub(crate) use file::{Fresh, remove_leftover};
pub use function::Merged;
pub use lines::Alike;

/// One thing to do to one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The file, relative to the workspace.
    pub path: PathBuf,
    /// What to do.
    pub kind: ChangeKind,
}

/// What to do to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// The file becomes this text; it is made when there is none.
    WholeFile {
        /// All of it.
        text: String,
    },
    /// Whole functions, methods or types, found by their names. What the file has not yet is added beside its neighbours.
    Function {
        /// One or more of them, with the imports they need.
        text: String,
    },
    /// The one place that has `old` gets `new`. Both are whole lines, or an exact part of a line.
    Replace {
        /// What stands there.
        old: String,
        /// What shall stand there.
        new: String,
    },
    /// Several places, each found by the lines around it, in the order of the file.
    Hunks {
        /// The places.
        hunks: Vec<Hunk>,
    },
    /// A file that is not there yet.
    Create {
        /// All of it.
        text: String,
    },
    /// The file goes.
    Delete,
    /// The file gets another name.
    Move {
        /// The name, relative to the workspace.
        to: PathBuf,
    },
}

/// One place of a patch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hunk {
    /// Lines that stand somewhere above the place, such as the head of its class; each is looked for below the one before.
    pub below: Vec<String>,
    /// The lines that stand there, kept ones included.
    pub old: Vec<String>,
    /// The lines that shall stand there, kept ones included.
    pub new: Vec<String>,
    /// The place is the end of the file.
    pub at_end: bool,
}

/// The text a file has after the change. `old` is [`TextFile::text`] of what was read, `None` when there is no file.
///
/// For `Delete` the result is empty, for `Move` it is the old text.
pub fn resolve(change: &Change, old: Option<&str>) -> Result<String, EditError> {
    let path = &change.path;
    let existing = || old.ok_or_else(|| EditError::Missing { path: path.clone() });
    match &change.kind {
        ChangeKind::WholeFile { text } => whole::resolve(path, old, &with_line_feeds(text)),
        ChangeKind::Function { text } => function::resolve(path, existing()?, &with_line_feeds(text)),
        ChangeKind::Replace { old: wanted, new } => {
            locate::replace(path, existing()?, &with_line_feeds(wanted), &with_line_feeds(new))
        }
        ChangeKind::Hunks { hunks } => locate::replace_hunks(path, existing()?, hunks),
        ChangeKind::Create { text } => match old {
            Some(_) => Err(EditError::Exists { path: path.clone() }),
            None => whole::resolve(path, None, &with_line_feeds(text)),
        },
        ChangeKind::Delete => existing().map(|_| String::new()),
        ChangeKind::Move { .. } => existing().map(str::to_owned),
    }
}

/// The text of a file after an answer that holds some of its definitions, or some of its lines where it is not code.
/// What the answer does not mention stays, but for what `goes` says was asked for to go, by its name.
pub fn merge(path: &Path, old: &str, text: &str, goes: &dyn Fn(&str) -> bool) -> Result<Merged, EditError> {
    let text = with_line_feeds(text);
    let defines = |language: &Language| !function::found(*language, &text).is_empty() || !text::is_anchored(old, &text);
    match Language::of(path).filter(defines) {
        Some(_) => function::merge(path, old, &text, goes),
        None => text::resolve(path, old, &text, goes).map(|text| Merged { text, left_out: Vec::new() }),
    }
}

/// The functions of an answer that have no body in it where the file has one. One that leaves out a part of its body is an
/// error.
pub fn left_out(path: &Path, old: &str, text: &str) -> Result<Vec<String>, EditError> {
    match Language::of(path) {
        Some(language) => function::left_out(path, language, old, &with_line_feeds(text)),
        None => Ok(Vec::new()),
    }
}

/// Line ends as [`TextFile::text`] has them.
fn with_line_feeds(text: &str) -> String {
    text.replace("\r\n", "\n")
}

#[cfg(test)]
mod tests;

//! Answers that are whole files, and how to tell that one is not.
//!
//! Models like to write "the rest stays as it is" where they should write the rest. Saved as a file, that loses work; so
//! an answer that says it leaves something out is refused, and never written.

use std::path::Path;

use super::{EditError, elision};

/// The text of the file after a whole-file answer.
pub(super) fn resolve(path: &Path, old: Option<&str>, new: &str) -> Result<String, EditError> {
    if let Some((line, text)) = elision::in_words(old.unwrap_or(""), new) {
        return Err(EditError::Fragment { path: path.to_owned(), line, text });
    }
    Ok(with_end_of(old.unwrap_or(""), new))
}

/// Ends as the old text ends: with a newline or without. New files get one.
pub(super) fn with_end_of(old: &str, new: &str) -> String {
    match (new.strip_suffix('\n'), old.is_empty() || old.ends_with('\n')) {
        (None, true) if !new.is_empty() => format!("{new}\n"),
        (Some(bare), false) => bare.to_owned(),
        _ => new.to_owned(),
    }
}

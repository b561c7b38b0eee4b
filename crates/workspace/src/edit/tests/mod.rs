//! Edits, by what models write and what must come of it.

mod files;
mod functions;
mod quotes;

use std::path::PathBuf;

use super::*;

fn change(path: &str, kind: ChangeKind) -> Change {
    Change { path: PathBuf::from(path), kind }
}

fn replace(text: &str, old: &str, new: &str) -> Result<String, EditError> {
    let kind = ChangeKind::Replace { old: old.to_owned(), new: new.to_owned() };
    resolve(&change("a.py", kind), Some(text))
}

fn whole(old: &str, new: &str) -> Result<String, EditError> {
    resolve(&change("a.py", ChangeKind::WholeFile { text: new.to_owned() }), Some(old))
}

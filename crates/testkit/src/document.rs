//! Pages of the documents that code writes: a test compares the part between two marks with what the code says now, and
//! writes it anew when `FLINT_BLESS` is set.

use std::path::{Path, PathBuf};

const BEGIN: &str = "<!-- generated -->";
const END: &str = "<!-- end -->";

/// Panics when the generated part of a page below `docs` is not this text.
pub fn assert_current(page: &str, text: &str) {
    let path = root().join("docs").join(page);
    let old = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("docs/{page}: {error}"));
    let (before, rest) = old.split_once(BEGIN).unwrap_or_else(|| panic!("docs/{page} has no line {BEGIN}"));
    let (_, after) = rest.split_once(END).unwrap_or_else(|| panic!("docs/{page} has no line {END}"));
    let new = format!("{before}{BEGIN}\n\n{}\n\n{END}{after}", text.trim());
    if new == old {
        return;
    }
    if std::env::var_os("FLINT_BLESS").is_some() {
        std::fs::write(&path, new).unwrap_or_else(|error| panic!("docs/{page}: {error}"));
        return;
    }
    let differs = new.lines().zip(old.lines().chain(std::iter::repeat(""))).find(|(new, old)| new != old);
    panic!("docs/{page} is stale: {differs:?} (new, old); FLINT_BLESS=1 and the same test write it anew");
}

/// A table of Markdown.
pub fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let mut text = line(&head.iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>());
    text += &format!("{}|\n", "|---".repeat(head.len()));
    rows.into_iter()
        .for_each(|row| text += &line(&row.iter().map(|cell| cell.replace('|', "\\|")).collect::<Vec<_>>()));
    text
}

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

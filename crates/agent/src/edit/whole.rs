//! Answers that are whole files, and how to tell that one is not.
//!
//! Models like to write "the rest stays as it is" where they should write the rest. Saved as a file, that loses work; so
//! an answer that says it leaves something out is refused, and never written.

use std::path::Path;

use super::EditError;

/// The text of the file after a whole-file answer.
pub(super) fn resolve(path: &Path, old: Option<&str>, new: &str) -> Result<String, EditError> {
    if let Some((line, text)) = elision(old.unwrap_or(""), new) {
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

/// The first line of an answer that says that something was left out: its number from 1, and its text.
///
/// A comment such as `// ... rest of the code unchanged ...` says so whatever surrounds it. A comment of dots alone may be
/// a way of writing, and counts only when the answer has fewer than half the lines of the old text. A line that stands in
/// the old text too is the author's, not the model's.
pub(super) fn elision(old: &str, new: &str) -> Option<(usize, String)> {
    let short = new.lines().count() * 2 < old.lines().count();
    let says_so = |line: &str| match comment(line) {
        Some(words) => elides(words) || (short && only_dots(words)),
        None => short && matches!(line.trim(), "..." | "…" | "[...]"),
    };
    let own = |line: &str| !old.lines().any(|known| known.trim() == line.trim());
    new.lines()
        .enumerate()
        .find(|(_, line)| says_so(line) && own(line))
        .map(|(at, line)| (at + 1, line.trim().to_owned()))
}

/// The words of a line that is only a comment.
fn comment(line: &str) -> Option<&str> {
    let line = line.trim();
    let closed = [("/*", "*/"), ("<!--", "-->"), ("{/*", "*/}"), ("(", ")"), ("[", "]")];
    for (open, close) in closed {
        if let Some(words) = line.strip_prefix(open).and_then(|rest| rest.strip_suffix(close)) {
            return Some(words.trim());
        }
    }
    ["//", "#", "--", ";", "%"].iter().find_map(|sign| line.strip_prefix(sign)).map(str::trim)
}

fn only_dots(words: &str) -> bool {
    !words.is_empty() && words.chars().all(|c| c == '.' || c == '…')
}

fn elides(words: &str) -> bool {
    let words = words.to_lowercase();
    let dots = words.contains("...") || words.contains('…');
    let has = |list: &[&str]| list.iter().any(|phrase| words.contains(phrase));
    let kept = ["rest of", "existing", "remain", "unchanged", "same as", "previous", "other ", "omitted", "as before"];
    let sure = [
        "rest of the code",
        "rest of the file",
        "rest of the function",
        "rest of the class",
        "rest of your code",
        "remaining code",
        "existing code here",
        "code remains unchanged",
        "remains the same",
        "unchanged code",
        "code omitted",
    ];
    (dots && has(&kept)) || (words.len() < 80 && has(&sure))
}

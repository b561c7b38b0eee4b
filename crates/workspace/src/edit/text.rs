//! Answers about files that are not code: a README, settings, a list. A section, a paragraph or some lines come back, and
//! what they do not mention stays.

use std::collections::HashSet;
use std::path::Path;

use index::outline::Language;

use super::elision;
use super::lines::{self, Alike, Piece, Reading};
use super::locate::lines;
use super::{EditError, whole};

/// The text of the file after the answer. `goes` says what was asked for to go.
pub(super) fn resolve(path: &Path, old: &str, text: &str, goes: impl Fn(&str) -> bool) -> Result<String, EditError> {
    let unclear = |why: String| EditError::Unclear { path: path.to_owned(), why };
    if old.trim().is_empty() {
        return Ok(whole::with_end_of(old, text));
    }
    let old_lines = lines(old);
    let stands: HashSet<&str> = old_lines.iter().map(|line| line.trim()).collect();
    let known = |line: &str| stands.contains(line.trim());
    let new: Vec<String> = lines(text)
        .into_iter()
        .filter(|line| known(line) || !elision::says_so(line))
        .map(|line| line.trim_end().to_owned())
        .collect();
    let solid: Vec<&str> = new.iter().map(|line| line.trim()).filter(|line| !line.is_empty()).collect();
    let Some(first) = solid.first() else { return Err(unclear("the answer is empty".to_owned())) };
    let reading = match path.extension().and_then(|ending| ending.to_str()) {
        _ if Language::of(path).is_some() => Reading::Members,
        Some("md" | "markdown" | "mdx" | "rst" | "txt") | None => Reading::Prose,
        Some(_) => Reading::Settings,
    };
    let is_heading = |line: &str| reading.is_heading(line);
    let span = span(&old_lines, &solid, reading);
    let inside: Vec<(usize, &str)> = span.clone().map(|at| (at, old_lines[at])).collect();
    let within: HashSet<&str> = inside.iter().map(|(_, line)| line.trim()).collect();
    let compared = Alike::default();
    let alike = |new: &&str| inside.iter().any(|(_, old)| compared.check(old.trim(), new));
    let meets = solid.iter().any(|new| within.contains(new)) || solid.iter().any(alike);
    let pieces = match meets {
        true => lines::merge(&inside, &new, span.start, reading, goes),
        // A section of its own goes to the end.
        false if is_heading(first) => {
            let end = (0..old_lines.len()).rev().find(|at| !old_lines[*at].trim().is_empty()).map_or(0, |at| at + 1);
            vec![(end..end, std::iter::once(String::new()).chain(new).collect())]
        }
        false => {
            return Err(unclear(
                "nothing in the answer stands in the file, so its place is not known; send the lines around it too, or \
                 its heading"
                    .to_owned(),
            ));
        }
    };
    Ok(whole::with_end_of(old, &apply(&old_lines, pieces)))
}

/// Whether an answer begins and ends with lines of the file.
pub(super) fn is_anchored(old: &str, text: &str) -> bool {
    let known =
        |line: &str| old.lines().any(|old| old.trim() == line.trim() && line.chars().any(char::is_alphanumeric));
    let mut solid = text.lines().filter(|line| !line.trim().is_empty());
    solid.next().is_some_and(known) && solid.next_back().is_some_and(known)
}

/// The lines of the file that an answer is about: from its first heading to the end of its last section, else all.
fn span(old: &[&str], new: &[&str], reading: Reading) -> std::ops::Range<usize> {
    let is_heading = |line: &str| reading.is_heading(line);
    let headings: Vec<usize> = (0..old.len()).filter(|at| is_heading(old[*at])).collect();
    let named = |at: &usize| new.iter().any(|line| *line == old[*at].trim());
    let begins = new.first().filter(|line| is_heading(line));
    let (Some(_), Some(first)) = (begins, headings.iter().find(|at| named(at))) else { return 0..old.len() };
    let last = headings.iter().rposition(named).map_or(headings.len(), |at| at + 1);
    let known = begins.is_some_and(|line| *line == old[*first].trim());
    let end = headings.get(last).copied().unwrap_or(old.len());
    if known { *first..end } else { 0..end }
}

/// The text with pieces of it changed.
pub(super) fn apply(old: &[&str], pieces: Vec<Piece>) -> String {
    let mut out = String::new();
    let mut at = 0;
    for (range, new) in pieces {
        let start = range.start.max(at);
        old[at..start].iter().for_each(|line| out.extend([line, "\n"]));
        new.iter().for_each(|line| out.extend([line.as_str(), "\n"]));
        at = range.end.max(start);
    }
    old[at..].iter().for_each(|line| out.extend([line, "\n"]));
    out
}

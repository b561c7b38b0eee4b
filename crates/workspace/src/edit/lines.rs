//! Lines that came back in part: what is new goes in, what is alike is replaced, and what is not mentioned stays.

use std::cell::Cell;
use std::ops::Range;

/// Lines that are at least so alike are one line that changed; from 0 to 1.
const ALIKE: f64 = 0.6;

/// A change of lines: those it takes away, and those it puts there.
pub(super) type Piece = (Range<usize>, Vec<String>);

/// What a merge may take for replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// Only a line that is like the new one, or has its name.
    Members,
    /// Also what stands between the same two lines: a paragraph that was written anew.
    Prose,
    /// The same for settings, whose tables have heads in brackets.
    Settings,
}

impl Reading {
    /// Whether a line begins a section.
    pub(super) fn is_heading(self, line: &str) -> bool {
        let line = line.trim();
        let marks = line.bytes().take_while(|byte| *byte == b'#').count();
        match self {
            Self::Members => false,
            Self::Prose => (1..=6).contains(&marks) && line[marks..].starts_with(' '),
            Self::Settings => line.starts_with('[') && line.ends_with(']'),
        }
    }

    /// Whether a line may be a note that stands for others, in whatever words.
    fn is_note(self, line: &str) -> bool {
        let brackets = [("<!--", "-->"), ("(", ")"), ("[", "]"), ("/*", "*/")];
        let closed = brackets.iter().any(|(open, close)| line.starts_with(open) && line.ends_with(close));
        let comment = self == Self::Settings && ["#", "//", ";"].iter().any(|mark| line.starts_with(mark));
        (closed || comment || !line.chars().any(char::is_alphanumeric)) && !self.is_heading(line)
    }
}

/// Brings the lines of an answer into those of a file; blank ones are not looked at. `old` has the numbers of its lines, and
/// `begins` is where lines go that stand before all of them. `goes` says of a line that is missing in the answer whether it was asked for that it goes.
pub(super) fn merge(
    old: &[(usize, &str)],
    new: &[String],
    begins: usize,
    reading: Reading,
    goes: impl Fn(&str) -> bool,
) -> Vec<Piece> {
    let old: Vec<(usize, &str)> = old.iter().copied().filter(|(_, line)| !line.trim().is_empty()).collect();
    let solid: Vec<usize> = (0..new.len()).filter(|at| !new[*at].trim().is_empty()).collect();
    let old_keys: Vec<&str> = old.iter().map(|(_, line)| line.trim()).collect();
    let new_keys: Vec<&str> = solid.iter().map(|at| new[*at].trim()).collect();
    let compared = Alike::default();
    let mut pieces: Vec<Piece> = Vec::new();
    for (gone, come) in crate::diff::hunks(&old_keys, &new_keys) {
        let flanked = gone.start > 0 && gone.end < old.len() && come.start > 0 && come.end < solid.len();
        let headings = gone.clone().any(|at| reading.is_heading(old_keys[at]));
        let notes = reading != Reading::Members && come.clone().all(|at| reading.is_note(new_keys[at]));
        if notes && !come.is_empty() && gone.clone().any(|at| !reading.is_note(old_keys[at])) {
            continue;
        }
        let rewritten = reading != Reading::Members && flanked && !headings && come.len() * 2 >= gone.len();
        if rewritten && !come.is_empty() {
            let lines = new[solid[come.start]..=solid[come.end - 1]].to_vec();
            pieces.push((old[gone.start].0..old[gone.end - 1].0 + 1, lines));
            continue;
        }
        let mut left: Vec<usize> = gone.clone().collect();
        let mut at = match gone.start {
            0 => begins,
            start => old[start - 1].0 + 1,
        };
        for line in come.map(|at| solid[at]) {
            let like = left.iter().position(|old| compared.check(old_keys[*old], new[line].trim()));
            match like {
                Some(found) => {
                    let number = old[left.remove(found)].0;
                    at = number + 1;
                    pieces.push((number..at, vec![new[line].clone()]));
                }
                None => {
                    // The blank lines above a line that is new come along.
                    let blank = (0..line).rev().take_while(|at| new[*at].trim().is_empty()).count();
                    let lines = new[line - blank..=line].to_vec();
                    match pieces.last_mut() {
                        Some((range, last)) if range.end == at => last.extend(lines),
                        _ => pieces.push((at..at, lines)),
                    }
                }
            }
        }
        let asked = left.into_iter().filter(|at| goes(old_keys[*at]));
        pieces.extend(asked.map(|at| (old[at].0..old[at].0 + 1, Vec::new())));
    }
    pieces.sort_by_key(|(range, _)| (range.start, range.end));
    pieces
}

/// Comparisons of lines for one answer, so that huge ones end; beyond, only equal lines are taken for the same.
const COMPARED_MAX: usize = 50_000;

/// Bytes of a line that is compared letter by letter.
const LINE_BYTES_MAX: usize = 200;

/// Compares lines, so many times.
pub struct Alike {
    left: Cell<usize>,
}

impl Default for Alike {
    fn default() -> Self {
        Self { left: Cell::new(COMPARED_MAX) }
    }
}

impl Alike {
    /// Whether one line is the other one changed.
    pub fn check(&self, old: &str, new: &str) -> bool {
        self.left.set(self.left.get().saturating_sub(1));
        self.left.get() > 0 && alike(old, new)
    }
}

/// Whether one line is the other one changed: both name the same thing, or they are alike as a whole.
fn alike(old: &str, new: &str) -> bool {
    if old == new {
        return true;
    }
    let is_heading = |line: &str| Reading::Prose.is_heading(line) || Reading::Settings.is_heading(line);
    if is_heading(old) != is_heading(new) {
        return false;
    }
    let declares = |line: &str| line.contains([':', '=']);
    let named = subject(old).filter(|_| declares(old) && declares(new)).is_some_and(|one| Some(one) == subject(new));
    let short = old.len().max(new.len()) <= LINE_BYTES_MAX;
    named
        || short
            && strsim::normalized_levenshtein(old, new) >= ALIKE
            && subject(old).is_none_or(|one| !declares(old) || Some(one) == subject(new))
}

/// What a line of a declaration is about: the last word before its first `:` or `=`.
fn subject(line: &str) -> Option<&str> {
    let before = line.split([':', '=']).next().unwrap_or_default().trim();
    let words = before.split(|c: char| !c.is_alphanumeric() && !"_-.".contains(c));
    words.rev().find(|word| !word.is_empty())
}

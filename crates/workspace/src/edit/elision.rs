//! Answers that leave something out, in whatever words.
//!
//! Models like to write "the rest stays as it is", "your implementation here" or three dots where they should write code.
//! Words alone do not tell: what tells is a comment that stands where the file has code. So a definition of an answer is
//! compared with the one it would replace, and a comment or a placeholder that takes the place of code leaves it out.

use index::outline::{self, Language};

use super::lines;

/// What a definition of an answer leaves out of the one it would replace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Elided {
    /// Nothing that shows.
    Nothing,
    /// Its whole body, so the answer says nothing about it.
    Body,
    /// Some of its lines: the line of the answer that stands for them, from 0, and its text.
    Lines(usize, String),
}

/// Compares a definition with the one it would replace. Both begin at their heads.
pub(super) fn of(language: Language, old: &[&str], new: &[&str]) -> Elided {
    let (old_lines, new_lines) = (classify(language, old), classify(language, new));
    let (old_body, new_body) = (body(language, old), body(language, new));
    let code = |lines: &[Sort]| lines.iter().filter(|sort| **sort == Sort::Code).count();
    let empty = stands_empty(new) || (code(&new_lines[new_body..]) == 0 && new_lines[new_body..].contains(&Sort::Note));
    if code(&old_lines[old_body..]) > 0 && empty {
        return Elided::Body;
    }
    let trimmed = |lines: &[&'_ str]| lines.iter().map(|line| line.trim().to_owned()).collect::<Vec<String>>();
    let (old_text, new_text) = (trimmed(old), trimmed(new));
    let (old_text, new_text): (Vec<&str>, Vec<&str>) =
        (old_text.iter().map(String::as_str).collect(), new_text.iter().map(String::as_str).collect());
    for gap in gaps(&old_text, &new_text) {
        let notes: Vec<usize> = gap
            .come
            .iter()
            .copied()
            .filter(|at| new_lines[*at] == Sort::Note && !old_text.contains(&new_text[*at]))
            .collect();
        // Code that was made a comment is there to be read.
        let commented = |at: &usize| notes.iter().any(|note| new_text[*note].contains(old_text[*at]));
        let lost = gap.gone.iter().filter(|at| old_lines[**at] == Sort::Code && !commented(at)).count();
        let written = gap.come.iter().filter(|at| new_lines[**at] == Sort::Code).count();
        // A comment is about the code below it. One with nothing of its own below stands for what was there, unless it
        // speaks of the line that follows.
        let is_last = |note: usize| gap.come.iter().filter(|at| **at > note).all(|at| new_lines[*at] != Sort::Code);
        let speaks_of_next = |note: usize| {
            let next = (note + 1..new.len()).find(|at| new_lines[*at] == Sort::Code);
            written > 0 && next.is_some_and(|next| share_a_word(new_text[note], new_text[next]))
        };
        let stands_for = |note: &&usize| {
            (lost > 0 && is_last(**note) && !speaks_of_next(**note)) || (lost > written && says_so(new_text[**note]))
        };
        if let Some(at) = notes.iter().find(stands_for) {
            return Elided::Lines(*at, new_text[*at].to_owned());
        }
    }
    Elided::Nothing
}

fn share_a_word(one: &str, other: &str) -> bool {
    let words = |text: &str| -> Vec<String> {
        let words = text
            .split(|c: char| !c.is_alphanumeric())
            .filter(|word| word.len() > 2 && !word.eq_ignore_ascii_case("todo"));
        words.map(str::to_lowercase).collect()
    };
    let known = words(other);
    words(one).iter().any(|word| known.contains(word))
}

/// Lines that differ between two that are the same or alike: those of the file, and those of the answer.
#[derive(Default)]
struct Gap {
    gone: Vec<usize>,
    come: Vec<usize>,
}

/// What differs, cut where a changed line can be told.
fn gaps(old: &[&str], new: &[&str]) -> Vec<Gap> {
    let compared = lines::Alike::default();
    let mut gaps = Vec::new();
    for (gone, come) in crate::diff::hunks(old, new) {
        let mut gap = Gap::default();
        let mut from = gone.start;
        for at in come {
            let like = |old: &&str| compared.check(old, new[at]);
            match (from..gone.end).find(|old_at| !new[at].is_empty() && like(&old[*old_at])) {
                Some(found) => {
                    gap.gone.extend(from..found);
                    gaps.push(std::mem::take(&mut gap));
                    from = found + 1;
                }
                None => gap.come.push(at),
            }
        }
        gap.gone.extend(from..gone.end);
        gaps.push(gap);
    }
    gaps
}

/// What a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Code,
    /// A comment or a placeholder.
    Note,
    /// Nothing, brackets alone, or a line of documentation.
    Other,
}

fn classify(language: Language, lines: &[&str]) -> Vec<Sort> {
    let code = outline::code_lines(language, &lines.join("\n"));
    let sort = |(line, code): (&&str, &String)| {
        let (line, code) = (line.trim(), code.trim());
        if line.is_empty() || code.chars().all(|c| c == '"') && !code.is_empty() {
            Sort::Other
        } else if code.is_empty() || is_placeholder(line) {
            Sort::Note
        } else if code.chars().all(|c| "{}()[];,\"".contains(c)) {
            Sort::Other
        } else {
            Sort::Code
        }
    };
    lines.iter().zip(&code).map(sort).collect()
}

/// The first line behind the head.
fn body(language: Language, lines: &[&str]) -> usize {
    let code = outline::code_lines(language, &lines.join("\n"));
    let opens = if language == Language::Python { ':' } else { '{' };
    code.iter().position(|line| line.trim_end().ends_with(opens)).map_or(lines.len().min(1), |at| at + 1)
}

/// `def f(): pass`, `f() {}`: a head with nothing behind it, on one line.
fn stands_empty(lines: &[&str]) -> bool {
    let [line] = lines else { return false };
    let line = line.trim();
    [": pass", ": ...", "{}", "{ }", "{ ... }", "{ todo!() }", "{ unimplemented!() }"]
        .iter()
        .any(|end| line.ends_with(end))
}

fn is_placeholder(line: &str) -> bool {
    let line = line.trim_end_matches(';');
    matches!(line, "pass" | "..." | "…" | "[...]")
        || ["todo!(", "unimplemented!(", "raise NotImplementedError", "throw new NotImplemented", "panic(\"not impl"]
            .iter()
            .any(|begins| line.starts_with(begins))
        || (line.starts_with("throw new Error(") && line.to_lowercase().contains("not implemented"))
}

/// Whether a line says, in words known for it, that it stands for others.
pub(super) fn says_so(line: &str) -> bool {
    match comment(line) {
        Some(words) => only_dots(words) || elides(words),
        None => is_placeholder(line.trim()) && line.contains(['.', '…']),
    }
}

/// The first line of an answer that says that something was left out: its number from 1, and its text.
///
/// A comment such as `// ... rest of the code unchanged ...` says so whatever surrounds it. A comment of dots alone may be
/// a way of writing, and counts only when the answer has fewer than half the lines of the old text. A line that stands in
/// the old text too is the author's, not the model's.
pub(super) fn in_words(old: &str, new: &str) -> Option<(usize, String)> {
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
        "your implementation",
        "implementation here",
        "implementation goes here",
        "your code here",
        "your logic here",
    ];
    (dots && has(&kept)) || (words.len() < 80 && has(&sure))
}

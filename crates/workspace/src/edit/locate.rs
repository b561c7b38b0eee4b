//! Where a change belongs, when the model quotes the lines that stand there.
//!
//! Five ways of reading are tried, each more forgiving than the one before: exactly; without spaces at line ends; with
//! another indentation throughout; with typographic quotes and dashes made plain; with runs of spaces as one. The first
//! that fits anywhere decides. When it fits more than one place nothing is done, because the model meant one of them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use index::outline::indent;

use super::{EditError, Hunk};

const SAY_MORE: &str = "quote more of the lines around the one you mean";
/// Most places named in an error; the rest adds nothing.
const PLACES_MAX: usize = 6;
/// Most lines of the file shown when nothing fits.
const NEAREST_LINES_MAX: usize = 16;

/// Puts `new` in the one place that has `wanted`.
pub(super) fn replace(path: &Path, text: &str, wanted: &str, new: &str) -> Result<String, EditError> {
    if wanted.trim().is_empty() {
        if text.is_empty() {
            return Ok(new.to_owned());
        }
        let why = "the text to replace is empty; quote the lines that shall change".to_owned();
        return Err(EditError::Unclear { path: path.to_owned(), why });
    }
    let (wanted_lines, new_lines) = without_blank_ends(&lines(wanted), &lines(new));
    let hunk = Hunk { old: owned(&wanted_lines), new: owned(&new_lines), ..Hunk::default() };
    match replace_hunks(path, text, &[hunk]) {
        Err(EditError::NotFound { path, wanted: shown, nearest }) => {
            replace_part(&path, text, wanted, new)?.ok_or(EditError::NotFound { path, wanted: shown, nearest })
        }
        result => result,
    }
}

/// The quote as an exact part of a line, or of several.
fn replace_part(path: &Path, text: &str, wanted: &str, new: &str) -> Result<Option<String>, EditError> {
    let (part, new) = match wanted.strip_suffix('\n') {
        Some(part) => (part, new.strip_suffix('\n').unwrap_or(new)),
        None => (wanted, new),
    };
    let word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    // `x = 1` is no part of `max = 1`.
    let whole_words = |at: &usize| {
        let (before, after) = (&text[..*at], &text[at + part.len()..]);
        let cut_before = word(before.chars().next_back()) && word(part.chars().next());
        let cut_after = word(part.chars().next_back()) && word(after.chars().next());
        !cut_before && !cut_after
    };
    let found: Vec<usize> = text.match_indices(part).map(|(at, _)| at).filter(whole_words).collect();
    match found[..] {
        [] => Ok(None),
        [at] => Ok(Some(format!("{}{new}{}", &text[..at], &text[at + part.len()..]))),
        _ => Err(ambiguous(path, found.iter().map(|at| text[..*at].matches('\n').count()))),
    }
}

/// Makes all the changes of a patch. Every place is found in the text as it was.
pub(super) fn replace_hunks(path: &Path, text: &str, hunks: &[Hunk]) -> Result<String, EditError> {
    let file = Lines::of(text);
    let mut pieces: Vec<(Range<usize>, Vec<String>)> = Vec::new();
    for hunk in hunks {
        let from = pieces.last().map_or(0, |(range, _)| range.end);
        pieces.push(locate(path, &file.lines, hunk, from)?);
    }
    pieces.sort_by_key(|(range, _)| range.start);
    if let Some(pair) = pieces.windows(2).find(|pair| pair[0].0.end > pair[1].0.start) {
        let why = format!("two changes meet at line {}; send them as one", pair[1].0.start + 1);
        return Err(EditError::Unclear { path: path.to_owned(), why });
    }
    let mut out: Vec<String> = Vec::new();
    let mut at = 0;
    for (range, new) in pieces {
        out.extend(owned(&file.lines[at..range.start]));
        out.extend(new);
        at = range.end;
    }
    out.extend(owned(&file.lines[at..]));
    Ok(file.joined(&out))
}

/// The place of one change, and the lines it gets.
fn locate(path: &Path, file: &[&str], hunk: &Hunk, from: usize) -> Result<(Range<usize>, Vec<String>), EditError> {
    let wanted: Vec<&str> = hunk.old.iter().map(String::as_str).collect();
    let new: Vec<&str> = hunk.new.iter().map(String::as_str).collect();
    let (wanted, new) = without_blank_ends(&wanted, &new);
    if wanted.is_empty() {
        let at = insertion(path, file, hunk)?;
        return Ok((at..at, owned(&new)));
    }
    for reading in Reading::ALL {
        let all = reading.places(file, &wanted);
        let place = match all[..] {
            [] => continue,
            [place] => place,
            _ => one_of(&all, file, &wanted, hunk, from).ok_or_else(|| ambiguous(path, all.iter().copied()))?,
        };
        let range = place..place + wanted.len();
        let lines = in_place(&file[range.clone()], &wanted, &new);
        return Ok((range, lines));
    }
    let nearest = nearest(file, &wanted, &new);
    Err(EditError::NotFound { path: path.to_owned(), wanted: wanted.join("\n"), nearest })
}

/// Of several places the one that the rest of the patch singles out, if it does.
fn one_of(all: &[usize], file: &[&str], wanted: &[&str], hunk: &Hunk, from: usize) -> Option<usize> {
    let mut left: Vec<usize> = all.iter().copied().filter(|at| *at >= from).collect();
    if hunk.at_end {
        left.retain(|at| file[at + wanted.len()..].iter().all(|line| line.trim().is_empty()));
    }
    if !hunk.below.is_empty() {
        let ends = anchors(file, &hunk.below);
        // A place belongs to a heading when it is the first one below it.
        let mut first: Vec<usize> = ends.iter().filter_map(|end| left.iter().copied().find(|at| at >= end)).collect();
        first.dedup();
        left = first;
    }
    match left[..] {
        [one] => Some(one),
        _ => None,
    }
}

/// Where lines go that quote nothing: below their heading, else at the end.
fn insertion(path: &Path, file: &[&str], hunk: &Hunk) -> Result<usize, EditError> {
    if hunk.below.is_empty() || hunk.at_end {
        return Ok(file.len());
    }
    match anchors(file, &hunk.below)[..] {
        [one] => Ok(one),
        [] => {
            let wanted = hunk.below.join("\n");
            let nearest = "quote a line that is in the file after @@".to_owned();
            Err(EditError::NotFound { path: path.to_owned(), wanted, nearest })
        }
        ref many => Err(ambiguous(path, many.iter().map(|end| end - 1))),
    }
}

/// The lines after each place where these headings stand one below the other.
fn anchors(file: &[&str], headings: &[String]) -> Vec<usize> {
    let mut ends: Vec<usize> = vec![0];
    for heading in headings {
        let is_heading = |line: &&str| line.trim() == heading.trim();
        let begins = |line: &&str| line.trim().starts_with(heading.trim());
        let after = |test: &dyn Fn(&&str) -> bool| {
            let hits = file.iter().enumerate().filter(|(_, line)| test(line)).map(|(at, _)| at + 1);
            hits.filter(|end| ends.iter().any(|before| before < end)).collect::<Vec<usize>>()
        };
        let exact = after(&is_heading);
        ends = if exact.is_empty() { after(&begins) } else { exact };
    }
    ends
}

/// How lines are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    Exact,
    TrimmedEnds,
    Shifted,
    PlainPunctuation,
    Squeezed,
}

impl Reading {
    const ALL: [Self; 5] = [Self::Exact, Self::TrimmedEnds, Self::Shifted, Self::PlainPunctuation, Self::Squeezed];

    /// Every place where the wanted lines stand.
    fn places(self, file: &[&str], wanted: &[&str]) -> Vec<usize> {
        if wanted.is_empty() || wanted.len() > file.len() {
            return Vec::new();
        }
        let key = |lines: &[&str]| lines.iter().map(|line| self.key(line)).collect::<Vec<String>>();
        let (file_keys, wanted_keys) = (key(file), key(wanted));
        let fits = |at: &usize| {
            file_keys[*at..*at + wanted.len()] == wanted_keys[..]
                && (matches!(self, Self::Exact | Self::TrimmedEnds)
                    || shift(&file[*at..*at + wanted.len()], wanted).is_some())
        };
        (0..=file.len() - wanted.len()).filter(fits).collect()
    }

    fn key(self, line: &str) -> String {
        match self {
            Self::Exact => line.to_owned(),
            Self::TrimmedEnds => line.trim_end().to_owned(),
            Self::Shifted => line.trim().to_owned(),
            Self::PlainPunctuation => line.trim().chars().map(plain).collect(),
            Self::Squeezed => {
                let plain: String = line.chars().map(plain).collect();
                plain.split_whitespace().collect::<Vec<&str>>().join(" ")
            }
        }
    }
}

/// What a keyboard would have given.
fn plain(c: char) -> char {
    match c {
        '\u{2018}' | '\u{2019}' | '\u{201a}' | '\u{201b}' => '\'',
        '\u{201c}' | '\u{201d}' | '\u{201e}' | '\u{201f}' => '"',
        '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
        '\u{a0}' | '\u{2002}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => ' ',
        other => other,
    }
}

/// What each indentation of the quoted lines is in the file; none when it is not the same throughout.
fn shift<'a>(file: &[&'a str], wanted: &[&'a str]) -> Option<BTreeMap<&'a str, &'a str>> {
    let mut map = BTreeMap::new();
    for (file, wanted) in file.iter().zip(wanted).filter(|(_, wanted)| !wanted.trim().is_empty()) {
        let (file, wanted) = (indent(file), indent(wanted));
        if *map.entry(wanted).or_insert(file) != file {
            return None;
        }
    }
    // Deeper in the quote must be deeper in the file.
    let mut depths: Vec<(usize, usize)> = map.iter().map(|(wanted, file)| (wanted.len(), file.len())).collect();
    depths.sort_unstable();
    depths.windows(2).all(|pair| pair[0].1 < pair[1].1).then_some(map)
}

/// The new lines as they belong here: what the quote kept stays as the file has it, what is new gets its indentation.
fn in_place(file: &[&str], wanted: &[&str], new: &[&str]) -> Vec<String> {
    let map = shift(file, wanted).unwrap_or_default();
    let mut out = Vec::new();
    for op in crate::diff::compare(wanted, new) {
        match op.tag() {
            similar::DiffTag::Equal => out.extend(owned(&file[op.old_range()])),
            _ => out.extend(new[op.new_range()].iter().map(|line| shifted(line, &map))),
        }
    }
    out
}

fn shifted(line: &str, map: &BTreeMap<&str, &str>) -> String {
    let own = indent(line);
    let rest = &line[own.len()..];
    if rest.is_empty() {
        return line.to_owned();
    }
    if let Some(known) = map.get(own) {
        return format!("{known}{rest}");
    }
    // Between known depths: the nearest shallower one, and what is deeper as it was written.
    let shallower = map.iter().filter(|(wanted, _)| own.starts_with(**wanted)).max_by_key(|(wanted, _)| wanted.len());
    if let Some((wanted, file)) = shallower {
        let deeper = &own[wanted.len()..];
        return match file.contains('\t') && !deeper.contains('\t') {
            true => format!("{file}{}{rest}", "\t".repeat(deeper.len().div_ceil(4))),
            false => format!("{file}{deeper}{rest}"),
        };
    }
    match map.iter().min_by_key(|(wanted, _)| wanted.len()) {
        Some((wanted, file)) => {
            let less = wanted.len().saturating_sub(own.len());
            format!("{}{rest}", &file[..file.len().saturating_sub(less)])
        }
        None => line.to_owned(),
    }
}

/// What the file has in the place most like the wanted lines, in words.
fn nearest(file: &[&str], wanted: &[&str], new: &[&str]) -> String {
    if new.iter().any(|line| !line.trim().is_empty())
        && let [at] = Reading::TrimmedEnds.places(file, new)[..]
    {
        return format!("the new lines are there already, from line {}", at + 1);
    }
    let alike = |at: usize| {
        let same = |(line, wanted): (&&str, &&str)| !wanted.trim().is_empty() && line.trim() == wanted.trim();
        file[at..].iter().zip(wanted).filter(|pair| same(*pair)).count()
    };
    let best = (0..file.len()).map(|at| (alike(at), at)).max_by_key(|(score, at)| (*score, usize::MAX - at));
    match best {
        Some((score, at)) if score > 0 => {
            let end = (at + wanted.len().min(NEAREST_LINES_MAX)).min(file.len());
            let shown = file[at..end].join("\n");
            format!("the nearest lines are {} to {end}:\n{shown}\nquote the lines exactly as the file has them", at + 1)
        }
        _ => "nothing in the file is like them; read the file again and quote it exactly".to_owned(),
    }
}

fn ambiguous(path: &Path, places: impl Iterator<Item = usize>) -> EditError {
    let mut places: Vec<String> = places.map(|at| format!("line {}", at + 1)).collect();
    if places.len() > PLACES_MAX {
        let more = places.len() - PLACES_MAX;
        places.truncate(PLACES_MAX);
        places.push(format!("and {more} more"));
    }
    EditError::Ambiguous { path: path.to_owned(), what: "the quoted text".to_owned(), places, hint: SAY_MORE }
}

/// A text as lines without their ends, and whether the last one has an end.
struct Lines<'a> {
    lines: Vec<&'a str>,
    ends: bool,
}

impl<'a> Lines<'a> {
    fn of(text: &'a str) -> Self {
        Self { lines: lines(text), ends: text.is_empty() || text.ends_with('\n') }
    }

    fn joined(&self, lines: &[String]) -> String {
        let mut text = lines.join("\n");
        if self.ends && !lines.is_empty() {
            text.push('\n');
        }
        text
    }
}

/// Lines by `\n` alone: a lone carriage return is a character like others.
pub(super) fn lines(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.split('\n').collect();
    if lines.last().is_some_and(|last| last.is_empty()) {
        lines.pop();
    }
    lines
}

fn owned(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|line| (*line).to_owned()).collect()
}

/// Both without the blank lines they share at their ends, which models add and lose at will.
fn without_blank_ends<'a>(old: &[&'a str], new: &[&'a str]) -> (Vec<&'a str>, Vec<&'a str>) {
    let blank = |line: Option<&&str>| line.is_some_and(|line| line.trim().is_empty());
    let (mut old, mut new) = (old, new);
    while blank(old.first()) && (blank(new.first()) || new.is_empty()) && old.len() > 1 {
        (old, new) = (&old[1..], new.get(1..).unwrap_or(&[]));
    }
    while blank(old.last()) && (blank(new.last()) || new.is_empty()) && old.len() > 1 {
        (old, new) = (&old[..old.len() - 1], &new[..new.len().saturating_sub(1)]);
    }
    (old.to_vec(), new.to_vec())
}

//! The words of a line that another line does not have.

use std::ops::Range;

/// Words of a line that are compared; longer lines are not marked.
const WORDS_MAX: usize = 200;
/// Lines with less in common, in percent of the longer one, are different lines and not changed ones.
const COMMON_PERCENT_MIN: usize = 40;

/// The parts of `line` that `other` does not have. None where the two have little in common: then all of it is new.
pub fn changed_words(line: &str, other: &str) -> Vec<Range<usize>> {
    let (own, others) = (words(line), words(other));
    if own.len() > WORDS_MAX || others.len() > WORDS_MAX {
        return Vec::new();
    }
    let own_texts: Vec<&str> = own.iter().map(|range| &line[range.clone()]).collect();
    let other_texts: Vec<&str> = others.iter().map(|range| &other[range.clone()]).collect();
    let common = common(&own_texts, &other_texts);
    let solid = |texts: &[&str]| texts.iter().map(|text| text.trim().len()).sum::<usize>();
    let shared: usize =
        own_texts.iter().zip(&common).filter(|(_, common)| **common).map(|(text, _)| text.trim().len()).sum();
    if shared * 100 < COMMON_PERCENT_MIN * solid(&own_texts).max(solid(&other_texts)) {
        return Vec::new();
    }
    let mut changed: Vec<Range<usize>> = Vec::new();
    for (range, _) in own.iter().zip(&common).filter(|(_, common)| !**common) {
        match changed.last_mut() {
            // A single blank between two changed words is part of the change.
            Some(last) if line[last.end..range.start].trim().is_empty() && range.start - last.end <= 1 => {
                last.end = range.end;
            }
            _ => changed.push(range.clone()),
        }
    }
    changed
}

/// Words, runs of blanks, and other characters one by one.
fn words(line: &str) -> Vec<Range<usize>> {
    let kind = |c: char| match c {
        c if c.is_alphanumeric() || c == '_' => 0,
        c if c.is_whitespace() => 1,
        _ => 2,
    };
    let mut words: Vec<Range<usize>> = Vec::new();
    let mut last = 2;
    for (at, c) in line.char_indices() {
        let end = at + c.len_utf8();
        match words.last_mut() {
            Some(word) if kind(c) == last && last != 2 => word.end = end,
            _ => words.push(at..end),
        }
        last = kind(c);
    }
    words
}

/// Which of `a` belong to a longest common part of both.
fn common(a: &[&str], b: &[&str]) -> Vec<bool> {
    let width = b.len() + 1;
    let mut lengths = vec![0u16; (a.len() + 1) * width];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            lengths[i * width + j] = if a[i] == b[j] {
                lengths[(i + 1) * width + j + 1] + 1
            } else {
                lengths[(i + 1) * width + j].max(lengths[i * width + j + 1])
            };
        }
    }
    let mut common = vec![false; a.len()];
    let (mut i, mut j) = (0, 0);
    while i < a.len() && j < b.len() {
        if a[i] == b[j] {
            common[i] = true;
            (i, j) = (i + 1, j + 1);
        } else if lengths[(i + 1) * width + j] >= lengths[i * width + j + 1] {
            i += 1;
        } else {
            j += 1;
        }
    }
    common
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked<'a>(line: &'a str, other: &str) -> Vec<&'a str> {
        changed_words(line, other).into_iter().map(|range| &line[range]).collect()
    }

    #[test]
    fn only_what_differs_is_marked() {
        assert_eq!(marked("    return a + b", "    return a - b"), ["+"]);
        assert_eq!(marked("    return a - b", "    return a + b"), ["-"]);
        assert_eq!(marked("fn total(items: &[Item]) -> u32 {", "fn total(items: &[Item]) -> u64 {"), ["u32"]);
        assert_eq!(marked("let x = one two;", "let x = 1;"), ["one two"]);
        assert_eq!(marked("preis = 3 €", "preis = 4 €"), ["3"]);
    }

    #[test]
    fn lines_with_little_in_common_are_not_marked() {
        assert_eq!(marked("import os", "class Cart:"), [""; 0]);
        assert_eq!(marked("}", ""), [""; 0]);
        assert_eq!(marked(&"a ".repeat(500), &"a ".repeat(499)), [""; 0]);
    }
}

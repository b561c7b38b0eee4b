//! The places where a name stands in a file, and what stands around each.

use std::ops::Range;

use crate::outline::{self, Item, Kind, Language};

/// What a place is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Sort {
    /// Code.
    Code,
    /// A comment.
    Comment,
    /// A string.
    String,
}

/// One file as it is searched.
pub(crate) struct File<'a> {
    pub(crate) path: &'a std::path::Path,
    pub(crate) text: &'a str,
    pub(crate) language: Language,
    pub(crate) masked: String,
    pub(crate) items: Vec<Item>,
    /// Where each line begins.
    starts: Vec<usize>,
}

impl<'a> File<'a> {
    pub(crate) fn new(path: &'a std::path::Path, text: &'a str, language: Language) -> Self {
        let masked = outline::code_lines(language, text).join("\n");
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { path, text, language, masked, items: outline::items(language, text), starts }
    }

    /// The line of a byte, from 0.
    pub(crate) fn line(&self, at: usize) -> usize {
        self.starts.partition_point(|start| *start <= at) - 1
    }

    /// The bytes of some lines.
    pub(crate) fn bytes(&self, lines: &Range<usize>) -> Range<usize> {
        let at = |line: usize| self.starts.get(line).copied().unwrap_or(self.text.len());
        at(lines.start)..at(lines.end)
    }

    /// Every place where a name stands as a whole word.
    pub(crate) fn places(&self, name: &str) -> Vec<(usize, Sort)> {
        let sort = |at: usize| match self.masked.as_bytes()[at] {
            b'"' => Sort::String,
            b' ' => Sort::Comment,
            _ => Sort::Code,
        };
        whole_words(self.text, name).map(|at| (at, sort(at))).collect()
    }

    /// The import that a byte stands in.
    pub(crate) fn import_at(&self, at: usize) -> Option<&Item> {
        let line = self.line(at);
        self.items.iter().find(|item| item.kind == Kind::Import && item.lines.contains(&line))
    }

    /// The imports of the file and, in scripts, what it gives on (`export … from`), each as one line.
    pub(crate) fn imports(&self) -> Vec<(Range<usize>, String)> {
        let mut found: Vec<(Range<usize>, String)> = self
            .items
            .iter()
            .filter(|item| item.kind == Kind::Import)
            .map(|item| (item.lines.clone(), item.name.clone()))
            .collect();
        if self.language == Language::Script {
            for (number, line) in self.text.lines().enumerate() {
                if line.starts_with("export ") && line.contains(" from ") {
                    found.push((number..number + 1, line.to_owned()));
                }
            }
        }
        if self.language == Language::Rust {
            // `pub use` is an import whose name has no visibility.
            for (number, line) in self.text.lines().enumerate() {
                if line.trim_start().starts_with("pub use ") && !found.iter().any(|(lines, _)| lines.contains(&number))
                {
                    found.push((number..number + 1, line.trim().to_owned()));
                }
            }
        }
        found
    }

    /// What stands before a place in code, without spaces: the qualifier behind `.` or `::`, and which of them.
    pub(crate) fn qualifier(&self, at: usize) -> Option<(&'static str, &str)> {
        let before = self.masked[..at].trim_end();
        let (sign, rest) = match (before.strip_suffix("::"), before.strip_suffix('.')) {
            (Some(rest), _) => ("::", rest),
            (None, Some(rest)) => (".", rest.strip_suffix('?').unwrap_or(rest)),
            _ => return None,
        };
        let rest = rest.trim_end();
        let begins = rest
            .rfind(|c: char| !is_letter(c))
            .map_or(0, |at| at + rest[at..].chars().next().map_or(1, char::len_utf8));
        Some((sign, &rest[begins..]))
    }

    /// The first characters of code behind a place.
    pub(crate) fn behind(&self, end: usize) -> &str {
        self.masked[end..].trim_start_matches([' ', '\t'])
    }

    /// The last character of code before a place.
    pub(crate) fn before(&self, at: usize) -> Option<char> {
        self.masked[..at].trim_end().chars().next_back()
    }

    /// The outermost function around a line.
    pub(crate) fn function_at(&self, line: usize) -> Option<&Item> {
        self.items.iter().find(|item| item.kind == Kind::Function && (item.head..item.lines.end).contains(&line))
    }

    /// Whether a place stands in brackets that were opened on its line or above, in the same item.
    pub(crate) fn in_brackets(&self, at: usize) -> bool {
        let from = self.function_at(self.line(at)).map_or(0, |item| self.starts[item.head]);
        let depth = self.masked[from..at].bytes().fold(0i32, |depth, byte| match byte {
            b'(' | b'[' => depth + 1,
            b')' | b']' => depth - 1,
            _ => depth,
        });
        depth > 0
    }

    /// Whether a place in a string is code of a Python format string.
    pub(crate) fn in_format(&self, at: usize) -> bool {
        if self.language != Language::Python {
            return false;
        }
        let is_string = |byte: &u8| matches!(byte, b'"' | b'\n');
        let run = self.masked.as_bytes()[..at].iter().rev().take_while(|byte| is_string(byte)).count();
        let prefix = self.masked[..at - run].chars().rev().take_while(|c| c.is_alphabetic()).collect::<String>();
        let inside = &self.text[at - run..at];
        let open = inside.rfind('{').is_some_and(|open| inside[open..].find('}').is_none());
        prefix.len() <= 2 && prefix.contains(['f', 'F']) && open
    }
}

pub(crate) fn is_letter(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Where a name stands as a whole word.
pub(crate) fn whole_words<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = usize> + 'a {
    let part = |c: Option<char>| c.is_some_and(is_letter);
    text.match_indices(name).map(|(at, _)| at).filter(move |at| {
        !name.is_empty() && !part(text[..*at].chars().next_back()) && !part(text[at + name.len()..].chars().next())
    })
}

/// Whether a text has a name as a whole word.
pub(crate) fn has_word(text: &str, name: &str) -> bool {
    whole_words(text, name).next().is_some()
}

//! What one file says, by its contents alone: its identifiers, what it defines and what it imports.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use crate::outline::{self, Kind, Language};
use crate::terms;

/// Different identifiers of one file that are read.
const NAMES_MAX: usize = 20_000;

/// Definitions, and imports, of one file that are read.
const DEFINITIONS_MAX: usize = 10_000;
const IMPORTS_MAX: usize = 500;

/// Bytes of one import.
const IMPORT_BYTES_MAX: usize = 400;

/// A name that contents of a file have, given to whoever asks about the same contents again: SHA-256, cut short.
pub type Hash = [u8; 16];

/// The hash of contents.
pub fn hash(contents: &[u8]) -> Hash {
    use sha2::Digest;
    let whole = sha2::Sha256::digest(contents);
    let mut hash = Hash::default();
    hash.copy_from_slice(&whole[..16]);
    hash
}

/// One thing that a file defines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Defined<'a> {
    pub(crate) kind: Kind,
    pub(crate) name: &'a str,
    /// The name of what it stands in; empty at the top.
    pub(crate) parent: &'a str,
    /// From 0.
    pub(crate) line: u32,
}

/// What was read of one text.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// Every identifier, by where it stands first, and how often it stands there.
    spans: Vec<(Range<u32>, u32)>,
    pub(crate) items: Vec<outline::Item>,
    pub(crate) imports: Vec<String>,
}

impl Record {
    /// Reads a text.
    pub(crate) fn of(path: &Path, text: &str) -> Self {
        let mut record = Self::default();
        let mut seen: HashMap<&str, usize> = HashMap::new();
        for (at, name) in terms::identifiers(text).filter(|(_, name)| name.len() <= terms::NAME_BYTES_MAX) {
            match seen.get(name) {
                Some(known) => record.spans[*known].1 = record.spans[*known].1.saturating_add(1),
                None if record.spans.len() == NAMES_MAX => {}
                None => {
                    seen.insert(name, record.spans.len());
                    record.spans.push((at as u32..(at + name.len()) as u32, 1));
                }
            }
        }
        let mut items = Language::of(path).map(|language| outline::items(language, text)).unwrap_or_default();
        let imports = items.iter().filter(|item| item.kind == Kind::Import && item.name.len() <= IMPORT_BYTES_MAX);
        record.imports = imports.map(|item| item.name.clone()).take(IMPORTS_MAX).collect();
        items.retain(|item| !matches!(item.kind, Kind::Import | Kind::Impl));
        items.truncate(DEFINITIONS_MAX);
        record.items = items;
        record
    }

    /// The identifiers of the text it was made of.
    pub(crate) fn names<'a>(&self, text: &'a str) -> impl Iterator<Item = (&'a str, u32)> {
        let name = |span: &Range<u32>| text.get(span.start as usize..span.end as usize).unwrap_or_default();
        self.spans.iter().map(move |(span, times)| (name(span), *times))
    }

    /// What it defines.
    pub(crate) fn definitions(&self) -> impl Iterator<Item = Defined<'_>> {
        self.items.iter().map(|item| Defined {
            kind: item.kind,
            name: &item.name,
            parent: item.parents.last().map_or("", |parent| short(parent)),
            line: u32::try_from(item.head).unwrap_or(u32::MAX),
        })
    }
}

/// The type that an `impl` block is for; of other parents their name.
pub(crate) fn short(parent: &str) -> &str {
    let Some(head) = parent.strip_prefix("impl").filter(|rest| rest.starts_with([' ', '<'])) else { return parent };
    let of = head.split(" where ").next().unwrap_or(head);
    let of = of.rsplit(" for ").next().unwrap_or(of).trim();
    // `impl<T> Name<T>`: the parameters in front belong to the block.
    let of = match of.strip_prefix('<') {
        Some(rest) => {
            let mut depth = 1;
            let end = rest.char_indices().find(|(_, letter)| {
                depth += match letter {
                    '<' => 1,
                    '>' => -1,
                    _ => 0,
                };
                depth == 0
            });
            end.map_or("", |(at, _)| rest[at + 1..].trim())
        }
        None => of,
    };
    let name = of.split(['<', ' ']).next().unwrap_or(of);
    name.rsplit("::").next().unwrap_or(name).trim_start_matches('&')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_once() {
        let text =
            "use a::B;\n\nstruct C;\n\nimpl<T: Into<u8>> fmt::Display for C<T> {\n    fn fmt(&self) { B::new(B) }\n}\n";
        let record = Record::of(Path::new("a.rs"), text);
        assert!(record.names(text).any(|name| name == ("B", 3)));
        let defined: Vec<(String, String, u32)> =
            record.definitions().map(|one| (one.name.to_owned(), one.parent.to_owned(), one.line)).collect();
        assert_eq!(defined, [("C".into(), String::new(), 2), ("fmt".into(), "C".into(), 5)]);
        assert_eq!(record.imports, ["use a::B;"]);
        for (parent, expected) in [("impl A", "A"), ("impl<'a> B<'a> for crate::C<'a>", "C"), ("impl<T> D<T>", "D")] {
            assert_eq!(short(parent), expected);
        }
        assert_eq!(short("implement"), "implement");
        assert_eq!(short("impl<T"), "");
    }
}

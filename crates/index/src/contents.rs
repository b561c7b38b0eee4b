//! The index of a project: for each file its identifiers, definitions and imports, found again by the hash of its
//! contents, and for each term the files that have it.
//!
//! Invariant: what the index says of a file follows from its path and its contents alone, so an index that was updated
//! file by file equals one that was built from nothing.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::files;
use crate::outline::{Kind, Language};
use crate::record::{Defined, Hash, Record};
use crate::vocabulary::Vocabulary;

/// A definition in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Definition {
    pub(crate) kind: Kind,
    /// The number of its name.
    pub(crate) name: u32,
    /// That of what it stands in.
    pub(crate) parent: Option<u32>,
    /// From 0.
    pub(crate) line: u32,
}

/// What tells that a file has not changed since it was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) bytes: u64,
    /// Nanoseconds since 1970; 0 where it may have changed within the same moment.
    pub(crate) modified: u64,
}

/// One file.
#[derive(Clone, Debug)]
pub(crate) struct File {
    pub(crate) path: PathBuf,
    pub(crate) stamp: Stamp,
    pub(crate) hash: Hash,
    /// Identifiers and how often each stands there, by number.
    pub(crate) names: Vec<(u32, u32)>,
    pub(crate) definitions: Vec<Definition>,
    pub(crate) imports: Vec<String>,
    /// Lengths in terms: of the text, the path and the names of what it defines.
    pub(crate) lengths: [u32; 3],
}

impl File {
    pub(crate) fn is_code(&self) -> bool {
        files::is_source(&self.path) || Language::of(&self.path).is_some()
    }
}

/// The files that have a term, by number, with how often.
pub(crate) type Postings = Vec<(u32, u32)>;

/// Which part of a file a term stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    Text,
    Path,
    Definitions,
}

pub(crate) const FIELDS: [Field; 3] = [Field::Text, Field::Path, Field::Definitions];

/// The index of a project.
#[derive(Debug, Default)]
pub struct Index {
    pub(crate) root: PathBuf,
    pub(crate) vocabulary: Vocabulary,
    /// By number; what was removed leaves a gap that the next file fills.
    pub(crate) files: Vec<Option<File>>,
    pub(crate) by_path: HashMap<PathBuf, u32>,
    gaps: Vec<u32>,
    /// By field and term.
    pub(crate) postings: [Vec<Postings>; 3],
    /// By field: the sum of all lengths.
    pub(crate) totals: [u64; 3],
    /// By name: how many files of code have it.
    spread: Vec<u32>,
    /// There is more than was read.
    pub(crate) cut: bool,
    pub(crate) history: crate::history::History,
    /// Something is different from what is on disk.
    pub(crate) changed: bool,
}

impl Index {
    /// An empty index of a folder. It reads nothing until it is told to.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), ..Self::default() }
    }

    /// Paths of its files, relative to the root, in no order.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.live().map(|(_, file)| file.path.as_path())
    }

    /// Files in it.
    pub fn len(&self) -> usize {
        self.by_path.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.by_path.is_empty()
    }

    /// Whether the folder holds more than was read.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// Whether a name stands anywhere in code, as a whole word.
    pub fn has_name(&self, name: &str) -> bool {
        let number = self.vocabulary.names.find(name);
        number.is_some_and(|number| self.spread.get(number as usize).is_some_and(|files| *files > 0))
    }

    /// Every name that stands in code.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let used = self.spread.iter().enumerate().filter(|(_, files)| **files > 0);
        used.map(|(number, _)| self.vocabulary.names.text(number as u32))
    }

    /// The files in which a name stands as a whole word.
    pub fn files_with(&self, name: &str) -> Vec<&Path> {
        let Some(number) = self.vocabulary.names.find(name) else { return Vec::new() };
        let has = |file: &&File| file.names.binary_search_by_key(&number, |(name, _)| *name).is_ok();
        let mut found: Vec<&Path> =
            self.live().map(|(_, file)| file).filter(has).map(|file| file.path.as_path()).collect();
        found.sort();
        found
    }

    /// Whether a name stands in a file as a whole word.
    pub fn file_has(&self, path: &Path, name: &str) -> bool {
        let number = self.vocabulary.names.find(name);
        let file = self.file(path);
        number
            .zip(file)
            .is_some_and(|(number, file)| file.names.binary_search_by_key(&number, |(name, _)| *name).is_ok())
    }

    /// Where a name is defined: path, what it stands in, line from 0.
    pub fn definitions_of(&self, name: &str) -> Vec<(&Path, &str, usize)> {
        let Some(number) = self.vocabulary.names.find(name) else { return Vec::new() };
        let mut found = Vec::new();
        for (_, file) in self.live() {
            for one in file.definitions.iter().filter(|one| one.name == number) {
                let parent = one.parent.map_or("", |parent| self.vocabulary.names.text(parent));
                found.push((file.path.as_path(), parent, one.line as usize));
            }
        }
        found.sort();
        found
    }

    /// The imports of a file, as they are written.
    pub fn imports_of(&self, path: &Path) -> &[String] {
        self.file(path).map_or(&[], |file| &file.imports)
    }

    pub(crate) fn file(&self, path: &Path) -> Option<&File> {
        self.files.get(*self.by_path.get(path)? as usize)?.as_ref()
    }

    pub(crate) fn live(&self) -> impl Iterator<Item = (u32, &File)> {
        self.files.iter().enumerate().filter_map(|(number, file)| Some((number as u32, file.as_ref()?)))
    }

    /// Puts in what a text says, instead of what was known of its path.
    pub fn put(&mut self, path: &Path, text: &str) {
        let record = Record::of(path, text);
        self.put_record(path, Stamp::default(), crate::record::hash(text.as_bytes()), text, &record);
    }

    pub(crate) fn put_record(&mut self, path: &Path, stamp: Stamp, hash: Hash, text: &str, record: &Record) {
        let names = record.names(text).filter_map(|(name, times)| Some((self.vocabulary.add(name)?, times)));
        let mut names: Vec<(u32, u32)> = names.collect();
        names.sort_unstable();
        let mut definitions = Vec::new();
        for Defined { kind, name, parent, line } in record.definitions() {
            let Some(name) = self.vocabulary.add(name) else { continue };
            let parent = (!parent.is_empty()).then(|| self.vocabulary.add(parent)).flatten();
            definitions.push(Definition { kind, name, parent, line });
        }
        let (path, imports) = (path.to_owned(), record.imports.clone());
        self.put_file(File { path, stamp, hash, names, definitions, imports, lengths: [0; 3] });
    }

    /// Puts in a file whose names are numbers of this index.
    pub(crate) fn put_file(&mut self, mut file: File) {
        self.remove(&file.path.clone());
        let number = self.gaps.pop().unwrap_or(self.files.len() as u32);
        for (at, field) in FIELDS.into_iter().enumerate() {
            let terms = self.terms(&file, field);
            file.lengths[at] = terms.iter().fold(0, |sum: u32, (_, times)| sum.saturating_add(*times));
            self.totals[at] += u64::from(file.lengths[at]);
            let postings = &mut self.postings[at];
            if let Some((last, _)) = terms.last()
                && postings.len() <= *last as usize
            {
                postings.resize_with(*last as usize + 1, Vec::new);
            }
            for (term, times) in terms {
                let files = &mut postings[term as usize];
                // Most files are new and come last.
                let place = match files.last() {
                    Some((last, _)) if *last >= number => files.partition_point(|(file, _)| *file < number),
                    _ => files.len(),
                };
                files.insert(place, (number, times));
            }
        }
        if file.is_code() {
            for (name, _) in &file.names {
                if self.spread.len() <= *name as usize {
                    self.spread.resize(self.vocabulary.names.len().max(*name as usize + 1), 0);
                }
                self.spread[*name as usize] += 1;
            }
        }
        self.by_path.insert(file.path.clone(), number);
        if number as usize == self.files.len() {
            self.files.push(Some(file))
        } else {
            self.files[number as usize] = Some(file)
        }
        self.changed = true;
    }

    /// Takes out a file.
    pub fn remove(&mut self, path: &Path) {
        let Some(number) = self.by_path.remove(path) else { return };
        let Some(file) = self.files[number as usize].take() else { return };
        for (at, field) in FIELDS.into_iter().enumerate() {
            self.totals[at] -= u64::from(file.lengths[at]);
            for (term, _) in self.terms(&file, field) {
                let Some(files) = self.postings[at].get_mut(term as usize) else { continue };
                if let Ok(place) = files.binary_search_by_key(&number, |(file, _)| *file) {
                    files.remove(place);
                }
            }
        }
        if file.is_code() {
            for (name, _) in &file.names {
                self.spread[*name as usize] -= 1;
            }
        }
        self.gaps.push(number);
        self.changed = true;
    }

    /// The terms of a part of a file with how often each stands there, by number.
    fn terms(&mut self, file: &File, field: Field) -> Vec<(u32, u32)> {
        let mut all: Vec<(u32, u32)> = Vec::new();
        match field {
            Field::Text => {
                for (name, times) in &file.names {
                    all.extend(self.vocabulary.terms_of(*name).iter().map(|term| (*term, *times)));
                }
            }
            Field::Path => {
                let path = file.path.with_extension("");
                for (_, name) in crate::terms::identifiers(&path.to_string_lossy()) {
                    let Some(name) = self.vocabulary.add(name) else { continue };
                    all.extend(self.vocabulary.terms_of(name).iter().map(|term| (*term, 1)));
                }
            }
            Field::Definitions => {
                for one in &file.definitions {
                    all.extend(self.vocabulary.terms_of(one.name).iter().map(|term| (*term, 1)));
                }
            }
        }
        all.sort_unstable();
        all.dedup_by(|next, before| {
            let same = next.0 == before.0;
            if same {
                before.1 = before.1.saturating_add(next.1);
            }
            same
        });
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_that_was_changed_equals_one_that_was_made_anew() {
        let mut changed = Index::new(Path::new("/p"));
        changed.put(Path::new("a.py"), "def old_name():\n    pass\n");
        changed.put(Path::new("b.py"), "import a\n\nclass Shelf:\n    def put(self):\n        a.old_name()\n");
        changed.put(Path::new("c.md"), "words_of_prose");
        changed.put(Path::new("a.py"), "def new_name():\n    pass\n");
        changed.remove(Path::new("none.py"));
        changed.put(Path::new("d.py"), "gone = 1\n");
        changed.remove(Path::new("d.py"));
        assert!(changed.has_name("new_name") && changed.has_name("old_name") && !changed.has_name("gone"));
        assert!(!changed.has_name("words_of_prose"), "prose says nothing about code");
        let place = (Path::new("b.py"), "Shelf", 3);
        assert_eq!(changed.definitions_of("put"), [place]);
        assert_eq!(changed.imports_of(Path::new("b.py")), ["import a"]);
        assert_eq!(changed.files_with("old_name"), [Path::new("b.py")]);

        let mut fresh = Index::new(Path::new("/p"));
        fresh.put(Path::new("c.md"), "words_of_prose");
        fresh.put(Path::new("b.py"), "import a\n\nclass Shelf:\n    def put(self):\n        a.old_name()\n");
        fresh.put(Path::new("a.py"), "def new_name():\n    pass\n");
        assert_eq!(changed.totals, fresh.totals);
        let ranked = |index: &Index| {
            let hits = index.rank("where is new_name put on the shelf");
            hits.into_iter().map(|hit| (hit.path.to_owned(), hit.score)).collect::<Vec<_>>()
        };
        assert_eq!(ranked(&changed), ranked(&fresh));
    }
}

//! The index on disk: one file for each folder, read whole, checked, and replaced whole.
//!
//! It lies in the user's state directory and holds names and words of the code, as sessions do. What does not read back as it
//! was written is not an index, and is built anew.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use sha2::Digest;

use crate::contents::{Definition, File, Index, Stamp};
use crate::history::{Commit, History};
use crate::outline::Kind;
use crate::record::hash;

/// What the file begins with. Another version is another index.
const HEAD: &[u8] = b"flint index 1\n";

/// Bytes of the largest file that is read.
const BYTES_MAX: u64 = 1 << 30;

/// Indexes that are kept; the one that was not used for the longest time goes first.
const KEPT_MAX: usize = 32;

const SUM_BYTES: usize = 32;

const KINDS: [Kind; 5] = [Kind::Function, Kind::Type, Kind::Impl, Kind::Value, Kind::Import];

impl Index {
    /// The index of a folder as it is kept in `state`, or an empty one. It is not brought up to date.
    pub fn load(state: &Path, root: &Path) -> Self {
        let path = path_of(state, root);
        let bytes = boundary::file::read(&path, BYTES_MAX).unwrap_or_default();
        let index = read(&bytes, root).unwrap_or_else(|| Self::new(root));
        if !index.is_empty()
            && let Ok(file) = std::fs::File::options().append(true).open(&path)
        {
            // What was used lately is kept. Where the time cannot be set the index goes sooner.
            let _ = file.set_modified(SystemTime::now());
        }
        index
    }

    /// Keeps the index in `state`, where it has changed.
    pub fn save(&mut self, state: &Path) -> std::io::Result<()> {
        if !self.changed {
            return Ok(());
        }
        let path = path_of(state, &self.root);
        let folder = path.parent().unwrap_or(state);
        std::fs::create_dir_all(folder)?;
        let mut file = tempfile(folder, &path)?;
        let written = file.1.write_all(&self.bytes()).and_then(|()| std::fs::rename(&file.0, &path));
        if written.is_err() {
            let _ = std::fs::remove_file(&file.0);
        }
        written?;
        self.changed = false;
        prune(folder);
        Ok(())
    }

    fn bytes(&self) -> Vec<u8> {
        let mut out = HEAD.to_vec();
        let names = &self.vocabulary.names;
        // Only names that something still uses, under new numbers.
        let mut numbers: Vec<u32> = vec![u32::MAX; names.len()];
        let mut used: Vec<u32> = Vec::new();
        let mut number = |name: u32| {
            let slot = &mut numbers[name as usize];
            if *slot == u32::MAX {
                *slot = used.len() as u32;
                used.push(name);
            }
            u64::from(*slot)
        };
        let mut body = Vec::new();
        push(&mut body, self.len() as u64);
        for (_, file) in self.live() {
            push_bytes(&mut body, file.path.as_os_str().as_encoded_bytes());
            push(&mut body, file.stamp.bytes);
            push(&mut body, file.stamp.modified);
            body.extend_from_slice(&file.hash);
            push(&mut body, file.names.len() as u64);
            for (name, times) in &file.names {
                push(&mut body, number(*name));
                push(&mut body, u64::from(*times));
            }
            push(&mut body, file.definitions.len() as u64);
            for one in &file.definitions {
                body.push(KINDS.iter().position(|kind| *kind == one.kind).unwrap_or_default() as u8);
                push(&mut body, number(one.name));
                push(&mut body, one.parent.map_or(0, |parent| number(parent) + 1));
                push(&mut body, u64::from(one.line));
            }
            push(&mut body, file.imports.len() as u64);
            for import in &file.imports {
                push_bytes(&mut body, import.as_bytes());
            }
        }
        push_bytes(&mut body, self.history.head.as_bytes());
        push(&mut body, self.history.commits.len() as u64);
        for commit in &self.history.commits {
            push(&mut body, commit.terms.len() as u64);
            for term in &commit.terms {
                push_bytes(&mut body, self.vocabulary.terms.text(*term).as_bytes());
            }
            push(&mut body, commit.files.len() as u64);
            for file in &commit.files {
                push_bytes(&mut body, file.as_os_str().as_encoded_bytes());
            }
        }
        push_bytes(&mut out, self.root.as_os_str().as_encoded_bytes());
        push(&mut out, used.len() as u64);
        for name in used {
            push_bytes(&mut out, names.text(name).as_bytes());
        }
        out.append(&mut body);
        let sum = sha2::Sha256::digest(&out);
        out.extend_from_slice(&sum);
        out
    }
}

fn path_of(state: &Path, root: &Path) -> PathBuf {
    let name: String = hash(root.as_os_str().as_encoded_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    state.join("index").join(name)
}

fn tempfile(folder: &Path, path: &Path) -> std::io::Result<(PathBuf, std::fs::File)> {
    use std::os::unix::fs::OpenOptionsExt;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let path = folder.join(format!("{name}.{}.new", std::process::id()));
    let file = std::fs::File::options().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
    Ok((path, file))
}

fn prune(folder: &Path) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut all: Vec<(SystemTime, PathBuf)> =
        entries.filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path()))).collect();
    all.sort();
    for (_, path) in all.iter().take(all.len().saturating_sub(KEPT_MAX)) {
        // Another process may have removed it.
        let _ = std::fs::remove_file(path);
    }
}

fn push(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn push_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    push(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// What is left to read. Every step may find that the file is not what it should be.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn small(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    /// How many of something follow, of which each has at least one byte.
    fn count(&mut self) -> Option<usize> {
        usize::try_from(self.number()?).ok().filter(|count| *count <= self.rest.len())
    }

    fn text(&mut self) -> Option<&'a str> {
        let length = self.count()?;
        std::str::from_utf8(self.take(length)?).ok()
    }

    fn path(&mut self) -> Option<PathBuf> {
        use std::os::unix::ffi::OsStrExt;
        let length = self.count()?;
        Some(PathBuf::from(std::ffi::OsStr::from_bytes(self.take(length)?)))
    }
}

fn read(bytes: &[u8], root: &Path) -> Option<Index> {
    let (body, sum) = bytes.split_at_checked(bytes.len().checked_sub(SUM_BYTES)?)?;
    if sha2::Sha256::digest(body).as_slice() != sum {
        return None;
    }
    let mut reader = Reader { rest: body.strip_prefix(HEAD)? };
    if reader.path()? != root {
        return None;
    }
    let mut index = Index::new(root);
    let mut names = Vec::new();
    for _ in 0..reader.count()? {
        names.push(index.vocabulary.add(reader.text()?)?);
    }
    let name = |number: u64| names.get(usize::try_from(number).ok()?).copied();
    for _ in 0..reader.count()? {
        let path = reader.path()?;
        let stamp = Stamp { bytes: reader.number()?, modified: reader.number()? };
        let hash = reader.take(16)?.try_into().ok()?;
        let mut file = File {
            path,
            stamp,
            hash,
            names: Vec::new(),
            definitions: Vec::new(),
            imports: Vec::new(),
            lengths: [0; 3],
        };
        for _ in 0..reader.count()? {
            file.names.push((name(reader.number()?)?, reader.small()?));
        }
        file.names.sort_unstable();
        for _ in 0..reader.count()? {
            let kind = *KINDS.get(usize::from(reader.take(1)?[0]))?;
            let defined = name(reader.number()?)?;
            let parent = match reader.number()?.checked_sub(1) {
                Some(parent) => Some(name(parent)?),
                None => None,
            };
            file.definitions.push(Definition { kind, name: defined, parent, line: reader.small()? });
        }
        for _ in 0..reader.count()? {
            file.imports.push(reader.text()?.to_owned());
        }
        index.put_file(file);
    }
    let head = reader.text()?.to_owned();
    let mut commits = Vec::new();
    for _ in 0..reader.count()? {
        let mut commit = Commit::default();
        for _ in 0..reader.count()? {
            commit.terms.extend(index.vocabulary.terms.add(reader.text()?));
        }
        commit.terms.sort_unstable();
        for _ in 0..reader.count()? {
            commit.files.push(reader.path()?);
        }
        commits.push(commit);
    }
    index.history = History { head, commits };
    index.changed = false;
    Some(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_reads_back_as_it_was_written_or_not_at_all() {
        let (state, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(
            folder.path().join("a.py"),
            "import os\n\nclass Shelf:\n    def put(self):\n        os.sync()\n",
        )
        .unwrap();
        let mut index = Index::new(folder.path());
        index.refresh();
        index.history.head = "abc".to_owned();
        let term = index.vocabulary.terms.find("shelf").unwrap();
        index.history.commits.push(Commit { terms: vec![term], files: vec!["a.py".into()] });
        index.save(state.path()).unwrap();
        let read = Index::load(state.path(), folder.path());
        assert_eq!(read.definitions_of("put"), index.definitions_of("put"));
        assert_eq!(read.imports_of(Path::new("a.py")), ["import os"]);
        assert_eq!((read.totals, read.bytes().len()), (index.totals, index.bytes().len()));
        assert_eq!(read.history.head, "abc");
        assert_eq!(read.vocabulary.terms.text(read.history.commits[0].terms[0]), "shelf");
        assert!(read.has_name("sync") && !read.changed);
        assert!(Index::load(state.path(), state.path()).is_empty());

        let path = path_of(state.path(), folder.path());
        let bytes = std::fs::read(&path).unwrap();
        for at in 0..bytes.len() {
            let mut broken = bytes.clone();
            broken[at] ^= 0x55;
            assert!(super::read(&broken, folder.path()).is_none(), "byte {at}");
            // Nor does it panic where the sum is right.
            let end = bytes.len() - SUM_BYTES;
            if at < end {
                let sum = sha2::Sha256::digest(&broken[..end]);
                broken[end..].copy_from_slice(&sum);
                let _ = super::read(&broken, folder.path());
            }
            assert!(super::read(&bytes[..at], folder.path()).is_none());
        }
    }
}

//! What a snapshot says: folders as lists of names, stored by hash like contents, so that equal folders are stored once.
//!
//! A record is `kind mode name NUL rest NUL`, where the rest is the hash of a file or folder, or the target of a link.
//! Names are bytes, because file names are.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::objects::{Hash, Objects};
use super::walk::AND_MORE;
use super::{CheckpointError, Result};

/// What stands at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) kind: Kind,
    /// Permission bits; of a link always zero.
    pub(crate) mode: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Folder,
    File { hash: Hash, size: u64 },
    Link { target: PathBuf },
}

/// A folder as it was: every path below it, and what is not known.
#[derive(Clone, Debug, Default)]
pub(super) struct Snapshot {
    pub(super) entries: BTreeMap<PathBuf, Entry>,
    /// Paths that are not in the snapshot; folders end with `/`.
    pub(super) left_out: Vec<String>,
}

/// The name of a stored snapshot, and the hash of its outermost folder.
pub(super) struct Root {
    pub(super) name: String,
    folder: Hash,
}

impl Snapshot {
    /// Stores the folders; the contents of files are stored already.
    pub(super) fn store(&self, objects: &Objects) -> Result<Root> {
        // Deepest first, so that a folder's hash is known when its parent is written.
        let mut lists: BTreeMap<&Path, Vec<u8>> = BTreeMap::from([(Path::new(""), Vec::new())]);
        let folders = self.entries.iter().filter(|(_, entry)| entry.kind == Kind::Folder);
        lists.extend(folders.map(|(path, _)| (path.as_path(), Vec::new())));
        // A parent sorts before its children: from the back every folder is complete when it is met.
        for (path, entry) in self.entries.iter().rev() {
            let rest = match &entry.kind {
                Kind::Folder => {
                    let list = lists.remove(path.as_path()).unwrap_or_default();
                    objects.put(&list, false)?.to_string().into_bytes()
                }
                Kind::File { hash, size } => format!("{hash} {size}").into_bytes(),
                Kind::Link { target } => target.as_os_str().as_bytes().to_vec(),
            };
            let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { continue };
            let list = lists.entry(parent).or_default();
            let letter = match entry.kind {
                Kind::Folder => 'd',
                Kind::File { .. } => 'f',
                Kind::Link { .. } => 'l',
            };
            list.extend(format!("{letter} {:o} ", entry.mode).as_bytes());
            list.extend([name.as_bytes(), b"\0", &rest, b"\0"].concat());
        }
        let folder = objects.put(&lists.remove(Path::new("")).unwrap_or_default(), false)?;
        let name = Hash::of(&self.record(&folder)).to_string();
        Ok(Root { name, folder })
    }

    fn record(&self, folder: &Hash) -> Vec<u8> {
        let mut record = format!("flint checkpoint 1\n{folder}\n").into_bytes();
        record.extend(self.left_out.iter().flat_map(|path| [path.as_bytes(), b"\0"].concat()));
        record
    }

    /// The file that names a stored snapshot.
    pub(super) fn root_record(&self, root: &Root) -> Vec<u8> {
        self.record(&root.folder)
    }

    pub(super) fn load(name: &str, record: &[u8], objects: &Objects) -> Result<Self> {
        let damaged = || CheckpointError::Damaged { what: format!("checkpoint {name}") };
        if Hash::of(record).to_string() != name {
            return Err(damaged());
        }
        let mut parts = record.splitn(3, |byte| *byte == b'\n');
        let folder = parts.nth(1).and_then(|hash| Hash::parse(std::str::from_utf8(hash).ok()?)).ok_or_else(damaged)?;
        let left_out = parts.next().unwrap_or_default().split(|byte| *byte == 0).filter(|path| !path.is_empty());
        let mut snapshot = Self::default();
        snapshot.left_out.extend(left_out.map(|path| String::from_utf8_lossy(path).into_owned()));
        snapshot.load_folder(&folder, Path::new(""), objects)?;
        Ok(snapshot)
    }

    fn load_folder(&mut self, hash: &Hash, path: &Path, objects: &Objects) -> Result<()> {
        let list = objects.get(hash, path)?;
        let damaged = || CheckpointError::Damaged { what: path.display().to_string() };
        let mut parts = list.split(|byte| *byte == 0);
        while let (Some(head), Some(rest)) = (parts.next().filter(|head| !head.is_empty()), parts.next()) {
            let mut words = head.splitn(3, |byte| *byte == b' ');
            let (Some(letter), Some(mode), Some(name)) = (words.next(), words.next(), words.next()) else {
                return Err(damaged());
            };
            let text = |bytes| std::str::from_utf8(bytes).map_err(|_| damaged());
            let mode = u32::from_str_radix(text(mode)?, 8).map_err(|_| damaged())?;
            let path = path.join(OsStr::from_bytes(name));
            let kind = match letter {
                b"d" => {
                    let inner = Hash::parse(text(rest)?).ok_or_else(damaged)?;
                    self.load_folder(&inner, &path, objects)?;
                    Kind::Folder
                }
                b"f" => {
                    let (hash, size) = text(rest)?.split_once(' ').ok_or_else(damaged)?;
                    let hash = Hash::parse(hash).ok_or_else(damaged)?;
                    Kind::File { hash, size: size.parse().map_err(|_| damaged())? }
                }
                _ => Kind::Link { target: PathBuf::from(OsStr::from_bytes(rest)) },
            };
            self.entries.insert(path, Entry { kind, mode });
        }
        Ok(())
    }

    /// Whether more was left out than it has names for: then a path it does not have may still have been there.
    pub(super) fn is_cut(&self) -> bool {
        self.left_out.iter().any(|path| path.starts_with(AND_MORE))
    }

    /// Whether nothing is known of a path, or of something above it.
    pub(super) fn leaves_out(&self, path: &Path) -> bool {
        let text = path.to_string_lossy();
        let covers = |left: &String| {
            *left == text || left.ends_with('/') && (text.starts_with(left.as_str()) || left[..left.len() - 1] == text)
        };
        self.left_out.iter().any(covers)
    }
}

/// Paths at which two snapshots differ.
pub(super) fn differing(a: &BTreeMap<PathBuf, Entry>, b: &BTreeMap<PathBuf, Entry>) -> Vec<PathBuf> {
    let paths: BTreeSet<&PathBuf> = a.keys().chain(b.keys()).collect();
    paths.into_iter().filter(|path| a.get(*path) != b.get(*path)).cloned().collect()
}

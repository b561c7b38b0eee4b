//! Undo you can trust: the whole folder as it was, kept outside of git.
//!
//! Before every turn and command the partner calls [`Store::snapshot`], and before every edit [`Store::keep`]; `/undo` and
//! `/rewind` ask [`Store::plan_back`] what of the present is Flint's doing, and take back that and nothing else.
//! Contents are stored once by their SHA-256, folders as lists of what they hold, so a snapshot costs what changed. The
//! user's index, history and `.git` are never touched, and none is needed. What is too large is left out, by name, and a
//! restore leaves it alone ([`Limits`]).
//!
//! Every file of the store is written beside its place and renamed, and read back with its hash compared: a crash leaves
//! a snapshot whole or not there at all.
#![allow(clippy::disallowed_methods, reason = "files of our own, in a folder of our own")]

mod back;
mod cache;
mod merge;
mod objects;
mod prune;
mod restore;
mod step;
mod tree;
mod walk;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sha2::{Digest, Sha256};

pub use back::{Gone, Plan, Reversal};
use cache::StatCache;
pub(crate) use objects::Hash;
use objects::Objects;
pub use prune::{Kept, PruneLimits};
pub(crate) use step::MODE_UNKNOWN;
pub use step::{Done, Step};
use tree::Snapshot;
pub(crate) use tree::{Entry, Kind};
pub use walk::Limits;

/// The name of a snapshot: the same folder with the same contents has the same name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TreeId(String);

impl TreeId {
    /// As it was written by [`std::fmt::Display`]; `None` when it is no such name.
    pub fn parse(text: &str) -> Option<Self> {
        Hash::parse(text).map(|hash| Self(hash.to_string()))
    }
}

impl std::fmt::Display for TreeId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a snapshot was not taken or not brought back.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The file system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// What it said.
        source: std::io::Error,
    },
    /// There is no such snapshot.
    #[error("there is no checkpoint {id} here; it may have been pruned")]
    Unknown {
        /// Its name.
        id: String,
    },
    /// What is stored is not what was written.
    #[error("the stored copy of {what} is damaged; nothing was changed")]
    Damaged {
        /// Of what.
        what: String,
    },
    /// Somebody wrote a file while its contents were being kept.
    #[error("{} changed while a copy of it was being kept; nothing was changed, try again", path.display())]
    Changed {
        /// Which.
        path: PathBuf,
    },
}

impl CheckpointError {
    fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }
}

type Result<T> = std::result::Result<T, CheckpointError>;

/// A path with its text before and after; `None` where there is none, or none that is text.
type ChangedText = (PathBuf, Option<String>, Option<String>);

/// Where snapshots are kept. Several processes may use one.
#[derive(Debug)]
pub struct Store {
    objects: Objects,
    folder: PathBuf,
    limits: Limits,
    caches: Mutex<HashMap<PathBuf, StatCache>>,
}

impl Store {
    /// Opens a store, making it when there is none.
    pub fn open(folder: &Path) -> Result<Self> {
        Self::with_limits(folder, Limits::default())
    }

    /// Opens a store that takes in so much.
    pub fn with_limits(folder: &Path, limits: Limits) -> Result<Self> {
        use std::os::unix::fs::DirBuilderExt;
        let make = |path: &Path| {
            // Snapshots hold what the user's files hold, so they are for the user alone.
            let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
            made.map_err(CheckpointError::io(path))
        };
        make(folder)?;
        let folder = std::fs::canonicalize(folder).map_err(CheckpointError::io(folder))?;
        for name in ["objects", "trees", "stat", "sessions"] {
            make(&folder.join(name))?;
        }
        let objects = Objects::new(folder.join("objects"));
        Ok(Self { objects, folder, limits, caches: Mutex::new(HashMap::new()) })
    }

    /// Stores the folder as it is now.
    pub fn snapshot(&self, root: &Path) -> Result<TreeId> {
        let now = self.scan(root, true)?;
        let id = now.store(&self.objects)?;
        let path = self.tree_path(&id);
        if !path.exists() {
            objects::write_file(&path, &now.root_record(&id), true)?;
        }
        // Its age says when it was last needed.
        let _ = std::fs::File::open(&path).and_then(|file| file.set_modified(std::time::SystemTime::now()));
        Ok(TreeId(id.name))
    }

    /// Makes the folder what it was, and names what changed. What was left out then or would be now stays as it is.
    ///
    /// Everything needed is read and checked before the first file is changed. Cut in the middle it can be called again.
    pub fn restore(&self, root: &Path, id: &TreeId) -> Result<Vec<PathBuf>> {
        let root = std::fs::canonicalize(root).map_err(CheckpointError::io(root))?;
        let then = self.load(id)?;
        let now = self.scan(&root, false)?;
        restore::run(&self.objects, &root, &now, &then)
    }

    /// The files that differ, with lines added and removed from the first to the second. Files that are not text count
    /// no lines.
    pub fn compare(&self, from: &TreeId, to: &TreeId) -> Result<Vec<(PathBuf, (usize, usize))>> {
        let count = |(path, old, new): ChangedText| {
            let lines = crate::diff::lines(old.as_deref().unwrap_or(""), new.as_deref().unwrap_or(""));
            (path, lines)
        };
        Ok(self.changed_texts(from, to)?.into_iter().map(count).collect())
    }

    /// Unified diff with file headers between two snapshots.
    pub fn diff(&self, from: &TreeId, to: &TreeId) -> Result<String> {
        let mut out = String::new();
        for (path, old, new) in self.changed_texts(from, to)? {
            match (&old, &new) {
                (None, None) => out.push_str(&format!("{} changed and is not text\n", path.display())),
                _ => {
                    let (old, new) = (old.as_deref().unwrap_or(""), new.as_deref().unwrap_or(""));
                    out.push_str(&crate::diff::with_headers(&path, old, new));
                }
            }
        }
        Ok(out)
    }

    /// The content of one file of a snapshot.
    pub fn read(&self, id: &TreeId, path: &Path) -> Result<Option<Vec<u8>>> {
        match self.load(id)?.entries.get(path).map(|entry| &entry.kind) {
            Some(Kind::File { hash, .. }) => self.objects.get(hash, path).map(Some),
            _ => Ok(None),
        }
    }

    /// What a snapshot does not hold, and why; paths of whole folders end with `/`.
    pub fn left_out(&self, id: &TreeId) -> Result<Vec<String>> {
        Ok(self.load(id)?.left_out)
    }

    fn changed_texts(&self, from: &TreeId, to: &TreeId) -> Result<Vec<ChangedText>> {
        let (from, to) = (self.load(from)?, self.load(to)?);
        let mut changed = Vec::new();
        for path in tree::differing(&from.entries, &to.entries) {
            let text = |entries: &BTreeMap<PathBuf, Entry>| match entries.get(&path).map(|entry| &entry.kind) {
                Some(Kind::File { hash, size }) if *size <= crate::edit::BYTES_MAX => {
                    self.objects.get(hash, &path).map(|bytes| String::from_utf8(bytes).ok())
                }
                Some(Kind::Link { target }) => Ok(target.to_str().map(str::to_owned)),
                _ => Ok(None),
            };
            let (old, new) = (text(&from.entries)?, text(&to.entries)?);
            let is_folder = |entries: &BTreeMap<PathBuf, Entry>| {
                entries.get(&path).is_none_or(|entry| matches!(entry.kind, Kind::Folder))
            };
            if !(is_folder(&from.entries) && is_folder(&to.entries)) {
                changed.push((path, old, new));
            }
        }
        Ok(changed)
    }

    /// What is in the folder now. `keep` stores the contents, else only their hashes are known.
    fn scan(&self, root: &Path, keep: bool) -> Result<Snapshot> {
        let root = std::fs::canonicalize(root).map_err(CheckpointError::io(root))?;
        let found = walk::walk(&root, &self.limits, &self.folder)?;
        let mut caches = self.caches();
        let cache_path = self.cache_path(&root);
        let cache = caches.entry(root.clone()).or_insert_with(|| StatCache::load(&cache_path));
        let snapshot = cache.fill(&root, found, keep.then_some(&self.objects))?;
        if keep {
            cache.save(&cache_path);
        }
        Ok(snapshot)
    }

    fn load(&self, id: &TreeId) -> Result<Snapshot> {
        Snapshot::load(&id.0, &self.record(id)?, &self.objects)
    }

    /// The file of a snapshot or a step, whole and as it was written.
    fn record(&self, id: &TreeId) -> Result<Vec<u8>> {
        let unknown = |_| CheckpointError::Unknown { id: id.to_string() };
        let record = std::fs::read(self.folder.join("trees").join(&id.0)).map_err(unknown)?;
        match Hash::of(&record).to_string() == id.0 {
            true => Ok(record),
            false => Err(CheckpointError::Damaged { what: format!("checkpoint {id}") }),
        }
    }

    fn tree_path(&self, id: &tree::Root) -> PathBuf {
        self.folder.join("trees").join(&id.name)
    }

    fn cache_path(&self, root: &Path) -> PathBuf {
        use std::os::unix::ffi::OsStrExt;
        let name = Hash::of(root.as_os_str().as_bytes());
        self.folder.join("stat").join(name.to_string())
    }

    fn caches(&self) -> MutexGuard<'_, HashMap<PathBuf, StatCache>> {
        // A cache that a panic left half filled is still true: every entry stands for itself.
        self.caches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

#[cfg(test)]
mod tests;

//! Contents by their hash: a file each, written once.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use super::{CheckpointError, Result, sha256};

/// So long a process believes that what it has seen in the store is there. Whoever prunes leaves alone what was asked for
/// in a time longer than this ([`super::prune`]).
const SEEN_TRUSTED: Duration = Duration::from_secs(600);

/// SHA-256.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Hash(pub(crate) [u8; 32]);

impl Hash {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self(sha256(bytes))
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        if pairs.len() != 32 || !rest.is_empty() {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(pairs) {
            let digit = |c: u8| matches!(c, b'0'..=b'9' | b'a'..=b'f').then(|| char::from(c).to_digit(16)).flatten();
            *byte = (digit(pair[0])? * 16 + digit(pair[1])?) as u8;
        }
        Some(Self(bytes))
    }
}

impl std::fmt::Display for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[derive(Debug)]
pub(super) struct Objects {
    folder: PathBuf,
    /// What this process has seen in the store and when, so that it seldom asks the file system.
    seen: Mutex<HashMap<Hash, Instant>>,
}

impl Objects {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder, seen: Mutex::default() }
    }

    fn path(&self, hash: &Hash) -> PathBuf {
        let mut name = String::with_capacity(64);
        // Writing to a string cannot fail.
        let _ = write!(name, "{hash}");
        self.folder.join(&name[..2]).join(&name[2..])
    }

    /// Stores contents. When `sync` is set they are on the disk afterwards, and not only with the kernel.
    pub(super) fn put(&self, bytes: &[u8], sync: bool) -> Result<Hash> {
        let hash = Hash::of(bytes);
        if !self.has(&hash, bytes.len() as u64) {
            write_file(&self.path(&hash), bytes, sync)?;
            self.seen().insert(hash, Instant::now());
        }
        Ok(hash)
    }

    /// Sees to it that contents which are stored survive a power cut, their names included.
    pub(super) fn sync(&self, hashes: &BTreeSet<Hash>) -> Result<()> {
        let mut folders = BTreeSet::new();
        for hash in hashes {
            let path = self.path(hash);
            std::fs::File::open(&path).and_then(|file| file.sync_data()).map_err(CheckpointError::io(&path))?;
            folders.extend(path.parent().map(Path::to_owned));
        }
        folders.iter().try_for_each(|folder| sync_folder(folder))
    }

    /// Whether contents of this size are stored. What is asked for is young again, so that nobody prunes it.
    pub(super) fn has(&self, hash: &Hash, size: u64) -> bool {
        if self.seen().get(hash).is_some_and(|at| at.elapsed() < SEEN_TRUSTED) {
            return true;
        }
        let path = self.path(hash);
        // The size tells a file that a power cut left empty.
        let there = std::fs::metadata(&path).is_ok_and(|data| data.len() == size);
        if there {
            let _ = std::fs::File::open(&path).and_then(|file| file.set_modified(SystemTime::now()));
            self.seen().insert(*hash, Instant::now());
        }
        there
    }

    fn seen(&self) -> MutexGuard<'_, HashMap<Hash, Instant>> {
        // Each hash in it stands for itself, so a panic elsewhere leaves nothing half done.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Contents by hash; `what` names them in an error.
    pub(super) fn get(&self, hash: &Hash, what: &Path) -> Result<Vec<u8>> {
        let damaged = || CheckpointError::Damaged { what: what.display().to_string() };
        let bytes = std::fs::read(self.path(hash)).map_err(|_| damaged())?;
        if Hash::of(&bytes) == *hash { Ok(bytes) } else { Err(damaged()) }
    }

    /// Bytes of everything stored.
    pub(super) fn bytes(&self) -> Result<u64> {
        let mut bytes = 0;
        for prefix in names(&self.folder)? {
            let folder = std::fs::read_dir(self.folder.join(&prefix)).into_iter().flatten().flatten();
            bytes += folder.filter_map(|file| Some(file.metadata().ok()?.len())).sum::<u64>();
        }
        Ok(bytes)
    }

    /// Removes what is not needed and old enough; the bytes freed.
    pub(super) fn remove_unless(&self, needed: &BTreeSet<String>, old: impl Fn(&Path) -> bool) -> Result<u64> {
        self.seen().clear();
        let mut freed = 0;
        for prefix in names(&self.folder)? {
            let folder = self.folder.join(&prefix);
            for name in names(&folder)? {
                let path = folder.join(&name);
                if !needed.contains(&format!("{prefix}{name}")) && old(&path) {
                    freed += std::fs::metadata(&path).map_or(0, |data| data.len());
                    let _ = std::fs::remove_file(&path);
                }
            }
        }
        Ok(freed)
    }
}

/// Sees to it that the names in a folder survive a power cut.
pub(super) fn sync_folder(folder: &Path) -> Result<()> {
    std::fs::File::open(folder).and_then(|file| file.sync_all()).map_err(CheckpointError::io(folder))
}

/// Names of the files in a folder.
pub(super) fn names(folder: &Path) -> Result<Vec<String>> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(CheckpointError::io(folder))?,
    };
    Ok(entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect())
}

/// Writes a file of the store beside its place and renames it.
pub(super) fn write_file(path: &Path, bytes: &[u8], sync: bool) -> Result<()> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let fresh = path.with_extension(format!("{}-{number}.new", std::process::id()));
    let create = || std::fs::File::create(&fresh);
    let mut file = match create() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let folder = path.parent().unwrap_or(path);
            std::fs::create_dir_all(folder).map_err(CheckpointError::io(folder))?;
            create()
        }
        file => file,
    }
    .map_err(CheckpointError::io(&fresh))?;
    let written = file.write_all(bytes).and_then(|()| if sync { file.sync_data() } else { Ok(()) });
    let placed = written.and_then(|()| std::fs::rename(&fresh, path));
    if placed.is_err() {
        let _ = std::fs::remove_file(&fresh);
    }
    placed.map_err(CheckpointError::io(path))
}

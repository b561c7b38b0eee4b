//! Which files need not be read again: those whose numbers in the file system are the ones they had.
//!
//! Inode, size, both times and mode together; the change time cannot be set by programs, so a file that was written and
//! given back its old date is noticed. An entry younger than the clock's step is not trusted, because a second write in
//! the same step would leave no trace.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::Metadata;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::objects::{self, Hash, Objects};
use super::tree::{Entry, Kind, Snapshot};
use super::walk::Found;
use super::{Result, sha256};

/// Coarser than any step a file system's clock takes here (4 ms on Linux, 2 s on FAT).
const CLOCK_STEP_NS: i128 = 2_100_000_000;
/// So many files are synced one by one; those of a first snapshot of a project are not, it would take minutes.
pub(super) const SYNCED_MAX: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Numbers {
    inode: u64,
    size: u64,
    modified: i128,
    changed: i128,
}

impl Numbers {
    fn of(data: &Metadata) -> Self {
        let time = |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
        Self {
            inode: data.ino(),
            size: data.len(),
            modified: time(data.mtime(), data.mtime_nsec()),
            changed: time(data.ctime(), data.ctime_nsec()),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct StatCache {
    known: HashMap<PathBuf, (Numbers, Hash)>,
    saved: bool,
}

impl StatCache {
    /// Makes a snapshot of what was found, reading only what changed. With `objects` the contents are stored.
    pub(super) fn fill(&mut self, root: &Path, found: Found, objects: Option<&Objects>) -> Result<Snapshot> {
        let mut snapshot = Snapshot { left_out: found.left_out, ..Snapshot::default() };
        let mut known = HashMap::with_capacity(found.entries.len());
        let mut stored = 0;
        for (path, data) in found.entries {
            let mode = if data.is_symlink() { 0 } else { data.mode() & 0o7777 };
            let kind = if data.is_dir() {
                Kind::Folder
            } else if data.is_symlink() {
                let Ok(target) = std::fs::read_link(root.join(&path)) else { continue };
                Kind::Link { target }
            } else {
                let cached = self.known.get(&path).filter(|(numbers, _)| *numbers == Numbers::of(&data));
                let (numbers, hash) = match cached {
                    Some((numbers, hash)) if objects.is_none_or(|objects| objects.has(hash, numbers.size)) => {
                        (*numbers, *hash)
                    }
                    _ => {
                        // A file that went away or is not ours to read is not ours to restore.
                        let Some((numbers, bytes)) = read(&root.join(&path)) else {
                            snapshot.left_out.push(path.display().to_string());
                            continue;
                        };
                        let hash = match objects {
                            Some(objects) => objects.put(&bytes, stored < SYNCED_MAX)?,
                            None => Hash::of(&bytes),
                        };
                        stored += 1;
                        (numbers, hash)
                    }
                };
                if numbers.changed.max(numbers.modified) + CLOCK_STEP_NS < now() {
                    known.insert(path.clone(), (numbers, hash));
                }
                Kind::File { hash, size: numbers.size }
            };
            snapshot.entries.insert(path, Entry { kind, mode });
        }
        snapshot.left_out.sort_unstable();
        if known != self.known {
            *self = Self { known, saved: false };
        }
        Ok(snapshot)
    }

    /// What an earlier process knew. A damaged file is as good as none.
    pub(super) fn load(path: &Path) -> Self {
        let known = std::fs::read(path).ok().and_then(|bytes| parse(&bytes)).unwrap_or_default();
        Self { known, saved: true }
    }

    /// Keeps it for the next process. Losing it costs time and nothing else.
    pub(super) fn save(&mut self, path: &Path) {
        if self.saved {
            return;
        }
        let mut bytes = Vec::new();
        for (path, (numbers, hash)) in &self.known {
            // Writing to memory cannot fail.
            let Numbers { inode, size, modified, changed } = numbers;
            let _ = write!(bytes, "{inode} {size} {modified} {changed} {hash} ");
            bytes.extend([path.as_os_str().as_bytes(), b"\0"].concat());
        }
        let mut file = sha256(&bytes).to_vec();
        file.extend(bytes);
        self.saved = objects::write_file(path, &file, false).is_ok();
    }
}

fn parse(bytes: &[u8]) -> Option<HashMap<PathBuf, (Numbers, Hash)>> {
    let (sum, rest) = bytes.split_at_checked(32)?;
    if sum != sha256(rest) {
        return None;
    }
    let record = |record: &[u8]| {
        let mut words = record.splitn(6, |byte| *byte == b' ');
        let mut number = || std::str::from_utf8(words.next()?).ok()?.parse::<i128>().ok();
        let (inode, size, modified, changed) = (number()?, number()?, number()?, number()?);
        let numbers = Numbers { inode: inode.try_into().ok()?, size: size.try_into().ok()?, modified, changed };
        let hash = Hash::parse(std::str::from_utf8(words.next()?).ok()?)?;
        Some((PathBuf::from(OsStr::from_bytes(words.next()?)), (numbers, hash)))
    };
    rest.split(|byte| *byte == 0).filter(|part| !part.is_empty()).map(record).collect()
}

/// Bytes of a file that is read, though it grew since the walk found it small enough.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// A file's contents with the numbers it had before and after reading. One that is being written is read again.
fn read(path: &Path) -> Option<(Numbers, Vec<u8>)> {
    let mut last = None;
    for _ in 0..3 {
        let before = Numbers::of(&std::fs::symlink_metadata(path).ok()?);
        let bytes = boundary::file::read(path, FILE_BYTES_MAX).ok()?;
        let after = Numbers::of(&std::fs::symlink_metadata(path).ok()?);
        let settled = before == after && after.size == bytes.len() as u64;
        // What is written all the time is taken as it was seen.
        last = Some((Numbers { size: bytes.len() as u64, ..after }, bytes));
        if settled {
            break;
        }
    }
    last
}

fn now() -> i128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i128)
}

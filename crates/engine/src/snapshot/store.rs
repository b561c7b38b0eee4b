//! What the engine, the writer and the reader share: the folder, its index, counters and notices.

use std::collections::VecDeque;
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use boundary::file::FileError;
use model::ModelInfo;

use super::file::{self, HEADER, Kind, Name, Rejection, UNFINISHED, Wanted};
use super::index::{Index, Stamp};
use super::{BeforeRead, SnapshotCounts, SnapshotNotice, SnapshotOptions};

/// Most notices kept for whoever asks; later ones are dropped, the counters still count.
const NOTICES_MAX: usize = 64;
/// Bytes of the file system that are left to others: stored responses must not fail for want of room that KV took.
const FREE_BYTES_MIN: u64 = 1 << 30;
/// The same for a small file system: one part in so many of it.
const FREE_PART_MIN: u64 = 10;

pub(crate) struct Store {
    directory: PathBuf,
    model: u64,
    block_bytes: usize,
    state_bytes: usize,
    index: Mutex<Index>,
    notices: Mutex<VecDeque<SnapshotNotice>>,
    pub written: AtomicU64,
    pub restored: AtomicU64,
    pub lost: AtomicU64,
    rejected: AtomicU64,
    before_read: Option<BeforeRead>,
}

impl Store {
    /// Makes the model's folder, lists what every model saved, and deletes what is beyond the limit.
    pub fn open(options: &SnapshotOptions, info: &ModelInfo) -> io::Result<Self> {
        let store = Self {
            directory: options.directory.clone(),
            model: info.fingerprint,
            block_bytes: info.block_bytes,
            state_bytes: info.states.map_or(0, |states| states.bytes),
            index: Mutex::new(Index::new(options.bytes_max)),
            notices: Mutex::default(),
            written: AtomicU64::new(0),
            restored: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            before_read: options.before_read.clone(),
        };
        make_private(&store.directory.join(format!("{:016x}", store.model)))?;
        for folder in fs::read_dir(&store.directory)? {
            let folder = folder?;
            let name = folder.file_name();
            let name = name.to_str().filter(|name| name.len() == 16);
            let Some(model) = name.and_then(|name| u64::from_str_radix(name, 16).ok()) else {
                continue;
            };
            match store.list(model, &folder.path()) {
                Err(error) if model == store.model => return Err(error),
                // The folder of another model only matters for the limit.
                Err(error) => store.complain("listing", &folder.path(), &error),
                Ok(()) => {}
            }
        }
        let beyond = store.index().make_room(0, 0, Stamp::MAX).unwrap_or_default();
        beyond.iter().for_each(|name| store.delete(name));
        Ok(store)
    }

    pub fn model(&self) -> u64 {
        self.model
    }

    fn payload_bytes(&self, kind: Kind) -> usize {
        match kind {
            Kind::State => self.state_bytes,
            Kind::Block => self.block_bytes,
        }
    }

    /// The index; hold it no longer than a look takes.
    pub(super) fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn counts(&self) -> SnapshotCounts {
        let (bytes, blocks) = {
            let index = self.index();
            (index.bytes(), index.blocks())
        };
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        SnapshotCounts {
            written: count(&self.written),
            restored: count(&self.restored),
            lost: count(&self.lost),
            rejected: count(&self.rejected),
            bytes,
            blocks,
        }
    }

    pub fn take_notices(&self) -> Vec<SnapshotNotice> {
        self.notices.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }

    /// The whole file of a saved block, checked; `None` when there is none that can be believed.
    pub(super) fn read(&self, wanted: &Wanted) -> Option<Vec<u8>> {
        let path = wanted.name.path(&self.directory);
        if let Some(BeforeRead(call)) = &self.before_read {
            call(&path);
        }
        match self.read_checked(&path, wanted) {
            Ok(Ok(file)) => {
                self.index().learn_parent(&wanted.name, wanted.parent);
                return Some(file);
            }
            Ok(Err(reason)) => self.reject(&path, reason),
            // Someone else may share the folder and delete in it.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => self.complain("reading", &path, &error),
        }
        self.index().remove(&wanted.name);
        None
    }

    /// Writes one block, deleting others where the limit asks for it. False when the limit or the disk has no room for
    /// it; where others need the room, saved blocks give way.
    pub(super) fn write(&self, wanted: &Wanted, payload: &[u8]) -> bool {
        let (name, now) = (wanted.name, stamp(SystemTime::now()));
        let bytes = (HEADER + payload.len()) as u64;
        // Ancestors first, so that making room does not take them.
        match (name.kind, name.depth.checked_sub(1)) {
            (Kind::State, _) => self.touch(Name { kind: Kind::Block, ..name }),
            (Kind::Block, Some(depth)) => self.touch(Name { depth, key: wanted.parent, ..name }),
            (Kind::Block, None) => {}
        }
        let missing = self.missing(bytes);
        if missing > 0 {
            let victims = self.index().give_way(missing);
            victims.iter().for_each(|name| self.delete(name));
            return false;
        }
        let Some(victims) = self.index().make_room(bytes, name.depth, now) else {
            return false;
        };
        victims.iter().for_each(|name| self.delete(name));
        let path = name.path(&self.directory);
        let unfinished = path.with_extension(format!("{}.{UNFINISHED}", std::process::id()));
        let done = write_parts(&unfinished, &[&file::header(wanted, payload), payload])
            .and_then(|()| fs::rename(&unfinished, &path));
        if let Err(error) = done {
            self.complain("writing", &path, &error);
            // It may not exist; if it stays, the next start removes it.
            let _ = fs::remove_file(&unfinished);
            return false;
        }
        let mut index = self.index();
        index.insert(name, bytes, now);
        index.learn_parent(&name, wanted.parent);
        true
    }

    /// Counts a block and its ancestors as used now, here and, for the next start, on disk.
    pub(super) fn touch(&self, name: Name) {
        let now = SystemTime::now();
        let touched = self.index().touch(name, stamp(now));
        for path in touched.iter().map(|name| name.path(&self.directory)) {
            // At worst it is forgotten a little early.
            let _ = boundary::file::open(&path).map(|file| file.set_modified(now));
        }
    }

    /// How many bytes the disk lacks before `bytes` more leave enough to others. Nothing where the system does not say.
    fn missing(&self, bytes: u64) -> u64 {
        boundary::file::space(&self.directory).map_or(0, |space| lacking(bytes, space.free, space.total))
    }

    pub(super) fn complain(&self, doing: &'static str, path: &Path, error: &io::Error) {
        self.notify(SnapshotNotice::Io { doing, path: path.to_owned(), error: error.to_string() });
    }

    fn list(&self, model: u64, folder: &Path) -> io::Result<()> {
        let now = stamp(SystemTime::now());
        let ours = model == self.model;
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let path = entry.path();
            let part = |part: Option<&std::ffi::OsStr>| part.and_then(|part| part.to_str()).unwrap_or("").to_owned();
            let extension = part(path.extension());
            if ours && extension == UNFINISHED {
                let _ = fs::remove_file(&path);
            }
            let metadata = entry.metadata();
            let kind = Kind::ALL.into_iter().find(|kind| kind.extension() == extension);
            let (Some(metadata), Some(kind)) = (metadata.ok().filter(|metadata| metadata.is_file()), kind) else {
                continue;
            };
            let (found, wanted) = (metadata.len(), (HEADER + self.payload_bytes(kind)) as u64);
            match Name::parse(model, &part(path.file_stem()), kind) {
                None => self.reject(&path, Rejection::Name),
                Some(_) if ours && found != wanted => self.reject(&path, Rejection::Size { found, wanted }),
                Some(name) => {
                    let used = metadata.modified().map_or(0, stamp);
                    self.index().insert(name, found, used.min(now));
                }
            }
        }
        Ok(())
    }

    fn read_checked(&self, path: &Path, wanted: &Wanted) -> io::Result<Result<Vec<u8>, Rejection>> {
        let file = match boundary::file::open(path) {
            Ok(file) => file,
            Err(FileError::NotRegular { .. }) => return Ok(Err(Rejection::NotRegular)),
            Err(FileError::Missing { .. }) => return Err(ErrorKind::NotFound.into()),
            Err(error) => return Err(io::Error::other(error)),
        };
        let payload_bytes = self.payload_bytes(wanted.name.kind);
        let size = HEADER + payload_bytes;
        let mut bytes = Vec::with_capacity(size + 1);
        // One byte more than it may have shows that it is too long.
        file.take(size as u64 + 1).read_to_end(&mut bytes)?;
        Ok(file::check(&bytes, wanted, payload_bytes).map(|()| bytes))
    }

    fn reject(&self, path: &Path, reason: Rejection) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
        self.notify(SnapshotNotice::Rejected { path: path.to_owned(), reason });
        self.remove(path);
    }

    fn delete(&self, name: &Name) {
        self.remove(&name.path(&self.directory));
    }

    fn remove(&self, path: &Path) {
        match fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => self.complain("removing", path, &error),
            _ => {}
        }
    }

    fn notify(&self, notice: SnapshotNotice) {
        let mut notices = self.notices.lock().unwrap_or_else(PoisonError::into_inner);
        if notices.len() < NOTICES_MAX {
            notices.push_back(notice);
        }
    }
}

/// How many of the free bytes are missing when `bytes` more are written.
fn lacking(bytes: u64, free: u64, total: u64) -> u64 {
    let others = FREE_BYTES_MIN.min(total / FREE_PART_MIN);
    others.saturating_add(bytes).saturating_sub(free)
}

fn stamp(time: SystemTime) -> Stamp {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / 60)
}

fn write_parts(path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    // A file of our own making: what a crash left is removed, and nothing that lies there is written into.
    let _ = fs::remove_file(path);
    let mut file = File::create_new(path)?;
    parts.iter().try_for_each(|part| io::Write::write_all(&mut file, part))
}

fn make_private(folder: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_left_to_others_on_large_and_on_small_disks() {
        let (mib, gib) = (1 << 20, 1 << 30);
        assert_eq!(lacking(mib, 2 * gib, 500 * gib), 0);
        assert_eq!(lacking(mib, gib, 500 * gib), mib);
        assert_eq!(lacking(mib, 0, 500 * gib), gib + mib);
        assert_eq!(lacking(mib, 11 * mib, 100 * mib), 0);
        assert_eq!(lacking(mib, 10 * mib, 100 * mib), mib);
        assert_eq!(lacking(u64::MAX, 0, u64::MAX), u64::MAX);
    }
}

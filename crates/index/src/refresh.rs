//! Reading a folder into the index: what is new or has changed since, with limits on files, bytes and time.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use boundary::file::Folder;
use ignore::WalkState;

use crate::contents::{File, Index, Stamp};
use crate::files;
use crate::record::{Hash, Record, hash};

/// Bytes of one project that are read; what comes later in the walk is left out.
const BYTES_MAX: u64 = 256 << 20;

/// Time that reading a project may take. What is not read by then is left out, and the index says so.
const TIME_MAX: Duration = Duration::from_secs(30);

/// Threads that read.
const THREADS_MAX: usize = 8;

/// Files that were read and wait to be put in.
const WAITING_MAX: usize = 64;

/// A file that was changed as lately as this may be changed again without its time showing it.
const MOMENT: Duration = Duration::from_secs(2);

/// What a refresh did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refreshed {
    /// Files in the folder.
    pub files: usize,
    /// Files that were read.
    pub read: usize,
    /// Of these, files whose contents were known.
    pub known: usize,
    /// Files that are gone.
    pub removed: usize,
}

impl Index {
    /// Brings the index up to date with its folder.
    pub fn refresh(&mut self) -> Refreshed {
        let (mut found, mut cut) = walk(&self.root);
        found.sort_by(|one, other| one.0.cmp(&other.0));
        let here: HashSet<&Path> = found.iter().map(|(path, _)| path.as_path()).collect();
        let gone: Vec<PathBuf> = self.paths().filter(|path| !here.contains(path)).map(Path::to_owned).collect();
        let same =
            |path: &Path, stamp: Stamp| self.file(path).is_some_and(|file| file.stamp == stamp && stamp.modified != 0);
        let mut left = BYTES_MAX;
        let mut due = Vec::new();
        for (path, stamp) in &found {
            if stamp.bytes > left {
                cut = true;
                continue;
            }
            left -= stamp.bytes;
            if !same(path, *stamp) {
                due.push((path.clone(), *stamp));
            }
        }
        self.cut = cut;
        let (read, known) = self.read(&due);
        let refreshed = Refreshed { files: found.len(), read, known, removed: gone.len() };
        for path in &gone {
            self.remove(path);
        }
        refreshed
    }

    /// Brings single files up to date, of which the caller knows that they have changed.
    pub fn update(&mut self, paths: &[PathBuf]) {
        let due: Vec<(PathBuf, Stamp)> = paths
            .iter()
            .filter(|path| !files::is_boring(path))
            .filter_map(|path| {
                let facts = std::fs::symlink_metadata(self.root.join(path)).ok()?;
                (facts.is_file() && facts.len() <= files::FILE_BYTES_MAX).then(|| (path.clone(), stamp(&facts)))
            })
            .collect();
        for path in paths.iter().filter(|path| due.iter().all(|(known, _)| known != *path)) {
            self.remove(path);
        }
        self.read(&due);
    }

    /// Reads files and puts in what they say. How many were read, and how many of those had known contents.
    fn read(&mut self, due: &[(PathBuf, Stamp)]) -> (usize, usize) {
        let Ok(folder) = Folder::open(&self.root) else { return (0, 0) };
        let by_hash: HashMap<Contents, u32> =
            self.live().map(|(number, file)| ((file.hash, ending(&file.path)), number)).collect();
        let (next, deadline) = (AtomicUsize::new(0), Instant::now() + TIME_MAX);
        let work = |send: SyncSender<Read>| {
            while let Some((path, stamp)) = due.get(next.fetch_add(1, Ordering::Relaxed)) {
                if Instant::now() > deadline || send.send(read(&folder, path, *stamp, &by_hash)).is_err() {
                    return;
                }
            }
        };
        let (mut count, mut known) = (0, 0);
        std::thread::scope(|scope| {
            let (send, receive) = sync_channel(WAITING_MAX);
            for _ in 0..threads().min(due.len()) {
                let send = send.clone();
                scope.spawn(|| work(send));
            }
            drop(send);
            for Read { path, stamp, hash, text, record } in receive {
                count += 1;
                let Some(text) = text else {
                    self.remove(&path);
                    continue;
                };
                let again = by_hash.get(&(hash, ending(&path))).and_then(|number| self.files[*number as usize].clone());
                match (again.filter(|file| file.hash == hash), record) {
                    (Some(file), _) => {
                        known += 1;
                        self.put_file(File { path, stamp, ..file });
                    }
                    (None, Some(record)) => self.put_record(&path, stamp, hash, &text, &record),
                    // What had these contents was replaced meanwhile.
                    (None, None) => self.put_record(&path, stamp, hash, &text, &Record::of(&path, &text)),
                }
            }
        });
        self.cut |= count < due.len();
        (count, known)
    }
}

/// Contents as a language reads them.
type Contents = (Hash, Option<OsString>);

/// One file that was read.
struct Read {
    path: PathBuf,
    stamp: Stamp,
    hash: Hash,
    /// None where it is not text, or cannot be read.
    text: Option<String>,
    /// None where its contents are known.
    record: Option<Record>,
}

fn read(folder: &Folder, path: &Path, stamp: Stamp, known: &HashMap<Contents, u32>) -> Read {
    let bytes = folder.read(path, files::FILE_BYTES_MAX).ok();
    let hash = hash(bytes.as_deref().unwrap_or_default());
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok()).filter(|text| !text.contains('\0'));
    let is_known = known.contains_key(&(hash, ending(path)));
    let record = text.as_deref().filter(|_| !is_known).map(|text| Record::of(path, text));
    Read { path: path.to_owned(), stamp, hash, text, record }
}

fn ending(path: &Path) -> Option<OsString> {
    path.extension().map(OsStr::to_owned)
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX)
}

/// The files of a folder that are read, and whether there are more.
fn walk(root: &Path) -> (Vec<(PathBuf, Stamp)>, bool) {
    let (found, count) = (Mutex::new(Vec::new()), AtomicUsize::new(0));
    files::entries(root).threads(threads()).build_parallel().run(|| {
        Box::new(|entry| {
            let Ok(entry) = entry else { return WalkState::Continue };
            let Ok(path) = entry.path().strip_prefix(root) else { return WalkState::Continue };
            if !entry.file_type().is_some_and(|kind| kind.is_file()) || files::is_boring(path) {
                return WalkState::Continue;
            }
            let Some(facts) = entry.metadata().ok().filter(|facts| facts.len() <= files::FILE_BYTES_MAX) else {
                return WalkState::Continue;
            };
            if count.fetch_add(1, Ordering::Relaxed) >= files::FILES_MAX {
                return WalkState::Quit;
            }
            if let Ok(mut found) = found.lock() {
                found.push((path.to_owned(), stamp(&facts)));
            }
            WalkState::Continue
        })
    });
    let cut = count.into_inner() > files::FILES_MAX;
    (found.into_inner().unwrap_or_default(), cut)
}

fn stamp(facts: &std::fs::Metadata) -> Stamp {
    let modified = facts.modified().ok();
    let lately = modified.is_none_or(|at| SystemTime::now().duration_since(at).is_ok_and(|age| age < MOMENT));
    let since = modified.filter(|_| !lately).and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    let modified = since.and_then(|since| u64::try_from(since.as_nanos()).ok()).unwrap_or(0);
    Stamp { bytes: facts.len(), modified }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, text: &str, age: u64) {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
    }

    #[test]
    fn only_what_changed_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "a.py", "def one():\n    pass\n", 60);
        write(folder.path(), "deep/b.py", "def two():\n    pass\n", 60);
        write(folder.path(), "late.py", "late = 1\n", 0);
        write(folder.path(), "data.bin", "x", 60);
        let mut index = Index::new(folder.path());
        assert_eq!(index.refresh(), Refreshed { files: 3, read: 3, known: 0, removed: 0 });
        // What was written a moment ago is looked at again, and found the same.
        assert_eq!(index.refresh(), Refreshed { files: 3, read: 1, known: 1, removed: 0 });
        std::fs::rename(folder.path().join("deep/b.py"), folder.path().join("c.py")).unwrap();
        std::fs::write(folder.path().join("a.py"), "def three():\n    pass\n").unwrap();
        assert_eq!(index.refresh(), Refreshed { files: 3, read: 3, known: 2, removed: 1 });
        assert!(index.has_name("three") && index.has_name("two") && !index.has_name("one"));
        std::fs::write(folder.path().join("a.py"), "def four():\n    pass\n").unwrap();
        std::fs::remove_file(folder.path().join("c.py")).unwrap();
        index.update(&["a.py".into(), "c.py".into(), "none.py".into()]);
        assert!(index.has_name("four") && !index.has_name("three") && !index.has_name("two"));
        assert!(!index.is_cut());
    }

    #[test]
    fn links_and_what_is_no_text_are_left_out() {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        write(other.path(), "secret.py", "secret = 1\n", 60);
        std::os::unix::fs::symlink(other.path().join("secret.py"), folder.path().join("link.py")).unwrap();
        std::os::unix::fs::symlink(other.path(), folder.path().join("links")).unwrap();
        std::fs::write(folder.path().join("bytes.py"), b"name\0\xff").unwrap();
        std::fs::write(folder.path().join("large.py"), "name = 1\n".repeat(40_000)).unwrap();
        let mut index = Index::new(folder.path());
        index.refresh();
        index.update(&["link.py".into(), "links/secret.py".into(), "../secret.py".into()]);
        assert!(index.is_empty(), "{:?}", index.paths().collect::<Vec<_>>());
    }
}

//! A session's own folder for temporary files. /tmp itself is shared: what a command makes there others would obey, such as
//! a `.git` by everyone who works below it.

use std::fs::File;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

/// What the folders' names begin with.
const PREFIX: &str = "flint-tmp-";
/// Where they are made.
const PLACES: [&str; 2] = ["/tmp", "/var/tmp"];
/// Old folders that are removed when a new one is made.
const OLD_MAX: usize = 64;

/// The folder. It is removed with this; its lock says that somebody still needs it.
#[derive(Debug)]
pub(crate) struct Temporary {
    path: PathBuf,
    _lock: File,
}

impl Temporary {
    /// A new one, or none where none can be made.
    pub(crate) fn new() -> Option<Self> {
        PLACES.iter().find_map(|place| {
            remove_old(Path::new(place));
            let place = Path::new(place).canonicalize().ok()?;
            let mut builder = tempfile::Builder::new();
            let made =
                builder.prefix(PREFIX).make_in(place, |path| std::fs::DirBuilder::new().mode(0o700).create(path));
            let path = made.ok()?.into_temp_path().keep().ok()?;
            let lock = File::open(&path).ok()?;
            rustix::fs::flock(&lock, FlockOperation::NonBlockingLockShared).ok()?;
            Some(Self { path, _lock: lock })
        })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Removes what a killed Flint left behind: our own folders that nobody has locked.
fn remove_old(place: &Path) {
    let entries = std::fs::read_dir(place).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    for entry in ours.take(OLD_MAX) {
        let me = rustix::process::geteuid().as_raw();
        let is_ours = entry.metadata().is_ok_and(|meta| meta.is_dir() && meta.uid() == me);
        let Some(folder) = is_ours.then(|| File::open(entry.path()).ok()).flatten() else { continue };
        // A new one is locked a moment after it is made; it is empty until then, and made again.
        if rustix::fs::flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok() && is_aged(&folder) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// A minute old at least.
fn is_aged(folder: &File) -> bool {
    let age = folder.metadata().ok().and_then(|meta| meta.modified().ok()?.elapsed().ok());
    age.is_some_and(|age| age.as_secs() >= 60)
}

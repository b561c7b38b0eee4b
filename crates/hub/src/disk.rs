//! Small file-system steps that must be done the same way everywhere: free space, durable renames, whole-file replaces.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::Error;

/// Bytes this user may still write on the disk that holds `path`.
pub fn free_bytes(path: &Path) -> std::io::Result<u64> {
    let disk = rustix::fs::statvfs(path)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// A size as people write it: `98.4 MB`.
pub fn format_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 999.95 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// The file's path with one more extension: `a.gguf` and `new` give `a.gguf.new`.
pub(crate) fn beside(path: &Path, extension: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(extension);
    PathBuf::from(name)
}

/// Creates a directory and its parents.
pub(crate) fn create_dir(path: &Path) -> Result<(), Error> {
    std::fs::create_dir_all(path).map_err(Error::io("create the directory", path))
}

/// Moves a finished file to where it will be used. After this returns, a power cut leaves the whole new file: its bytes
/// reach the disk before its name does, and the name before we say so.
pub(crate) fn publish(from: &Path, to: &Path) -> Result<(), Error> {
    let file = File::open(from).map_err(Error::io("open", from))?;
    file.sync_all().map_err(Error::io("write out", from))?;
    std::fs::rename(from, to).map_err(Error::io("move into place", to))?;
    if let Some(directory) = to.parent() {
        let handle = File::open(directory).map_err(Error::io("open", directory))?;
        handle.sync_all().map_err(Error::io("write out", directory))?;
    }
    Ok(())
}

/// Replaces a small file as a whole, so that a reader, also one after a power cut, sees the old text or the new
/// one and never a half.
pub(crate) fn replace(path: &Path, text: &[u8]) -> Result<(), Error> {
    let fresh = beside(path, "new");
    let mut file = File::create(&fresh).map_err(Error::io("create", &fresh))?;
    file.write_all(text).map_err(Error::io("write", &fresh))?;
    file.sync_all().map_err(Error::io("write out", &fresh))?;
    std::fs::rename(&fresh, path).map_err(Error::io("move into place", path))
}

/// Bytes of all files below a directory. Files that vanish meanwhile count nothing: another program works in there.
pub(crate) fn bytes_below(directory: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return 0;
    };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => bytes_below(&entry.path()),
        Ok(meta) => meta.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

/// Removes a file or a directory; that it is already gone is fine.
pub(crate) fn remove(path: &Path) -> Result<(), Error> {
    let removed = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(Error::io("remove", path)),
    }
}

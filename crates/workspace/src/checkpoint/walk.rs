//! What is in a folder: names and numbers, no contents.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::{CheckpointError, Result};

/// How much a snapshot takes in. What is more is left out and named.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of one file.
    pub file_bytes: u64,
    /// Bytes of all files.
    pub total_bytes: u64,
    /// Files and folders in all.
    pub entries: usize,
    /// Files of a folder that tools make and can make again, such as `target`; a larger one is left out whole.
    pub generated_entries: usize,
    /// Bytes of such a folder.
    pub generated_bytes: u64,
}

impl Default for Limits {
    /// Enough for the source of large projects; a first snapshot at these limits takes seconds, not minutes.
    fn default() -> Self {
        Self {
            file_bytes: 16 << 20,
            total_bytes: 1 << 30,
            entries: 200_000,
            generated_entries: 1000,
            generated_bytes: 16 << 20,
        }
    }
}

/// Most names kept of what was left out; more are counted.
const LEFT_OUT_MAX: usize = 1000;
/// How the last line of such a list begins.
pub(super) const AND_MORE: &str = "… and more: ";

/// Folders that tools fill. They go last, so that they cannot crowd out what people wrote.
const GENERATED: [&str; 18] = [
    "node_modules",
    "target",
    "build",
    "dist",
    "out",
    ".venv",
    "venv",
    "__pycache__",
    ".cache",
    ".tox",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".gradle",
    ".next",
    ".nuxt",
    "vendor",
    "Pods",
];

/// What was found.
pub(super) struct Found {
    pub(super) entries: Vec<(PathBuf, Metadata)>,
    pub(super) left_out: Vec<String>,
}

struct Walk<'a> {
    root: &'a Path,
    limits: &'a Limits,
    /// The store itself, which may lie inside.
    store: &'a Path,
    entries: Vec<(PathBuf, Metadata)>,
    bytes: u64,
    generated: Vec<(PathBuf, Metadata)>,
    left_out: Vec<String>,
    left_out_more: usize,
}

/// Walks a folder without following links. `.git` is skipped wherever it is.
pub(super) fn walk(root: &Path, limits: &Limits, store: &Path) -> Result<Found> {
    let (entries, generated, left_out) = (Vec::new(), Vec::new(), Vec::new());
    let mut walk = Walk { root, limits, store, entries, bytes: 0, generated, left_out, left_out_more: 0 };
    let mut open = vec![PathBuf::new()];
    while let Some(folder) = open.pop() {
        open.extend(walk.folder(&folder)?);
    }
    for (path, data) in std::mem::take(&mut walk.generated) {
        walk.generated(path, data)?;
    }
    if walk.left_out_more > 0 {
        walk.left_out.push(format!("{AND_MORE}{}", walk.left_out_more));
    }
    walk.left_out.sort_unstable();
    Ok(Found { entries: walk.entries, left_out: walk.left_out })
}

impl Walk<'_> {
    /// Notes what is in a folder; the folders to go on with.
    fn folder(&mut self, folder: &Path) -> Result<Vec<PathBuf>> {
        let mut inner = Vec::new();
        for (path, data) in self.children(folder)? {
            if data.is_dir() && is_generated(&self.root.join(&path)) {
                self.generated.push((path, data));
            } else if self.takes(&path, &data) {
                if data.is_dir() {
                    inner.push(path.clone());
                }
                self.note(path, data);
            }
        }
        Ok(inner)
    }

    fn children(&self, folder: &Path) -> Result<Vec<(PathBuf, Metadata)>> {
        let full = self.root.join(folder);
        let entries = match std::fs::read_dir(&full) {
            // It went away while we walked, or it is not ours to read: then it is not ours to restore either.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => {
                return Ok(Vec::new());
            }
            entries => entries.map_err(CheckpointError::io(&full))?,
        };
        let mut children = Vec::new();
        for entry in entries.flatten() {
            let name = entry.file_name();
            let Ok(data) = entry.metadata() else { continue };
            if crate::edit::is_leftover(&name) {
                crate::edit::remove_leftover(&full.join(&name));
                continue;
            }
            if name != OsStr::new(".git") && full.join(&name) != self.store {
                children.push((folder.join(name), data));
            }
        }
        Ok(children)
    }

    fn takes(&mut self, path: &Path, data: &Metadata) -> bool {
        let ordinary = data.is_file() || data.is_dir() || data.is_symlink();
        let large = data.is_file() && data.len() > self.limits.file_bytes;
        let full = self.entries.len() >= self.limits.entries
            || data.is_file() && self.bytes + data.len() > self.limits.total_bytes;
        if !ordinary || large || full {
            self.leave_out(path, data.is_dir());
        }
        ordinary && !large && !full
    }

    fn note(&mut self, path: PathBuf, data: Metadata) {
        self.bytes += if data.is_file() { data.len() } else { 0 };
        self.entries.push((path, data));
    }

    fn leave_out(&mut self, path: &Path, folder: bool) {
        match self.left_out.len() < LEFT_OUT_MAX {
            true => self.left_out.push(format!("{}{}", path.display(), if folder { "/" } else { "" })),
            false => self.left_out_more += 1,
        }
    }

    /// A folder that can be made again: all of it while it is small, else nothing.
    fn generated(&mut self, folder: PathBuf, data: Metadata) -> Result<()> {
        let mut all = vec![(folder.clone(), data)];
        let (mut next, mut bytes) = (0, 0);
        while next < all.len() {
            if all[next].1.is_dir() {
                let children = self.children(&all[next].0.clone())?;
                all.extend(children);
            }
            bytes += if all[next].1.is_file() { all[next].1.len() } else { 0 };
            next += 1;
            if all.len() > self.limits.generated_entries || bytes > self.limits.generated_bytes {
                self.leave_out(&folder, true);
                return Ok(());
            }
        }
        for (path, data) in all {
            if self.takes(&path, &data) {
                self.note(path, data);
            }
        }
        Ok(())
    }
}

fn is_generated(folder: &Path) -> bool {
    let named = folder.file_name().is_some_and(|name| GENERATED.iter().any(|known| name == OsStr::new(known)));
    named || folder.join("CACHEDIR.TAG").exists()
}

//! A copy of the workspace in which a candidate can be tried without touching the person's files.
//!
//! Each candidate gets its own copy at its own path: tools such as Python decide by time and size whether a compiled file
//! is stale, so two candidates in one place could be taken for each other. Copies share blocks with the original where the
//! file system can do that (`copy_file_range`). What is large and only read stays where it is and is linked to.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Files of a copy, and their bytes. A larger workspace is an error that says what to do.
const FILES_MAX: usize = 20_000;
const BYTES_MAX: u64 = 512 << 20;

/// Folders that are linked to instead of copied: installed packages, which a check reads and does not change. The sandbox
/// lets nobody write through the link.
const LINKED: &[&str] = &["node_modules", ".venv", "venv", ".tox"];

/// Folders that are left out: history, which no candidate should change, and Flint's own.
const LEFT_OUT: &[&str] = &[".git", ".hg", ".svn", ".flint", "__pycache__"];

/// What cannot be copied.
#[derive(Debug, thiserror::Error)]
pub enum ScratchError {
    /// There is too much.
    #[error(
        "the workspace has more than {FILES_MAX} files or {} MiB to copy for each candidate; run Flint in a folder further down, or mark folders of build output with a CACHEDIR.TAG file",
        BYTES_MAX >> 20
    )]
    TooLarge,
    /// The system refused.
    #[error("{}: {source}", .path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// What it said.
        #[source]
        source: io::Error,
    },
}

/// A copy of a workspace; removed when dropped.
#[derive(Debug)]
pub struct Scratch {
    root: PathBuf,
}

impl Scratch {
    /// Copies `workspace` to `root`, which must not exist yet.
    pub fn copy(workspace: &Path, root: PathBuf) -> Result<Self, ScratchError> {
        fs::create_dir_all(&root).map_err(|source| ScratchError::Io { path: root.clone(), source })?;
        // From here on the copy is removed whatever happens.
        let scratch = Self { root };
        let mut budget = Budget { files: FILES_MAX, bytes: BYTES_MAX };
        copy_folder(workspace, &scratch.root, &scratch.root, &mut budget)?;
        Ok(scratch)
    }

    /// Where it is.
    pub fn root(&self) -> &Path {
        &self.root
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A copy that cannot be removed is a nuisance and no reason to fail.
        let _ = fs::remove_dir_all(&self.root);
    }
}

struct Budget {
    files: usize,
    bytes: u64,
}

impl Budget {
    fn take(&mut self, bytes: u64) -> Result<(), ScratchError> {
        let left = self.files.checked_sub(1).zip(self.bytes.checked_sub(bytes));
        (self.files, self.bytes) = left.ok_or(ScratchError::TooLarge)?;
        Ok(())
    }
}

/// `skip` is the copy itself, should it lie inside the workspace.
fn copy_folder(from: &Path, to: &Path, skip: &Path, budget: &mut Budget) -> Result<(), ScratchError> {
    let at = |path: &Path| {
        let path = path.to_owned();
        move |source| ScratchError::Io { path, source }
    };
    for entry in fs::read_dir(from).map_err(at(from))? {
        let entry = entry.map_err(at(from))?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().map_err(at(&source))?;
        let name = entry.file_name();
        let is = |names: &[&str]| names.iter().any(|other| *other == name);
        if source == skip || is(LEFT_OUT) {
            continue;
        }
        if kind.is_dir() && is(LINKED) {
            std::os::unix::fs::symlink(&source, &target).map_err(at(&target))?;
        } else if kind.is_dir() {
            // The tag marks what can be made again: Rust's target folder, the caches of pytest, mypy and ruff.
            if source.join("CACHEDIR.TAG").exists() {
                continue;
            }
            fs::create_dir(&target).map_err(at(&target))?;
            copy_folder(&source, &target, skip, budget)?;
        } else if kind.is_symlink() {
            budget.take(0)?;
            let points_to = fs::read_link(&source).map_err(at(&source))?;
            std::os::unix::fs::symlink(points_to, &target).map_err(at(&target))?;
        } else if kind.is_file() {
            budget.take(entry.metadata().map_err(at(&source))?.len())?;
            copy_file(&source, &target).map_err(at(&source))?;
        }
        // Sockets, pipes and devices are no part of a program.
    }
    Ok(())
}

/// With mode and time: build tools compare times.
fn copy_file(source: &Path, target: &Path) -> io::Result<()> {
    fs::copy(source, target)?;
    let modified = fs::metadata(source)?.modified()?;
    // A file that may only be read cannot be opened to set its time, and needs no time either.
    if let Ok(file) = fs::File::options().append(true).open(target) {
        file.set_modified(modified)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn a_copy_is_apart_from_the_original() {
        let (workspace, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        write(workspace.path(), "src/a.py", "one");
        write(workspace.path(), "run.sh", "echo");
        write(workspace.path(), ".env", "ignored but needed");
        write(workspace.path(), ".git/config", "x");
        write(workspace.path(), "target/CACHEDIR.TAG", "x");
        write(workspace.path(), "node_modules/m/index.js", "x");
        std::os::unix::fs::symlink("src/a.py", workspace.path().join("link")).unwrap();
        fs::set_permissions(workspace.path().join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
        let scratch = Scratch::copy(workspace.path(), place.path().join("one")).unwrap();
        let root = scratch.root().to_owned();
        fs::write(root.join("link"), "two").unwrap();
        assert_eq!(fs::read_to_string(root.join("src/a.py")).unwrap(), "two", "the link is inside the copy");
        assert_eq!(fs::read_to_string(workspace.path().join("src/a.py")).unwrap(), "one");
        assert_eq!(fs::metadata(root.join("run.sh")).unwrap().permissions().mode() & 0o777, 0o755);
        let time = |root: &Path| fs::metadata(root.join("run.sh")).unwrap().modified().unwrap();
        assert_eq!(time(&root), time(workspace.path()));
        assert!(root.join(".env").exists() && root.join("node_modules").is_symlink());
        assert!(!root.join(".git").exists() && !root.join("target").exists());
        drop(scratch);
        assert!(!root.exists());
        assert!(workspace.path().join("node_modules/m/index.js").exists(), "what a link points to stays");
    }

    #[test]
    fn a_workspace_may_hold_its_own_copies() {
        let workspace = tempfile::tempdir().unwrap();
        write(workspace.path(), "a", "1");
        let scratch = Scratch::copy(workspace.path(), workspace.path().join("copy")).unwrap();
        assert!(scratch.root().join("a").exists() && !scratch.root().join("copy").exists());
    }

    #[test]
    fn too_much_is_an_error_and_leaves_nothing() {
        let (workspace, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let large = fs::File::create(workspace.path().join("large")).unwrap();
        large.set_len(BYTES_MAX + 1).unwrap();
        let root = place.path().join("one");
        assert!(matches!(Scratch::copy(workspace.path(), root.clone()), Err(ScratchError::TooLarge)));
        assert!(!root.exists());
    }
}

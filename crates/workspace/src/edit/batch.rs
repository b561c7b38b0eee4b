//! Several changes as one: all are resolved before the first is written, so an answer applies whole or not at all.
//!
//! Changes to the same file build on each other. Writing goes file by file, each by one rename, and begins only when the
//! way back is kept ([`Batch::write`]): when the file system refuses in the middle, or the process ends there, what was
//! written stays written and undo brings it back.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use super::{Change, ChangeKind, EditError, TextFile, resolve, write_atomic};
use crate::checkpoint::{Entry, Hash, Kind, MODE_UNKNOWN, Step};

/// Folders whose files are never edited: history and settings of the tools that guard the work.
const PROTECTED: [&str; 3] = [".git", ".flint", ".hg"];

/// Changes that were resolved and wait to be written.
#[derive(Debug)]
pub struct Batch {
    root: PathBuf,
    files: BTreeMap<PathBuf, Planned>,
}

#[derive(Debug)]
struct Planned {
    before: TextFile,
    /// `None` when the file goes.
    after: Option<String>,
}

/// One file of a batch: what it was and what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The file, relative to the workspace.
    pub path: PathBuf,
    /// Its text before; `None` when there was no file.
    pub old: Option<String>,
    /// Its text after; `None` when it is gone.
    pub new: Option<String>,
}

impl Written {
    /// Lines added and removed.
    pub fn lines(&self) -> (usize, usize) {
        crate::diff::lines(self.old.as_deref().unwrap_or(""), self.new.as_deref().unwrap_or(""))
    }

    /// Unified diff with file headers.
    pub fn diff(&self) -> String {
        crate::diff::with_headers(&self.path, self.old.as_deref().unwrap_or(""), self.new.as_deref().unwrap_or(""))
    }
}

impl Batch {
    /// Reads the files and resolves every change. Nothing is written.
    pub fn resolve(root: &Path, changes: &[Change]) -> Result<Self, EditError> {
        let root = std::fs::canonicalize(root).map_err(|source| EditError::Io { path: root.to_owned(), source })?;
        let mut batch = Self { root, files: BTreeMap::new() };
        for change in changes {
            let path = batch.place(&change.path)?;
            let old = batch.planned(&path)?.after.clone();
            let change = Change { path, kind: change.kind.clone() };
            let new = resolve(&change, old.as_deref())?;
            match &change.kind {
                ChangeKind::Delete => batch.planned(&change.path)?.after = None,
                ChangeKind::Move { to } => batch.rename(&change.path, to, new)?,
                _ => batch.planned(&change.path)?.after = Some(new),
            }
        }
        Ok(batch)
    }

    fn rename(&mut self, from: &Path, to: &Path, text: String) -> Result<(), EditError> {
        let to = self.place(to)?;
        if to == from {
            return Ok(());
        }
        let taken = self.planned(&to)?.after.is_some();
        if taken {
            return Err(EditError::Exists { path: to });
        }
        let clothes = self.planned(from)?.before.clone();
        self.planned(from)?.after = None;
        let planned = self.planned(&to)?;
        planned.after = Some(text);
        if !planned.before.exists() {
            planned.before = clothes.moved();
        }
        Ok(())
    }

    /// What the files were and will be, those that change.
    pub fn files(&self) -> Vec<Written> {
        let written = |(path, planned): (&PathBuf, &Planned)| Written {
            path: path.clone(),
            old: planned.before.exists().then(|| planned.before.text.clone()),
            new: planned.after.clone(),
        };
        self.files.iter().map(written).filter(|file| file.old != file.new).collect()
    }

    /// Writes what was resolved. Files that did not change are left alone, and one that somebody else wrote since it was
    /// read stops the batch before anything is written. `keep` is given what is about to happen, before it happens; when it
    /// fails nothing is written.
    pub fn write(self, keep: impl FnOnce(&Step) -> Result<(), String>) -> Result<Vec<Written>, EditError> {
        let changed = self.files();
        for file in &changed {
            let planned = &self.files[&file.path];
            let path = self.root.join(&file.path);
            // A folder may have become a link since the paths were looked at.
            self.place(&file.path)?;
            if !planned.before.is_current(&path)? {
                return Err(EditError::Changed { path: file.path.clone() });
            }
        }
        if !changed.is_empty() {
            keep(&self.step(&changed)?).map_err(|why| EditError::NotKept { why })?;
        }
        // New texts first: a move that is cut in the middle leaves two copies rather than none.
        for file in &changed {
            if let Some(text) = &file.new {
                write_atomic(&self.root.join(&file.path), text, &self.files[&file.path].before)?;
            }
        }
        for file in changed.iter().filter(|file| file.new.is_none()) {
            let gone = std::fs::remove_file(self.root.join(&file.path));
            gone.map_err(|source| EditError::Io { path: file.path.clone(), source })?;
        }
        Ok(changed)
    }

    /// What the files are and will be, by their real places: a link stays and what it points to is written.
    fn step(&self, changed: &[Written]) -> Result<Step, EditError> {
        let mut step = Step::default();
        for file in changed {
            let planned = &self.files[&file.path];
            let full = self.root.join(&file.path);
            let outside =
                || EditError::Forbidden { path: file.path.clone(), why: "the path leads out of the workspace" };
            let place = match (&file.new, full.parent(), full.file_name()) {
                // It is the link that goes, not what it points to.
                (None, Some(parent), Some(name)) => real_path(parent).join(name),
                _ => real_path(&full),
            };
            let path = place.strip_prefix(&self.root).map_err(|_| outside())?.to_owned();
            let link = std::fs::symlink_metadata(&place).is_ok_and(|data| data.is_symlink());
            let mode = planned.before.mode();
            if link {
                let target =
                    std::fs::read_link(&place).map_err(|source| EditError::Io { path: path.clone(), source })?;
                step.before.insert(path.clone(), Entry { kind: Kind::Link { target }, mode: 0 });
            } else if let (true, Some(hash)) = (planned.before.exists(), planned.before.hash()) {
                let kind = Kind::File { hash: Hash(hash), size: planned.before.size() };
                step.before.insert(path.clone(), Entry { kind, mode: mode.unwrap_or(MODE_UNKNOWN) });
            }
            if let Some(text) = &file.new {
                let bytes = planned.before.bytes(&full, text)?;
                let kind = Kind::File { hash: Hash::of(&bytes), size: bytes.len() as u64 };
                // Folders that are made for it go again with it.
                for above in path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()) {
                    if std::fs::symlink_metadata(self.root.join(above)).is_err() {
                        step.after.insert(above.to_owned(), Entry { kind: Kind::Folder, mode: MODE_UNKNOWN });
                    }
                }
                step.after.insert(path, Entry { kind, mode: mode.unwrap_or(MODE_UNKNOWN) });
                step.written.push(bytes);
            }
        }
        Ok(step)
    }

    fn planned(&mut self, path: &Path) -> Result<&mut Planned, EditError> {
        if !self.files.contains_key(path) {
            let before = match TextFile::read(&self.root.join(path)) {
                Ok(file) => file,
                Err(EditError::Missing { .. }) => TextFile::absent(),
                Err(error) => return Err(error),
            };
            let after = before.exists().then(|| before.text.clone());
            self.files.insert(path.to_owned(), Planned { before, after });
        }
        Ok(self.files.get_mut(path).expect("it was put there above"))
    }

    /// The path inside the workspace, with every link on the way inside it too.
    fn place(&self, path: &Path) -> Result<PathBuf, EditError> {
        let forbidden = |why| EditError::Forbidden { path: path.to_owned(), why };
        let outside = "the path leads out of the workspace; name a file inside it";
        let relative = path.strip_prefix(&self.root).unwrap_or(path);
        let mut clean = PathBuf::new();
        for component in relative.components() {
            match component {
                Component::Normal(name) => clean.push(name),
                Component::CurDir => {}
                Component::ParentDir if clean.pop() => {}
                _ => return Err(forbidden(outside)),
            }
        }
        let protected = |path: &Path| {
            path.components().any(|part| PROTECTED.iter().any(|name| part.as_os_str().eq_ignore_ascii_case(name)))
        };
        if clean.as_os_str().is_empty() {
            return Err(forbidden("the path names no file"));
        }
        let real = real_path(&self.root.join(&clean));
        let Ok(inside) = real.strip_prefix(&self.root) else { return Err(forbidden(outside)) };
        if protected(&clean) || protected(inside) {
            return Err(forbidden("history and settings are not edited this way; ask the user to do it"));
        }
        Ok(clean)
    }
}

/// Where a path really is: the part that exists without links, and the rest as given.
fn real_path(path: &Path) -> PathBuf {
    let mut rest = Vec::new();
    let mut existing = path;
    loop {
        if let Ok(real) = std::fs::canonicalize(existing) {
            return rest.iter().rev().fold(real, |path, name| path.join(name));
        }
        // A link to nowhere: what it would create is where it points.
        if let Ok(to) = std::fs::read_link(existing) {
            return existing.parent().unwrap_or(Path::new("/")).join(to);
        }
        let (Some(parent), Some(name)) = (existing.parent(), existing.file_name()) else { return path.to_owned() };
        rest.push(name.to_owned());
        existing = parent;
    }
}

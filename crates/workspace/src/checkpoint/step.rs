//! What Flint itself did to files, and the way back from it.
//!
//! A [`Step`] says for every path it touches what stood there before and what stands there after. It is stored, with the
//! contents it replaces, before the first byte is written ([`Store::keep`]); so a crash at any moment leaves something to
//! undo, and undo knows which files are Flint's doing and which are anybody else's ([`Store::plan_back`]).

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::objects::{self, Hash};
use super::tree::{Entry, Kind, differing};
use super::{CheckpointError, Result, Store, TreeId};

/// The mode of a file that is not there yet: the user's umask decides it.
pub(crate) const MODE_UNKNOWN: u32 = u32::MAX;

/// How the file of a step begins.
pub(super) const STEP_HEAD: &[u8] = b"flint step 1\n";

/// The paths that one change touches: what stood there, and what stands there afterwards. A path that is missing on one
/// side is not there on that side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    pub(crate) before: BTreeMap<PathBuf, Entry>,
    pub(crate) after: BTreeMap<PathBuf, Entry>,
    /// Contents of files afterwards, to be kept beside the record: with them a file that somebody changes later can be
    /// merged. What is not here, as of a step that was read back, is kept already or unknown.
    pub(crate) written: Vec<Vec<u8>>,
}

/// Something that was done, as a session remembers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// Files were written; the step.
    Edit(TreeId),
    /// A command ran: the files before it, and after it unless it was cut off.
    Command(TreeId, Option<TreeId>),
}

impl Step {
    /// The paths it changes.
    pub fn paths(&self) -> Vec<PathBuf> {
        differing(&self.before, &self.after)
    }

    /// The way back.
    #[must_use]
    pub fn reversed(self) -> Self {
        Self { before: self.after, after: self.before, written: Vec::new() }
    }

    fn record(&self) -> Vec<u8> {
        let mut record = STEP_HEAD.to_vec();
        for (side, entries) in [(b'b', &self.before), (b'a', &self.after)] {
            for (path, entry) in entries {
                let (letter, rest) = match &entry.kind {
                    Kind::Folder => ('d', Vec::new()),
                    Kind::File { hash, size } => ('f', format!("{hash} {size}").into_bytes()),
                    Kind::Link { target } => ('l', target.as_os_str().as_bytes().to_vec()),
                };
                record.push(side);
                record.extend(format!("{letter} {} ", entry.mode).as_bytes());
                record.extend([path.as_os_str().as_bytes(), b"\0", &rest, b"\0"].concat());
            }
        }
        record
    }

    pub(super) fn parse(record: &[u8]) -> Option<Self> {
        let mut step = Self::default();
        let mut parts = record.strip_prefix(STEP_HEAD)?.split(|byte| *byte == 0);
        while let (Some(head), Some(rest)) = (parts.next().filter(|head| !head.is_empty()), parts.next()) {
            let mut words = head.splitn(3, |byte| *byte == b' ');
            let (sign, mode, path) = (words.next()?, words.next()?, words.next()?);
            let kind = match sign.get(1)? {
                b'd' => Kind::Folder,
                b'f' => {
                    let (hash, size) = std::str::from_utf8(rest).ok()?.split_once(' ')?;
                    Kind::File { hash: Hash::parse(hash)?, size: size.parse().ok()? }
                }
                _ => Kind::Link { target: PathBuf::from(OsStr::from_bytes(rest)) },
            };
            let entry = Entry { kind, mode: std::str::from_utf8(mode).ok()?.parse().ok()? };
            let side = if sign[0] == b'b' { &mut step.before } else { &mut step.after };
            side.insert(PathBuf::from(OsStr::from_bytes(path)), entry);
        }
        Some(step)
    }

    /// All contents that going back can use.
    pub(super) fn all_contents(&self) -> BTreeSet<Hash> {
        self.before.values().chain(self.after.values()).filter_map(|entry| hash_of(Some(entry))).collect()
    }

    /// The contents that going back needs.
    pub(super) fn contents(&self) -> BTreeSet<Hash> {
        self.before.values().filter_map(|entry| hash_of(Some(entry))).collect()
    }
}

pub(super) fn hash_of(entry: Option<&Entry>) -> Option<Hash> {
    match entry?.kind {
        Kind::File { hash, .. } => Some(hash),
        _ => None,
    }
}

impl Store {
    /// Stores a step and the contents it is about to replace, so that they survive a crash and a power cut. To be called
    /// before the first byte is written; what cannot be kept must not be replaced.
    pub fn keep(&self, root: &Path, step: &Step) -> Result<TreeId> {
        for (path, entry) in &step.before {
            let Kind::File { hash, size } = entry.kind else { continue };
            if self.objects.has(&hash, size) {
                continue;
            }
            let full = root.join(path);
            let bytes = boundary::file::read(&full, self.limits.file_bytes).map_err(|error| CheckpointError::Io {
                path: full.clone(),
                source: std::io::Error::other(error.to_string()),
            })?;
            if self.objects.put(&bytes, false)? != hash {
                return Err(CheckpointError::Changed { path: path.clone() });
            }
        }
        for bytes in &step.written {
            self.objects.put(bytes, false)?;
        }
        self.objects.sync(&step.contents())?;
        let record = step.record();
        let name = Hash::of(&record).to_string();
        let trees = self.folder.join("trees");
        objects::write_file(&trees.join(&name), &record, true)?;
        objects::sync_folder(&trees)?;
        Ok(TreeId(name))
    }

    /// A step that was kept.
    pub fn step(&self, id: &TreeId) -> Result<Step> {
        let record = self.record(id)?;
        Step::parse(&record).ok_or_else(|| CheckpointError::Damaged { what: format!("step {id}") })
    }

    /// The step that something made of the files. Of a command that was cut off only the beginning is known.
    pub(super) fn step_of(&self, root: &Path, done: &Done) -> Result<(Step, bool)> {
        match done {
            Done::Edit(id) => Ok((self.step(id)?, true)),
            Done::Command(before, after) => {
                let (mut before, after, known) = match after {
                    Some(after) => (self.load(before)?, self.load(after)?, true),
                    None => (self.load(before)?, self.scan(root, false)?, false),
                };
                let mut step = Step::default();
                for path in differing(&before.entries, &after.entries) {
                    // What either side does not know was not the command's doing as far as anybody knows.
                    if before.leaves_out(&path)
                        || after.leaves_out(&path)
                        || before.is_cut() && !before.entries.contains_key(&path)
                    {
                        continue;
                    }
                    if let Some(entry) = after.entries.get(&path) {
                        step.after.insert(path.clone(), entry.clone());
                    }
                    if let Some(entry) = before.entries.remove(&path) {
                        step.before.insert(path, entry);
                    }
                }
                Ok((step, known))
            }
        }
    }
}

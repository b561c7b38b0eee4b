//! Trust: whether what a project's own configuration says may hold.
//!
//! A project is other people's text. Until its user says otherwise its files can be read and edited, and its configuration
//! may make safeguards stricter; everything else in it has no effect. The unit is the repository (the nearest folder with a
//! `.git`, else the folder itself), so a clone inside of a trusted folder is a folder of its own. What is trusted is what the
//! user could see: every configuration file is remembered by its sha256, and one that changed, or came later, is not
//! trusted. All of it is kept in the user's state directory, never in the folder.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The file in the state directory.
const FILE: &str = "trust.json";
/// Held while it is changed.
const LOCK: &str = "trust.lock";
/// The largest such file that is read.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// Folders that are remembered; the oldest go first.
const FOLDERS_MAX: usize = 4096;
/// Configuration files that are remembered of one folder.
const FILES_MAX: usize = 256;

/// What its user said about one folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// False when they were asked and said no, so that they are not asked again.
    pub trusted: bool,
    /// When, in seconds since 1970.
    pub since: u64,
    /// The sha256 of every configuration file they could see, by its path.
    #[serde(default)]
    pub files: BTreeMap<PathBuf, String>,
}

/// How a folder stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// Nobody said anything.
    #[default]
    Untrusted,
    /// The user was asked about these very files and said no.
    Declined,
    /// The user trusts it, but a configuration file changed or came since.
    Changed,
    /// The user trusts it, as it is.
    Trusted,
}

impl std::fmt::Display for Standing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Untrusted => "not trusted",
            Self::Declined => "not trusted: you were asked and said no",
            Self::Changed => "not trusted: its configuration changed since you trusted it",
            Self::Trusted => "trusted",
        })
    }
}

/// Why nothing is remembered.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// There is no place for it.
    #[error("there is no absolute folder for Flint's state; set HOME or FLINT_HOME to one")]
    NoState,
    /// The file or its folder cannot be used.
    #[error("{path}: {source}; correct its permissions, or choose another place with FLINT_HOME", path = path.display())]
    Io {
        /// What could not be used.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is not what was written.
    #[error("{path} cannot be understood ({why}), so no folder is trusted; move it away and trust your folders again", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

/// Everything the user said.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    folders: BTreeMap<PathBuf, Entry>,
}

/// The sha256 of a configuration file's bytes, in hexadecimal.
pub fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Trust {
    /// What is remembered in the state directory; nothing when there is none. A relative directory would be wherever the
    /// process is, possibly in the very folder that wants to be trusted, so it is none.
    pub fn read(state: Option<&Path>) -> Result<Self, TrustError> {
        let Some(state) = state.filter(|state| state.is_absolute()) else { return Ok(Self::default()) };
        let path = state.join(FILE);
        let folders = match boundary::file::read(&path, FILE_BYTES_MAX) {
            Ok(bytes) => {
                serde_json::from_slice(&bytes).map_err(|error| TrustError::Damaged { path, why: error.to_string() })?
            }
            Err(error) if error.is_missing() => BTreeMap::new(),
            Err(error) => return Err(TrustError::Damaged { path, why: error.to_string() }),
        };
        Ok(Self { folders })
    }

    /// How a folder stands, given its configuration files and their digests.
    pub fn standing(&self, root: &Path, files: &BTreeMap<PathBuf, String>) -> Standing {
        let Some(entry) = self.folders.get(&real(root)) else { return Standing::Untrusted };
        let same = files.iter().all(|(path, digest)| entry.files.get(path) == Some(digest));
        match (entry.trusted, same) {
            (true, true) => Standing::Trusted,
            (true, false) => Standing::Changed,
            (false, true) => Standing::Declined,
            (false, false) => Standing::Untrusted,
        }
    }

    /// Whether one configuration file of a folder is as its user saw it when they trusted the folder.
    pub fn covers(&self, root: &Path, file: &Path, digest: &str) -> bool {
        let entry = self.folders.get(&real(root));
        entry.is_some_and(|entry| entry.trusted && entry.files.get(file).is_some_and(|known| known == digest))
    }

    /// All folders, by path.
    pub fn folders(&self) -> &BTreeMap<PathBuf, Entry> {
        &self.folders
    }

    /// Remembers what the user says about a folder whose configuration files are these.
    pub fn set(
        state: Option<&Path>,
        root: &Path,
        files: &BTreeMap<PathBuf, String>,
        trusted: bool,
    ) -> Result<(), TrustError> {
        Self::change(state, |folders| {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
            let mut entry = Entry { trusted, since, files: files.clone() };
            // Files of other folders of the same repository, seen earlier, stay as they were seen.
            if let Some(before) = folders.get(&real(root)).filter(|before| before.trusted && trusted) {
                for (path, digest) in &before.files {
                    entry.files.entry(path.clone()).or_insert_with(|| digest.clone());
                }
            }
            while entry.files.len() > FILES_MAX {
                entry.files.pop_last();
            }
            folders.insert(real(root), entry);
            while folders.len() > FOLDERS_MAX {
                let oldest = folders.iter().min_by_key(|(_, entry)| entry.since).map(|(path, _)| path.clone());
                let Some(oldest) = oldest else { break };
                folders.remove(&oldest);
            }
            true
        })
        .map(|_| ())
    }

    /// Forgets a folder. False when nothing was known of it.
    pub fn remove(state: Option<&Path>, root: &Path) -> Result<bool, TrustError> {
        Self::change(state, |folders| folders.remove(&real(root)).or_else(|| folders.remove(root)).is_some())
    }

    /// Changes the file as a whole: a crash leaves the old one or the new one.
    fn change(
        state: Option<&Path>,
        edit: impl FnOnce(&mut BTreeMap<PathBuf, Entry>) -> bool,
    ) -> Result<bool, TrustError> {
        let state = state.filter(|state| state.is_absolute()).ok_or(TrustError::NoState)?;
        let io = |path: &Path| {
            let path = path.to_owned();
            move |source| TrustError::Io { path, source }
        };
        std::fs::create_dir_all(state).map_err(io(state))?;
        let _lock = lock(&state.join(LOCK)).map_err(io(&state.join(LOCK)))?;
        let mut trust = Self::read(Some(state))?;
        if !edit(&mut trust.folders) {
            return Ok(false);
        }
        let path = state.join(FILE);
        // Only its owner reads and writes a temporary file.
        let mut new = tempfile::NamedTempFile::new_in(state).map_err(io(state))?;
        let text = serde_json::to_vec_pretty(&trust.folders).map_err(std::io::Error::other).map_err(io(&path))?;
        new.write_all(&text).and_then(|()| new.as_file().sync_all()).map_err(io(&path))?;
        new.persist(&path).map_err(|error| error.error).map_err(io(&path))?;
        Ok(true)
    }
}

fn lock(path: &Path) -> std::io::Result<File> {
    let file = OpenOptions::new().create(true).write(true).truncate(false).open(path)?;
    file.lock()?;
    Ok(file)
}

/// The folder without links, so that no second name stands for it.
fn real(root: &Path) -> PathBuf {
    root.canonicalize().unwrap_or_else(|_| root.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(pairs: &[(&str, &str)]) -> BTreeMap<PathBuf, String> {
        pairs.iter().map(|(path, text)| (PathBuf::from(path), digest(text.as_bytes()))).collect()
    }

    #[test]
    fn trust_is_for_a_folder_as_it_was_seen() {
        let dir = tempfile::tempdir().unwrap();
        let (state, root) = (dir.path().join("state"), dir.path().join("work"));
        std::fs::create_dir_all(root.join("inner")).unwrap();
        std::os::unix::fs::symlink(&root, dir.path().join("link")).unwrap();
        let standing =
            |root: &Path, files: &BTreeMap<PathBuf, String>| Trust::read(Some(&state)).unwrap().standing(root, files);
        let (one, two) = (files(&[("a", "1")]), files(&[("a", "1"), ("b", "2")]));
        assert_eq!(standing(&root, &one), Standing::Untrusted);
        Trust::set(Some(&state), &root, &one, false).unwrap();
        assert_eq!((standing(&root, &one), standing(&root, &two)), (Standing::Declined, Standing::Untrusted));
        Trust::set(Some(&state), &dir.path().join("link"), &one, true).unwrap();
        assert_eq!((standing(&root, &one), standing(&root, &two)), (Standing::Trusted, Standing::Changed));
        assert_eq!(standing(&root.join("inner"), &one), Standing::Untrusted, "folders inside are their own");
        assert_eq!(standing(&root, &files(&[("a", "2")])), Standing::Changed);
        assert_eq!(standing(&root, &files(&[])), Standing::Trusted, "what is gone says nothing");
        Trust::set(Some(&state), &root, &files(&[("b", "2")]), true).unwrap();
        assert_eq!(standing(&root, &two), Standing::Trusted);
        assert!(Trust::remove(Some(&state), &root).unwrap() && !Trust::remove(Some(&state), &root).unwrap());
        assert_eq!(standing(&root, &one), Standing::Untrusted);
    }

    #[test]
    fn what_cannot_be_understood_trusts_nobody() {
        let dir = tempfile::tempdir().unwrap();
        for text in ["", "[]", "{\"/\": 1}", "{\"/\": {\"trusted\": \"yes\", \"since\": 0}}"] {
            std::fs::write(dir.path().join(FILE), text).unwrap();
            let error = Trust::read(Some(dir.path())).unwrap_err().to_string();
            assert!(error.contains("move it away"), "{error}");
            assert!(Trust::set(Some(dir.path()), dir.path(), &BTreeMap::new(), true).is_err());
        }
        assert!(Trust::read(Some(Path::new("relative"))).unwrap().folders().is_empty());
        assert!(matches!(
            Trust::set(Some(Path::new("relative")), dir.path(), &BTreeMap::new(), true),
            Err(TrustError::NoState)
        ));
        assert!(matches!(Trust::set(None, dir.path(), &BTreeMap::new(), true), Err(TrustError::NoState)));
    }
}

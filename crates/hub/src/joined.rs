//! The parts of a model, joined into one growing file that survives a kill.
//!
//! Parts are appended in order. After each, a state file is replaced with the size and digest of every part so far; so
//! the file may be ahead of its state by a torn part, never behind. Opening it again reads the recorded parts back,
//! compares their digests, cuts the file at the first that does not agree, and goes on from there. That same reading
//! restores the running digest of the whole, so finishing needs no further pass over the file.
//!
//! Invariant: the file begins with exactly the bytes of `state.parts`, and `whole` has hashed exactly those.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::disk;
use crate::error::{Error, SourceError};
use crate::part::PartFile;
use crate::verify::{copy_hashed, hex};

/// Longest state file worth reading: 256 parts need about 30 kB.
const STATE_BYTES_MAX: u64 = 1 << 20;

pub(crate) struct Joined {
    path: PathBuf,
    file: File,
    state: State,
    whole: Sha256,
}

#[derive(Default, Serialize, Deserialize)]
struct State {
    /// What the parts are parts of. Another source or version starts again.
    origin: String,
    parts: Vec<Part>,
}

#[derive(Serialize, Deserialize)]
struct Part {
    bytes: u64,
    sha256: String,
}

impl Joined {
    /// Opens the file in `directory`, keeping what is good of an earlier attempt at the same origin.
    pub(crate) fn open(directory: &Path, origin: &str) -> Result<Joined, Error> {
        let path = directory.join("joined");
        let mut state = read_state(&path);
        if state.origin != origin {
            state = State { origin: origin.to_owned(), parts: Vec::new() };
        }
        let file = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&path)
            .map_err(Error::io("open", &path))?;
        let mut joined = Joined { path, file, state, whole: Sha256::new() };
        joined.keep_good_parts()?;
        Ok(joined)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Number of parts joined so far.
    pub(crate) fn count(&self) -> u32 {
        self.state.parts.len() as u32
    }

    /// Bytes of the parts joined so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.state.parts.iter().map(|part| part.bytes).sum()
    }

    /// Appends the next part, of at most `bytes_max`. If that fails midway, nothing was appended.
    pub(crate) fn append(&mut self, part: &PartFile, bytes_max: u64) -> Result<(), SourceError> {
        self.cut(self.bytes())?;
        let mut whole = self.whole.clone();
        let mut digest = Sha256::new();
        let file = &mut self.file;
        let bytes = part.read(bytes_max, |reader| copy_hashed(reader, file, &mut [&mut whole, &mut digest]))?;
        self.whole = whole;
        self.state.parts.push(Part { bytes, sha256: hex(&digest.finalize()) });
        self.write_state()?;
        Ok(())
    }

    /// The digest of everything joined.
    pub(crate) fn sha256(&self) -> String {
        hex(&self.whole.clone().finalize())
    }

    fn keep_good_parts(&mut self) -> Result<(), Error> {
        let recorded = std::mem::take(&mut self.state.parts);
        let count = recorded.len();
        for part in recorded {
            let mut whole = self.whole.clone();
            let mut digest = Sha256::new();
            let reader = (&self.file).take(part.bytes);
            let read = copy_hashed(reader, &mut std::io::sink(), &mut [&mut whole, &mut digest])
                .map_err(Error::io("read", &self.path))?;
            if read != part.bytes || hex(&digest.finalize()) != part.sha256 {
                break;
            }
            self.whole = whole;
            self.state.parts.push(part);
        }
        self.cut(self.bytes())?;
        if self.state.parts.len() != count { self.write_state() } else { Ok(()) }
    }

    fn cut(&mut self, bytes: u64) -> Result<(), Error> {
        self.file.set_len(bytes).map_err(Error::io("cut", &self.path))?;
        self.file.seek(SeekFrom::Start(bytes)).map_err(Error::io("move in", &self.path))?;
        Ok(())
    }

    fn write_state(&self) -> Result<(), Error> {
        let text = serde_json::to_vec(&self.state).expect("a state of numbers and text is always JSON");
        disk::replace(&state_path(&self.path), &text)
    }
}

fn state_path(path: &Path) -> PathBuf {
    disk::beside(path, "state")
}

/// A state that cannot be read is no state: the parts are fetched again.
fn read_state(path: &Path) -> State {
    let file = File::open(state_path(path)).ok();
    file.and_then(|file| serde_json::from_reader(file.take(STATE_BYTES_MAX)).ok()).unwrap_or_default()
}

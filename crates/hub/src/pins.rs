//! What models of the catalogue were when they were first fetched.
//!
//! Where the catalogue knows no sha256, the one that the source publishes is checked, and remembered here even when the
//! model is removed: a source that gives another file later is refused until its user says that the change is meant.

use std::collections::BTreeMap;

use crate::catalogue::{Entry, is_sha256};
use crate::disk;
use crate::error::Error;
use crate::store::Store;

/// The file in the store.
const FILE: &str = "pins.json";
/// The largest that is read; every model of the catalogue takes a hundred bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The digest of the file that was fetched before, if any: as remembered, else as recorded beside the file.
pub(crate) fn remembered(store: &Store, entry: &Entry) -> Result<Option<String>, Error> {
    Ok(read(store)?.remove(&entry.name).or_else(|| store.recorded_sha256(entry)).filter(|sha256| is_sha256(sha256)))
}

/// Remembers a digest, unless the catalogue itself names one.
pub(crate) fn remember(store: &Store, entry: &Entry, sha256: &str) -> Result<(), Error> {
    if entry.sha256.is_some() {
        return Ok(());
    }
    let mut pins = read(store)?;
    if pins.insert(entry.name.clone(), sha256.to_owned()).as_deref() == Some(sha256) {
        return Ok(());
    }
    write(store, &pins)
}

impl Store {
    /// Forgets what a model was when it was fetched, because its user knows that its source has another one now. False when
    /// nothing was remembered.
    pub fn forget(&self, entry: &Entry) -> Result<bool, Error> {
        let mut pins = read(self)?;
        if pins.remove(&entry.name).is_none() {
            return Ok(false);
        }
        write(self, &pins)?;
        Ok(true)
    }
}

fn read(store: &Store) -> Result<BTreeMap<String, String>, Error> {
    let path = store.root().join(FILE);
    match boundary::file::read(&path, FILE_BYTES_MAX) {
        // Going on without it would accept anything.
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map_err(|error| Error::Pins { path, reason: format!("it cannot be understood: {error}") }),
        Err(error) if error.is_missing() => Ok(BTreeMap::new()),
        Err(error) => Err(Error::Pins { path, reason: error.to_string() }),
    }
}

fn write(store: &Store, pins: &BTreeMap<String, String>) -> Result<(), Error> {
    let text = serde_json::to_vec_pretty(pins).expect("names and digests are always JSON");
    disk::replace(&store.root().join(FILE), &text)
}

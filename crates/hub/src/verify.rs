//! Whether a file is what it should be, without reading a gigabyte at every start.
//!
//! Beside each model lies a small record: size, modification time and sha256 of the file when it was last read in full.
//! While size and time still agree, the record stands for the bytes. When they do not, the file is read again and either
//! the record is renewed or the file is refused. The record of a model whose digest is not in the catalogue is also the
//! only memory of what its source published, so it is written before the file gets its name.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::disk;
use crate::error::Error;

/// Large enough that the digest and not the system calls sets the pace.
const BUFFER_BYTES: usize = 1 << 20;

/// Longest record worth reading; a larger file is not ours.
const RECORD_BYTES_MAX: u64 = 4096;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) bytes: u64,
    mtime_ns: u64,
    pub(crate) sha256: String,
}

/// How hard to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Trust the record while size and modification time agree with it.
    Recorded,
    /// Read every byte.
    Full,
}

/// The outcome of a check that could be carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Good,
    /// Not what was published, with the reason.
    Damaged(String),
}

/// Compares a model file with what is known of it.
pub(crate) fn check(path: &Path, bytes: Option<u64>, sha256: Option<&str>, depth: Depth) -> Result<Verdict, Error> {
    let record = read_record(path);
    let (size, mtime_ns) = stamp(path)?;
    let Some(expected) = sha256.or(record.as_ref().map(|record| record.sha256.as_str())) else {
        return Ok(Verdict::Damaged("nothing is known to compare it with: its record is missing".to_owned()));
    };
    if let Some(bytes) = bytes.or(record.as_ref().map(|record| record.bytes))
        && bytes != size
    {
        return Ok(Verdict::Damaged(format!("it has {size} bytes and should have {bytes}")));
    }
    let fresh = Record { bytes: size, mtime_ns, sha256: expected.to_owned() };
    if depth == Depth::Recorded && record.as_ref() == Some(&fresh) {
        return Ok(Verdict::Good);
    }
    let found = sha256_of(path)?;
    if found != expected {
        return Ok(Verdict::Damaged(format!("its sha256 is {found} and should be {expected}")));
    }
    write_record(path, &fresh)?;
    Ok(Verdict::Good)
}

/// Notes that `file`, soon to be renamed to `destination`, was read in full and has this digest.
pub(crate) fn record(file: &Path, destination: &Path, sha256: &str) -> Result<(), Error> {
    let (bytes, mtime_ns) = stamp(file)?;
    write_record(destination, &Record { bytes, mtime_ns, sha256: sha256.to_owned() })
}

/// Where the record of a model file is kept.
pub(crate) fn record_path(path: &Path) -> PathBuf {
    disk::beside(path, "verified")
}

pub(crate) fn read_record(path: &Path) -> Option<Record> {
    let file = File::open(record_path(path)).ok()?;
    serde_json::from_reader(file.take(RECORD_BYTES_MAX)).ok()
}

/// The digest of a whole file in lower-case hexadecimal.
pub(crate) fn sha256_of(path: &Path) -> Result<String, Error> {
    let file = File::open(path).map_err(Error::io("open", path))?;
    let mut hasher = Sha256::new();
    copy_hashed(file, &mut std::io::sink(), &mut [&mut hasher]).map_err(Error::io("read", path))?;
    Ok(hex(&hasher.finalize()))
}

/// Copies everything and feeds it to each of the hashers on the way; returns the number of bytes.
pub(crate) fn copy_hashed(
    mut from: impl Read,
    to: &mut impl std::io::Write,
    hashers: &mut [&mut Sha256],
) -> std::io::Result<u64> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut total = 0;
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => return Ok(total),
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        hashers.iter_mut().for_each(|hasher| hasher.update(&buffer[..count]));
        to.write_all(&buffer[..count])?;
        total += count as u64;
    }
}

pub(crate) fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn write_record(path: &Path, record: &Record) -> Result<(), Error> {
    let text = serde_json::to_vec(record).expect("a record of numbers and text is always JSON");
    disk::replace(&record_path(path), &text)
}

fn stamp(path: &Path) -> Result<(u64, u64), Error> {
    let meta = std::fs::metadata(path).map_err(Error::io("read", path))?;
    let modified = meta.modified().map_err(Error::io("read", path))?;
    let since = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok((meta.len(), u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)))
}

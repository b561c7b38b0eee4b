//! Checked reading: nothing is allocated before the file is known to be long enough for it.
//!
//! Two rules hold for every byte that comes from a file, and every other module of the reader relies on them:
//! a length is compared with what is left of the file before anything of that length is touched, and all memory taken
//! together (`Reader::charge`) stays at or below the file's size. A header that breaks either is damaged.

use std::io::{ErrorKind, Read, Seek};

use super::error::GgufError;

/// Most tensors, and most metadata keys, of one file. The largest models have some ten thousand tensors.
const LIST_ENTRIES_MAX: u64 = 1 << 20;

/// What a header can be read from: a file or a slice.
pub(super) trait Source: Read + Seek {}
impl<T: Read + Seek> Source for T {}

/// A position in a source of known length, with what may still be allocated.
pub(super) struct Reader<S> {
    source: S,
    position: u64,
    /// Bytes that the source has.
    len: u64,
    /// Bytes that may still be allocated.
    allowance: u64,
}

impl<S: Source> Reader<S> {
    /// A reader at the start of `source`, which has `len` bytes, that may allocate `allowance` bytes.
    pub fn new(source: S, len: u64, allowance: u64) -> Self {
        Reader { source, position: 0, len, allowance }
    }

    /// Bytes read so far.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Fails unless the source has `needed` more bytes.
    pub fn expect(&self, what: &'static str, needed: u64) -> Result<(), GgufError> {
        let left = self.len - self.position;
        if needed > left {
            return Err(GgufError::Truncated { what, offset: self.position, needed, left });
        }
        Ok(())
    }

    /// An empty list for `count` entries that take at least `entry_bytes_min` bytes of the file each.
    pub fn list<T>(&mut self, what: &'static str, count: u64, entry_bytes_min: u64) -> Result<Vec<T>, GgufError> {
        if count > LIST_ENTRIES_MAX {
            return Err(GgufError::TooMany { what, count, max: LIST_ENTRIES_MAX });
        }
        self.expect_entries(what, count, entry_bytes_min)?;
        self.vec_with_capacity(what, count)
    }

    /// Fails unless the source has room for `count` entries of at least `entry_bytes_min` bytes each.
    pub fn expect_entries(&self, what: &'static str, count: u64, entry_bytes_min: u64) -> Result<(), GgufError> {
        self.expect(what, count.saturating_mul(entry_bytes_min))
    }

    /// Takes `bytes` from the allowance.
    pub fn charge(&mut self, what: &'static str, bytes: u64) -> Result<(), GgufError> {
        match self.allowance.checked_sub(bytes) {
            Some(left) => {
                self.allowance = left;
                Ok(())
            }
            None => Err(GgufError::OutOfProportion { what, needed: bytes, left: self.allowance }),
        }
    }

    /// An empty vector with room for exactly `count` values, paid from the allowance.
    pub fn vec_with_capacity<T>(&mut self, what: &'static str, count: u64) -> Result<Vec<T>, GgufError> {
        let bytes = count.saturating_mul(size_of::<T>() as u64);
        self.charge(what, bytes)?;
        // The charge bounds `count` by the file's size, but a 32-bit machine may still be too small for it.
        let count = usize::try_from(count).map_err(|_| GgufError::OutOfProportion {
            what,
            needed: bytes,
            left: self.allowance,
        })?;
        Ok(Vec::with_capacity(count))
    }

    /// Fills `buffer`.
    pub fn fill(&mut self, what: &'static str, buffer: &mut [u8]) -> Result<(), GgufError> {
        let needed = buffer.len() as u64;
        self.expect(what, needed)?;
        match self.source.read_exact(buffer) {
            Ok(()) => {
                self.position += needed;
                Ok(())
            }
            // The file became shorter while it was read.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                Err(GgufError::Truncated { what, offset: self.position, needed, left: 0 })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The next `count` bytes in a vector of their own.
    pub fn bytes(&mut self, what: &'static str, count: u64) -> Result<Vec<u8>, GgufError> {
        self.expect(what, count)?;
        let mut bytes = self.vec_with_capacity(what, count)?;
        bytes.resize(bytes.capacity().min(count as usize), 0);
        self.fill(what, &mut bytes)?;
        Ok(bytes)
    }

    /// Passes over `count` bytes.
    pub fn skip(&mut self, what: &'static str, count: u64) -> Result<(), GgufError> {
        self.expect(what, count)?;
        self.seek_by(count.cast_signed())
    }

    /// Goes back to `position`, which must have been read before.
    pub fn rewind(&mut self, position: u64) -> Result<(), GgufError> {
        assert!(position <= self.position, "rewind goes back only");
        self.seek_by(-(self.position - position).cast_signed())
    }

    fn seek_by(&mut self, distance: i64) -> Result<(), GgufError> {
        self.source.seek_relative(distance)?;
        self.position = self.position.wrapping_add_signed(distance);
        Ok(())
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], GgufError> {
        let mut bytes = [0; N];
        self.fill(what, &mut bytes)?;
        Ok(bytes)
    }

    /// The next 32-bit number.
    pub fn u32(&mut self, what: &'static str) -> Result<u32, GgufError> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    /// The next 64-bit number.
    pub fn u64(&mut self, what: &'static str) -> Result<u64, GgufError> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// `count` numbers of `N` bytes each, read in pieces so that no second buffer of that size is needed.
    pub fn numbers<T, const N: usize>(
        &mut self,
        what: &'static str,
        count: u64,
        decode: fn([u8; N]) -> T,
    ) -> Result<Vec<T>, GgufError> {
        self.expect_entries(what, count, N as u64)?;
        let mut numbers: Vec<T> = self.vec_with_capacity(what, count)?;
        let mut piece = [0u8; 4096];
        let mut left = count as usize;
        while left > 0 {
            let now = left.min(piece.len() / N);
            self.fill(what, &mut piece[..now * N])?;
            let (chunks, _) = piece[..now * N].as_chunks::<N>();
            numbers.extend(chunks.iter().map(|&bytes| decode(bytes)));
            left -= now;
        }
        Ok(numbers)
    }
}

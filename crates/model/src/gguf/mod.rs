//! GGUF: the file format of the models that Flint runs.
//!
//! A file is a header (metadata and tensor descriptions) followed by tensor data. This module reads the header of
//! versions 2 and 3 and says where each tensor lies; it never touches the data. Files come from strangers, so:
//!
//! - every count and length is compared with the file's size before it is used;
//! - all memory taken together stays below the file's size, whatever the header claims;
//! - a [`Gguf`] that exists is consistent: names are unique, every tensor's range is aligned and inside the file, rows
//!   are whole blocks.
//!
//! Format: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.

mod error;
mod metadata;
mod reader;
mod tensor;
mod value;

use std::fs::File;
use std::io::{BufReader, Cursor};
use std::path::Path;

pub use error::{GgufError, MetadataProblem, TensorProblem};
pub use kernels::Format;
pub use metadata::{FromValue, KEY_BYTES_MAX, Metadata};
pub use tensor::{NAME_BYTES_MAX, TensorInfo, tensor_bytes};
pub use value::{Array, StringArray, Value};

use reader::{Reader, Source};

/// Alignment of tensor data where the file does not say otherwise.
pub const ALIGNMENT_DEFAULT: u64 = 32;

/// The header of a GGUF file.
#[derive(Debug, Clone, PartialEq)]
pub struct Gguf {
    /// Format version, 2 or 3.
    pub version: u32,
    /// The key-value pairs.
    pub metadata: Metadata,
    /// All tensors in the order of the file.
    pub tensors: Vec<TensorInfo>,
    /// Alignment of tensor data.
    pub alignment: u64,
    /// Where tensor data starts in the file.
    pub data_offset: u64,
    /// Size of the whole file.
    pub file_len: u64,
    /// Indices into `tensors`, sorted by name.
    by_name: Vec<u32>,
}

impl Gguf {
    /// Reads the header of a file. Tensor data is not read.
    pub fn open(path: &Path) -> Result<Gguf, GgufError> {
        let open_error = |source| GgufError::Open { path: path.to_path_buf(), source };
        let file = File::open(path).map_err(open_error)?;
        let file_len = file.metadata().map_err(open_error)?.len();
        // The buffer too is paid for by the file's size, so a tiny file gets a tiny one or none.
        let buffer_bytes = (file_len / 8).min(64 * 1024);
        let source = BufReader::with_capacity(buffer_bytes as usize, file);
        let reader = Reader::new(source, file_len, file_len - buffer_bytes);
        read(reader, file_len)
    }

    /// Reads a header from memory. `header` is the file's beginning, or all of it; `file_len` is the whole file's size.
    pub fn parse(header: &[u8], file_len: u64) -> Result<Gguf, GgufError> {
        let len = file_len.min(header.len() as u64);
        read(Reader::new(Cursor::new(header), len, file_len), file_len)
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        let position =
            self.by_name.binary_search_by(|&index| self.tensors[index as usize].name.as_str().cmp(name)).ok()?;
        Some(&self.tensors[self.by_name[position] as usize])
    }
}

fn read<S: Source>(mut reader: Reader<S>, file_len: u64) -> Result<Gguf, GgufError> {
    let version = read_version(&mut reader)?;
    let tensor_count = reader.u64("the tensor count")?;
    let metadata_count = reader.u64("the metadata count")?;
    let metadata = Metadata::read(&mut reader, metadata_count)?;
    let alignment = alignment(&metadata)?;
    let mut tensors = tensor::read_infos(&mut reader, tensor_count)?;
    let by_name = sort_names(&mut reader, &tensors)?;
    let data_offset = reader.position().next_multiple_of(alignment);
    tensor::place(&mut tensors, data_offset, alignment, file_len)?;
    Ok(Gguf { version, metadata, tensors, alignment, data_offset, file_len, by_name })
}

fn read_version<S: Source>(reader: &mut Reader<S>) -> Result<u32, GgufError> {
    let found = reader.array("the magic number")?;
    if found != *b"GGUF" {
        return Err(GgufError::NotGguf { found });
    }
    match reader.u32("the version")? {
        version @ 2..=3 => Ok(version),
        // Versions are small numbers, so a file of the other byte order has its low half empty.
        version if version & 0xffff == 0 => Err(GgufError::BigEndian),
        found => Err(GgufError::Version { found }),
    }
}

fn alignment(metadata: &Metadata) -> Result<u64, GgufError> {
    const KEY: &str = "general.alignment";
    // 32 bits as the format says: `next_multiple_of` cannot overflow then.
    let alignment = metadata.optional::<u32>(KEY)?.map_or(ALIGNMENT_DEFAULT, u64::from);
    if !alignment.is_power_of_two() {
        return Err(MetadataProblem::Alignment(alignment).of(KEY));
    }
    Ok(alignment)
}

fn sort_names<S: Source>(reader: &mut Reader<S>, tensors: &[TensorInfo]) -> Result<Vec<u32>, GgufError> {
    let name = |index: u32| tensors[index as usize].name.as_str();
    let mut by_name: Vec<u32> = reader.vec_with_capacity("the tensor names", tensors.len() as u64)?;
    by_name.extend(0..tensors.len() as u32);
    by_name.sort_unstable_by(|&a, &b| name(a).cmp(name(b)));
    match by_name.windows(2).find(|pair| name(pair[0]) == name(pair[1])) {
        Some(pair) => Err(TensorProblem::Duplicate.of(name(pair[0]))),
        None => Ok(by_name),
    }
}

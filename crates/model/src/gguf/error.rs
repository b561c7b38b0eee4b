//! What can be wrong with a GGUF file, in words a person can act on.
//!
//! Fields rather than strings, so that a caller can tell an incomplete download (fetch again) from a file this build
//! cannot serve (choose another) and from a key that is simply not there (use a default).

use std::path::PathBuf;

/// Why a GGUF file was refused.
#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    /// The file could not be opened.
    #[error("cannot open {}: {source}", path.display())]
    Open {
        /// The file asked for.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The system failed while the header was read.
    #[error("cannot read the header: {0}")]
    Read(#[from] std::io::Error),
    /// The first four bytes are not `GGUF`.
    #[error("not a GGUF file: it starts with \"{}\" and not with \"GGUF\"", found.escape_ascii())]
    NotGguf {
        /// What stands there instead.
        found: [u8; 4],
    },
    /// The version reads as a small number only when its bytes are swapped.
    #[error("this is a big-endian GGUF file; convert it to little-endian or fetch the little-endian one")]
    BigEndian,
    /// A version other than 2 or 3.
    #[error("GGUF version {found} is not supported (2 and 3 are); convert the file again with a current tool")]
    Version {
        /// The version in the file.
        found: u32,
    },
    /// The file ends before what it announces.
    #[error(
        "truncated or damaged: {what} at byte {offset} needs {needed} bytes and {left} are left, so {} bytes are \
         missing; fetch the file again", needed.saturating_sub(*left)
    )]
    Truncated {
        /// What was being read.
        what: &'static str,
        /// Where in the file it starts.
        offset: u64,
        /// How many bytes it needs at least.
        needed: u64,
        /// How many bytes the file has from there on.
        left: u64,
    },
    /// Holding what the header describes would take more memory than the file is long. No real model does that.
    #[error("damaged: {what} would take {needed} bytes of memory in a file that has room for {left}; fetch it again")]
    OutOfProportion {
        /// What was to be stored.
        what: &'static str,
        /// Bytes it would take.
        needed: u64,
        /// Bytes left of the allowance, which is the file's size.
        left: u64,
    },
    /// More tensors or keys than any model has.
    #[error("{what} has {count} entries where {max} are possible; the file is damaged, fetch it again")]
    TooMany {
        /// The list.
        what: &'static str,
        /// How many entries it announces.
        count: u64,
        /// How many are accepted.
        max: u64,
    },
    /// One metadata entry is wrong.
    #[error("metadata key \"{key}\": {problem}; the file is damaged, fetch it again")]
    Metadata {
        /// The key, shortened when it is very long.
        key: String,
        /// What is wrong with it.
        problem: MetadataProblem,
    },
    /// One tensor is wrong.
    #[error("tensor \"{name}\": {problem}")]
    Tensor {
        /// The tensor's name.
        name: String,
        /// What is wrong with it.
        problem: TensorProblem,
    },
    /// A key the caller cannot do without is not there.
    #[error("metadata key \"{key}\" is missing; the file does not describe such a model")]
    MissingKey {
        /// The key asked for.
        key: String,
    },
    /// A key holds another type than the caller can use.
    #[error("metadata key \"{key}\" should be {expected} and is {found}")]
    WrongType {
        /// The key asked for.
        key: String,
        /// What the caller can use.
        expected: &'static str,
        /// What the file holds.
        found: String,
    },
}

/// What can be wrong with a metadata entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MetadataProblem {
    /// The key or its text is not UTF-8.
    #[error("its text is not UTF-8")]
    NotUtf8,
    /// The key is longer than the format allows.
    #[error("a key may have {max} bytes at most and this one has {0}", max = super::KEY_BYTES_MAX)]
    KeyTooLong(u64),
    /// The same key occurs twice.
    #[error("it occurs twice")]
    Duplicate,
    /// A type number that the format does not define.
    #[error("type {0} is unknown")]
    UnknownType(u32),
    /// An array of arrays.
    #[error("arrays of arrays are not supported")]
    NestedArray,
    /// A boolean that is neither 0 nor 1.
    #[error("{0} is not a boolean")]
    NotBoolean(u8),
    /// The strings of one array have more than 4 GiB together.
    #[error("its strings have {0} bytes together, more than 4 GiB")]
    StringsTooLong(u64),
    /// `general.alignment` is not a power of two.
    #[error("an alignment must be a power of two and is {0}")]
    Alignment(u64),
}

/// What can be wrong with a tensor's description.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TensorProblem {
    /// The name is longer than any tensor's.
    #[error("a name may have {max} bytes at most and this one has {0}; the file is damaged", max = super::NAME_BYTES_MAX)]
    NameTooLong(u64),
    /// The name is not UTF-8.
    #[error("its name is not UTF-8; the file is damaged")]
    NotUtf8,
    /// Two tensors have this name.
    #[error("it occurs twice; the file is damaged")]
    Duplicate,
    /// A type this build has no kernels for.
    #[error(
        "type {0} is not supported; choose one in F32, F16, BF16, Q4_0 to Q8_0, Q2_K to Q6_K, IQ4_NL, IQ4_XS or MXFP4"
    )]
    UnknownType(u32),
    /// The number of dimensions is not 1 to 4.
    #[error("{0} dimensions where 1 to 4 are possible; the file is damaged")]
    DimensionCount(u32),
    /// A dimension is zero.
    #[error("dimension {0} is zero; the file is damaged")]
    EmptyDimension(usize),
    /// Rows must consist of whole blocks.
    #[error("a row of {columns} values is not a whole number of blocks of {block}; the file is damaged")]
    PartialBlock {
        /// Values in a row.
        columns: u64,
        /// Values in a block of this type.
        block: u64,
    },
    /// The size does not fit 64 bits.
    #[error("its size overflows; the file is damaged")]
    TooLarge,
    /// The data does not start at a multiple of the alignment.
    #[error("its data offset {offset} is not a multiple of {alignment}; the file is damaged")]
    Unaligned {
        /// Offset relative to the data section.
        offset: u64,
        /// The file's alignment.
        alignment: u64,
    },
    /// The data does not lie within the file.
    #[error("its data ends at byte {end} and the file at {file_len}, so {} bytes are missing; fetch the file again",
        end.saturating_sub(*file_len))]
    OutsideFile {
        /// Where the last tensor of the file should end.
        end: u64,
        /// The file's size.
        file_len: u64,
    },
}

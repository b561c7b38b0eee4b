//! Tensor descriptions: what lies where in the file, in which block format.

use super::error::{GgufError, TensorProblem};
use super::reader::{Reader, Source};

/// Longest accepted tensor name. ggml itself stops at 63.
pub const NAME_BYTES_MAX: u64 = 255;

/// Fewest bytes a tensor description takes: name length, dimension count, one dimension, type, offset.
const INFO_BYTES_MIN: u64 = 8 + 4 + 8 + 4 + 8;

/// How the values of a tensor are stored. The names and numbers are those of ggml.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(non_camel_case_types)]
pub enum TensorType {
    /// 32-bit floats.
    F32,
    /// IEEE half precision.
    F16,
    /// The upper half of a 32-bit float.
    BF16,
    /// 4 bits, one scale per 32.
    Q4_0,
    /// 4 bits, scale and minimum per 32.
    Q4_1,
    /// 5 bits, one scale per 32.
    Q5_0,
    /// 5 bits, scale and minimum per 32.
    Q5_1,
    /// 8 bits, one scale per 32.
    Q8_0,
    /// 2 bits in super-blocks of 256.
    Q2K,
    /// 3 bits in super-blocks of 256.
    Q3K,
    /// 4 bits in super-blocks of 256.
    Q4K,
    /// 5 bits in super-blocks of 256.
    Q5K,
    /// 6 bits in super-blocks of 256.
    Q6K,
}

/// One row per type: the number in the file, its name, values per block and bytes per block.
const TYPES: [(TensorType, u32, &str, u64, u64); 13] = [
    (TensorType::F32, 0, "F32", 1, 4),
    (TensorType::F16, 1, "F16", 1, 2),
    (TensorType::BF16, 30, "BF16", 1, 2),
    (TensorType::Q4_0, 2, "Q4_0", 32, 18),
    (TensorType::Q4_1, 3, "Q4_1", 32, 20),
    (TensorType::Q5_0, 6, "Q5_0", 32, 22),
    (TensorType::Q5_1, 7, "Q5_1", 32, 24),
    (TensorType::Q8_0, 8, "Q8_0", 32, 34),
    (TensorType::Q2K, 10, "Q2_K", 256, 84),
    (TensorType::Q3K, 11, "Q3_K", 256, 110),
    (TensorType::Q4K, 12, "Q4_K", 256, 144),
    (TensorType::Q5K, 13, "Q5_K", 256, 176),
    (TensorType::Q6K, 14, "Q6_K", 256, 210),
];

impl TensorType {
    /// Every type, in the order of the table.
    pub fn all() -> impl Iterator<Item = TensorType> {
        TYPES.iter().map(|row| row.0)
    }

    /// The type with this number in a file, if this build knows it.
    pub fn from_id(id: u32) -> Option<TensorType> {
        TYPES.iter().find(|row| row.1 == id).map(|row| row.0)
    }

    /// The number that stands for this type in a file.
    pub fn id(self) -> u32 {
        self.row().1
    }

    /// The name people use, such as `Q4_K`.
    pub fn name(self) -> &'static str {
        self.row().2
    }

    /// Values in one block.
    pub fn block_elements(self) -> u64 {
        self.row().3
    }

    /// Bytes of one block.
    pub fn block_bytes(self) -> u64 {
        self.row().4
    }

    /// Bytes of a tensor with these dimensions, or what forbids them.
    pub fn tensor_bytes(self, dims: &[u64]) -> Result<u64, TensorProblem> {
        if let Some(index) = dims.iter().position(|&dim| dim == 0) {
            return Err(TensorProblem::EmptyDimension(index));
        }
        let Some((&columns, rest)) = dims.split_first().filter(|_| dims.len() <= 4) else {
            return Err(TensorProblem::DimensionCount(dims.len() as u32));
        };
        let block = self.block_elements();
        if !columns.is_multiple_of(block) {
            return Err(TensorProblem::PartialBlock { columns, block });
        }
        let row_bytes = (columns / block).checked_mul(self.block_bytes());
        rest.iter()
            .fold(row_bytes, |bytes, &dim| {
                bytes.and_then(|b| b.checked_mul(dim))
            })
            // Values too must be countable, also where a block packs several into a byte.
            .filter(|_| {
                dims.iter()
                    .try_fold(1u64, |n, &dim| n.checked_mul(dim))
                    .is_some()
            })
            .ok_or(TensorProblem::TooLarge)
    }

    fn row(self) -> &'static (TensorType, u32, &'static str, u64, u64) {
        // The table lists the types in the order of the enum; a test holds it to that.
        &TYPES[self as usize]
    }
}

/// One tensor of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name, such as `blk.0.attn_q.weight`.
    pub name: String,
    /// One to four dimensions; `dims[0]` is the contiguous one (columns).
    pub dims: Vec<u64>,
    /// How its values are stored.
    pub kind: TensorType,
    /// Where its data starts, counted from the start of the file.
    pub offset: u64,
    /// How many bytes its data has. `offset + bytes` is inside the file.
    pub bytes: u64,
}

impl TensorInfo {
    /// Number of values.
    pub fn elements(&self) -> u64 {
        self.dims.iter().product()
    }

    /// Columns: the length of one row.
    pub fn columns(&self) -> u64 {
        self.dims.first().copied().unwrap_or(1)
    }

    /// Rows over all further dimensions.
    pub fn rows(&self) -> u64 {
        self.dims.iter().skip(1).product()
    }
}

/// Reads `count` descriptions; offsets stay relative to the data section until [`place`] has seen the header's end.
pub(super) fn read_infos<S: Source>(
    reader: &mut Reader<S>,
    count: u64,
) -> Result<Vec<TensorInfo>, GgufError> {
    let mut tensors = reader.list("the tensor list", count, INFO_BYTES_MIN)?;
    for _ in 0..count {
        tensors.push(read_info(reader)?);
    }
    Ok(tensors)
}

fn read_info<S: Source>(reader: &mut Reader<S>) -> Result<TensorInfo, GgufError> {
    let length = reader.u64("a tensor name")?;
    if length > NAME_BYTES_MAX {
        return Err(TensorProblem::NameTooLong(length).of(""));
    }
    let name = reader.bytes("a tensor name", length)?;
    let name = String::from_utf8(name)
        .map_err(|error| TensorProblem::NotUtf8.of(&error.as_bytes().escape_ascii().to_string()))?;
    let dim_count = reader.u32("a tensor's dimension count")?;
    if !(1..=4).contains(&dim_count) {
        return Err(TensorProblem::DimensionCount(dim_count).of(&name));
    }
    let mut dims = reader.vec_with_capacity("a tensor's dimensions", u64::from(dim_count))?;
    for _ in 0..dim_count {
        dims.push(reader.u64("a tensor's dimensions")?);
    }
    let id = reader.u32("a tensor's type")?;
    let kind = TensorType::from_id(id).ok_or_else(|| TensorProblem::UnknownType(id).of(&name))?;
    let offset = reader.u64("a tensor's offset")?;
    let bytes = kind
        .tensor_bytes(&dims)
        .map_err(|problem| problem.of(&name))?;
    Ok(TensorInfo {
        name,
        dims,
        kind,
        offset,
        bytes,
    })
}

/// Turns offsets into absolute ones and checks that all data lies inside the file.
pub(super) fn place(
    tensors: &mut [TensorInfo],
    data_offset: u64,
    alignment: u64,
    file_len: u64,
) -> Result<(), GgufError> {
    let mut last: Option<(u64, usize)> = None;
    for (index, tensor) in tensors.iter_mut().enumerate() {
        let offset = tensor.offset;
        if !offset.is_multiple_of(alignment) {
            return Err(TensorProblem::Unaligned { offset, alignment }.of(&tensor.name));
        }
        let start = data_offset.checked_add(offset);
        let end = start.and_then(|start| start.checked_add(tensor.bytes));
        let (Some(start), Some(end)) = (start, end) else {
            return Err(TensorProblem::TooLarge.of(&tensor.name));
        };
        tensor.offset = start;
        last = last.max(Some((end, index)));
    }
    // The tensor that ends last tells how much of an incomplete file is missing.
    match last {
        Some((end, index)) if end > file_len => {
            Err(TensorProblem::OutsideFile { end, file_len }.of(&tensors[index].name))
        }
        _ => Ok(()),
    }
}

impl TensorProblem {
    /// The error for the tensor of this name.
    pub(super) fn of(self, name: &str) -> GgufError {
        GgufError::Tensor {
            name: name.to_string(),
            problem: self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_follows_the_enum() {
        for (index, row) in TYPES.iter().enumerate() {
            assert_eq!(row.0 as usize, index);
            assert_eq!(TensorType::from_id(row.1), Some(row.0));
        }
        assert_eq!(TensorType::from_id(4), None);
    }

    #[test]
    fn sizes_of_tensors() {
        assert_eq!(TensorType::Q4K.tensor_bytes(&[512, 3]), Ok(2 * 144 * 3));
        assert_eq!(
            TensorType::Q4_0.tensor_bytes(&[33]),
            Err(TensorProblem::PartialBlock {
                columns: 33,
                block: 32
            })
        );
        assert_eq!(
            TensorType::F32.tensor_bytes(&[1 << 40, 1 << 40]),
            Err(TensorProblem::TooLarge)
        );
        assert_eq!(
            TensorType::F32.tensor_bytes(&[]),
            Err(TensorProblem::DimensionCount(0))
        );
        assert_eq!(
            TensorType::F32.tensor_bytes(&[4, 0]),
            Err(TensorProblem::EmptyDimension(1))
        );
    }
}

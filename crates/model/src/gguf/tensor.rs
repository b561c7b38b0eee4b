//! Tensor descriptions: what lies where in the file, in which block format.

use super::error::{GgufError, TensorProblem};
use super::reader::{Reader, Source};
use kernels::Format;

/// Longest accepted tensor name. ggml itself stops at 63.
pub const NAME_BYTES_MAX: u64 = 255;

/// Fewest bytes a tensor description takes: name length, dimension count, one dimension, type, offset.
const INFO_BYTES_MIN: u64 = 8 + 4 + 8 + 4 + 8;

/// Bytes of a tensor with these dimensions, or what forbids them.
pub fn tensor_bytes(format: Format, dims: &[u64]) -> Result<u64, TensorProblem> {
    if let Some(index) = dims.iter().position(|&dim| dim == 0) {
        return Err(TensorProblem::EmptyDimension(index));
    }
    let Some((&columns, rest)) = dims.split_first().filter(|_| dims.len() <= 4) else {
        return Err(TensorProblem::DimensionCount(dims.len() as u32));
    };
    let block = format.block_elements() as u64;
    if !columns.is_multiple_of(block) {
        return Err(TensorProblem::PartialBlock { columns, block });
    }
    let row_bytes = (columns / block).checked_mul(format.block_bytes() as u64);
    rest.iter()
        .fold(row_bytes, |bytes, &dim| bytes.and_then(|b| b.checked_mul(dim)))
        // Values too must be countable, also where a block packs several into a byte.
        .filter(|_| dims.iter().try_fold(1u64, |n, &dim| n.checked_mul(dim)).is_some())
        .ok_or(TensorProblem::TooLarge)
}

/// One tensor of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name, such as `blk.0.attn_q.weight`.
    pub name: String,
    /// One to four dimensions; `dims[0]` is the contiguous one (columns).
    pub dims: Vec<u64>,
    /// How its values are stored.
    pub kind: Format,
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
pub(super) fn read_infos<S: Source>(reader: &mut Reader<S>, count: u64) -> Result<Vec<TensorInfo>, GgufError> {
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
    let kind = Format::from_file_id(id).ok_or_else(|| TensorProblem::UnknownType(id).of(&name))?;
    let offset = reader.u64("a tensor's offset")?;
    let bytes = tensor_bytes(kind, &dims).map_err(|problem| problem.of(&name))?;
    Ok(TensorInfo { name, dims, kind, offset, bytes })
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
        GgufError::Tensor { name: name.to_string(), problem: self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_tensors() {
        assert_eq!(tensor_bytes(Format::Q4_K, &[512, 3]), Ok(2 * 144 * 3));
        assert_eq!(tensor_bytes(Format::Q4_0, &[33]), Err(TensorProblem::PartialBlock { columns: 33, block: 32 }));
        assert_eq!(tensor_bytes(Format::F32, &[1 << 40, 1 << 40]), Err(TensorProblem::TooLarge));
        assert_eq!(tensor_bytes(Format::F32, &[]), Err(TensorProblem::DimensionCount(0)));
        assert_eq!(tensor_bytes(Format::F32, &[4, 0]), Err(TensorProblem::EmptyDimension(1)));
    }
}

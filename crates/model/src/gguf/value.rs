//! Metadata values as they lie in the file: numbers as numbers, arrays without a box per entry.
//!
//! A vocabulary is an array of 150,000 strings. [`StringArray`] keeps all of them in one piece of memory with one end
//! per string, which is less than the file itself uses.

use super::error::{GgufError, MetadataProblem};
use super::reader::{Reader, Source};

/// One metadata value.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(String),
    Array(Array),
    U64(u64),
    I64(i64),
    F64(f64),
}

/// An array of values of one type.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    F32(Vec<f32>),
    Bool(Vec<bool>),
    String(StringArray),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F64(Vec<f64>),
}

/// Many strings in one piece of memory. They are bytes: a vocabulary need not be valid UTF-8.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StringArray {
    bytes: Vec<u8>,
    /// Where each string ends in `bytes`; it starts where the one before it ends.
    ends: Vec<u32>,
}

impl StringArray {
    /// Number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes of all strings together.
    pub fn byte_count(&self) -> usize {
        self.bytes.len()
    }

    /// The string at `index`.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)? as usize;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        Some(&self.bytes[start..end])
    }

    /// All strings in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.len()).map(|index| self.get(index).unwrap_or_default())
    }
}

impl<T: AsRef<[u8]>> FromIterator<T> for StringArray {
    /// # Panics
    /// When the strings have more than 4 GiB together.
    fn from_iter<I: IntoIterator<Item = T>>(strings: I) -> Self {
        let mut array = StringArray::default();
        for string in strings {
            array.bytes.extend_from_slice(string.as_ref());
            array.ends.push(u32::try_from(array.bytes.len()).expect("strings have at most 4 GiB together"));
        }
        array
    }
}

/// Calls a macro-like closure for whichever vector an array holds.
macro_rules! each_vec {
    ($array:expr, $items:ident => $body:expr) => {
        match $array {
            Array::U8($items) => $body,
            Array::I8($items) => $body,
            Array::U16($items) => $body,
            Array::I16($items) => $body,
            Array::U32($items) => $body,
            Array::I32($items) => $body,
            Array::F32($items) => $body,
            Array::Bool($items) => $body,
            Array::String($items) => $body,
            Array::U64($items) => $body,
            Array::I64($items) => $body,
            Array::F64($items) => $body,
        }
    };
}

impl Array {
    /// Number of entries.
    pub fn len(&self) -> usize {
        each_vec!(self, items => items.len())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The name of the entries' type.
    pub fn type_name(&self) -> &'static str {
        ID_NAMES[self.id() as usize]
    }

    /// The number of the entries' type in a file.
    pub fn id(&self) -> u32 {
        match self {
            Array::U8(_) => 0,
            Array::I8(_) => 1,
            Array::U16(_) => 2,
            Array::I16(_) => 3,
            Array::U32(_) => 4,
            Array::I32(_) => 5,
            Array::F32(_) => 6,
            Array::Bool(_) => 7,
            Array::String(_) => 8,
            Array::U64(_) => 10,
            Array::I64(_) => 11,
            Array::F64(_) => 12,
        }
    }

    /// The entry at `index` when it is a whole number that fits, of whatever width.
    pub fn integer(&self, index: usize) -> Option<i64> {
        match self {
            Array::U8(items) => items.get(index).map(|&n| n.into()),
            Array::I8(items) => items.get(index).map(|&n| n.into()),
            Array::U16(items) => items.get(index).map(|&n| n.into()),
            Array::I16(items) => items.get(index).map(|&n| n.into()),
            Array::U32(items) => items.get(index).map(|&n| n.into()),
            Array::I32(items) => items.get(index).map(|&n| n.into()),
            Array::U64(items) => items.get(index).and_then(|&n| n.try_into().ok()),
            Array::I64(items) => items.get(index).copied(),
            Array::F32(_) | Array::F64(_) | Array::Bool(_) | Array::String(_) => None,
        }
    }
}

impl Value {
    /// The name of the type, for messages.
    pub fn type_name(&self) -> &'static str {
        ID_NAMES[self.id() as usize]
    }

    /// The number of the type in a file.
    pub fn id(&self) -> u32 {
        match self {
            Value::U8(_) => 0,
            Value::I8(_) => 1,
            Value::U16(_) => 2,
            Value::I16(_) => 3,
            Value::U32(_) => 4,
            Value::I32(_) => 5,
            Value::F32(_) => 6,
            Value::Bool(_) => 7,
            Value::String(_) => 8,
            Value::Array(_) => ARRAY,
            Value::U64(_) => 10,
            Value::I64(_) => 11,
            Value::F64(_) => 12,
        }
    }

    /// The value when it is a whole number, of whatever width.
    pub fn integer(&self) -> Option<i128> {
        Some(match *self {
            Value::U8(n) => n.into(),
            Value::I8(n) => n.into(),
            Value::U16(n) => n.into(),
            Value::I16(n) => n.into(),
            Value::U32(n) => n.into(),
            Value::I32(n) => n.into(),
            Value::U64(n) => n.into(),
            Value::I64(n) => n.into(),
            _ => return None,
        })
    }
}

/// The type number of arrays.
const ARRAY: u32 = 9;

/// Names of the type numbers.
const ID_NAMES: [&str; 13] =
    ["u8", "i8", "u16", "i16", "u32", "i32", "f32", "a boolean", "a string", "an array", "u64", "i64", "f64"];

const WHAT: &str = "a metadata value";

/// Reads the value that follows a key.
pub(super) fn read_value<S: Source>(reader: &mut Reader<S>, key: &str) -> Result<Value, GgufError> {
    let id = reader.u32("a metadata type")?;
    Ok(match id {
        0 => Value::U8(u8::from_le_bytes(reader.array(WHAT)?)),
        1 => Value::I8(i8::from_le_bytes(reader.array(WHAT)?)),
        2 => Value::U16(u16::from_le_bytes(reader.array(WHAT)?)),
        3 => Value::I16(i16::from_le_bytes(reader.array(WHAT)?)),
        4 => Value::U32(u32::from_le_bytes(reader.array(WHAT)?)),
        5 => Value::I32(i32::from_le_bytes(reader.array(WHAT)?)),
        6 => Value::F32(f32::from_le_bytes(reader.array(WHAT)?)),
        7 => Value::Bool(boolean(reader.array::<1>(WHAT)?[0]).map_err(|problem| problem.of(key))?),
        8 => {
            let length = reader.u64(WHAT)?;
            let bytes = reader.bytes(WHAT, length)?;
            Value::String(String::from_utf8(bytes).map_err(|_| MetadataProblem::NotUtf8.of(key))?)
        }
        ARRAY => Value::Array(read_array(reader, key)?),
        10 => Value::U64(u64::from_le_bytes(reader.array(WHAT)?)),
        11 => Value::I64(i64::from_le_bytes(reader.array(WHAT)?)),
        12 => Value::F64(f64::from_le_bytes(reader.array(WHAT)?)),
        _ => return Err(MetadataProblem::UnknownType(id).of(key)),
    })
}

fn read_array<S: Source>(reader: &mut Reader<S>, key: &str) -> Result<Array, GgufError> {
    const WHAT: &str = "a metadata array";
    let id = reader.u32(WHAT)?;
    let count = reader.u64(WHAT)?;
    Ok(match id {
        0 => Array::U8(reader.bytes(WHAT, count)?),
        1 => Array::I8(reader.numbers(WHAT, count, i8::from_le_bytes)?),
        2 => Array::U16(reader.numbers(WHAT, count, u16::from_le_bytes)?),
        3 => Array::I16(reader.numbers(WHAT, count, i16::from_le_bytes)?),
        4 => Array::U32(reader.numbers(WHAT, count, u32::from_le_bytes)?),
        5 => Array::I32(reader.numbers(WHAT, count, i32::from_le_bytes)?),
        6 => Array::F32(reader.numbers(WHAT, count, f32::from_le_bytes)?),
        7 => Array::Bool(reader.numbers(WHAT, count, |[byte]: [u8; 1]| byte != 0)?),
        8 => Array::String(read_strings(reader, key, count)?),
        ARRAY => return Err(MetadataProblem::NestedArray.of(key)),
        10 => Array::U64(reader.numbers(WHAT, count, u64::from_le_bytes)?),
        11 => Array::I64(reader.numbers(WHAT, count, i64::from_le_bytes)?),
        12 => Array::F64(reader.numbers(WHAT, count, f64::from_le_bytes)?),
        _ => return Err(MetadataProblem::UnknownType(id).of(key)),
    })
}

/// Reads strings in two passes, lengths first, so that their memory is allocated once and at its exact size.
fn read_strings<S: Source>(reader: &mut Reader<S>, key: &str, count: u64) -> Result<StringArray, GgufError> {
    const WHAT: &str = "an array of strings";
    reader.expect_entries(WHAT, count, 8)?;
    let start = reader.position();
    let mut total = 0u64;
    for _ in 0..count {
        let length = reader.u64(WHAT)?;
        reader.skip(WHAT, length)?;
        // No overflow: every length was found inside the file.
        total += length;
    }
    if u32::try_from(total).is_err() {
        return Err(MetadataProblem::StringsTooLong(total).of(key));
    }
    reader.rewind(start)?;
    let mut bytes: Vec<u8> = reader.vec_with_capacity(WHAT, total)?;
    let mut ends = reader.vec_with_capacity(WHAT, count)?;
    for _ in 0..count {
        let length = reader.u64(WHAT)?;
        let from = bytes.len();
        // A file that changes between the passes must not make the vector grow.
        let end = from as u64 + length.min(total - from as u64);
        bytes.resize(end as usize, 0);
        reader.fill(WHAT, &mut bytes[from..])?;
        ends.push(end as u32);
    }
    Ok(StringArray { bytes, ends })
}

fn boolean(byte: u8) -> Result<bool, MetadataProblem> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(MetadataProblem::NotBoolean(byte)),
    }
}

//! The key-value part of a header: sorted once, looked up by name, read with a type in mind.
//!
//! Converters are free in the width of their integers, so the typed getters accept every width that holds the value.

use super::error::{GgufError, MetadataProblem};
use super::reader::{Reader, Source};
use super::value::{Array, StringArray, Value, read_value};

/// Longest key the format allows.
pub const KEY_BYTES_MAX: u64 = 65_535;

/// Fewest bytes an entry takes: key length, type, one byte of value.
const ENTRY_BYTES_MIN: u64 = 8 + 4 + 1;

/// All metadata of a file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Metadata {
    /// Sorted by key, no key twice.
    entries: Vec<(String, Value)>,
}

impl Metadata {
    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&Value> {
        let index = self.entries.binary_search_by(|entry| entry.0.as_str().cmp(key)).ok()?;
        Some(&self.entries[index].1)
    }

    /// All entries, sorted by key.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// The value of `key` as a `T`, or `None` when the key is not there. Another type is an error.
    pub fn optional<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<Option<T>, GgufError> {
        self.get(key).map(|value| from_value(key, value)).transpose()
    }

    /// The value of `key` as a `T`; its absence is an error.
    pub fn required<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<T, GgufError> {
        self.optional(key)?.ok_or_else(|| GgufError::MissingKey { key: key.to_string() })
    }

    /// A whole number that fits 32 bits.
    pub fn u32(&self, key: &str) -> Result<u32, GgufError> {
        self.required(key)
    }

    /// A whole number that fits 64 bits.
    pub fn u64(&self, key: &str) -> Result<u64, GgufError> {
        self.required(key)
    }

    /// A float of either width.
    pub fn f32(&self, key: &str) -> Result<f32, GgufError> {
        self.required(key)
    }

    /// A boolean.
    pub fn bool(&self, key: &str) -> Result<bool, GgufError> {
        self.required(key)
    }

    /// A string.
    pub fn str(&self, key: &str) -> Result<&str, GgufError> {
        self.required(key)
    }

    /// An array of any type.
    pub fn array(&self, key: &str) -> Result<&Array, GgufError> {
        self.required(key)
    }

    /// An array of strings.
    pub fn strings(&self, key: &str) -> Result<&StringArray, GgufError> {
        self.required(key)
    }

    /// Reads `count` entries.
    pub(super) fn read<S: Source>(reader: &mut Reader<S>, count: u64) -> Result<Metadata, GgufError> {
        let mut entries: Vec<(String, Value)> = reader.list("the metadata", count, ENTRY_BYTES_MIN)?;
        for _ in 0..count {
            let key = read_key(reader)?;
            let value = read_value(reader, &key)?;
            entries.push((key, value));
        }
        entries.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        if let Some(pair) = entries.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(MetadataProblem::Duplicate.of(&pair[0].0));
        }
        Ok(Metadata { entries })
    }
}

fn read_key<S: Source>(reader: &mut Reader<S>) -> Result<String, GgufError> {
    const WHAT: &str = "a metadata key";
    let length = reader.u64(WHAT)?;
    if length > KEY_BYTES_MAX {
        return Err(MetadataProblem::KeyTooLong(length).of(""));
    }
    let bytes = reader.bytes(WHAT, length)?;
    String::from_utf8(bytes).map_err(|_| MetadataProblem::NotUtf8.of(""))
}

fn from_value<'a, T: FromValue<'a>>(key: &str, value: &'a Value) -> Result<T, GgufError> {
    T::from_value(value).ok_or_else(|| GgufError::WrongType {
        key: key.to_string(),
        expected: T::EXPECTED,
        found: describe(value),
    })
}

/// Type and, for numbers, the value: a number of the right type may still be out of range.
fn describe(value: &Value) -> String {
    match (value, value.integer()) {
        (Value::Array(array), _) => format!("an array of {} entries ({})", array.len(), array.type_name()),
        (_, Some(number)) => format!("{number} ({})", value.type_name()),
        (_, None) => value.type_name().to_string(),
    }
}

/// Types that a metadata value can be read as.
pub trait FromValue<'a>: Sized {
    /// What the type is called in messages.
    const EXPECTED: &'static str;
    /// The value as this type, if it is one.
    fn from_value(value: &'a Value) -> Option<Self>;
}

impl FromValue<'_> for u32 {
    const EXPECTED: &'static str = "a whole number of 32 bits";
    fn from_value(value: &Value) -> Option<Self> {
        value.integer()?.try_into().ok()
    }
}

impl FromValue<'_> for u64 {
    const EXPECTED: &'static str = "a whole number";
    fn from_value(value: &Value) -> Option<Self> {
        value.integer()?.try_into().ok()
    }
}

impl FromValue<'_> for f32 {
    const EXPECTED: &'static str = "a float";
    fn from_value(value: &Value) -> Option<Self> {
        match *value {
            Value::F32(number) => Some(number),
            Value::F64(number) => Some(number as f32),
            _ => None,
        }
    }
}

impl FromValue<'_> for bool {
    const EXPECTED: &'static str = "a boolean";
    fn from_value(value: &Value) -> Option<Self> {
        match *value {
            Value::Bool(flag) => Some(flag),
            _ => None,
        }
    }
}

impl<'a> FromValue<'a> for &'a str {
    const EXPECTED: &'static str = "a string";
    fn from_value(value: &'a Value) -> Option<Self> {
        match value {
            Value::String(text) => Some(text),
            _ => None,
        }
    }
}

impl<'a> FromValue<'a> for &'a Array {
    const EXPECTED: &'static str = "an array";
    fn from_value(value: &'a Value) -> Option<Self> {
        match value {
            Value::Array(array) => Some(array),
            _ => None,
        }
    }
}

impl<'a> FromValue<'a> for &'a StringArray {
    const EXPECTED: &'static str = "an array of strings";
    fn from_value(value: &'a Value) -> Option<Self> {
        match value {
            Value::Array(Array::String(strings)) => Some(strings),
            _ => None,
        }
    }
}

impl MetadataProblem {
    /// The error for this key, of which the first bytes are enough.
    pub(super) fn of(self, key: &str) -> GgufError {
        GgufError::Metadata { key: key.chars().take(64).collect(), problem: self }
    }
}

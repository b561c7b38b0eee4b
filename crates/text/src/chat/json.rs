//! `tojson` as Python writes it: `{"a": [1, 2]}`, with a space after commas and colons and nothing escaped for HTML.
//!
//! Models saw tool definitions in exactly this form when they were trained.

use std::io::{self, Write};

use minijinja::value::Kwargs;
use minijinja::{Error, ErrorKind, Value};
use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter, Serializer};

/// Deepest indentation; more is a mistake.
const INDENT_MAX: usize = 16;

/// The filter, with the keyword arguments of Python's `json.dumps` that templates use.
pub(super) fn to_json(value: &Value, options: &Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = options.get("indent")?;
    let sort_keys: Option<bool> = options.get("sort_keys")?;
    let ensure_ascii: Option<bool> = options.get("ensure_ascii")?;
    let _: Option<Value> = options.get("separators")?;
    options.assert_all_used()?;
    let ascii = ensure_ascii.unwrap_or(false);
    let mut value = serde_json::to_value(value).map_err(json_error)?;
    if sort_keys.unwrap_or(false) {
        value.sort_all_objects();
    }
    let spaces = [b' '; INDENT_MAX];
    let text = match indent {
        Some(indent) => write(
            &value,
            Python {
                base: PrettyFormatter::with_indent(&spaces[..indent.min(INDENT_MAX)]),
                ascii,
            },
        )?,
        None => write(
            &value,
            Python {
                base: Spaced(CompactFormatter),
                ascii,
            },
        )?,
    };
    Ok(Value::from_safe_string(text))
}

fn write(value: &serde_json::Value, formatter: impl Formatter) -> Result<String, Error> {
    let mut bytes = Vec::new();
    value
        .serialize(&mut Serializer::with_formatter(&mut bytes, formatter))
        .map_err(json_error)?;
    String::from_utf8(bytes)
        .map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))
}

fn json_error(error: serde_json::Error) -> Error {
    Error::new(
        ErrorKind::BadSerialization,
        "cannot write the value as JSON",
    )
    .with_source(error)
}

/// One line, with a space after commas and colons.
struct Spaced(CompactFormatter);

/// The methods that place separators, handed on to `self.$inner`.
macro_rules! separators_of {
    ($inner:tt) => {
        fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
            self.$inner.begin_array(writer)
        }
        fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
            self.$inner.end_array(writer)
        }
        fn end_array_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
            self.$inner.end_array_value(writer)
        }
        fn begin_array_value<W: ?Sized + Write>(
            &mut self,
            writer: &mut W,
            first: bool,
        ) -> io::Result<()> {
            self.$inner.begin_array_value(writer, first)
        }
        fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
            self.$inner.begin_object(writer)
        }
        fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
            self.$inner.end_object(writer)
        }
        fn begin_object_key<W: ?Sized + Write>(
            &mut self,
            writer: &mut W,
            first: bool,
        ) -> io::Result<()> {
            self.$inner.begin_object_key(writer, first)
        }
        fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
            self.$inner.begin_object_value(writer)
        }
        fn end_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
            self.$inner.end_object_value(writer)
        }
    };
}

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        if first {
            Ok(())
        } else {
            writer.write_all(b", ")
        }
    }

    fn begin_object_key<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        if first {
            Ok(())
        } else {
            writer.write_all(b", ")
        }
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}

/// Another formatter, with `ensure_ascii`.
struct Python<F> {
    base: F,
    ascii: bool,
}

impl<F: Formatter> Formatter for Python<F> {
    separators_of!(base);

    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        if !self.ascii {
            return writer.write_all(fragment.as_bytes());
        }
        for c in fragment.chars() {
            if c.is_ascii() {
                write!(writer, "{c}")?;
            } else {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    write!(writer, "\\u{unit:04x}")?;
                }
            }
        }
        Ok(())
    }
}

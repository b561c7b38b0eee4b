//! `tojson` as Python writes it: `{"a": [1, 2]}`, with a space after commas and colons and nothing escaped for HTML.
//!
//! Models saw tool definitions in exactly this form when they were trained.

use minijinja::value::Kwargs;
use minijinja::{Error, ErrorKind, Value};
use serde_json::Value as Json;

/// Deepest indentation per level; more is a mistake.
const INDENT_MAX: usize = 16;

/// The options of Python's `json.dumps` that templates use.
struct Style {
    indent: Option<usize>,
    ascii: bool,
    item_separator: String,
    key_separator: String,
}

/// The filter.
pub(super) fn to_json(value: &Value, options: &Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = options.get("indent")?;
    let sort_keys: Option<bool> = options.get("sort_keys")?;
    let ensure_ascii: Option<bool> = options.get("ensure_ascii")?;
    let separators: Option<Vec<String>> = options.get("separators")?;
    options.assert_all_used()?;
    let default = if indent.is_some() { [",", ": "] } else { [", ", ": "] };
    let separators = separators.unwrap_or_else(|| default.map(String::from).into());
    let [item_separator, key_separator] = <[String; 2]>::try_from(separators)
        .map_err(|_| Error::new(ErrorKind::InvalidOperation, "tojson: separators must be two strings"))?;
    let style = Style {
        indent: indent.map(|indent| indent.min(INDENT_MAX)),
        ascii: ensure_ascii.unwrap_or(false),
        item_separator,
        key_separator,
    };
    let mut json = serde_json::to_value(value).map_err(|error| {
        Error::new(ErrorKind::BadSerialization, "tojson: the value has no JSON form").with_source(error)
    })?;
    if sort_keys.unwrap_or(false) {
        json.sort_all_objects();
    }
    let mut text = String::new();
    style.write(&json, 0, &mut text);
    Ok(Value::from_safe_string(text))
}

impl Style {
    fn write(&self, json: &Json, depth: usize, text: &mut String) {
        match json {
            Json::Array(items) if !items.is_empty() => {
                text.push('[');
                for (index, item) in items.iter().enumerate() {
                    self.separate(index, depth + 1, text);
                    self.write(item, depth + 1, text);
                }
                self.break_line(depth, text);
                text.push(']');
            }
            Json::Object(entries) if !entries.is_empty() => {
                text.push('{');
                for (index, (key, value)) in entries.iter().enumerate() {
                    self.separate(index, depth + 1, text);
                    self.write_string(key, text);
                    text.push_str(&self.key_separator);
                    self.write(value, depth + 1, text);
                }
                self.break_line(depth, text);
                text.push('}');
            }
            Json::String(string) => self.write_string(string, text),
            other => text.push_str(&other.to_string()),
        }
    }

    fn separate(&self, index: usize, depth: usize, text: &mut String) {
        if index > 0 {
            text.push_str(&self.item_separator);
        }
        self.break_line(depth, text);
    }

    fn break_line(&self, depth: usize, text: &mut String) {
        if let Some(indent) = self.indent {
            text.push('\n');
            text.extend(std::iter::repeat_n(' ', indent * depth));
        }
    }

    fn write_string(&self, string: &str, text: &mut String) {
        let quoted = Json::from(string).to_string();
        if !self.ascii {
            return text.push_str(&quoted);
        }
        for c in quoted.chars() {
            if c.is_ascii() {
                text.push(c);
            } else {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    text.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
}

//! Reading a JSON object field by field, so that every error names its field and nothing is ignored unseen.

use serde::de::{Deserialize, DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::raw::RawJson;

/// The field that agents repeat with every request, kilobytes of it: it stays text until somebody wants to read it.
const TOOLS: &str = "tools";

/// A field that is not what it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Its path, such as `input[2].call_id`.
    pub param: String,
    /// What it must be.
    pub message: String,
}

impl FieldError {
    /// An error about `param`.
    pub fn new(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self { param: param.into(), message: message.into() }
    }
}

impl std::fmt::Display for FieldError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.param, self.message)
    }
}

impl std::error::Error for FieldError {}

/// The fields of a JSON object that have not been read yet.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    map: Map<String, Value>,
    tools: Option<RawJson>,
    path: String,
}

impl<'de> Deserialize<'de> for Fields {
    /// The fields of a whole body.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Body)
    }
}

struct Body;

impl<'de> Visitor<'de> for Body {
    type Value = Fields;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut body: A) -> Result<Fields, A::Error> {
        let mut fields = Fields::default();
        while let Some(name) = body.next_key::<String>()? {
            if name == TOOLS {
                fields.tools = Some(body.next_value::<Box<RawValue>>()?.into());
            } else {
                fields.map.insert(name, body.next_value()?);
            }
        }
        Ok(fields)
    }
}

impl Fields {
    /// The fields of a whole body.
    pub fn new(value: Value) -> Result<Self, FieldError> {
        Self::at("", value)
    }

    /// The fields of the object at `path`.
    pub fn at(path: impl Into<String>, value: Value) -> Result<Self, FieldError> {
        let path = path.into();
        match value {
            Value::Object(map) => Ok(Self { map, tools: None, path }),
            other => Err(FieldError::new(name_or_body(&path), format!("must be an object, not {}", kind(&other)))),
        }
    }

    /// Takes a field; `None` when it is absent or null.
    pub fn take<T: DeserializeOwned>(&mut self, field: &str) -> Result<Option<T>, FieldError> {
        if let Some(text) = self.tools.take_if(|_| field == TOOLS) {
            let read = serde_json::from_str(text.text());
            return read.map_err(|error| FieldError::new(self.path(field), error.to_string()));
        }
        match self.take_value(field) {
            None => Ok(None),
            Some(value) => serde_json::from_value(value)
                .map(Some)
                .map_err(|error| FieldError::new(self.path(field), error.to_string())),
        }
    }

    /// Takes a field that must be there.
    pub fn need<T: DeserializeOwned>(&mut self, field: &str) -> Result<T, FieldError> {
        self.take(field)?.ok_or_else(|| FieldError::new(self.path(field), "is required"))
    }

    /// Takes a number that must lie in a range.
    pub fn take_within(
        &mut self,
        field: &str,
        range: std::ops::RangeInclusive<f64>,
    ) -> Result<Option<f64>, FieldError> {
        match self.take::<f64>(field)? {
            Some(number) if !range.contains(&number) => {
                let rule = format!("must be from {} to {}, not {number}", range.start(), range.end());
                Err(FieldError::new(self.path(field), rule))
            }
            number => Ok(number),
        }
    }

    /// Takes a whole number that must be at least `min`.
    pub fn take_count(&mut self, field: &str, min: usize) -> Result<Option<usize>, FieldError> {
        match self.take::<i64>(field)? {
            None => Ok(None),
            Some(number) => match usize::try_from(number) {
                Ok(count) if count >= min => Ok(Some(count)),
                _ => Err(FieldError::new(self.path(field), format!("must be at least {min}, not {number}"))),
            },
        }
    }

    /// Takes a field as it is; `None` when it is absent or null.
    pub fn take_value(&mut self, field: &str) -> Option<Value> {
        self.map.remove(field).filter(|value| !value.is_null())
    }

    /// Takes the tools, which must be a list, as text; an empty list when there are none.
    pub fn take_tools(&mut self) -> Result<RawJson, FieldError> {
        let value = self.take_value(TOOLS).map(|value| RawJson::new(&value));
        let tools = self.tools.take().or(value).filter(|tools| tools.text() != "null").unwrap_or_default();
        match tools.text().starts_with('[') {
            true => Ok(tools),
            false => Err(FieldError::new(self.path(TOOLS), "must be a list")),
        }
    }

    /// The text of a field that is left where it is; `None` when it is no text.
    pub fn text(&self, field: &str) -> Option<&str> {
        self.map.get(field).and_then(Value::as_str)
    }

    /// The path of a field, for errors of the caller's own.
    pub fn path(&self, field: &str) -> String {
        if self.path.is_empty() { field.to_owned() } else { format!("{}.{field}", self.path) }
    }

    /// Names of the fields that nobody took.
    pub fn rest(&self) -> impl Iterator<Item = &str> {
        let tools = self.tools.iter().map(|_| TOOLS);
        self.map.iter().filter(|(_, value)| !value.is_null()).map(|(name, _)| name.as_str()).chain(tools)
    }
}

fn name_or_body(path: &str) -> &str {
    if path.is_empty() { "body" } else { path }
}

/// What a value is, in a word.
pub fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn errors_name_the_field_and_the_rest_is_known() {
        let mut fields =
            Fields::new(json!({"model": "m", "top_p": 7, "n": -1, "unknown": 1, "nothing": null})).unwrap();
        assert_eq!(fields.need::<String>("model").unwrap(), "m");
        assert_eq!(fields.need::<String>("input").unwrap_err().to_string(), "input: is required");
        assert_eq!(fields.take_within("top_p", 0.0..=1.0).unwrap_err().param, "top_p");
        assert_eq!(fields.take_count("n", 1).unwrap_err().message, "must be at least 1, not -1");
        assert_eq!(fields.take::<String>("nothing").unwrap(), None);
        assert_eq!(fields.rest().collect::<Vec<_>>(), ["unknown"]);
        let text = r#"{"model": "m", "tools": [ {"a": 1e999} ], "n": 1, "tools": [ {"a": 1} ]}"#;
        let mut fields: Fields = serde_json::from_str(text).unwrap();
        assert_eq!(fields.rest().collect::<Vec<_>>(), ["model", "n", "tools"]);
        assert_eq!(fields.clone().take_tools().unwrap().text(), r#"[ {"a": 1} ]"#);
        assert_eq!(fields.take::<Value>("tools").unwrap(), Some(json!([{"a": 1}])));
        assert_eq!(fields.take_tools().unwrap().text(), "[]");
        for (text, whole) in [(r#"{"tools": null}"#, true), (r#"{"tools": {}}"#, false), (r#"{"tools": "["}"#, false)] {
            let mut fields: Fields = serde_json::from_str(text).unwrap();
            assert_eq!(fields.clone().take::<Vec<Value>>("tools").is_ok(), whole, "{text}");
            assert_eq!(fields.take_tools().is_ok(), whole, "{text}");
        }
        let mut fields: Fields = serde_json::from_str(r#"{"tools": [1e999]}"#).unwrap();
        assert_eq!(fields.take::<Vec<Value>>("tools").unwrap_err().param, "tools");
        let nested = Fields::at("tools[0]", json!([])).unwrap_err();
        assert_eq!(nested.to_string(), "tools[0]: must be an object, not an array");
    }
}

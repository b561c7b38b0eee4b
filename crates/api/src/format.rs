//! What an answer is held to: the fields of several protocols and servers, read into one form.

use serde_json::{Value, json};

use crate::fields::{FieldError, Fields};
use crate::responses::TextFormat;

/// What an answer is held to.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Format {
    /// Nothing.
    #[default]
    Text,
    /// Any JSON object.
    JsonObject,
    /// JSON by schema.
    JsonSchema(Value),
    /// A regular expression for the whole answer.
    Regex(String),
    /// One of these texts.
    Choice(Vec<String>),
    /// A grammar, in Lark's notation or in that of llama.cpp.
    Grammar(String),
}

/// Most texts to choose from.
const CHOICES_MAX: usize = 1024;

/// Settings that say how a server holds an answer to its form, and change nothing about what is allowed but blanks.
const HOW: [&str; 4] = ["disable_fallback", "disable_any_whitespace", "whitespace_pattern", "backend"];

impl From<&TextFormat> for Format {
    fn from(format: &TextFormat) -> Self {
        match format {
            TextFormat::Text => Self::Text,
            TextFormat::JsonObject => Self::JsonObject,
            TextFormat::JsonSchema { schema, .. } => Self::JsonSchema(schema.clone()),
        }
    }
}

impl Format {
    /// Takes the fields that vLLM (`structured_outputs`, `guided_*`), llama.cpp (`json_schema`, `grammar`) and SGLang
    /// (`regex`, `ebnf`) have for it. `format` is what the protocol's own field says; two that both say something are an error, and so is a field that
    /// would hold the answer to something unknown.
    pub fn read_others(fields: &mut Fields, format: Self) -> Result<Self, FieldError> {
        let mut found = Found { format, by: "the format" };
        if let Some(settings) = fields.take_value("structured_outputs") {
            let mut settings = Fields::at(fields.path("structured_outputs"), settings)?;
            for (field, kind) in [
                ("json", "json"),
                ("regex", "regex"),
                ("choice", "choice"),
                ("grammar", "grammar"),
                ("json_object", "any"),
            ] {
                found.take(&mut settings, field, kind)?;
            }
            HOW.iter().for_each(|field| drop(settings.take_value(field)));
            let stricter = settings.take::<bool>("disable_additional_properties")?.is_some_and(|stricter| stricter);
            let stricter = stricter.then_some("disable_additional_properties");
            if let Some(other) = stricter.or_else(|| settings.rest().next()) {
                return Err(FieldError::new(settings.path(other), "is not known here, and would not be followed"));
            }
        }
        for (field, kind) in [
            ("guided_json", "json"),
            ("guided_regex", "regex"),
            ("guided_choice", "choice"),
            ("guided_grammar", "grammar"),
            ("guided_json_object", "any"),
            ("json_schema", "json"),
            ("grammar", "grammar"),
            ("regex", "regex"),
            ("ebnf", "grammar"),
        ] {
            found.take(fields, field, kind)?;
        }
        for field in ["guided_decoding_backend", "guided_whitespace_pattern"] {
            fields.take_value(field);
        }
        match fields.rest().find(|name| name.starts_with("guided_") || *name == "structural_tag") {
            Some(other) => Err(FieldError::new(fields.path(other), "is not known here, and would not be followed")),
            None => Ok(found.format),
        }
    }
}

/// The one format of a request.
struct Found {
    format: Format,
    by: &'static str,
}

impl Found {
    fn take(&mut self, fields: &mut Fields, field: &'static str, kind: &str) -> Result<(), FieldError> {
        let Some(value) = fields.take_value(field) else { return Ok(()) };
        let path = fields.path(field);
        let wrong = |rule: &str| FieldError::new(&path, rule);
        let text = |value: &Value| value.as_str().map(str::to_owned).ok_or_else(|| wrong("must be a string"));
        let format = match kind {
            "json" => Format::JsonSchema(schema(value).map_err(|rule| wrong(&rule))?),
            "regex" => Format::Regex(text(&value)?),
            "grammar" => Format::Grammar(text(&value)?),
            "choice" => Format::Choice(choices(value).map_err(wrong)?),
            _ => match value {
                Value::Bool(true) => Format::JsonObject,
                Value::Bool(false) => return Ok(()),
                _ => return Err(wrong("must be true or false")),
            },
        };
        if self.format != Format::Text && self.format != format {
            return Err(wrong(&format!("does not go with {}: an answer is held to one form", self.by)));
        }
        (self.format, self.by) = (format, field);
        Ok(())
    }
}

/// A schema, or the text of one.
fn schema(value: Value) -> Result<Value, String> {
    match value {
        Value::String(text) => serde_json::from_str(&text).map_err(|error| format!("is not JSON: {error}")),
        Value::Object(_) | Value::Bool(_) => Ok(value),
        _ => Err("must be a JSON schema".to_owned()),
    }
}

fn choices(value: Value) -> Result<Vec<String>, &'static str> {
    let texts: Vec<String> = serde_json::from_value(value).map_err(|_| "must be an array of strings")?;
    match texts.len() {
        0 => Err("must not be empty"),
        count if count > CHOICES_MAX => Err("holds too many texts"),
        _ if texts.iter().any(String::is_empty) => Err("must not hold an empty text"),
        _ => Ok(texts),
    }
}

/// `response_format`: a schema stands one object deeper than in the Responses API. llama.cpp's servers take one beside
/// `json_object` as well.
pub fn read_response_format(fields: &mut Fields) -> Result<Format, FieldError> {
    let Some(format) = fields.take_value("response_format") else { return Ok(Format::Text) };
    let mut format = Fields::at(fields.path("response_format"), format)?;
    match format.need::<String>("type")?.as_str() {
        "text" => Ok(Format::Text),
        "json_object" => Ok(format.take_value("schema").map_or(Format::JsonObject, Format::JsonSchema)),
        "json_schema" => {
            let mut named = Fields::at(format.path("json_schema"), format.need("json_schema")?)?;
            named.need::<String>("name")?;
            named.take::<String>("description")?;
            named.take::<bool>("strict")?;
            Ok(Format::JsonSchema(named.take_value("schema").unwrap_or_else(|| json!({"type": "object"}))))
        }
        other => {
            let rule = format!("must be text, json_object or json_schema, not {other:?}");
            Err(FieldError::new(format.path("type"), rule))
        }
    }
}

/// Anthropic's `output_config`: its `format`, which its beta called `output_format`, and its `effort`.
pub fn read_output_config(fields: &mut Fields) -> Result<(Format, Option<String>), FieldError> {
    let mut found = Format::Text;
    let mut config = Fields::at(fields.path("output_config"), fields.take_value("output_config").unwrap_or(json!({})))?;
    let effort = config.take("effort")?;
    for (path, format) in [
        (config.path("format"), config.take_value("format")),
        (fields.path("output_format"), fields.take_value("output_format")),
    ] {
        let Some(format) = format else { continue };
        let mut format = Fields::at(path, format)?;
        match format.need::<String>("type")?.as_str() {
            "json_schema" => found = Format::JsonSchema(format.need("schema")?),
            other => return Err(FieldError::new(format.path("type"), format!("must be json_schema, not {other:?}"))),
        }
    }
    match config.rest().next() {
        Some(other) => Err(FieldError::new(config.path(other), "is not known here, and would not be followed")),
        None => Ok((found, effort)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn others(body: Value) -> Result<Format, String> {
        let mut fields = Fields::new(body).unwrap();
        let own = read_response_format(&mut fields).map_err(|error| error.to_string())?;
        Format::read_others(&mut fields, own).map_err(|error| error.to_string())
    }

    #[test]
    fn fields_of_every_server() {
        let schema = json!({"type": "object"});
        let choice = || Format::Choice(vec!["a".to_owned(), "b".to_owned()]);
        for (body, want) in [
            (json!({}), Format::Text),
            (json!({"structured_outputs": {"json": schema}}), Format::JsonSchema(schema.clone())),
            (json!({"structured_outputs": {"json": schema.to_string()}}), Format::JsonSchema(schema.clone())),
            (json!({"structured_outputs": {"regex": "a+", "backend": "x"}}), Format::Regex("a+".to_owned())),
            (json!({"structured_outputs": {"json_object": true}}), Format::JsonObject),
            (json!({"guided_choice": ["a", "b"]}), choice()),
            (json!({"guided_choice": ["a", "b"], "structured_outputs": {"choice": ["a", "b"]}}), choice()),
            (json!({"guided_grammar": "start: \"a\""}), Format::Grammar("start: \"a\"".to_owned())),
            (json!({"guided_json": schema, "guided_decoding_backend": "x"}), Format::JsonSchema(schema.clone())),
            (json!({"json_schema": schema}), Format::JsonSchema(schema.clone())),
            (json!({"response_format": {"type": "json_object"}}), Format::JsonObject),
            (json!({"response_format": {"type": "json_object", "schema": schema}}), Format::JsonSchema(schema.clone())),
        ] {
            assert_eq!(others(body.clone()).as_ref(), Ok(&want), "{body}");
        }
    }

    #[test]
    fn what_cannot_be_followed_is_an_error() {
        for (body, want) in [
            (json!({"structured_outputs": {"xml": 1}}), "structured_outputs.xml: is not known"),
            (json!({"structured_outputs": 1}), "structured_outputs: must be an object"),
            (json!({"structured_outputs": {"json": "{"}}), "structured_outputs.json: is not JSON"),
            (json!({"structured_outputs": {"regex": "a", "choice": ["a"]}}), "structured_outputs.choice: does not go"),
            (json!({"guided_magic": 1}), "guided_magic: is not known"),
            (json!({"guided_choice": []}), "guided_choice: must not be empty"),
            (json!({"guided_choice": [1]}), "guided_choice: must be an array of strings"),
            (json!({"structural_tag": {}}), "structural_tag: is not known"),
            (json!({"response_format": {"type": "json_object"}, "guided_regex": "a"}), "guided_regex: does not go"),
            (json!({"response_format": {"type": "xml"}}), "response_format.type: must be"),
        ] {
            let error = others(body.clone()).unwrap_err();
            assert!(error.starts_with(want), "{body}: {error}");
        }
    }

    #[test]
    fn formats_of_messages() {
        let read = |body| {
            read_output_config(&mut Fields::new(body).unwrap()).map(|read| read.0).map_err(|error| error.to_string())
        };
        let format = json!({"type": "json_schema", "schema": {"type": "object"}});
        let want = Ok(Format::JsonSchema(json!({"type": "object"})));
        assert_eq!(read(json!({"output_config": {"format": format, "effort": "low"}})), want);
        assert_eq!(read(json!({"output_format": format})), want);
        assert_eq!(read(json!({"output_config": {"effort": "low"}})), Ok(Format::Text));
        for (body, want) in [
            (json!({"output_config": {"shape": 1}}), "output_config.shape: is not known"),
            (json!({"output_config": {"format": {"type": "xml"}}}), "output_config.format.type: must be json_schema"),
            (json!({"output_config": {"format": {"type": "json_schema"}}}), "output_config.format.schema: is required"),
        ] {
            assert!(read(body).unwrap_err().starts_with(want));
        }
    }
}

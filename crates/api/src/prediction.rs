//! `prediction`: what the client expects in the answer, as Chat Completions define it and the Responses API takes it too.

use serde_json::Value;

use crate::fields::{FieldError, Fields, kind};

/// Reads `prediction` from a request: the expected text, or none.
pub fn read_prediction(fields: &mut Fields) -> Result<Option<String>, FieldError> {
    let Some(value) = fields.take_value("prediction") else { return Ok(None) };
    let mut prediction = Fields::at(fields.path("prediction"), value)?;
    match prediction.need::<String>("type")?.as_str() {
        "content" => {}
        other => return Err(FieldError::new(prediction.path("type"), format!("must be content, not {other:?}"))),
    }
    let path = prediction.path("content");
    match prediction.take_value("content") {
        Some(Value::String(text)) => Ok(Some(text)),
        Some(Value::Array(parts)) if parts.is_empty() => Err(FieldError::new(path, "must not be an empty array")),
        Some(Value::Array(parts)) => {
            let part = |(index, part)| read_part(format!("{path}[{index}]"), part);
            parts.into_iter().enumerate().map(part).collect::<Result<_, _>>().map(Some)
        }
        Some(other) => {
            let rule = format!("must be a string or an array of text parts, not {}", kind(&other));
            Err(FieldError::new(path, rule))
        }
        None => Err(FieldError::new(path, "is required")),
    }
}

fn read_part(path: String, part: Value) -> Result<String, FieldError> {
    let mut part = Fields::at(path, part)?;
    match part.need::<String>("type")?.as_str() {
        "text" => part.need("text"),
        other => Err(FieldError::new(part.path("type"), format!("must be text, not {other:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn both_shapes_are_read_and_others_are_named() {
        let read = |prediction: Value| read_prediction(&mut Fields::new(json!({"prediction": prediction})).unwrap());
        assert_eq!(read(Value::Null).unwrap(), None);
        assert_eq!(read(json!({"type": "content", "content": "fn a() {}"})).unwrap().unwrap(), "fn a() {}");
        assert_eq!(read(json!({"type": "content", "content": ""})).unwrap().unwrap(), "");
        let parts = json!([{"type": "text", "text": "fn a"}, {"type": "text", "text": "() {}"}]);
        assert_eq!(read(json!({"type": "content", "content": parts})).unwrap().unwrap(), "fn a() {}");
        for (prediction, param) in [
            (json!("fn a() {}"), "prediction"),
            (json!({}), "prediction.type"),
            (json!({"type": "diff", "content": "x"}), "prediction.type"),
            (json!({"type": "content"}), "prediction.content"),
            (json!({"type": "content", "content": 3}), "prediction.content"),
            (json!({"type": "content", "content": []}), "prediction.content"),
            (json!({"type": "content", "content": ["x"]}), "prediction.content[0]"),
            (json!({"type": "content", "content": [{"type": "image", "text": "x"}]}), "prediction.content[0].type"),
            (json!({"type": "content", "content": [{"type": "text"}]}), "prediction.content[0].text"),
        ] {
            assert_eq!(read(prediction).unwrap_err().param, param);
        }
    }
}

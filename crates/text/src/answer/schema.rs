//! What a tool's schema says of values that a model writes without quotes.

use serde_json::Value;

/// The parameters that are strings whatever they look like. One that may also be a number is not among them.
pub(super) fn string_parameters(parameters: &Value) -> Vec<String> {
    let properties = parameters["properties"].as_object().into_iter().flatten();
    properties.filter(|(_, schema)| is_string(schema)).map(|(name, _)| name.clone()).collect()
}

/// Whether only a string, or nothing, fits a schema.
fn is_string(schema: &Value) -> bool {
    let named = |name: &Value| matches!(name.as_str(), Some("string" | "null"));
    let some = |list: &Vec<Value>, of: &dyn Fn(&Value) -> bool| !list.is_empty() && list.iter().all(of);
    if let Some(kind) = schema.get("type") {
        return match kind {
            Value::Array(kinds) => some(kinds, &named) && kinds.iter().any(|kind| kind == "string"),
            kind => kind == "string",
        };
    }
    if let Some(Value::Array(values)) = schema.get("enum") {
        return some(values, &Value::is_string);
    }
    if let Some(value) = schema.get("const") {
        return value.is_string();
    }
    let alternatives = ["anyOf", "oneOf"].into_iter().find_map(|key| schema.get(key)?.as_array());
    alternatives.is_some_and(|list| {
        let null = |schema: &Value| schema["type"] == "null";
        some(list, &|schema| is_string(schema) || null(schema)) && list.iter().any(is_string)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_can_only_be_a_string_is_one() {
        let schema = json!({"properties": {
            "a": {"type": "string"}, "b": {"type": ["string", "null"]}, "c": {"enum": ["x", "1"]},
            "d": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "e": {"const": "x"},
            "p": {"type": "integer"}, "q": {"type": ["string", "integer"]}, "r": {"enum": ["x", 1]}, "s": {},
            "t": {"anyOf": [{"type": "string"}, {"type": "number"}]}, "u": {"anyOf": [{"type": "null"}]},
        }});
        assert_eq!(string_parameters(&schema), ["a", "b", "c", "d", "e"]);
        assert!(string_parameters(&Value::Null).is_empty());
    }
}

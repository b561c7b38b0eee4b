//! Whether a file holds a JSON schema, as far as that can be said without compiling it: so that a slip costs no model.

use serde_json::Value;

/// The types there are.
const TYPES: [&str; 7] = ["null", "boolean", "object", "array", "number", "string", "integer"];
/// Keys whose value is a schema, those whose value is a list of them, and those whose value has one for each name.
const ONE: [&str; 6] = ["items", "not", "additionalProperties", "if", "then", "else"];
const LISTS: [&str; 4] = ["anyOf", "oneOf", "allOf", "prefixItems"];
const NAMED: [&str; 4] = ["properties", "patternProperties", "$defs", "definitions"];

/// Why it is not a schema. JSON is at most 128 levels deep, so this ends.
pub fn check(schema: &Value) -> Result<(), String> {
    let Value::Object(keys) = schema else {
        return if schema.is_boolean() { Ok(()) } else { Err("a schema is an object, or true or false".to_owned()) };
    };
    if let Some(kind) = keys.get("type") {
        let kinds = kind.as_array().map_or(std::slice::from_ref(kind), Vec::as_slice);
        if let Some(wrong) = kinds.iter().find(|kind| !kind.as_str().is_some_and(|kind| TYPES.contains(&kind))) {
            return Err(format!("there is no type {wrong}; the types are {}", TYPES.join(", ")));
        }
    }
    for (key, value) in keys {
        match (key.as_str(), value) {
            (key, value) if ONE.contains(&key) => check(value)?,
            (key, Value::Array(list)) if LISTS.contains(&key) => list.iter().try_for_each(check)?,
            (key, _) if LISTS.contains(&key) => return Err(format!("`{key}` must be a list of schemas")),
            (key, Value::Object(named)) if NAMED.contains(&key) => named.values().try_for_each(check)?,
            (key, _) if NAMED.contains(&key) => return Err(format!("`{key}` must be an object of schemas")),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_found_and_a_schema_is_not_refused() {
        for text in [
            "true",
            "{}",
            r#"{"type": ["string", "null"], "enum": ["a", null]}"#,
            r#"{"type": "object", "properties": {"type": {"type": "string"}}, "additionalProperties": false}"#,
            r##"{"$defs": {"a": {"type": "integer"}}, "items": {"$ref": "#/$defs/a"}}"##,
        ] {
            assert_eq!(check(&serde_json::from_str(text).unwrap()), Ok(()), "{text}");
        }
        for text in ["[]", "7", r#"{"type": "strng"}"#, r#"{"properties": {"a": {"type": 7}}}"#, r#"{"anyOf": {}}"#] {
            assert!(check(&serde_json::from_str(text).unwrap()).is_err(), "{text}");
        }
    }
}

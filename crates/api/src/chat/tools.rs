//! Tools as Chat Completions write them, one object deeper than the Responses API.

use serde_json::Value;

use crate::fields::{FieldError, Fields};
use crate::responses::{Tool, ToolChoice};

/// Reads a list of tools.
pub fn read_tools(path: &str, tools: Vec<Value>) -> Result<Vec<Tool>, FieldError> {
    tools.into_iter().enumerate().map(|(index, tool)| read_tool(format!("{path}[{index}]"), tool)).collect()
}

fn read_tool(path: String, tool: Value) -> Result<Tool, FieldError> {
    let mut fields = Fields::at(path, tool)?;
    let kind: String = fields.need("type")?;
    if kind != "function" && kind != "custom" {
        return Ok(Tool::Other { kind });
    }
    let path = fields.path(&kind);
    let mut inner: Value = fields.need(&kind)?;
    if let Some(format) = inner.get_mut("format").and_then(Value::as_object_mut)
        && let Some(Value::Object(grammar)) = format.remove("grammar")
    {
        format.extend(grammar);
    }
    if let Some(inner) = inner.as_object_mut() {
        inner.insert("type".to_owned(), Value::from(kind));
    }
    Tool::read(&path, &inner)
}

/// Reads a choice in any of its forms.
pub fn read_choice(choice: Value) -> Result<ToolChoice, FieldError> {
    ToolChoice::read(flat_choice(choice))
}

/// The same choice as the Responses API writes it. What does not fit is left for its reader to refuse.
fn flat_choice(mut choice: Value) -> Value {
    let Some(kind) = choice["type"].as_str().map(str::to_owned) else { return choice };
    if let Some(fields) = choice.as_object_mut()
        && let Some(Value::Object(inner)) = fields.remove(&kind)
    {
        fields.extend(inner);
        if let Some(Value::Array(tools)) = fields.get_mut("tools") {
            tools.iter_mut().for_each(|tool| *tool = flat_choice(tool.take()));
        }
    }
    choice
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::responses::CustomFormat;
    use crate::responses::tool::ToolName;

    #[test]
    fn tools_of_every_kind() {
        let grammar = json!({"type": "grammar", "grammar": {"syntax": "regex", "definition": "a+"}});
        let tools = vec![
            json!({"type": "function", "function": {"name": "ls", "strict": true}}),
            json!({"type": "custom", "custom": {"name": "patch", "format": grammar}}),
            json!({"type": "web_search"}),
        ];
        let read = read_tools("tools", tools).unwrap();
        assert!(matches!(&read[0], Tool::Function { name, strict: true, .. } if name == "ls"));
        assert!(matches!(&read[1], Tool::Custom { format: CustomFormat::Regex(text), .. } if text == "a+"));
        assert!(matches!(&read[2], Tool::Other { kind } if kind == "web_search"));
        let bad = |tool: Value| read_tools("tools", vec![tool]).unwrap_err().to_string();
        assert_eq!(bad(json!({"type": "function", "function": {}})), "tools[0].function.name: is required");
        assert_eq!(bad(json!({"type": "function"})), "tools[0].function: is required");
        assert_eq!(
            bad(json!({"type": "function", "function": 1})),
            "tools[0].function: must be an object, not a number"
        );
    }

    #[test]
    fn choices_of_every_form() {
        let named = || ToolName { name: "ls".to_owned(), namespace: None };
        let check = |value: Value, want: ToolChoice| assert_eq!(read_choice(value).unwrap(), want);
        check(json!("required"), ToolChoice::Required);
        let function = json!({"type": "function", "function": {"name": "ls"}});
        check(function.clone(), ToolChoice::Named(named()));
        check(json!({"type": "custom", "custom": {"name": "ls"}}), ToolChoice::Named(named()));
        let allowed = json!({"mode": "required", "tools": [function]});
        let want = ToolChoice::Allowed { required: true, tools: vec![named()] };
        check(json!({"type": "allowed_tools", "allowed_tools": allowed}), want);
        for bad in [json!("sometimes"), json!({"type": "function"}), json!(1), json!({"type": "web_search"})] {
            assert!(read_choice(bad).is_err());
        }
    }
}

//! Tools a model may call, and how the client wants them used.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::fields::{FieldError, Fields, kind};

/// A tool as the client declares it.
#[derive(Clone, Debug, PartialEq)]
pub enum Tool {
    /// Takes arguments by schema.
    Function {
        /// What the model calls it.
        name: String,
        /// What it is for.
        description: Option<String>,
        /// JSON schema of its arguments.
        parameters: Option<Value>,
        /// Whether the arguments must follow the schema.
        strict: bool,
    },
    /// Takes free text.
    Custom {
        /// What the model calls it.
        name: String,
        /// What it is for.
        description: Option<String>,
        /// What its input must look like.
        format: CustomFormat,
    },
    /// Several tools under one name.
    Namespace {
        /// The common name.
        name: String,
        /// What they are for.
        description: Option<String>,
        /// The tools.
        tools: Vec<Tool>,
    },
    /// A kind that only another provider can run.
    Other {
        /// Its kind.
        kind: String,
    },
}

/// What the input of a custom tool must look like.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum CustomFormat {
    /// Anything.
    #[default]
    Text,
    /// A Lark grammar.
    Lark(String),
    /// A regular expression.
    Regex(String),
}

impl Tool {
    /// Reads a list of tools.
    pub fn read_list(path: &str, tools: &[Value]) -> Result<Vec<Self>, FieldError> {
        let read = |(index, tool): (usize, &Value)| Self::read(&format!("{path}[{index}]"), tool);
        tools.iter().enumerate().map(read).collect()
    }

    /// Reads one tool.
    pub fn read(path: &str, tool: &Value) -> Result<Self, FieldError> {
        let mut fields = Fields::at(path, tool.clone())?;
        match fields.need::<String>("type")?.as_str() {
            "function" => Ok(Self::Function {
                name: named(&mut fields)?,
                description: fields.take("description")?,
                parameters: fields.take("parameters")?,
                strict: fields.take("strict")?.unwrap_or(false),
            }),
            "custom" => Ok(Self::Custom {
                name: named(&mut fields)?,
                description: fields.take("description")?,
                format: CustomFormat::read(&fields.path("format"), fields.clone().take_value("format"))?,
            }),
            "namespace" => {
                let name = named(&mut fields)?;
                let tools: Vec<Value> = fields.take("tools")?.unwrap_or_default();
                let nested = Self::read_list(&fields.path("tools"), &tools)?;
                if nested.iter().any(|tool| matches!(tool, Self::Namespace { .. })) {
                    return Err(FieldError::new(fields.path("tools"), "must not hold another namespace"));
                }
                Ok(Self::Namespace { name, description: fields.take("description")?, tools: nested })
            }
            other => Ok(Self::Other { kind: other.to_owned() }),
        }
    }
}

fn named(fields: &mut Fields) -> Result<String, FieldError> {
    let name: String = fields.need("name")?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    if name.is_empty() || name.len() > 128 || !name.bytes().all(plain) {
        return Err(FieldError::new(fields.path("name"), "must be 1 to 128 letters, digits, `_`, `-` or `.`"));
    }
    Ok(name)
}

impl CustomFormat {
    fn read(path: &str, format: Option<Value>) -> Result<Self, FieldError> {
        let Some(format) = format else { return Ok(Self::Text) };
        let mut fields = Fields::at(path, format)?;
        match fields.need::<String>("type")?.as_str() {
            "text" => Ok(Self::Text),
            "grammar" => {
                let definition = fields.need("definition")?;
                match fields.need::<String>("syntax")?.as_str() {
                    "lark" => Ok(Self::Lark(definition)),
                    "regex" => Ok(Self::Regex(definition)),
                    other => {
                        Err(FieldError::new(fields.path("syntax"), format!("must be lark or regex, not {other:?}")))
                    }
                }
            }
            other => Err(FieldError::new(fields.path("type"), format!("must be text or grammar, not {other:?}"))),
        }
    }
}

/// Which tools the model must, may or must not call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// No call.
    None,
    /// At least one call.
    Required,
    /// A call of this tool.
    Named(ToolName),
    /// Only these, under one of the other modes.
    Allowed {
        /// Whether one must be called.
        required: bool,
        /// Which.
        tools: Vec<ToolName>,
    },
}

/// How a choice names a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolName {
    /// Its name.
    pub name: String,
    /// The namespace it is in.
    #[serde(default)]
    pub namespace: Option<String>,
}

impl ToolChoice {
    /// Reads a choice in any of its forms.
    pub fn read(value: Value) -> Result<Self, FieldError> {
        let path = "tool_choice";
        if let Value::String(mode) = &value {
            return match mode.as_str() {
                "auto" => Ok(Self::Auto),
                "none" => Ok(Self::None),
                "required" | "any" => Ok(Self::Required),
                other => Err(FieldError::new(path, format!("must be auto, none or required, not {other:?}"))),
            };
        }
        if !value.is_object() {
            return Err(FieldError::new(path, format!("must be a string or an object, not {}", kind(&value))));
        }
        let mut fields = Fields::at(path, value)?;
        match fields.need::<String>("type")?.as_str() {
            "function" | "custom" => {
                Ok(Self::Named(ToolName { name: fields.need("name")?, namespace: fields.take("namespace")? }))
            }
            "allowed_tools" => {
                let mode: Option<String> = fields.take("mode")?;
                let required = match mode.as_deref() {
                    None | Some("auto") => false,
                    Some("required") => true,
                    Some(other) => {
                        let rule = format!("must be auto or required, not {other:?}");
                        return Err(FieldError::new(fields.path("mode"), rule));
                    }
                };
                Ok(Self::Allowed { required, tools: fields.need("tools")? })
            }
            other => Err(FieldError::new(path, format!("{other:?} names a tool that only another provider can run"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tools_of_every_kind() {
        let tools = [
            json!({"type": "function", "name": "ls", "parameters": {"type": "object"}, "strict": true}),
            json!({"type": "custom", "name": "patch", "format": {"type": "grammar", "syntax": "lark", "definition": "start: \"a\""}}),
            json!({"type": "namespace", "name": "agents", "tools": [{"type": "function", "name": "spawn"}]}),
            json!({"type": "web_search", "external_web_access": false}),
        ];
        let read = Tool::read_list("tools", &tools).unwrap();
        assert!(matches!(&read[0], Tool::Function { strict: true, .. }));
        assert!(matches!(&read[1], Tool::Custom { format: CustomFormat::Lark(text), .. } if text.starts_with("start")));
        assert!(matches!(&read[2], Tool::Namespace { tools, .. } if tools.len() == 1));
        assert_eq!(read[3], Tool::Other { kind: "web_search".to_owned() });
        let bad = |tool: Value| Tool::read_list("tools", &[tool]).unwrap_err().to_string();
        assert_eq!(bad(json!({"type": "function"})), "tools[0].name: is required");
        assert_eq!(bad(json!({"name": "x"})), "tools[0].type: is required");
        assert_eq!(bad(json!(3)), "tools[0]: must be an object, not a number");
    }

    #[test]
    fn choices_of_every_form() {
        let named = |name: &str| ToolName { name: name.to_owned(), namespace: None };
        let check = |value: Value, want: ToolChoice| assert_eq!(ToolChoice::read(value).unwrap(), want);
        check(json!("auto"), ToolChoice::Auto);
        check(json!("none"), ToolChoice::None);
        check(json!("required"), ToolChoice::Required);
        check(json!({"type": "function", "name": "ls"}), ToolChoice::Named(named("ls")));
        check(json!({"type": "custom", "name": "ls"}), ToolChoice::Named(named("ls")));
        let allowed =
            json!({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "ls"}]});
        check(allowed, ToolChoice::Allowed { required: true, tools: vec![named("ls")] });
        assert!(ToolChoice::read(json!("sometimes")).is_err());
        assert!(ToolChoice::read(json!({"type": "web_search"})).is_err());
        assert!(ToolChoice::read(json!(1)).is_err());
    }
}

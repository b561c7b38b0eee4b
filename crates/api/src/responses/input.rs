//! What a client gives as input. Items are kept as they came (they are echoed and stored) and read into these types
//! when a prompt is made of them.

use serde_json::{Map, Value};

use super::tool::Tool;
use crate::fields::{FieldError, Fields, kind};

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The operator: `system` or `developer`.
    Developer,
    /// The user.
    User,
    /// The model.
    Assistant,
}

/// One item of input.
#[derive(Clone, Debug, PartialEq)]
pub enum InputItem {
    /// Somebody said something.
    Message {
        /// Who.
        role: Role,
        /// What.
        content: Content,
    },
    /// The model called a tool.
    Call {
        /// What the result will name.
        call_id: String,
        /// The tool.
        name: String,
        /// Its namespace.
        namespace: Option<String>,
        /// Arguments in JSON, or free text for a custom tool.
        input: String,
        /// Whether the tool takes free text.
        custom: bool,
    },
    /// A tool gave something back.
    Output {
        /// Whose call this answers.
        call_id: String,
        /// What it gave.
        output: ToolOutput,
    },
    /// The model thought something.
    Reasoning {
        /// The thought, where the client has it.
        text: String,
    },
    /// An earlier conversation made short.
    Compaction {
        /// The summary.
        summary: String,
    },
    /// More tools.
    Tools(Vec<Tool>),
    /// A kind that means nothing to a local model.
    Other {
        /// Its kind.
        kind: String,
    },
}

/// What a tool gave back.
pub type ToolOutput = Content;

/// Text, and the kinds of other things that stood between.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// All text, with a note in place of anything else.
    pub text: String,
    /// Kinds of parts that could not be read, such as `input_image`.
    pub unread: Vec<String>,
}

impl InputItem {
    /// Reads a request's `input`: a text or a list of items, as a list of items.
    pub fn list(input: Value) -> Result<Vec<Value>, FieldError> {
        match input {
            Value::String(text) => Ok(vec![serde_json::json!({"type": "message", "role": "user", "content": text})]),
            Value::Array(items) => Ok(items),
            other => Err(FieldError::new("input", format!("must be a string or an array, not {}", kind(&other)))),
        }
    }

    /// Reads the items of a list.
    pub fn read_list(path: &str, items: &[Value]) -> Result<Vec<Self>, FieldError> {
        let read = |(index, item): (usize, &Value)| Self::read(&format!("{path}[{index}]"), item);
        items.iter().enumerate().map(read).collect()
    }

    fn read(path: &str, item: &Value) -> Result<Self, FieldError> {
        let mut fields = Fields::at(path, item.clone())?;
        let kind: String = fields.take("type")?.unwrap_or_else(|| "message".to_owned());
        match kind.as_str() {
            "message" => Self::read_message(&mut fields),
            "function_call" | "custom_tool_call" => {
                let custom = kind == "custom_tool_call";
                Ok(Self::Call {
                    call_id: fields.need("call_id")?,
                    name: fields.need("name")?,
                    namespace: fields.take("namespace")?,
                    input: fields.need(if custom { "input" } else { "arguments" })?,
                    custom,
                })
            }
            "function_call_output" | "custom_tool_call_output" => Ok(Self::Output {
                call_id: fields.need("call_id")?,
                output: Content::read(&fields.path("output"), fields.need("output")?)?,
            }),
            "reasoning" => {
                let path = fields.path("content");
                let content = fields.take_value("content").unwrap_or(Value::Array(Vec::new()));
                Ok(Self::Reasoning { text: Content::read(&path, content)?.text })
            }
            "compaction" | "compaction_summary" | "context_compaction" => {
                Ok(Self::Compaction { summary: fields.need("encrypted_content")? })
            }
            "additional_tools" => {
                let tools: Vec<Value> = fields.need("tools")?;
                Ok(Self::Tools(Tool::read_list(&fields.path("tools"), &tools)?))
            }
            "item_reference" => Err(FieldError::new(
                fields.path("type"),
                "item_reference is not supported: send the item itself, or continue with previous_response_id",
            )),
            other => Ok(Self::Other { kind: other.to_owned() }),
        }
    }

    fn read_message(fields: &mut Fields) -> Result<Self, FieldError> {
        let role = match fields.need::<String>("role")?.as_str() {
            "system" | "developer" => Role::Developer,
            "user" => Role::User,
            "assistant" => Role::Assistant,
            other => {
                let rule = format!("must be user, assistant, system or developer, not {other:?}");
                return Err(FieldError::new(fields.path("role"), rule));
            }
        };
        let phase: Option<String> = fields.take("phase")?;
        if let Some(phase) = phase.filter(|phase| !["commentary", "final_answer"].contains(&phase.as_str())) {
            let rule = format!("must be commentary or final_answer, not {phase:?}");
            return Err(FieldError::new(fields.path("phase"), rule));
        }
        Ok(Self::Message { role, content: Content::read(&fields.path("content"), fields.need("content")?)? })
    }
}

impl Content {
    /// Reads a text, or a list of parts; what is no text is an error, since nobody would see it.
    pub fn read_text(path: &str, content: Value) -> Result<Self, FieldError> {
        let content = Self::read(path, content)?;
        match content.unread.first() {
            Some(kind) => Err(Self::unreadable(path, kind)),
            None => Ok(content),
        }
    }

    /// The error about a part of a kind that this model cannot read.
    pub fn unreadable(path: &str, kind: &str) -> FieldError {
        FieldError::new(path, format!("`{kind}` cannot be read: this model reads only text; describe it in words"))
    }

    /// Reads a text, or a list of parts of which those with text are joined.
    pub fn read(path: &str, content: Value) -> Result<Self, FieldError> {
        let parts = match content {
            Value::String(text) => return Ok(Self { text, unread: Vec::new() }),
            Value::Array(parts) => parts,
            other => return Err(FieldError::new(path, format!("must be a string or an array, not {}", kind(&other)))),
        };
        let mut content = Self::default();
        for (index, part) in parts.into_iter().enumerate() {
            let mut fields = Fields::at(format!("{path}[{index}]"), part)?;
            let kind: String = fields.need("type")?;
            match kind.as_str() {
                "input_text" | "output_text" | "text" | "summary_text" | "reasoning_text" => {
                    content.text.push_str(&fields.need::<String>("text")?);
                    // Nothing of these reaches the model, but a client that sends them wrong should hear of it.
                    fields.take::<Vec<Map<String, Value>>>("annotations")?;
                    fields.take::<Vec<Map<String, Value>>>("logprobs")?;
                }
                "refusal" => content.text.push_str(&fields.need::<String>("refusal")?),
                _ => {
                    content.text.push_str(&format!("[{kind} left out: this model reads only text]"));
                    content.unread.push(kind);
                }
            }
        }
        Ok(content)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(item: Value) -> Result<InputItem, String> {
        InputItem::read_list("input", &[item]).map(|mut items| items.remove(0)).map_err(|error| error.to_string())
    }

    #[test]
    fn items_of_every_kind() {
        let text = |text: &str| Content { text: text.to_owned(), unread: Vec::new() };
        let message = |role, content| Ok(InputItem::Message { role, content });
        assert_eq!(read(json!({"role": "user", "content": "a"})), message(Role::User, text("a")));
        let parts = json!([{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]);
        assert_eq!(
            read(json!({"type": "message", "role": "system", "content": parts})),
            message(Role::Developer, text("ab"))
        );
        let image = read(json!({"role": "user", "content": [{"type": "input_image", "image_url": "data:"}]})).unwrap();
        assert!(matches!(image, InputItem::Message { content, .. } if content.unread == ["input_image"]));
        let output =
            json!({"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "ok"}]});
        assert_eq!(read(output), Ok(InputItem::Output { call_id: "c".to_owned(), output: text("ok") }));
        assert!(matches!(read(json!({"type": "web_search_call"})), Ok(InputItem::Other { .. })));
        let no_content = json!({"type": "reasoning", "summary": [], "encrypted_content": null});
        assert_eq!(read(no_content), Ok(InputItem::Reasoning { text: String::new() }));
    }

    #[test]
    fn errors_name_the_place() {
        let check = |item: Value, want: &str| assert_eq!(read(item).unwrap_err(), want);
        check(json!({"type": "function_call_output", "output": "x"}), "input[0].call_id: is required");
        check(json!({"role": "user"}), "input[0].content: is required");
        check(json!({"role": "user", "content": [{"text": "x"}]}), "input[0].content[0].type: is required");
        check(json!("x"), "input[0]: must be an object, not a string");
        let noted = json!([{"type": "output_text", "text": "x", "annotations": [1.5]}]);
        let error = read(json!({"role": "assistant", "content": noted})).unwrap_err();
        assert!(error.starts_with("input[0].content[0].annotations: "), "{error}");
        assert!(InputItem::list(json!(3)).is_err());
        assert_eq!(InputItem::list(json!("hi")).unwrap()[0]["role"], "user");
    }
}

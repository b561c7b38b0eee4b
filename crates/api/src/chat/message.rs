//! What was said so far, in one form for every protocol that sends its whole history each time.

use serde_json::Value;

use crate::fields::{FieldError, Fields};
use crate::responses::Content;

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub enum ChatMessage {
    /// What the operator says.
    Operator(Content),
    /// What the user says.
    User(Content),
    /// What the model said.
    Assistant {
        /// Its text.
        content: Content,
        /// What it thought first, where the client gives it back.
        reasoning: String,
        /// The tools it called.
        calls: Vec<PastCall>,
    },
    /// What a tool gave back.
    Result {
        /// Whose call this answers; absent in the old way, which names the function.
        call_id: Option<String>,
        /// The function, in the old way.
        name: Option<String>,
        /// What it gave.
        output: Content,
    },
}

/// A call the model made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastCall {
    /// What the result names; absent in the old way.
    pub id: Option<String>,
    /// The tool.
    pub name: String,
    /// Arguments in JSON, or free text for a custom tool.
    pub input: String,
    /// Whether the tool takes free text.
    pub custom: bool,
}

impl ChatMessage {
    /// Reads a list of messages.
    pub fn read_list(path: &str, messages: Vec<Value>) -> Result<Vec<Self>, FieldError> {
        let read = |(index, message)| Self::read(&mut Fields::at(format!("{path}[{index}]"), message)?);
        messages.into_iter().enumerate().map(read).collect()
    }

    fn read(fields: &mut Fields) -> Result<Self, FieldError> {
        let role: String = fields.need("role")?;
        let content = |fields: &mut Fields| Content::read_text(&fields.path("content"), fields.need("content")?);
        // A tool that shows a picture must not end the conversation: the model is told that there was one.
        let output = |fields: &mut Fields| Content::read(&fields.path("content"), fields.need("content")?);
        match role.as_str() {
            "system" | "developer" => Ok(Self::Operator(content(fields)?)),
            "user" => Ok(Self::User(content(fields)?)),
            "assistant" => Self::read_assistant(fields),
            "tool" => {
                let call_id = Some(fields.need("tool_call_id")?);
                Ok(Self::Result { call_id, name: None, output: output(fields)? })
            }
            "function" => {
                let name = Some(fields.need("name")?);
                Ok(Self::Result { call_id: None, name, output: output(fields)? })
            }
            other => {
                let rule = format!("must be system, developer, user, assistant, tool or function, not {other:?}");
                Err(FieldError::new(fields.path("role"), rule))
            }
        }
    }

    fn read_assistant(fields: &mut Fields) -> Result<Self, FieldError> {
        let path = fields.path("content");
        let mut content = fields.take_value("content").map(|value| Content::read(&path, value)).transpose()?;
        if let Some(refusal) = fields.take::<String>("refusal")? {
            content.get_or_insert_default().text.push_str(&refusal);
        }
        let reasoning: Option<String> = fields.take("reasoning_content")?;
        let path = fields.path("tool_calls");
        let calls: Vec<Value> = fields.take("tool_calls")?.unwrap_or_default();
        let read = |(index, call)| PastCall::read(&mut Fields::at(format!("{path}[{index}]"), call)?);
        let mut calls: Vec<PastCall> = calls.into_iter().enumerate().map(read).collect::<Result<_, _>>()?;
        if let Some(call) = fields.take_value("function_call") {
            let mut call = Fields::at(fields.path("function_call"), call)?;
            calls.push(PastCall { id: None, name: call.need("name")?, input: call.need("arguments")?, custom: false });
        }
        if content.is_none() && reasoning.is_none() && calls.is_empty() {
            return Err(FieldError::new(fields.path("content"), "is required where there are no tool_calls"));
        }
        Ok(Self::Assistant { content: content.unwrap_or_default(), reasoning: reasoning.unwrap_or_default(), calls })
    }
}

impl PastCall {
    fn read(fields: &mut Fields) -> Result<Self, FieldError> {
        let id = Some(fields.need("id")?);
        let kind: Option<String> = fields.take("type")?;
        match kind.as_deref() {
            None | Some("function") => {
                let mut call = Fields::at(fields.path("function"), fields.need("function")?)?;
                Ok(Self { id, name: call.need("name")?, input: call.need("arguments")?, custom: false })
            }
            Some("custom") => {
                let mut call = Fields::at(fields.path("custom"), fields.need("custom")?)?;
                Ok(Self { id, name: call.need("name")?, input: call.need("input")?, custom: true })
            }
            Some(other) => {
                Err(FieldError::new(fields.path("type"), format!("must be function or custom, not {other:?}")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(message: Value) -> Result<ChatMessage, String> {
        let list = ChatMessage::read_list("messages", vec![message]);
        list.map(|mut list| list.remove(0)).map_err(|error| error.to_string())
    }

    #[test]
    fn messages_of_every_role() {
        let text = |text: &str| Content { text: text.to_owned(), unread: Vec::new() };
        assert_eq!(read(json!({"role": "developer", "content": "a"})), Ok(ChatMessage::Operator(text("a"))));
        let parts = json!([{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:"}}]);
        let shown = read(json!({"role": "tool", "tool_call_id": "c", "content": parts})).unwrap();
        assert!(matches!(shown, ChatMessage::Result { output, .. } if output.unread == ["image_url"]));
        let call = json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}});
        let past = |custom| PastCall { id: Some("c".into()), name: "f".into(), input: "{}".into(), custom };
        let assistant = |calls| {
            let reasoning = String::new();
            Ok(ChatMessage::Assistant { content: Content::default(), reasoning, calls })
        };
        let message = json!({"role": "assistant", "content": null, "tool_calls": [call]});
        assert_eq!(read(message), assistant(vec![past(false)]));
        let call = json!({"id": "c", "type": "custom", "custom": {"name": "f", "input": "{}"}});
        assert_eq!(read(json!({"role": "assistant", "tool_calls": [call]})), assistant(vec![past(true)]));
        let result = ChatMessage::Result { call_id: Some("c".into()), name: None, output: text("x") };
        assert_eq!(read(json!({"role": "tool", "tool_call_id": "c", "content": "x"})), Ok(result));
        let result = ChatMessage::Result { call_id: None, name: Some("f".into()), output: text("x") };
        assert_eq!(read(json!({"role": "function", "name": "f", "content": "x"})), Ok(result));
    }

    #[test]
    fn errors_name_the_place() {
        for (message, want) in [
            (json!({"role": "user"}), "messages[0].content: is required"),
            (json!({"content": "x"}), "messages[0].role: is required"),
            (json!({"role": "tool", "content": "x"}), "messages[0].tool_call_id: is required"),
            (json!({"role": "assistant"}), "messages[0].content: is required where there are no tool_calls"),
            (
                json!({"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f"}}]}),
                "messages[0].tool_calls[0].function.arguments: is required",
            ),
            (
                json!({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}),
                "messages[0].content: `image_url` cannot be read: this model reads only text; describe it in words",
            ),
            (
                json!({"role": "system", "content": [{"type": "input_audio"}]}),
                "messages[0].content: `input_audio` cannot be read: this model reads only text; describe it in words",
            ),
            (json!("x"), "messages[0]: must be an object, not a string"),
        ] {
            assert_eq!(read(message).unwrap_err(), want);
        }
    }
}

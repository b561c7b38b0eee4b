//! A request for a message. The conversation is read into the form that chat completions use.

use serde_json::Value;

use crate::chat::{ChatMessage, PastCall};
use crate::fields::{FieldError, Fields, kind};
use crate::format::{Format, read_output_config};
use crate::responses::tool::ToolName;
use crate::responses::{Content, Tool, ToolChoice};
use crate::sampling::{SamplingFields, read_stop};
use crate::thinking::ThinkingWish;

/// Most stop texts of one request.
const STOP_MAX: usize = 16;

/// Everything a client may say when it asks for a message.
#[derive(Clone, Debug)]
pub struct MessagesRequest {
    /// The model; the server's default when absent.
    pub model: Option<String>,
    /// The conversation so far, what the operator says first.
    pub messages: Vec<ChatMessage>,
    /// How the answer must begin: a last message in the model's name.
    pub begun: Option<String>,
    /// Most tokens to generate; always there unless tokens are only counted. 0 only reads the prompt, so that it is cached.
    pub max_tokens: Option<usize>,
    /// Tools the model may call.
    pub tools: Vec<Tool>,
    /// Which of them it must, may or must not call.
    pub tool_choice: ToolChoice,
    /// Whether several tools may be called at once.
    pub parallel_tool_calls: bool,
    /// What the answer is held to.
    pub format: Format,
    /// How tokens are picked.
    pub sampling: SamplingFields,
    /// Texts that end the answer.
    pub stop: Vec<String>,
    /// Answer as server-sent events.
    pub stream: bool,
    /// A lane by Anthropic's or by our names.
    pub service_tier: Option<String>,
    /// What was said of thoughts.
    pub thinking: ThinkingWish,
    /// What was accepted and has no effect, one sentence each.
    pub warnings: Vec<String>,
}

impl MessagesRequest {
    /// Reads a request for an answer.
    pub fn read(fields: Fields) -> Result<Self, FieldError> {
        let request = Self::read_uncounted(fields)?;
        match request.max_tokens {
            Some(_) => Ok(request),
            None => Err(FieldError::new("max_tokens", "is required")),
        }
    }

    /// Reads a request whose tokens are only counted.
    pub fn read_uncounted(mut fields: Fields) -> Result<Self, FieldError> {
        let f = &mut fields;
        let system = f.take_value("system").map(|system| Content::read_text("system", system)).transpose()?;
        let mut messages: Vec<ChatMessage> = system.map(ChatMessage::Operator).into_iter().collect();
        let said: Vec<Value> = f.need("messages")?;
        if said.is_empty() {
            return Err(FieldError::new("messages", "must not be empty"));
        }
        for (index, message) in said.into_iter().enumerate() {
            read_message(Fields::at(format!("messages[{index}]"), message)?, &mut messages)?;
        }
        let (tool_choice, parallel_tool_calls) = read_choice(f)?;
        let (format, effort) = read_output_config(f)?;
        let mut request = Self {
            model: f.take("model")?,
            begun: take_begun(&mut messages),
            messages,
            max_tokens: f.take_count("max_tokens", 0)?,
            tools: read_tools(f.take("tools")?.unwrap_or_default())?,
            tool_choice,
            parallel_tool_calls,
            format: Format::read_others(f, format)?,
            sampling: SamplingFields::read(f)?,
            stop: read_stop(f, "stop_sequences", STOP_MAX)?,
            stream: f.take("stream")?.unwrap_or(false),
            service_tier: f.take("service_tier")?,
            thinking: ThinkingWish::read_messages(f, effort)?,
            warnings: Vec::new(),
        };
        let ignored = fields.rest().filter(|name| *name != "metadata");
        request.warnings.extend(ignored.map(|name| format!("`{name}` is not known here and was ignored")));
        Ok(request)
    }
}

/// A last message in the model's name that only says something is the start of the answer.
fn take_begun(messages: &mut Vec<ChatMessage>) -> Option<String> {
    match messages.last() {
        Some(ChatMessage::Assistant { content, calls, .. }) if calls.is_empty() && !content.text.is_empty() => {
            let text = content.text.clone();
            messages.pop();
            Some(text)
        }
        _ => None,
    }
}

/// Reads one message, which may hold several results of tools and a text.
fn read_message(mut fields: Fields, messages: &mut Vec<ChatMessage>) -> Result<(), FieldError> {
    let role: String = fields.need("role")?;
    let path = fields.path("content");
    let blocks = match fields.need::<Value>("content")? {
        Value::String(text) => vec![serde_json::json!({"type": "text", "text": text})],
        Value::Array(blocks) => blocks,
        other => {
            return Err(FieldError::new(path, format!("must be a string or an array, not {}", kind(&other))));
        }
    };
    let blocks = blocks.into_iter().enumerate().map(|(index, block)| Fields::at(format!("{path}[{index}]"), block));
    let blocks = blocks.collect::<Result<Vec<Fields>, FieldError>>()?;
    match role.as_str() {
        "user" => read_user(blocks, messages),
        "assistant" => read_assistant(blocks, messages),
        "system" => {
            let mut content = Content::default();
            blocks.into_iter().try_for_each(|mut block| add_text(&mut block, &mut content))?;
            messages.push(ChatMessage::Operator(content));
            Ok(())
        }
        other => Err(FieldError::new(fields.path("role"), format!("must be user or assistant, not {other:?}"))),
    }
}

fn read_user(blocks: Vec<Fields>, messages: &mut Vec<ChatMessage>) -> Result<(), FieldError> {
    let mut said: Option<Content> = None;
    let before = messages.len();
    for mut block in blocks {
        if block.clone().take::<String>("type")?.as_deref() != Some("tool_result") {
            add_text(&mut block, said.get_or_insert_default())?;
            continue;
        }
        messages.extend(said.take().map(ChatMessage::User));
        let path = block.path("content");
        let mut output = block.take_value("content").map(|content| Content::read(&path, content)).transpose()?;
        if block.take::<bool>("is_error")? == Some(true) {
            let output = output.get_or_insert_default();
            output.text = format!("Error: {}", output.text);
        }
        let call_id = Some(block.need("tool_use_id")?);
        messages.push(ChatMessage::Result { call_id, name: None, output: output.unwrap_or_default() });
    }
    // A message of nothing is still a turn.
    if said.is_some() || messages.len() == before {
        messages.push(ChatMessage::User(said.unwrap_or_default()));
    }
    Ok(())
}

fn read_assistant(blocks: Vec<Fields>, messages: &mut Vec<ChatMessage>) -> Result<(), FieldError> {
    let (mut content, mut reasoning, mut calls) = (Content::default(), String::new(), Vec::new());
    for mut block in blocks {
        match block.clone().take::<String>("type")?.as_deref() {
            Some("tool_use") => calls.push(PastCall {
                id: Some(block.need("id")?),
                name: block.need("name")?,
                input: block.need::<Value>("input")?.to_string(),
                custom: false,
            }),
            Some("thinking") => reasoning.push_str(&block.need::<String>("thinking")?),
            // Another provider's secret.
            Some("redacted_thinking") => {}
            _ => add(&mut block, &mut content)?,
        }
    }
    messages.push(ChatMessage::Assistant { content, reasoning, calls });
    Ok(())
}

/// Adds the text of a block, which may be a document of plain text.
fn add_text(block: &mut Fields, content: &mut Content) -> Result<(), FieldError> {
    let document = block.clone().take::<String>("type")?.as_deref() == Some("document");
    if document && let Some(Value::Object(source)) = block.take_value("source") {
        let plain = source.get("data").and_then(Value::as_str).filter(|_| source.get("type") == Some(&"text".into()));
        if let Some(text) = plain {
            content.text.push_str(text);
            return Ok(());
        }
    }
    add(block, content)?;
    content.unread.pop().map_or(Ok(()), |kind| Err(Content::unreadable(&block.path("type"), &kind)))
}

/// Adds the text of a block, or a note in its place: what another model was given or made.
fn add(block: &mut Fields, content: &mut Content) -> Result<(), FieldError> {
    match block.need::<String>("type")?.as_str() {
        "text" => content.text.push_str(&block.need::<String>("text")?),
        other => {
            content.text.push_str(&format!("[{other} left out: this model reads only text]"));
            content.unread.push(other.to_owned());
        }
    }
    Ok(())
}

/// Tools of the client's own come without a type or as `custom`; all others run only at Anthropic.
fn read_tools(tools: Vec<Value>) -> Result<Vec<Tool>, FieldError> {
    let read = |(index, tool): (usize, Value)| {
        let path = format!("tools[{index}]");
        let mut fields = Fields::at(&path, tool)?;
        match fields.take::<String>("type")? {
            Some(kind) if kind != "custom" => Ok(Tool::Other { kind }),
            _ => {
                let schema: Value = fields.need("input_schema")?;
                let (name, description): (Option<Value>, Option<Value>) =
                    (fields.take_value("name"), fields.take_value("description"));
                let flat = serde_json::json!({"type": "function", "name": name, "description": description});
                match Tool::read(&path, &flat)? {
                    Tool::Function { name, description, .. } => {
                        Ok(Tool::Function { name, description, parameters: Some(schema), strict: false })
                    }
                    other => Ok(other),
                }
            }
        }
    };
    tools.into_iter().enumerate().map(read).collect()
}

/// The choice, and whether several calls are welcome.
fn read_choice(fields: &mut Fields) -> Result<(ToolChoice, bool), FieldError> {
    let path = fields.path("tool_choice");
    let Some(choice) = fields.take_value("tool_choice") else { return Ok((ToolChoice::Auto, true)) };
    let mut choice = Fields::at(path, choice)?;
    let single: Option<bool> = choice.take("disable_parallel_tool_use")?;
    let read = match choice.need::<String>("type")?.as_str() {
        "auto" => ToolChoice::Auto,
        "any" => ToolChoice::Required,
        "none" => ToolChoice::None,
        "tool" => ToolChoice::Named(ToolName { name: choice.need("name")?, namespace: None }),
        other => {
            let rule = format!("must be auto, any, tool or none, not {other:?}");
            return Err(FieldError::new(choice.path("type"), rule));
        }
    };
    Ok((read, !single.unwrap_or(false)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(body: Value) -> Result<MessagesRequest, FieldError> {
        MessagesRequest::read(Fields::new(body).unwrap())
    }

    #[test]
    fn a_conversation_with_tools() {
        let request = read(json!({
            "max_tokens": 9, "system": [{"type": "text", "text": "s"}],
            "messages": [
                {"role": "user", "content": "q"},
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "hm", "signature": ""},
                    {"type": "text", "text": "t"},
                    {"type": "tool_use", "id": "u", "name": "ls", "input": {"a": 1}},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "u", "content": "no", "is_error": true},
                    {"type": "text", "text": "go on"},
                    {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "; it is late"}},
                ]},
            ],
            "tools": [{"name": "ls", "input_schema": {"type": "object"}}, {"type": "bash_20250124", "name": "bash"}],
            "tool_choice": {"type": "tool", "name": "ls", "disable_parallel_tool_use": true},
        }));
        let request = request.unwrap();
        let text = |text: &str| Content { text: text.to_owned(), unread: Vec::new() };
        let call = PastCall { id: Some("u".into()), name: "ls".into(), input: r#"{"a":1}"#.into(), custom: false };
        let want = [
            ChatMessage::Operator(text("s")),
            ChatMessage::User(text("q")),
            ChatMessage::Assistant { content: text("t"), reasoning: "hm".to_owned(), calls: vec![call] },
            ChatMessage::Result { call_id: Some("u".into()), name: None, output: text("Error: no") },
            ChatMessage::User(text("go on; it is late")),
        ];
        assert_eq!(request.messages, want);
        assert!(matches!(&request.tools[0], Tool::Function { parameters: Some(_), .. }));
        assert!(matches!(&request.tools[1], Tool::Other { .. }));
        assert!(matches!(&request.tool_choice, ToolChoice::Named(tool) if tool.name == "ls"));
        assert!(!request.parallel_tool_calls);
    }

    #[test]
    fn a_last_message_of_the_model_begins_the_answer() {
        let messages = json!([{"role": "user", "content": "q"}, {"role": "assistant", "content": "The"}]);
        let request = read(json!({"max_tokens": 1, "messages": messages})).unwrap();
        assert_eq!((request.begun.as_deref(), request.messages.len()), (Some("The"), 1));
    }

    #[test]
    fn wrong_fields_are_named() {
        let hi = json!([{"role": "user", "content": "hi"}]);
        let image = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}});
        for (body, param) in [
            (json!({"messages": hi}), "max_tokens"),
            (json!({"max_tokens": 1, "messages": []}), "messages"),
            (json!({"max_tokens": 1, "messages": [{"role": "tool", "content": "x"}]}), "messages[0].role"),
            (json!({"max_tokens": 1, "messages": [{"role": "user", "content": 1}]}), "messages[0].content"),
            (json!({"max_tokens": 1, "messages": hi, "tools": [{"name": "a"}]}), "tools[0].input_schema"),
            (json!({"max_tokens": 1, "messages": hi, "tools": [{"input_schema": {}}]}), "tools[0].name"),
            (json!({"max_tokens": 1, "messages": hi, "tool_choice": {"type": "x"}}), "tool_choice.type"),
            (
                json!({"max_tokens": 1, "messages": hi, "output_config": {"format": {"type": "x"}}}),
                "output_config.format.type",
            ),
            (
                json!({"max_tokens": 1, "messages": [{"role": "user", "content": [image]}]}),
                "messages[0].content[0].type",
            ),
            (json!({"max_tokens": 1, "messages": hi, "system": [image]}), "system"),
        ] {
            assert_eq!(read(body).unwrap_err().param, param);
        }
        assert!(MessagesRequest::read_uncounted(Fields::new(json!({"messages": hi})).unwrap()).is_ok());
    }
}

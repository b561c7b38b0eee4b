//! Ollama's requests. Its answers are plain enough to be written where they are made.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::chat::{ChatMessage, PastCall, read_tools};
use crate::fields::{FieldError, Fields};
use crate::format::Format;
use crate::responses::{Content, Tool};
use crate::sampling::{SamplingFields, read_stop};
use crate::thinking::ThinkingWish;

/// Most stop texts of one request.
const STOP_MAX: usize = 32;

/// What requests for an answer have in common.
#[derive(Clone, Debug)]
pub struct Common {
    /// The model.
    pub model: String,
    /// Answer as lines of JSON, which is the default.
    pub stream: bool,
    /// What the answer is held to.
    pub format: Format,
    /// How tokens are picked.
    pub sampling: SamplingFields,
    /// Most tokens to generate; 0 only reads the prompt, so that it is cached.
    pub max_tokens: Option<usize>,
    /// Texts that end the answer.
    pub stop: Vec<String>,
    /// Log-probabilities are wanted, with this many alternatives.
    pub logprobs: Option<usize>,
    /// What was said of thoughts.
    pub think: ThinkingWish,
}

/// `/api/chat`.
#[derive(Clone, Debug)]
pub struct ChatRequest {
    /// What all requests have.
    pub common: Common,
    /// The conversation so far; without one the model is only loaded.
    pub messages: Vec<ChatMessage>,
    /// Tools the model may call.
    pub tools: Vec<Tool>,
}

/// `/api/generate`.
#[derive(Clone, Debug)]
pub struct GenerateRequest {
    /// What all requests have.
    pub common: Common,
    /// What the user says, or a raw prompt; without one the model is only loaded.
    pub prompt: String,
    /// What stands behind the gap: the answer fills in the middle.
    pub suffix: Option<String>,
    /// What the operator says.
    pub system: Option<String>,
    /// The prompt is taken as it is, control tokens included.
    pub raw: bool,
}

/// `/api/embed` and `/api/embeddings`.
#[derive(Clone, Debug)]
pub struct EmbedRequest {
    /// The model.
    pub model: String,
    /// The texts.
    pub input: Vec<String>,
    /// A text that is too long loses its end; otherwise it is refused.
    pub truncate: bool,
    /// Numbers of each embedding, where the client expects some.
    pub dimensions: Option<usize>,
}

impl Common {
    fn read(fields: &mut Fields) -> Result<Self, FieldError> {
        let options = fields.take_value("options").unwrap_or(Value::Object(Default::default()));
        let mut options = Fields::at(fields.path("options"), options)?;
        // What is not known among the options sets up Ollama's own runner.
        let sampling = SamplingFields::read(&mut options)?;
        let limit = options.take::<i64>("num_predict")?;
        let logprobs = fields.take::<bool>("logprobs")?.unwrap_or(false);
        let top = fields.take_count("top_logprobs", 0)?.unwrap_or(0);
        if top > 20 {
            return Err(FieldError::new("top_logprobs", "must be from 0 to 20"));
        }
        Ok(Self {
            model: fields.need("model")?,
            stream: fields.take("stream")?.unwrap_or(true),
            format: read_format(fields)?,
            sampling,
            // -1 is as many as fit, -2 until the context is full.
            max_tokens: limit.and_then(|limit| usize::try_from(limit).ok()),
            stop: read_stop(&mut options, "stop", STOP_MAX)?,
            logprobs: logprobs.then_some(top),
            think: ThinkingWish::read_ollama(fields)?,
        })
    }
}

fn read_format(fields: &mut Fields) -> Result<Format, FieldError> {
    let path = fields.path("format");
    match fields.take_value("format") {
        None => Ok(Format::Text),
        Some(Value::String(text)) if text.is_empty() => Ok(Format::Text),
        Some(Value::String(text)) if text == "json" => Ok(Format::JsonObject),
        Some(schema @ Value::Object(_)) => Ok(Format::JsonSchema(schema)),
        Some(_) => Err(FieldError::new(path, "must be \"json\" or a JSON schema")),
    }
}

impl ChatRequest {
    /// Reads a request from its fields.
    pub fn read(mut fields: Fields) -> Result<Self, FieldError> {
        let messages: Vec<Value> = fields.take("messages")?.unwrap_or_default();
        let read = |(index, message)| read_message(Fields::at(format!("messages[{index}]"), message)?);
        Ok(Self {
            common: Common::read(&mut fields)?,
            messages: messages.into_iter().enumerate().map(read).collect::<Result<_, _>>()?,
            tools: read_tools("tools", fields.take("tools")?.unwrap_or_default())?,
        })
    }
}

fn read_message(mut fields: Fields) -> Result<ChatMessage, FieldError> {
    let role: String = fields.need("role")?;
    no_images(&mut fields)?;
    let content = Content { text: fields.take("content")?.unwrap_or_default(), unread: Vec::new() };
    match role.as_str() {
        "system" => Ok(ChatMessage::Operator(content)),
        "user" => Ok(ChatMessage::User(content)),
        "tool" => {
            let name: Option<String> = fields.take("tool_name")?.or(fields.take("name")?);
            // Ids came late to this protocol, and a result may have one whose call had none.
            Ok(ChatMessage::Result { call_id: None, name, output: content })
        }
        "assistant" => {
            let path = fields.path("tool_calls");
            let calls: Vec<Value> = fields.take("tool_calls")?.unwrap_or_default();
            let read = |(index, call)| {
                let mut call = Fields::at(format!("{path}[{index}]"), call)?;
                let mut function = Fields::at(call.path("function"), call.need("function")?)?;
                let name = function.need("name")?;
                let arguments: BTreeMap<String, Value> = function.take("arguments")?.unwrap_or_default();
                let input = serde_json::to_string(&arguments).unwrap_or_default();
                Ok(PastCall { id: None, name, input, custom: false })
            };
            let calls = calls.into_iter().enumerate().map(read).collect::<Result<_, _>>()?;
            Ok(ChatMessage::Assistant { content, reasoning: fields.take("thinking")?.unwrap_or_default(), calls })
        }
        other => {
            let rule = format!("must be system, user, assistant or tool, not {other:?}");
            Err(FieldError::new(fields.path("role"), rule))
        }
    }
}

fn no_images(fields: &mut Fields) -> Result<(), FieldError> {
    match fields.take::<Vec<Value>>("images")? {
        Some(images) if !images.is_empty() => Err(Content::unreadable(&fields.path("images"), "images")),
        _ => Ok(()),
    }
}

impl GenerateRequest {
    /// Reads a request from its fields.
    pub fn read(mut fields: Fields) -> Result<Self, FieldError> {
        let f = &mut fields;
        no_images(f)?;
        let path = f.path("context");
        if f.take::<Vec<Value>>("context")?.is_some_and(|context| !context.is_empty()) {
            return Err(FieldError::new(path, "is not supported: send the whole conversation to /api/chat"));
        }
        if f.take::<String>("template")?.is_some_and(|template| !template.is_empty()) {
            return Err(FieldError::new(f.path("template"), "is not supported: send the prompt as it is, with `raw`"));
        }
        Ok(Self {
            common: Common::read(f)?,
            prompt: f.take("prompt")?.unwrap_or_default(),
            suffix: f.take::<String>("suffix")?.filter(|text| !text.is_empty()),
            system: f.take::<String>("system")?.filter(|text| !text.is_empty()),
            raw: f.take("raw")?.unwrap_or(false),
        })
    }
}

impl EmbedRequest {
    /// Reads a request with `input`, a text or a list of texts.
    pub fn read(mut fields: Fields) -> Result<Self, FieldError> {
        let path = fields.path("input");
        let input = match fields.need::<Value>("input")? {
            Value::String(text) => vec![text],
            other => serde_json::from_value(other)
                .map_err(|_| FieldError::new(path, "must be a string or an array of strings"))?,
        };
        Self::rest(fields, input)
    }

    /// Reads a request with `prompt`, as it was before.
    pub fn read_old(mut fields: Fields) -> Result<Self, FieldError> {
        let prompt = fields.need("prompt")?;
        Self::rest(fields, vec![prompt])
    }

    fn rest(mut fields: Fields, input: Vec<String>) -> Result<Self, FieldError> {
        Ok(Self {
            model: fields.need("model")?,
            input,
            truncate: fields.take("truncate")?.unwrap_or(true),
            dimensions: fields.take_count("dimensions", 0)?.filter(|count| *count > 0),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(body: Value) -> Fields {
        Fields::new(body).unwrap()
    }

    #[test]
    fn a_conversation_with_calls() {
        let request = ChatRequest::read(fields(json!({
            "model": "m", "format": {"type": "object"}, "keep_alive": "5m",
            "options": {"temperature": 0.5, "num_predict": -1, "stop": ["x"], "num_ctx": 4096},
            "messages": [
                {"role": "system", "content": "s"},
                {"role": "user", "content": "q", "images": []},
                {"role": "assistant", "content": "", "tool_calls": [
                    {"function": {"name": "f", "arguments": {"a": 1}}}, {"function": {"name": "g"}}]},
                {"role": "tool", "content": "r", "tool_name": "f"},
            ],
            "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
        })));
        let request = request.unwrap();
        let text = |text: &str| Content { text: text.to_owned(), unread: Vec::new() };
        let call =
            |name: &str, input: &str| PastCall { id: None, name: name.into(), input: input.into(), custom: false };
        let want = [
            ChatMessage::Operator(text("s")),
            ChatMessage::User(text("q")),
            ChatMessage::Assistant {
                content: text(""),
                reasoning: String::new(),
                calls: vec![call("f", "{\"a\":1}"), call("g", "{}")],
            },
            ChatMessage::Result { call_id: None, name: Some("f".into()), output: text("r") },
        ];
        assert_eq!(request.messages, want);
        let Common { stream, max_tokens, stop, format, sampling, .. } = request.common;
        assert!(stream && format == Format::JsonSchema(json!({"type": "object"})));
        assert_eq!((max_tokens, stop, sampling.temperature), (None, vec!["x".to_owned()], Some(0.5)));
    }

    #[test]
    fn wrong_fields_are_named() {
        let chat = |more: Value| {
            let mut body = json!({"model": "m", "messages": []});
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            ChatRequest::read(fields(body)).unwrap_err().param
        };
        assert_eq!(chat(json!({"model": null})), "model");
        assert_eq!(chat(json!({"format": 1})), "format");
        assert_eq!(chat(json!({"options": {"temperature": 9}})), "options.temperature");
        assert_eq!(chat(json!({"messages": [{"role": "robot"}]})), "messages[0].role");
        assert_eq!(chat(json!({"messages": [{"role": "user", "images": ["AA"]}]})), "messages[0].images");
        let generate = |body: Value| GenerateRequest::read(fields(body)).unwrap_err().param;
        assert_eq!(generate(json!({"model": "m", "context": [1]})), "context");
        assert_eq!(generate(json!({"model": "m", "template": "x"})), "template");
        assert_eq!(generate(json!({"model": "m", "images": ["AA"]})), "images");
        assert_eq!(EmbedRequest::read(fields(json!({"model": "m", "input": [1]}))).unwrap_err().param, "input");
        let old = EmbedRequest::read_old(fields(json!({"model": "m", "prompt": "a"}))).unwrap();
        assert_eq!((old.input, old.truncate), (vec!["a".to_owned()], true));
    }
}

//! A request for a chat completion.

use serde_json::Value;

use super::message::ChatMessage;
use super::tools::{read_choice, read_tools};
use crate::fields::{FieldError, Fields};
use crate::format::{Format, read_response_format};
use crate::prediction::read_prediction;
use crate::responses::{Tool, ToolChoice};
use crate::sampling::{SamplingFields, read_include_usage, read_stop};
use crate::thinking::ThinkingWish;

/// Most stop texts of one request.
pub const STOP_MAX: usize = 16;

/// Everything a client may say when it asks for a chat completion.
#[derive(Clone, Debug, Default)]
pub struct ChatRequest {
    /// The model; the server's default when absent.
    pub model: Option<String>,
    /// The conversation so far.
    pub messages: Vec<ChatMessage>,
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
    /// Log-probabilities are wanted, with this many alternatives.
    pub logprobs: Option<usize>,
    /// How many answers.
    pub n: usize,
    /// Answer as server-sent events.
    pub stream: bool,
    /// End the stream with what it cost.
    pub include_usage: bool,
    /// Most tokens to generate; 0 only reads the prompt, so that it is cached.
    pub max_tokens: Option<usize>,
    /// Texts that end the answer.
    pub stop: Vec<String>,
    /// `auto`, `default`, `priority` or `flex`.
    pub service_tier: Option<String>,
    /// What was said of thoughts.
    pub thinking: ThinkingWish,
    /// What the client expects the answer to contain.
    pub prediction: Option<String>,
    /// False where the client wants nothing of it kept.
    pub store: bool,
    /// What was accepted and has no effect, one sentence each.
    pub warnings: Vec<String>,
}

/// Fields that need no action here: identity and routing of the client's own, or wishes that are met anyway.
const HARMLESS: &[&str] = &["user", "metadata", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"];

impl ChatRequest {
    /// Reads a request from its fields.
    pub fn read(mut fields: Fields) -> Result<Self, FieldError> {
        let f = &mut fields;
        for (old, new) in [("functions", "tools"), ("function_call", "tool_choice")] {
            if f.take_value(old).is_some() {
                return Err(FieldError::new(old, format!("is no longer supported: use `{new}`")));
            }
        }
        let messages: Vec<Value> = f.need("messages")?;
        if messages.is_empty() {
            return Err(FieldError::new("messages", "must not be empty"));
        }
        let mut warnings = Vec::new();
        // The newer name wins, as it does for OpenAI's own models.
        let old_max = read_limit(f, "max_tokens")?;
        // llama.cpp's name for it.
        let n_predict = read_limit(f, "n_predict")?;
        let mut request = Self {
            model: f.take("model")?,
            messages: ChatMessage::read_list("messages", messages)?,
            tools: read_tools("tools", f.take("tools")?.unwrap_or_default())?,
            tool_choice: f.take_value("tool_choice").map(read_choice).transpose()?.unwrap_or_default(),
            parallel_tool_calls: f.take("parallel_tool_calls")?.unwrap_or(true),
            format: read_response_format(f).and_then(|format| Format::read_others(f, format))?,
            sampling: SamplingFields::read(f)?,
            logprobs: read_logprobs(f)?,
            n: f.take_count("n", 1)?.unwrap_or(1),
            stream: f.take("stream")?.unwrap_or(false),
            include_usage: read_include_usage(f)?,
            max_tokens: read_limit(f, "max_completion_tokens")?.or(old_max).or(n_predict),
            stop: read_stop(f, "stop", STOP_MAX)?,
            service_tier: f.take("service_tier")?,
            thinking: ThinkingWish::read_chat(f, &mut warnings)?,
            prediction: read_prediction(f)?,
            store: true,
            warnings,
        };
        request.note_ignored(f)?;
        let ignored = fields.rest().filter(|name| !HARMLESS.contains(name));
        request.warnings.extend(ignored.map(|name| format!("`{name}` is not known here and was ignored")));
        Ok(request)
    }

    /// Fields that are known and have no effect.
    fn note_ignored(&mut self, fields: &mut Fields) -> Result<(), FieldError> {
        let store = fields.take::<bool>("store")?;
        self.store = store != Some(false);
        if store == Some(true) {
            let why = "chat completions are not stored; use /v1/responses";
            self.warnings.push(format!("`store` was ignored: {why}"));
        }
        let modalities: Vec<String> = fields.take("modalities")?.unwrap_or_default();
        if let Some(other) = modalities.iter().find(|name| *name != "text") {
            return Err(FieldError::new(
                "modalities",
                format!("`{other}` cannot be made: this model writes only text"),
            ));
        }
        if fields.take_value("verbosity").is_some() {
            self.warnings.push("`verbosity` was ignored: this model has no such setting".to_owned());
        }
        Ok(())
    }
}

/// Most tokens of an answer; llama.cpp's clients write -1 for as many as fit.
fn read_limit(fields: &mut Fields, field: &str) -> Result<Option<usize>, FieldError> {
    match fields.take::<i64>(field)? {
        None | Some(-1) => Ok(None),
        Some(count) => match usize::try_from(count) {
            Ok(count) => Ok(Some(count)),
            Err(_) => Err(FieldError::new(fields.path(field), format!("must be at least 0, or -1, not {count}"))),
        },
    }
}

fn read_logprobs(fields: &mut Fields) -> Result<Option<usize>, FieldError> {
    let wanted = fields.take::<bool>("logprobs")?.unwrap_or(false);
    let top = fields.take_count("top_logprobs", 0)?;
    if top.is_some_and(|count| count > 20) {
        return Err(FieldError::new("top_logprobs", "must be from 0 to 20"));
    }
    match (wanted, top) {
        (true, top) => Ok(Some(top.unwrap_or(0))),
        (false, None | Some(0)) => Ok(None),
        (false, Some(_)) => Err(FieldError::new("top_logprobs", "needs `logprobs` to be true")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(mut body: Value) -> Result<ChatRequest, FieldError> {
        body.as_object_mut().unwrap().entry("messages").or_insert(json!([{"role": "user", "content": "hi"}]));
        ChatRequest::read(Fields::new(body).unwrap())
    }

    #[test]
    fn defaults_and_warnings() {
        let request = read(json!({"store": true, "colour": "red", "user": "u"})).unwrap();
        assert_eq!((request.n, request.stream, request.parallel_tool_calls), (1, false, true));
        assert_eq!((request.logprobs, request.max_tokens), (None, None));
        let warned = |name: &str| request.warnings.iter().any(|text| text.contains(name));
        assert!(request.warnings.len() == 2 && warned("`store`") && warned("`colour`"));
        let request = read(json!({"max_tokens": 1, "max_completion_tokens": 2, "logprobs": true})).unwrap();
        assert_eq!((request.max_tokens, request.logprobs), (Some(2), Some(0)));
        let most = |body| read(body).unwrap().max_tokens;
        assert_eq!(most(json!({"max_tokens": 0})), Some(0));
        assert_eq!((most(json!({"n_predict": 0})), most(json!({"max_tokens": -1}))), (Some(0), None));
    }

    #[test]
    fn wrong_fields_are_named() {
        let schema = json!({"type": "json_schema", "json_schema": {}});
        for (body, param) in [
            (json!({"messages": []}), "messages"),
            (json!({"messages": "hi"}), "messages"),
            (json!({"functions": []}), "functions"),
            (json!({"n": 0}), "n"),
            (json!({"max_tokens": -2}), "max_tokens"),
            (json!({"guided_magic": 1}), "guided_magic"),
            (json!({"modalities": ["text", "audio"]}), "modalities"),
            (json!({"top_logprobs": 2}), "top_logprobs"),
            (json!({"response_format": schema}), "response_format.json_schema.name"),
            (json!({"response_format": {"type": "xml"}}), "response_format.type"),
            (json!({"stream_options": 1}), "stream_options"),
            (json!({"prediction": {}}), "prediction.type"),
        ] {
            assert_eq!(read(body).unwrap_err().param, param);
        }
    }
}

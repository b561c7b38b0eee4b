//! A request for a chat completion.

use serde_json::Value;

use super::message::ChatMessage;
use super::tools::{read_choice, read_tools};
use crate::fields::{FieldError, Fields};
use crate::prediction::read_prediction;
use crate::responses::{TextFormat, Tool, ToolChoice};
use crate::sampling::{SamplingFields, read_include_usage, read_stop};

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
    /// The form of the answer.
    pub format: TextFormat,
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
    /// Most tokens to generate.
    pub max_tokens: Option<usize>,
    /// Texts that end the answer.
    pub stop: Vec<String>,
    /// `auto`, `default`, `priority` or `flex`.
    pub service_tier: Option<String>,
    /// How much to think: a wish.
    pub reasoning_effort: Option<String>,
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
        // The newer name wins, as it does for OpenAI's own models.
        let old_max = f.take_count("max_tokens", 1)?;
        let mut request = Self {
            model: f.take("model")?,
            messages: ChatMessage::read_list("messages", messages)?,
            tools: read_tools("tools", f.take("tools")?.unwrap_or_default())?,
            tool_choice: f.take_value("tool_choice").map(read_choice).transpose()?.unwrap_or_default(),
            parallel_tool_calls: f.take("parallel_tool_calls")?.unwrap_or(true),
            format: read_format(f)?,
            sampling: SamplingFields::read(f)?,
            logprobs: read_logprobs(f)?,
            n: f.take_count("n", 1)?.unwrap_or(1),
            stream: f.take("stream")?.unwrap_or(false),
            include_usage: read_include_usage(f)?,
            max_tokens: f.take_count("max_completion_tokens", 1)?.or(old_max),
            stop: read_stop(f, "stop", STOP_MAX)?,
            service_tier: f.take("service_tier")?,
            reasoning_effort: f.take("reasoning_effort")?,
            prediction: read_prediction(f)?,
            store: true,
            warnings: Vec::new(),
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
        for other in modalities.iter().filter(|name| *name != "text") {
            self.warnings.push(format!("`modalities: {other}` was ignored: this model writes only text"));
        }
        if fields.take_value("verbosity").is_some() {
            self.warnings.push("`verbosity` was ignored: this model has no such setting".to_owned());
        }
        Ok(())
    }
}

/// `response_format`: a schema stands one object deeper than in the Responses API.
fn read_format(fields: &mut Fields) -> Result<TextFormat, FieldError> {
    let Some(format) = fields.take_value("response_format") else { return Ok(TextFormat::Text) };
    let mut format = Fields::at(fields.path("response_format"), format)?;
    match format.need::<String>("type")?.as_str() {
        "text" => Ok(TextFormat::Text),
        "json_object" => Ok(TextFormat::JsonObject),
        "json_schema" => {
            let mut schema = Fields::at(format.path("json_schema"), format.need("json_schema")?)?;
            Ok(TextFormat::JsonSchema {
                name: schema.need("name")?,
                description: schema.take("description")?,
                schema: schema.take_value("schema").unwrap_or_else(|| serde_json::json!({"type": "object"})),
                strict: schema.take("strict")?,
            })
        }
        other => {
            let rule = format!("must be text, json_object or json_schema, not {other:?}");
            Err(FieldError::new(format.path("type"), rule))
        }
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
    }

    #[test]
    fn wrong_fields_are_named() {
        let schema = json!({"type": "json_schema", "json_schema": {}});
        for (body, param) in [
            (json!({"messages": []}), "messages"),
            (json!({"messages": "hi"}), "messages"),
            (json!({"functions": []}), "functions"),
            (json!({"n": 0}), "n"),
            (json!({"max_tokens": 0}), "max_tokens"),
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

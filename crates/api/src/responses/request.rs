//! A request for a response.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::input::InputItem;
use super::tool::ToolChoice;
use crate::fields::{FieldError, Fields};
use crate::format::Format;
use crate::prediction::read_prediction;
use crate::raw::RawJson;
use crate::thinking::ThinkingWish;

/// Everything a client may say when it asks for a response.
#[derive(Clone, Debug, Default)]
pub struct CreateResponse {
    /// The model; the server's default when absent.
    pub model: Option<String>,
    /// Items as they came.
    pub input: Vec<Value>,
    /// The response to continue.
    pub previous_response_id: Option<String>,
    /// What the operator says before everything else.
    pub instructions: Option<String>,
    /// The list of tools as it came; read with [`Tool::read_list`](super::tool::Tool::read_list).
    pub tools: RawJson,
    /// The choice as it came.
    pub tool_choice_raw: Option<Value>,
    /// The choice, read.
    pub tool_choice: ToolChoice,
    /// Whether several tools may be called at once.
    pub parallel_tool_calls: bool,
    /// The form of the answer.
    pub text: TextSettings,
    /// What the answer is held to: by `text`, or by a field of another server's.
    pub format: Format,
    /// Sampling temperature.
    pub temperature: Option<f32>,
    /// Nucleus sampling.
    pub top_p: Option<f32>,
    /// Top-k sampling: ours.
    pub top_k: Option<usize>,
    /// Seed of the sampler: ours.
    pub seed: Option<u64>,
    /// Penalty on tokens said before.
    pub presence_penalty: Option<f32>,
    /// Penalty on tokens by how often they were said.
    pub frequency_penalty: Option<f32>,
    /// Alternatives reported per token.
    pub top_logprobs: usize,
    /// Whether log-probabilities are wanted.
    pub logprobs: bool,
    /// Most tokens to generate.
    pub max_output_tokens: Option<usize>,
    /// Most tool calls.
    pub max_tool_calls: Option<usize>,
    /// Keep the response beyond the connection.
    pub store: bool,
    /// Answer at once and work without a reader.
    pub background: bool,
    /// Answer as server-sent events.
    pub stream: bool,
    /// `auto`, `default`, `priority`, `fast` or `flex`.
    pub service_tier: Option<String>,
    /// How to think.
    pub reasoning: Option<Reasoning>,
    /// The client's own.
    pub metadata: Map<String, Value>,
    /// The client's own.
    pub safety_identifier: Option<String>,
    /// The client's own.
    pub prompt_cache_key: Option<String>,
    /// What the client expects the answer to contain.
    pub prediction: Option<String>,
    /// The answer goes on where the last item of the input, a message of the model, ends. vLLM's name for it.
    pub continue_final_message: bool,
    /// What was accepted and has no effect, one sentence each.
    pub warnings: Vec<String>,
}

/// The form of the answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TextSettings {
    /// Free, any JSON object, or JSON by schema.
    pub format: TextFormat,
    /// A wish that a model without the setting does not hear.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verbosity: Option<String>,
}

/// Free text, any JSON object, or JSON by schema.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum TextFormat {
    /// Free.
    #[default]
    Text,
    /// Any JSON object.
    JsonObject,
    /// JSON by schema.
    JsonSchema {
        /// The client's own.
        name: String,
        /// The client's own.
        #[serde(default)]
        description: Option<String>,
        /// The schema.
        schema: Value,
        /// Flint follows every schema, strict or not.
        #[serde(default)]
        strict: Option<bool>,
    },
}

/// How to think.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reasoning {
    /// How much.
    #[serde(default)]
    pub effort: Option<String>,
    /// Whether to sum up.
    #[serde(default)]
    pub summary: Option<String>,
    /// Most tokens of thoughts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<usize>,
}

impl Reasoning {
    /// The same as every protocol says it.
    pub fn wish(&self) -> ThinkingWish {
        ThinkingWish { on: None, effort: self.effort.clone(), budget: self.max_tokens }
    }
}

/// Fields that need no action here: identity and routing of the client's own, or wishes that are met anyway.
const HARMLESS: &[&str] = &["user", "client_metadata", "stream_options", "include", "prompt_cache_retention", "type"];

impl CreateResponse {
    /// Reads a request from its fields.
    pub fn read(mut fields: Fields) -> Result<Self, FieldError> {
        let f = &mut fields;
        let tool_choice_raw = f.take_value("tool_choice");
        let include: Vec<String> = f.take("include")?.unwrap_or_default();
        let top_logprobs = f.take_count("top_logprobs", 0)?;
        if top_logprobs.is_some_and(|count| count > 20) {
            return Err(FieldError::new("top_logprobs", "must be from 0 to 20"));
        }
        let mut request = Self {
            model: f.take("model")?,
            input: f.take_value("input").map(InputItem::list).transpose()?.unwrap_or_default(),
            previous_response_id: f.take("previous_response_id")?,
            instructions: f.take("instructions")?,
            tools: f.take_tools()?,
            tool_choice: tool_choice_raw.clone().map(ToolChoice::read).transpose()?.unwrap_or_default(),
            tool_choice_raw,
            parallel_tool_calls: f.take("parallel_tool_calls")?.unwrap_or(true),
            text: f.take("text")?.unwrap_or_default(),
            format: Format::Text,
            temperature: f.take_within("temperature", 0.0..=2.0)?.map(|number| number as f32),
            top_p: f.take_within("top_p", 0.0..=1.0)?.map(|number| (number as f32).max(f32::MIN_POSITIVE)),
            // As everywhere: -1 is "all".
            top_k: f.take::<i64>("top_k")?.map(|count| usize::try_from(count).unwrap_or(0)),
            seed: f.take::<i64>("seed")?.map(|seed| seed as u64),
            presence_penalty: f.take_within("presence_penalty", -2.0..=2.0)?.map(|number| number as f32),
            frequency_penalty: f.take_within("frequency_penalty", -2.0..=2.0)?.map(|number| number as f32),
            top_logprobs: top_logprobs.unwrap_or(0),
            logprobs: top_logprobs.is_some() || include.iter().any(|name| name == "message.output_text.logprobs"),
            max_output_tokens: f.take_count("max_output_tokens", 1)?,
            max_tool_calls: f.take_count("max_tool_calls", 1)?,
            store: f.take("store")?.unwrap_or(true),
            background: f.take("background")?.unwrap_or(false),
            stream: f.take("stream")?.unwrap_or(false),
            service_tier: f.take("service_tier")?,
            reasoning: f.take("reasoning")?,
            metadata: f.take("metadata")?.unwrap_or_default(),
            safety_identifier: f.take("safety_identifier")?,
            prompt_cache_key: f.take("prompt_cache_key")?,
            prediction: read_prediction(f)?,
            continue_final_message: f.take("continue_final_message")?.unwrap_or(false),
            warnings: Vec::new(),
        };
        request.read_refused(f)?;
        request.format = Format::read_others(f, Format::from(&request.text.format))?;
        let ignored = fields.rest().filter(|name| !HARMLESS.contains(name));
        request.warnings.extend(ignored.map(|name| format!("`{name}` is not known here and was ignored")));
        Ok(request)
    }

    /// Fields whose meaning cannot be ignored.
    fn read_refused(&mut self, fields: &mut Fields) -> Result<(), FieldError> {
        if fields.take_value("conversation").is_some() {
            return Err(FieldError::new("conversation", "is not supported: continue with previous_response_id"));
        }
        if fields.take_value("prompt").is_some() {
            return Err(FieldError::new("prompt", "stored prompts are not supported: send instructions and input"));
        }
        if let Some(truncation) = fields.take::<String>("truncation")? {
            match truncation.as_str() {
                "disabled" => {}
                "auto" => self.warnings.push("`truncation: auto` was ignored: a prompt is never cut".to_owned()),
                other => return Err(FieldError::new("truncation", format!("must be auto or disabled, not {other:?}"))),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(body: Value) -> Result<CreateResponse, FieldError> {
        CreateResponse::read(Fields::new(body).unwrap())
    }

    #[test]
    fn defaults_and_warnings() {
        let request =
            read(json!({"model": "m", "input": "hi", "truncation": "auto", "colour": "red", "user": "u"})).unwrap();
        assert!(request.store && !request.stream && request.parallel_tool_calls);
        assert_eq!(request.input.len(), 1);
        assert_eq!(request.warnings.len(), 2);
        assert!(request.warnings[1].contains("`colour`"));
    }

    #[test]
    fn wrong_fields_are_named() {
        let check = |body: Value, param: &str| assert_eq!(read(body).unwrap_err().param, param);
        check(json!({"temperature": 3}), "temperature");
        check(json!({"temperature": "hot"}), "temperature");
        check(json!({"max_output_tokens": 0}), "max_output_tokens");
        check(json!({"tools": {}}), "tools");
        check(json!({"text": {"format": {"type": "json_schema"}}}), "text");
        check(json!({"conversation": "c"}), "conversation");
        check(json!({"top_logprobs": 21}), "top_logprobs");
        check(json!({"input": 3}), "input");
        check(json!({"prediction": "text"}), "prediction");
        check(json!({"structured_outputs": {"xml": 1}}), "structured_outputs.xml");
    }
}

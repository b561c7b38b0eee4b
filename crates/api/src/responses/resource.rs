//! The response as a whole. All 31 fields that the specification requires are always there.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::output::{OutputItem, Status};
use super::request::{Reasoning, TextSettings};
use crate::raw::RawJson;

/// One answer: settings, output, and what it cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Response {
    /// `resp_...`.
    pub id: String,
    /// Always `response`.
    pub object: String,
    /// Unix seconds.
    pub created_at: u64,
    /// Unix seconds, once whole.
    pub completed_at: Option<u64>,
    /// How far it has come.
    pub status: Status,
    /// Why it ended early.
    pub incomplete_details: Option<IncompleteDetails>,
    /// The model that was asked for, which is also the one that answered.
    pub model: String,
    /// The response it continues.
    pub previous_response_id: Option<String>,
    /// As asked.
    pub instructions: Option<Value>,
    /// What the model produced.
    pub output: Vec<OutputItem>,
    /// What broke.
    pub error: Option<ResponseError>,
    /// As asked.
    pub tools: RawJson,
    /// As asked.
    pub tool_choice: Value,
    /// Always `disabled`: Flint never cuts a prompt.
    pub truncation: String,
    /// Whether several tools may be called at once.
    pub parallel_tool_calls: bool,
    /// The form of the answer.
    pub text: TextSettings,
    /// In use.
    pub top_p: f32,
    /// In use.
    pub presence_penalty: f32,
    /// In use.
    pub frequency_penalty: f32,
    /// In use.
    pub top_logprobs: usize,
    /// In use.
    pub temperature: f32,
    /// As asked.
    pub reasoning: Option<Reasoning>,
    /// What it cost in tokens, once known.
    pub usage: Option<Usage>,
    /// As asked.
    pub max_output_tokens: Option<usize>,
    /// As asked.
    pub max_tool_calls: Option<usize>,
    /// Whether it outlives the connection.
    pub store: bool,
    /// Whether it runs without a reader.
    pub background: bool,
    /// The lane that served it: `priority` or `flex`.
    pub service_tier: String,
    /// As given.
    pub metadata: Map<String, Value>,
    /// As given.
    pub safety_identifier: Option<String>,
    /// As given.
    pub prompt_cache_key: Option<String>,
    /// What served it, and what was ignored: ours, beyond the specification.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flint: Option<Box<Flint>>,
}

impl Default for Response {
    fn default() -> Self {
        Self {
            id: String::new(),
            object: "response".to_owned(),
            created_at: 0,
            completed_at: None,
            status: Status::InProgress,
            incomplete_details: None,
            model: String::new(),
            previous_response_id: None,
            instructions: None,
            output: Vec::new(),
            error: None,
            tools: RawJson::default(),
            tool_choice: Value::from("auto"),
            truncation: "disabled".to_owned(),
            parallel_tool_calls: true,
            text: TextSettings::default(),
            top_p: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            top_logprobs: 0,
            temperature: 0.0,
            reasoning: None,
            usage: None,
            max_output_tokens: None,
            max_tool_calls: None,
            store: true,
            background: false,
            service_tier: "priority".to_owned(),
            metadata: Map::new(),
            safety_identifier: None,
            prompt_cache_key: None,
            flint: None,
        }
    }
}

/// Why a response ended early.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IncompleteDetails {
    /// `max_output_tokens`, `steered` or `content_filter`.
    pub reason: String,
}

/// What broke.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResponseError {
    /// Such as `context_length_exceeded`.
    pub code: String,
    /// What happened and what to do next.
    pub message: String,
}

/// What a response cost in tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the prompt.
    pub input_tokens: usize,
    /// More about those.
    #[serde(default)]
    pub input_tokens_details: InputDetails,
    /// Tokens generated.
    pub output_tokens: usize,
    /// More about those.
    #[serde(default)]
    pub output_tokens_details: OutputDetails,
    /// Both together: what the context holds now.
    pub total_tokens: usize,
}

/// More about the prompt's tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputDetails {
    /// Not computed again: found in memory or restored from disk.
    pub cached_tokens: usize,
}

/// More about the generated tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OutputDetails {
    /// Spent on thought.
    pub reasoning_tokens: usize,
    /// Predicted tokens that were right.
    pub accepted_prediction_tokens: usize,
    /// Predicted tokens that were wrong.
    pub rejected_prediction_tokens: usize,
}

/// What served a response: nothing is rerouted, cut or ignored in silence.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Flint {
    /// The file's own name of the model.
    pub served_model: String,
    /// Identity of the weights, hexadecimal.
    pub weights: String,
    /// Such as `Q4_K_M`.
    pub quantisation: String,
    /// Tokens one sequence may have here.
    pub context: usize,
    /// `websocket`, `sse` or `http`.
    pub transport: String,
    /// What was accepted but has no effect, one sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// How many requests are served first; only while queued.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_position: Option<usize>,
    /// Why not more of the prompt was cached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_miss: Option<String>,
    /// How long it took, once whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timings: Option<Timings>,
}

/// What came of one drafter's proposals.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DraftFigures {
    /// Proposals verified.
    pub drafts: u64,
    /// Tokens in them.
    pub drafted_tokens: u64,
    /// How many of those were right.
    pub accepted_tokens: u64,
    /// Accepted tokens as a share of the drafted ones, from 0 to 1.
    pub acceptance: f64,
}

/// How long a response took.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Timings {
    /// Waiting for its turn.
    pub queue_ms: f64,
    /// Reading what was new in the prompt.
    pub prefill_ms: f64,
    /// From arrival at the engine to the first token.
    pub first_token_ms: f64,
    /// From the first token to the last.
    pub decode_ms: f64,
    /// Tokens per second while decoding.
    pub decode_rate: f64,
    /// Tokens restored from disk.
    pub restored_tokens: usize,
    /// Tokens proposed and verified.
    pub drafted_tokens: usize,
    /// How many of those were right.
    pub accepted_tokens: usize,
    /// The same by drafter: `prediction`, `ngram`, `model` or `grammar`; only those that proposed something.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub drafters: BTreeMap<String, DraftFigures>,
}

//! What a stream consists of: one event per message, numbered from zero within its response.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::output::{LogProb, OutputItem, OutputText};
use super::resource::Response;
use crate::error::ErrorPayload;

/// One event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// What it says.
    #[serde(flatten)]
    pub kind: EventKind,
    /// Its number within the response.
    #[serde(default)]
    pub sequence_number: u64,
    /// The lane of the connection it belongs to, when that has a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream_id: Option<Arc<str>>,
}

/// What an event says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type")]
#[expect(missing_docs, reason = "the names are the specification's")]
pub enum EventKind {
    #[serde(rename = "response.created")]
    Created { response: Box<Response> },
    #[serde(rename = "response.queued")]
    Queued { response: Box<Response> },
    #[serde(rename = "response.in_progress")]
    InProgress { response: Box<Response> },
    #[serde(rename = "response.completed")]
    Completed { response: Box<Response> },
    #[serde(rename = "response.incomplete")]
    Incomplete { response: Box<Response> },
    #[serde(rename = "response.failed")]
    Failed { response: Box<Response> },
    #[serde(rename = "response.output_item.added")]
    ItemAdded { output_index: usize, item: OutputItem },
    #[serde(rename = "response.output_item.done")]
    ItemDone { output_index: usize, item: OutputItem },
    #[serde(rename = "response.content_part.added")]
    PartAdded { item_id: String, output_index: usize, content_index: usize, part: Value },
    #[serde(rename = "response.content_part.done")]
    PartDone { item_id: String, output_index: usize, content_index: usize, part: Value },
    #[serde(rename = "response.output_text.delta")]
    TextDelta {
        item_id: Arc<str>,
        output_index: usize,
        content_index: usize,
        delta: String,
        #[serde(default)]
        logprobs: Vec<LogProb>,
    },
    #[serde(rename = "response.output_text.done")]
    TextDone {
        item_id: Arc<str>,
        output_index: usize,
        content_index: usize,
        text: String,
        #[serde(default)]
        logprobs: Vec<LogProb>,
    },
    #[serde(rename = "response.reasoning_text.delta")]
    ReasoningDelta { item_id: Arc<str>, output_index: usize, content_index: usize, delta: String },
    #[serde(rename = "response.reasoning_text.done")]
    ReasoningDone { item_id: Arc<str>, output_index: usize, content_index: usize, text: String },
    #[serde(rename = "response.function_call_arguments.delta")]
    ArgumentsDelta { item_id: Arc<str>, output_index: usize, delta: String },
    #[serde(rename = "response.function_call_arguments.done")]
    ArgumentsDone { item_id: Arc<str>, output_index: usize, name: String, arguments: String },
    #[serde(rename = "response.custom_tool_call_input.delta")]
    InputDelta { item_id: Arc<str>, output_index: usize, delta: String },
    #[serde(rename = "response.custom_tool_call_input.done")]
    InputDone { item_id: Arc<str>, output_index: usize, input: String },
    #[serde(rename = "response.steer.accepted")]
    SteerAccepted { steer: SteerState },
    #[serde(rename = "response.steer.pending")]
    SteerPending { steer: SteerState, reason: String, required_input: Vec<Value> },
    #[serde(rename = "response.steer.failed")]
    SteerFailed { steer: SteerState, error: ErrorPayload },
    #[serde(rename = "error")]
    Error {
        status: u16,
        error: ErrorPayload,
        #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
        headers: serde_json::Map<String, Value>,
    },
    /// An event of another provider, or of a later version.
    #[serde(untagged)]
    Other(Value),
}

impl EventKind {
    /// The response this event ends, if it ends one.
    pub fn ended(&self) -> Option<&Response> {
        match self {
            Self::Completed { response } | Self::Incomplete { response } | Self::Failed { response } => Some(response),
            _ => None,
        }
    }

    /// The response this event carries, if it carries one.
    pub fn response(&self) -> Option<&Response> {
        match self {
            Self::Created { response } | Self::Queued { response } | Self::InProgress { response } => Some(response),
            _ => self.ended(),
        }
    }

    /// A part of a message, as `content_part` events carry it.
    pub fn text_part(text: &OutputText) -> Value {
        serde_json::to_value(text).unwrap_or_default()
    }
}

/// A steer and where it stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SteerState {
    /// `steer_...`.
    pub id: String,
    /// The response it steers.
    pub previous_response_id: String,
    /// What was said, given back when it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
}

//! What a response consists of: the items a model produced.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How far an item or a response has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Waiting for its turn.
    Queued,
    /// Being produced.
    #[default]
    InProgress,
    /// Whole.
    Completed,
    /// Ended early; `incomplete_details` says why.
    Incomplete,
    /// Cancelled by its owner.
    Cancelled,
    /// Broken; `error` says how.
    Failed,
}

/// One item of a response's output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum OutputItem {
    /// What the model says.
    Message {
        /// Its identity, `msg_...`.
        id: String,
        /// How far it has come.
        #[serde(default)]
        status: Status,
        /// Always `assistant`.
        role: String,
        /// Its parts; the model only writes text.
        #[serde(default)]
        content: Vec<OutputText>,
        /// `commentary` before a tool call, `final_answer` at the end of a turn.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        phase: Option<String>,
    },
    /// What the model thought first.
    Reasoning {
        /// Its identity, `rs_...`.
        id: String,
        /// How far it has come.
        #[serde(default)]
        status: Status,
        /// Always empty: Flint shows the thought itself.
        #[serde(default)]
        summary: Vec<SummaryText>,
        /// The thought.
        #[serde(default)]
        content: Vec<ReasoningText>,
    },
    /// A call of a function.
    FunctionCall {
        /// Its identity, `fc_...`.
        id: String,
        /// How far it has come.
        #[serde(default)]
        status: Status,
        /// What the result must name.
        call_id: String,
        /// The function.
        name: String,
        /// The namespace the function was declared in.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        namespace: Option<String>,
        /// Its arguments, JSON in a string.
        arguments: String,
    },
    /// A call of a tool that takes free text.
    CustomToolCall {
        /// Its identity, `ctc_...`.
        id: String,
        /// How far it has come.
        #[serde(default)]
        status: Status,
        /// What the result must name.
        call_id: String,
        /// The tool.
        name: String,
        /// The namespace the tool was declared in.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        namespace: Option<String>,
        /// Its input.
        input: String,
    },
    /// A conversation made short.
    Compaction {
        /// Its identity, `cmp_...`.
        id: String,
        /// The summary; not secret, but the field is called so.
        encrypted_content: String,
    },
    /// An item of another provider.
    #[serde(untagged)]
    Other(Value),
}

impl OutputItem {
    /// Its identity, where it has one.
    pub fn id(&self) -> &str {
        match self {
            Self::Message { id, .. }
            | Self::Reasoning { id, .. }
            | Self::FunctionCall { id, .. }
            | Self::CustomToolCall { id, .. }
            | Self::Compaction { id, .. } => id,
            Self::Other(value) => value["id"].as_str().unwrap_or_default(),
        }
    }

    /// The text of a message.
    pub fn text(&self) -> Option<String> {
        match self {
            Self::Message { content, .. } => Some(content.iter().map(|part| part.text.as_str()).collect()),
            _ => None,
        }
    }

    /// Whether the client must answer this item before the turn can go on, and under which call.
    pub fn call_id(&self) -> Option<&str> {
        match self {
            Self::FunctionCall { call_id, .. } | Self::CustomToolCall { call_id, .. } => Some(call_id),
            _ => None,
        }
    }
}

/// A piece of text the model wrote.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OutputText {
    /// Always `output_text`.
    #[serde(rename = "type")]
    pub kind: OutputTextTag,
    /// The text.
    #[serde(default)]
    pub text: String,
    /// Always empty here.
    #[serde(default)]
    pub annotations: Vec<Value>,
    /// One entry per token, when asked for.
    #[serde(default)]
    pub logprobs: Vec<LogProb>,
}

impl OutputText {
    /// A text without log-probabilities.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }
}

/// The tag of [`OutputText`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OutputTextTag {
    /// The usual one.
    #[default]
    #[serde(rename = "output_text")]
    OutputText,
    /// Another provider's way to decline.
    #[serde(rename = "refusal")]
    Refusal,
}

/// A piece of thought.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "reasoning_text")]
pub struct ReasoningText {
    /// The thought.
    pub text: String,
}

/// A piece of a summary of thoughts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "summary_text")]
pub struct SummaryText {
    /// The summary.
    pub text: String,
}

/// A token and how likely it was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogProb {
    /// Its text.
    pub token: String,
    /// Its log-probability.
    pub logprob: f32,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The most likely tokens at its place.
    pub top_logprobs: Vec<TopLogProb>,
}

/// A token that could have been.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TopLogProb {
    /// Its text.
    pub token: String,
    /// Its log-probability.
    pub logprob: f32,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

//! Chat completions and text completions as they are sent, whole and in chunks.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::responses::{Flint, LogProb};

/// What completions cost in tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ChatUsage {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens generated, in all answers.
    pub completion_tokens: usize,
    /// Both together.
    pub total_tokens: usize,
    /// More about the prompt.
    pub prompt_tokens_details: PromptDetails,
    /// More about the generated tokens.
    pub completion_tokens_details: crate::responses::resource::OutputDetails,
}

/// More about the prompt's tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PromptDetails {
    /// Not computed again: found in memory or restored from disk.
    pub cached_tokens: usize,
}

/// All answers to a chat request.
#[derive(Clone, Debug, Serialize)]
pub struct ChatCompletion {
    /// `chatcmpl_...`.
    pub id: String,
    /// Always `chat.completion`.
    pub object: &'static str,
    /// Unix seconds.
    pub created: u64,
    /// The model that was asked for, which is also the one that answered.
    pub model: String,
    /// The answers.
    pub choices: Vec<ChatChoice>,
    /// What they cost.
    pub usage: ChatUsage,
    /// The lane that served it.
    pub service_tier: String,
    /// Identity of the weights.
    pub system_fingerprint: String,
    /// What served it: ours, beyond the specification.
    pub flint: Flint,
}

/// One answer.
#[derive(Clone, Debug, Serialize)]
pub struct ChatChoice {
    /// Which of the answers.
    pub index: usize,
    /// What the model said.
    pub message: ChatDelta,
    /// Tokens and their log-probabilities, when asked for.
    pub logprobs: Option<ChatLogProbs>,
    /// `stop`, `length` or `tool_calls`.
    pub finish_reason: &'static str,
}

/// A piece of the answers to a chat request.
#[derive(Clone, Debug, Serialize)]
pub struct ChatChunk {
    /// `chatcmpl_...`.
    pub id: String,
    /// Always `chat.completion.chunk`.
    pub object: &'static str,
    /// Unix seconds.
    pub created: u64,
    /// The model.
    pub model: String,
    /// Identity of the weights.
    pub system_fingerprint: String,
    /// What is new; empty in the chunk that carries the usage.
    pub choices: Vec<ChatChunkChoice>,
    /// What it cost: null until the last chunk, absent where nobody asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Option<ChatUsage>>,
    /// What served it, in the last chunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flint: Option<Flint>,
}

/// What is new in one answer.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ChatChunkChoice {
    /// Which of the answers.
    pub index: usize,
    /// What is new.
    pub delta: ChatDelta,
    /// Tokens and their log-probabilities, when asked for.
    pub logprobs: Option<ChatLogProbs>,
    /// Why the answer is over, when it is.
    pub finish_reason: Option<&'static str>,
}

/// A message, or what is new in it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ChatDelta {
    /// `assistant`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<&'static str>,
    /// Text; null in a whole message that has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<Option<String>>,
    /// Always null in a whole message: a local model has no separate way to decline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refusal: Option<Option<String>>,
    /// Thoughts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// Calls of tools.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ChatCall>,
}

/// A call of a tool, or what is new in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ChatCall {
    /// Which of the calls; only in chunks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<usize>,
    /// What the result must name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// `function` or `custom`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<&'static str>,
    /// The function.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<FunctionCall>,
    /// The tool that takes free text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom: Option<CustomCall>,
}

/// A function and its arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FunctionCall {
    /// Its name; only where the call starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Arguments, JSON in a string.
    pub arguments: String,
}

/// A tool and its text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CustomCall {
    /// Its name; only where the call starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The text.
    pub input: String,
}

/// Log-probabilities of a message.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChatLogProbs {
    /// One entry per token.
    pub content: Vec<LogProb>,
    /// Always null.
    pub refusal: Option<Value>,
}

/// Answers to a raw prompt, or what is new in them.
#[derive(Clone, Debug, Serialize)]
pub struct TextCompletion {
    /// `cmpl_...`.
    pub id: String,
    /// Always `text_completion`.
    pub object: &'static str,
    /// Unix seconds.
    pub created: u64,
    /// The model.
    pub model: String,
    /// Identity of the weights.
    pub system_fingerprint: String,
    /// The answers.
    pub choices: Vec<TextChoice>,
    /// What they cost; in a stream only in the last chunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Option<ChatUsage>>,
    /// What served it: ours, beyond the specification.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flint: Option<Flint>,
}

/// One answer to a raw prompt, or what is new in it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TextChoice {
    /// The text.
    pub text: String,
    /// Which of the answers.
    pub index: usize,
    /// Tokens and their log-probabilities, when asked for.
    pub logprobs: Option<TextLogProbs>,
    /// `stop` or `length`; null while it goes on.
    pub finish_reason: Option<&'static str>,
}

/// Log-probabilities in the old shape: lists side by side.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TextLogProbs {
    /// Texts of the tokens.
    pub tokens: Vec<String>,
    /// Their log-probabilities.
    pub token_logprobs: Vec<f32>,
    /// The likeliest tokens at each place, by text.
    pub top_logprobs: Vec<Map<String, Value>>,
    /// Where each token begins, in bytes of the answer.
    pub text_offset: Vec<usize>,
}

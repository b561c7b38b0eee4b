//! A message as it is sent, whole and as events.

use serde::Serialize;
use serde_json::Value;

use crate::responses::Flint;

/// A message of the model.
#[derive(Clone, Debug, Serialize)]
pub struct MessageBody {
    /// `msg_...`.
    pub id: String,
    /// Always `message`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Always `assistant`.
    pub role: &'static str,
    /// The model that was asked for, which is also the one that answered.
    pub model: String,
    /// Thoughts, text and calls.
    pub content: Vec<Block>,
    /// `end_turn`, `max_tokens`, `stop_sequence` or `tool_use`.
    pub stop_reason: Option<&'static str>,
    /// The text that ended the answer, where it is known.
    pub stop_sequence: Option<String>,
    /// What it cost.
    pub usage: MessagesUsage,
    /// What served it: ours, beyond the specification.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flint: Option<Flint>,
}

/// A part of a message.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Block {
    /// What the model says.
    Text {
        /// The text.
        text: String,
    },
    /// What it thinks.
    Thinking {
        /// The thought.
        thinking: String,
        /// Always empty: nothing here is secret.
        signature: String,
    },
    /// A call of a tool.
    ToolUse {
        /// What the result must name.
        id: String,
        /// The tool.
        name: String,
        /// Its arguments.
        input: Value,
    },
}

/// What is new in a part.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum BlockDelta {
    /// More text.
    TextDelta {
        /// The text.
        text: String,
    },
    /// More thought.
    ThinkingDelta {
        /// The thought.
        thinking: String,
    },
    /// More of the arguments.
    InputJsonDelta {
        /// A piece of JSON.
        partial_json: String,
    },
}

/// What a message cost in tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MessagesUsage {
    /// Tokens of the prompt that had to be read.
    pub input_tokens: usize,
    /// Always 0: everything is kept and nothing costs more for it.
    pub cache_creation_input_tokens: usize,
    /// Tokens of the prompt that were known already.
    pub cache_read_input_tokens: usize,
    /// Tokens generated.
    pub output_tokens: usize,
}

/// One event of a stream.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum MessageEvent {
    /// The message begins, empty.
    MessageStart {
        /// As it stands.
        message: Box<MessageBody>,
    },
    /// A part begins.
    ContentBlockStart {
        /// Which.
        index: usize,
        /// As it stands.
        content_block: Block,
    },
    /// A part grows.
    ContentBlockDelta {
        /// Which.
        index: usize,
        /// What is new.
        delta: BlockDelta,
    },
    /// A part is whole.
    ContentBlockStop {
        /// Which.
        index: usize,
    },
    /// Why the message is over, and what it cost.
    MessageDelta {
        /// Why.
        delta: MessageDelta,
        /// What.
        usage: MessagesUsage,
        /// What served it: ours, beyond the specification.
        flint: Box<Flint>,
    },
    /// Nothing follows.
    MessageStop,
    /// It still lives.
    Ping,
    /// It broke.
    Error {
        /// How.
        error: MessagesError,
    },
}

/// Why a message is over.
#[derive(Clone, Debug, Serialize)]
pub struct MessageDelta {
    /// `end_turn`, `max_tokens`, `stop_sequence` or `tool_use`.
    pub stop_reason: &'static str,
    /// The text that ended the answer, where it is known.
    pub stop_sequence: Option<String>,
}

/// What went wrong, in Anthropic's words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MessagesError {
    /// Such as `invalid_request_error`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// What happened and what to do next.
    pub message: String,
}

impl MessageEvent {
    /// The name the event goes under, which its JSON repeats.
    pub fn name(&self) -> &'static str {
        match self {
            Self::MessageStart { .. } => "message_start",
            Self::ContentBlockStart { .. } => "content_block_start",
            Self::ContentBlockDelta { .. } => "content_block_delta",
            Self::ContentBlockStop { .. } => "content_block_stop",
            Self::MessageDelta { .. } => "message_delta",
            Self::MessageStop => "message_stop",
            Self::Ping => "ping",
            Self::Error { .. } => "error",
        }
    }
}

//! An answer as blocks of a message: one is open at a time, and what is sent whole is what was streamed.

use api::messages::{Block, BlockDelta, MessageBody, MessageDelta, MessageEvent, MessagesUsage};
use api::responses::Flint;
use serde_json::{Map, Value};

use super::in_words;
use crate::endpoints::sse;
use crate::endpoints::streamed::Wire;
use crate::error::ApiError;
use crate::generation::answers::{Answer, Delta, End};
use crate::ids;
use crate::models::LoadedModel;
use crate::telemetry::trace;

/// Writes events and keeps the blocks.
pub struct MessagesWire {
    id: String,
    model: String,
    stop: Vec<String>,
    flint: Flint,
    content: Vec<Block>,
    /// Whether the last block still grows, and the JSON it has when it is a call.
    open: Option<String>,
    begun: bool,
}

impl MessagesWire {
    /// A message that has not begun.
    pub fn new(loaded: &LoadedModel, model: Option<String>, stop: Vec<String>, flint: Flint) -> Self {
        let model = model.unwrap_or_else(|| loaded.name.clone());
        let (content, open) = (Vec::new(), None);
        let id = ids::new("msg");
        trace::note("id", id.as_str());
        Self { id, model, stop, flint, content, open, begun: false }
    }

    /// The message, once it is over.
    pub fn whole(mut self, answer: &Answer) -> Result<MessageBody, ApiError> {
        let (stop_reason, stop_sequence) = self.reason(answer.end()?);
        self.close(&mut String::new());
        answer.describe(&mut self.flint);
        let mut message = self.message(answer);
        (message.stop_reason, message.stop_sequence) = (Some(stop_reason), stop_sequence);
        message.content = self.content;
        message.flint = Some(self.flint);
        Ok(message)
    }

    /// The message before it has content.
    fn message(&self, answer: &Answer) -> MessageBody {
        MessageBody {
            id: self.id.clone(),
            kind: "message",
            role: "assistant",
            model: self.model.clone(),
            content: Vec::new(),
            stop_reason: None,
            stop_sequence: None,
            usage: usage(answer),
            flint: None,
        }
    }

    fn reason(&self, end: End) -> (&'static str, Option<String>) {
        match (end, self.stop.as_slice()) {
            (End::Done, _) => ("end_turn", None),
            (End::Length, _) => ("max_tokens", None),
            (End::Calls, _) => ("tool_use", None),
            // With several the engine does not say which it was.
            (End::StopText, [text]) => ("stop_sequence", Some(text.clone())),
            (End::StopText, _) => ("stop_sequence", None),
        }
    }

    fn write(event: &MessageEvent, out: &mut String) {
        sse::write_named(event.name(), &serde_json::to_string(event).unwrap_or_default(), out);
    }

    fn open(&mut self, content_block: Block, out: &mut String) {
        self.close(out);
        let index = self.content.len();
        self.content.push(content_block.clone());
        self.open = Some(String::new());
        Self::write(&MessageEvent::ContentBlockStart { index, content_block }, out);
    }

    fn close(&mut self, out: &mut String) {
        let Some(json) = self.open.take() else { return };
        if let Some(Block::ToolUse { input, .. }) = self.content.last_mut() {
            // Arguments that were cut short are no JSON; the stop reason says so.
            *input = serde_json::from_str(&json).unwrap_or_else(|_| Value::Object(Map::new()));
        }
        Self::write(&MessageEvent::ContentBlockStop { index: self.content.len() - 1 }, out);
    }

    fn delta(&self, delta: BlockDelta, out: &mut String) {
        Self::write(&MessageEvent::ContentBlockDelta { index: self.content.len() - 1, delta }, out);
    }

    fn say(&mut self, more: String, out: &mut String) {
        if more.is_empty() {
            return;
        }
        if self.open.is_none() || !matches!(self.content.last(), Some(Block::Text { .. })) {
            self.open(Block::Text { text: String::new() }, out);
        }
        if let Some(Block::Text { text }) = self.content.last_mut() {
            text.push_str(&more);
        }
        self.delta(BlockDelta::TextDelta { text: more }, out);
    }

    fn think(&mut self, more: String, out: &mut String) {
        if self.open.is_none() || !matches!(self.content.last(), Some(Block::Thinking { .. })) {
            self.open(Block::Thinking { thinking: String::new(), signature: String::new() }, out);
        }
        if let Some(Block::Thinking { thinking, .. }) = self.content.last_mut() {
            thinking.push_str(&more);
        }
        self.delta(BlockDelta::ThinkingDelta { thinking: more }, out);
    }
}

impl Wire for MessagesWire {
    fn begin(&mut self, _answers: &[Answer], _out: &mut String) {}

    /// Only now it is known how much of the prompt was cached.
    fn started(&mut self, answer: &Answer, out: &mut String) {
        self.begun = true;
        Self::write(&MessageEvent::MessageStart { message: Box::new(self.message(answer)) }, out);
        Self::write(&MessageEvent::Ping, out);
    }

    fn grew(&mut self, _index: usize, answer: &Answer, deltas: Vec<Delta>, out: &mut String) {
        for delta in deltas {
            match delta {
                Delta::Text { text, .. } => self.say(text, out),
                Delta::Reasoning(text) => self.think(text, out),
                Delta::Call(call) => {
                    let (id, name) = (answer.calls[call].id.clone(), answer.calls[call].name.clone());
                    self.open(Block::ToolUse { id, name, input: Value::Object(Map::new()) }, out);
                }
                Delta::Input(partial_json) => {
                    if let Some(json) = &mut self.open {
                        json.push_str(&partial_json);
                        self.delta(BlockDelta::InputJsonDelta { partial_json }, out);
                    }
                }
            }
        }
    }

    fn ended(&mut self, _index: usize, answer: &Answer, out: &mut String) {
        self.close(out);
        answer.describe(&mut self.flint);
        if let Ok(end) = answer.end() {
            let (stop_reason, stop_sequence) = self.reason(end);
            let delta = MessageDelta { stop_reason, stop_sequence };
            let flint = Box::new(self.flint.clone());
            Self::write(&MessageEvent::MessageDelta { delta, usage: usage(answer), flint }, out);
        }
    }

    fn end(&mut self, _answers: &[Answer], out: &mut String) {
        Self::write(&MessageEvent::MessageStop, out);
    }

    fn failed(&mut self, error: &ApiError, out: &mut String) {
        Self::write(&MessageEvent::Error { error: in_words(error) }, out);
    }

    /// Clients expect the start of the message first.
    fn beat(&mut self, out: &mut String) {
        match self.begun {
            true => Self::write(&MessageEvent::Ping, out),
            false => out.push_str(": keep-alive\n\n"),
        }
    }
}

/// Anthropic counts what was cached apart from what was read.
fn usage(answer: &Answer) -> MessagesUsage {
    let started = answer.started.as_ref().map_or(0, |started| started.cached_tokens);
    let used = answer.finished.as_ref().map(|finished| finished.usage);
    let cached = used.map_or(started, |used| used.cached);
    MessagesUsage {
        input_tokens: answer.prompt_tokens.saturating_sub(cached),
        cache_creation_input_tokens: 0,
        cache_read_input_tokens: cached,
        output_tokens: used.map_or(0, |used| used.generated),
    }
}

//! Answers in the words of Chat Completions, whole and in chunks.

use api::chat::{
    ChatCall, ChatChoice, ChatChunk, ChatChunkChoice, ChatDelta, ChatLogProbs, ChatRequest, CustomCall, FunctionCall,
};
use api::responses::{Flint, LogProb};

use super::Head;
use crate::endpoints::sse;
use crate::endpoints::streamed::Wire;
use crate::error::ApiError;
use crate::generation::answers::{Answer, Call, Delta, End, usage};

/// One answer, whole.
pub fn choice(index: usize, answer: &Answer, logprobs: bool) -> Result<ChatChoice, ApiError> {
    let call = |call: &Call| named_call(call, None, call.input.clone());
    let silent = answer.text.is_empty() && !answer.calls.is_empty();
    let message = ChatDelta {
        role: Some("assistant"),
        content: Some((!silent).then(|| answer.text.clone())),
        refusal: Some(None),
        reasoning_content: Some(answer.reasoning.clone()).filter(|text| !text.is_empty()),
        tool_calls: answer.calls.iter().map(call).collect(),
    };
    let logprobs = logprobs.then(|| content(answer.logprobs.clone()));
    Ok(ChatChoice { index, message, logprobs, finish_reason: reason(answer.end()?) })
}

fn reason(end: End) -> &'static str {
    match end {
        End::Done | End::StopText => "stop",
        End::Length => "length",
        End::Calls => "tool_calls",
    }
}

fn content(content: Vec<LogProb>) -> ChatLogProbs {
    ChatLogProbs { content, refusal: None }
}

/// A call with its names: whole, or where it starts in a stream.
fn named_call(call: &Call, index: Option<usize>, input: String) -> ChatCall {
    let (id, name) = (Some(call.id.clone()), Some(call.name.clone()));
    match call.custom {
        true => ChatCall {
            index,
            id,
            kind: Some("custom"),
            custom: Some(CustomCall { name, input }),
            ..ChatCall::default()
        },
        false => {
            let function = Some(FunctionCall { name, arguments: input });
            ChatCall { index, id, kind: Some("function"), function, ..ChatCall::default() }
        }
    }
}

/// More of a call.
fn call_delta(call: &Call, index: usize, input: String) -> ChatCall {
    let index = Some(index);
    match call.custom {
        true => ChatCall { index, custom: Some(CustomCall { name: None, input }), ..ChatCall::default() },
        false => {
            ChatCall { index, function: Some(FunctionCall { name: None, arguments: input }), ..ChatCall::default() }
        }
    }
}

/// Writes chunks.
pub struct ChatWire {
    head: Head,
    flint: Flint,
    include_usage: bool,
    logprobs: bool,
    n: usize,
    ended: usize,
}

impl ChatWire {
    /// A stream that has not begun.
    pub fn new(head: Head, flint: Flint, request: &ChatRequest) -> Self {
        let (include_usage, logprobs, n) = (request.include_usage, request.logprobs.is_some(), request.n);
        Self { head, flint, include_usage, logprobs, n, ended: 0 }
    }

    fn chunk(&self, choices: Vec<ChatChunkChoice>) -> ChatChunk {
        ChatChunk {
            id: self.head.id.clone(),
            object: "chat.completion.chunk",
            created: self.head.created,
            model: self.head.model.clone(),
            system_fingerprint: self.head.fingerprint.clone(),
            choices,
            usage: self.include_usage.then_some(None),
            flint: None,
        }
    }

    fn write(chunk: &ChatChunk, out: &mut String) {
        sse::write(&serde_json::to_string(chunk).unwrap_or_default(), out);
    }

    fn delta(&self, index: usize, delta: ChatDelta, logprobs: Option<ChatLogProbs>, out: &mut String) {
        let choice = ChatChunkChoice { index, delta, logprobs, finish_reason: None };
        Self::write(&self.chunk(vec![choice]), out);
    }
}

impl Wire for ChatWire {
    fn begin(&mut self, answers: &[Answer], out: &mut String) {
        for index in 0..answers.len() {
            let role = Some("assistant");
            let delta = ChatDelta { role, content: Some(Some(String::new())), ..ChatDelta::default() };
            self.delta(index, delta, None, out);
        }
    }

    fn grew(&mut self, index: usize, answer: &Answer, deltas: Vec<Delta>, out: &mut String) {
        // Calls before the one that this batch of deltas is about.
        let starts = deltas.iter().filter(|delta| matches!(delta, Delta::Call(_))).count();
        let mut current = (answer.calls.len() - starts).checked_sub(1);
        for delta in deltas {
            let none = ChatDelta::default();
            match delta {
                Delta::Text { text, logprobs } => {
                    let logprobs = self.logprobs.then(|| content(logprobs));
                    self.delta(index, ChatDelta { content: Some(Some(text)), ..none }, logprobs, out);
                }
                Delta::Reasoning(text) => {
                    self.delta(index, ChatDelta { reasoning_content: Some(text), ..none }, None, out);
                }
                Delta::Call(call) => {
                    current = Some(call);
                    let tool_calls = vec![named_call(&answer.calls[call], current, String::new())];
                    self.delta(index, ChatDelta { tool_calls, ..none }, None, out);
                }
                Delta::Input(text) => {
                    let Some(call) = current else { continue };
                    let tool_calls = vec![call_delta(&answer.calls[call], call, text)];
                    self.delta(index, ChatDelta { tool_calls, ..none }, None, out);
                }
            }
        }
    }

    fn ended(&mut self, index: usize, answer: &Answer, out: &mut String) {
        self.ended += 1;
        if index == 0 {
            answer.describe(&mut self.flint);
        }
        let finish_reason = answer.end().ok().map(reason);
        let choice = ChatChunkChoice { index, finish_reason, ..ChatChunkChoice::default() };
        let mut chunk = self.chunk(vec![choice]);
        if self.ended == self.n && !self.include_usage {
            chunk.flint = Some(self.flint.clone());
        }
        Self::write(&chunk, out);
    }

    fn end(&mut self, answers: &[Answer], out: &mut String) {
        if self.include_usage {
            let mut chunk = self.chunk(Vec::new());
            chunk.usage = Some(Some(usage(answers, self.n)));
            chunk.flint = Some(self.flint.clone());
            Self::write(&chunk, out);
        }
        sse::write("[DONE]", out);
    }
}

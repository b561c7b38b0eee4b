//! From parts of an answer to events and output items.
//!
//! Items open and close in order and one is open at a time: `added`, deltas, `done`. What `done` carries is what the
//! response holds in the end and what the client will send back, so it is built once and copied.

use std::sync::Arc;

use api::responses::{Event, EventKind, LogProb, OutputItem, OutputText, ReasoningText, Response, Status};
use serde_json::Value;
use text::Part;

use crate::generation::answer_token_cache::Shown;
use crate::generation::tool_cache::Declared;
use crate::ids;

/// Turns parts into events and keeps the response up to date.
pub struct Emitter {
    /// The response as it stands, without the open item.
    pub response: Response,
    tools: Arc<Declared>,
    open: Option<Open>,
    /// White space that belongs to the next text, or to nothing when something else comes.
    blank: String,
    /// What is known of tokens whose text has not come out yet.
    logprobs: Vec<LogProb>,
    shown: Shown,
    sequence: u64,
    stream_id: Option<Arc<str>>,
}

/// The item being produced.
struct Open {
    id: Arc<str>,
    text: String,
    kind: OpenKind,
}

enum OpenKind {
    Message { logprobs: Vec<LogProb> },
    Reasoning,
    Call { call_id: String, name: String, namespace: Option<String>, custom: bool },
}

impl Emitter {
    /// Starts with an empty response.
    pub fn new(response: Response, tools: Arc<Declared>, stream_id: Option<Arc<str>>) -> Self {
        Self {
            response,
            tools,
            open: None,
            blank: String::new(),
            logprobs: Vec::new(),
            shown: Shown::default(),
            sequence: 0,
            stream_id,
        }
    }

    /// An event with the next number.
    pub fn event(&mut self, kind: EventKind) -> Event {
        let sequence_number = self.sequence;
        self.sequence += 1;
        Event { kind, sequence_number, stream_id: self.stream_id.clone() }
    }

    /// An event that carries the response as it stands.
    pub fn status(&mut self, kind: impl FnOnce(Box<Response>) -> EventKind) -> Event {
        let kind = kind(Box::new(self.response.clone()));
        self.event(kind)
    }

    /// What the client has been shown, for [`crate::generation::answer_token_cache::AnswerTokenCache`].
    pub fn shown(&self) -> &Shown {
        &self.shown
    }

    /// How many calls the answer has made.
    pub fn calls(&self) -> usize {
        self.shown.calls.len()
    }

    /// Takes in parts of the answer.
    pub fn parts(&mut self, parts: Vec<Part>, mut logprobs: Vec<LogProb>, out: &mut Vec<Event>) {
        self.logprobs.append(&mut logprobs);
        let ends_in_text = parts.last().is_none_or(|part| matches!(part, Part::Text(_)));
        let calls_max = self.response.max_tool_calls.unwrap_or(usize::MAX);
        for part in parts {
            if self.calls() >= calls_max {
                // The engine is stopped at its next step; what it said until then is not wanted.
                break;
            }
            match part {
                Part::Text(text) => self.text(text, out),
                Part::Reasoning(text) => self.reasoning(text, out),
                Part::CallStart { tool } => self.call(tool, out),
                Part::CallDelta(delta) => self.call_delta(delta, out),
                Part::CallEnd { complete } => {
                    self.close(if complete { Status::Completed } else { Status::Incomplete }, "commentary", out);
                }
            }
        }
        if !ends_in_text {
            self.logprobs.clear();
        }
    }

    /// Closes what is open: the answer is over.
    pub fn finish(&mut self, status: Status, out: &mut Vec<Event>) {
        self.close(status, "final_answer", out);
    }

    fn text(&mut self, mut delta: String, out: &mut Vec<Event>) {
        if !matches!(&self.open, Some(Open { kind: OpenKind::Message { .. }, .. })) {
            self.blank.push_str(&delta);
            if delta.trim().is_empty() {
                return;
            }
            delta = std::mem::take(&mut self.blank);
            self.close(Status::Completed, "commentary", out);
            self.open("msg", OpenKind::Message { logprobs: Vec::new() }, out);
        }
        let logprobs = std::mem::take(&mut self.logprobs);
        let output_index = self.response.output.len();
        if let Some(Open { id, text, kind: OpenKind::Message { logprobs: all } }) = &mut self.open {
            text.push_str(&delta);
            self.shown.text.push_str(&delta);
            all.extend_from_slice(&logprobs);
            let item_id = Arc::clone(id);
            let kind = EventKind::TextDelta { item_id, output_index, content_index: 0, delta, logprobs };
            out.push(self.event(kind));
        }
    }

    fn reasoning(&mut self, delta: String, out: &mut Vec<Event>) {
        if !matches!(&self.open, Some(Open { kind: OpenKind::Reasoning, .. })) {
            self.close(Status::Completed, "commentary", out);
            self.open("rs", OpenKind::Reasoning, out);
        }
        let output_index = self.response.output.len();
        if let Some(Open { id, text, .. }) = &mut self.open {
            text.push_str(&delta);
            let item_id = Arc::clone(id);
            let kind = EventKind::ReasoningDelta { item_id, output_index, content_index: 0, delta };
            out.push(self.event(kind));
        }
    }

    fn call(&mut self, tool: usize, out: &mut Vec<Event>) {
        self.close(Status::Completed, "commentary", out);
        let tools = Arc::clone(&self.tools);
        let Some(called) = tools.set.called(tool) else { return };
        let kind = OpenKind::Call {
            call_id: ids::new("call"),
            name: called.name.to_owned(),
            namespace: called.namespace.map(str::to_owned),
            custom: called.custom,
        };
        self.open(if called.custom { "ctc" } else { "fc" }, kind, out);
    }

    fn call_delta(&mut self, delta: String, out: &mut Vec<Event>) {
        let output_index = self.response.output.len();
        let Some(Open { id, text, kind: OpenKind::Call { custom, .. } }) = &mut self.open else { return };
        text.push_str(&delta);
        let item_id = Arc::clone(id);
        let kind = match custom {
            true => EventKind::InputDelta { item_id, output_index, delta },
            false => EventKind::ArgumentsDelta { item_id, output_index, delta },
        };
        out.push(self.event(kind));
    }

    fn open(&mut self, prefix: &str, kind: OpenKind, out: &mut Vec<Event>) {
        self.blank.clear();
        let open = Open { id: ids::new(prefix).into(), text: String::new(), kind };
        let output_index = self.response.output.len();
        let mut item = open.item(Status::InProgress, None);
        if let OutputItem::Message { content, .. } = &mut item {
            content.clear();
        }
        if let OutputItem::Reasoning { content, .. } = &mut item {
            content.clear();
        }
        out.push(self.event(EventKind::ItemAdded { output_index, item }));
        if let Some(part) = open.part() {
            let item_id = open.id.to_string();
            out.push(self.event(EventKind::PartAdded { item_id, output_index, content_index: 0, part }));
        }
        self.open = Some(open);
    }

    fn close(&mut self, status: Status, phase: &str, out: &mut Vec<Event>) {
        let Some(open) = self.open.take() else { return };
        let output_index = self.response.output.len();
        let (item_id, text) = (Arc::clone(&open.id), open.text.clone());
        let done = match &open.kind {
            OpenKind::Message { logprobs } => {
                EventKind::TextDone { item_id, output_index, content_index: 0, text, logprobs: logprobs.clone() }
            }
            OpenKind::Reasoning => EventKind::ReasoningDone { item_id, output_index, content_index: 0, text },
            OpenKind::Call { custom: true, .. } => EventKind::InputDone { item_id, output_index, input: text },
            OpenKind::Call { name, .. } => {
                EventKind::ArgumentsDone { item_id, output_index, name: name.clone(), arguments: text }
            }
        };
        out.push(self.event(done));
        if let Some(part) = open.part() {
            let item_id = open.id.to_string();
            out.push(self.event(EventKind::PartDone { item_id, output_index, content_index: 0, part }));
        }
        if let OpenKind::Call { name, .. } = &open.kind {
            self.shown.calls.push((name.clone(), open.text.clone()));
        }
        let item = open.item(status, Some(phase));
        self.response.output.push(item.clone());
        out.push(self.event(EventKind::ItemDone { output_index, item }));
    }
}

impl Open {
    fn item(&self, status: Status, phase: Option<&str>) -> OutputItem {
        let (id, text) = (self.id.to_string(), self.text.clone());
        match &self.kind {
            OpenKind::Message { .. } => OutputItem::Message {
                id,
                status,
                role: "assistant".to_owned(),
                content: self.output_text().into_iter().collect(),
                phase: phase.map(str::to_owned),
            },
            OpenKind::Reasoning => {
                OutputItem::Reasoning { id, status, summary: Vec::new(), content: vec![ReasoningText { text }] }
            }
            OpenKind::Call { call_id, name, namespace, custom } => {
                let (call_id, name, namespace) = (call_id.clone(), name.clone(), namespace.clone());
                match custom {
                    true => OutputItem::CustomToolCall { id, status, call_id, name, namespace, input: text },
                    false => OutputItem::FunctionCall { id, status, call_id, name, namespace, arguments: text },
                }
            }
        }
    }

    fn output_text(&self) -> Option<OutputText> {
        match &self.kind {
            OpenKind::Message { logprobs } => {
                Some(OutputText { logprobs: logprobs.clone(), ..OutputText::new(self.text.clone()) })
            }
            _ => None,
        }
    }

    /// The content part that events speak of; calls have none.
    fn part(&self) -> Option<Value> {
        let part = match &self.kind {
            OpenKind::Message { .. } => EventKind::text_part(&self.output_text()?),
            OpenKind::Reasoning => serde_json::to_value(ReasoningText { text: self.text.clone() }).unwrap_or_default(),
            OpenKind::Call { .. } => return None,
        };
        Some(part)
    }
}

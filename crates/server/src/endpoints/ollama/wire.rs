//! An answer in Ollama's words: a line of JSON for each piece, and a last one with what it cost.

use std::time::Instant;

use api::responses::{Flint, LogProb};
use serde_json::{Map, Value, json};

use crate::endpoints::streamed::Wire;
use crate::error::ApiError;
use crate::generation::answers::{Answer, Call, Delta, End};
use crate::ids::{now, timestamp};

/// Where the text of an answer stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// In a message.
    Chat,
    /// In `response`.
    Generate,
}

/// Writes lines.
pub struct Lines {
    form: Form,
    model: String,
    begun: Instant,
    /// Nanoseconds until the model was there.
    load: u64,
    logprobs: bool,
    flint: Flint,
    /// Calls that were sent: each goes out whole.
    sent: usize,
}

impl Lines {
    /// For an answer that was asked for at `begun`, of a model that is loaded.
    pub fn new(form: Form, model: String, begun: Instant, logprobs: bool, flint: Flint) -> Self {
        Self { form, model, begun, load: nanoseconds(begun), logprobs, flint, sent: 0 }
    }

    /// Adds what is to be known about the answer.
    pub fn warn(&mut self, warnings: Vec<String>) {
        self.flint.warnings.extend(warnings);
    }

    /// What is said when there was nothing to answer.
    pub fn loaded(&self) -> Value {
        let mut line = self.line(Map::new());
        (line["done"], line["done_reason"]) = (true.into(), "load".into());
        line
    }

    /// The answer in one piece.
    pub fn whole(&mut self, answer: &Answer) -> Result<Value, ApiError> {
        let end = answer.end()?;
        let mut content = Map::from_iter([("content".to_owned(), answer.text.clone().into())]);
        if !answer.reasoning.is_empty() {
            content.insert("thinking".to_owned(), answer.reasoning.clone().into());
        }
        let calls: Vec<Value> = answer.calls.iter().enumerate().filter_map(|(index, call)| told(index, call)).collect();
        if !calls.is_empty() {
            content.insert("tool_calls".to_owned(), calls.into());
        }
        let mut line = self.line(content);
        self.note(&mut line, &answer.logprobs);
        self.close(&mut line, answer, end);
        Ok(line)
    }

    fn line(&self, mut content: Map<String, Value>) -> Value {
        let mut line = json!({"model": self.model, "created_at": timestamp(now()), "done": false});
        let text = content.remove("content").unwrap_or_else(|| "".into());
        match self.form {
            Form::Chat => {
                content.extend([("role".to_owned(), "assistant".into()), ("content".to_owned(), text)]);
                line["message"] = content.into();
            }
            Form::Generate => {
                line["response"] = text;
                if let Some(fields) = line.as_object_mut() {
                    fields.extend(content);
                }
            }
        }
        line
    }

    fn note(&self, line: &mut Value, logprobs: &[LogProb]) {
        if self.logprobs && !logprobs.is_empty() {
            line["logprobs"] = serde_json::to_value(logprobs).unwrap_or_default();
        }
    }

    fn close(&mut self, line: &mut Value, answer: &Answer, end: End) {
        answer.describe(&mut self.flint);
        let Some(fields) = line.as_object_mut() else { return };
        let reason = if end == End::Length { "length" } else { "stop" };
        fields.extend([
            ("done".to_owned(), true.into()),
            ("done_reason".to_owned(), reason.into()),
            ("total_duration".to_owned(), nanoseconds(self.begun).into()),
            ("load_duration".to_owned(), self.load.into()),
            ("flint".to_owned(), serde_json::to_value(&self.flint).unwrap_or_default()),
        ]);
        if let Some(finished) = &answer.finished {
            let nanoseconds = |time: std::time::Duration| Value::from(time.as_nanos() as u64);
            fields.extend([
                ("prompt_eval_count".to_owned(), finished.usage.prompt.into()),
                ("prompt_eval_duration".to_owned(), nanoseconds(finished.timings.prefill)),
                ("eval_count".to_owned(), finished.usage.generated.into()),
                ("eval_duration".to_owned(), nanoseconds(finished.timings.decode)),
            ]);
        }
    }

    fn say(&self, field: &str, text: Value, logprobs: &[LogProb], out: &mut String) {
        let mut line = self.line(Map::from_iter([(field.to_owned(), text)]));
        self.note(&mut line, logprobs);
        write(&line, out);
    }

    /// Sends the first `over` calls, those that were not sent yet.
    fn send_calls(&mut self, answer: &Answer, over: usize, out: &mut String) {
        for index in self.sent..over.max(self.sent) {
            if let Some(call) = told(index, &answer.calls[index]) {
                self.say("tool_calls", json!([call]), &[], out);
            }
        }
        self.sent = over.max(self.sent);
    }
}

/// A call, whose arguments are an object here; none where they were cut short.
fn told(index: usize, call: &Call) -> Option<Value> {
    let arguments: Value = serde_json::from_str(&call.input).ok()?;
    Some(json!({"id": call.id, "function": {"index": index, "name": call.name, "arguments": arguments}}))
}

fn nanoseconds(since: Instant) -> u64 {
    since.elapsed().as_nanos() as u64
}

fn write(line: &Value, out: &mut String) {
    out.push_str(&line.to_string());
    out.push('\n');
}

impl Wire for Lines {
    fn begin(&mut self, _answers: &[Answer], _out: &mut String) {}

    fn grew(&mut self, _index: usize, answer: &Answer, deltas: Vec<Delta>, out: &mut String) {
        // Of the calls that the answer has by now some began in this batch. What comes behind a call ends it.
        let starts = deltas.iter().filter(|delta| matches!(delta, Delta::Call(_))).count();
        let mut begun = answer.calls.len() - starts;
        for delta in deltas {
            match delta {
                Delta::Text { text, logprobs } if !text.is_empty() => {
                    self.send_calls(answer, begun, out);
                    self.say("content", text.into(), &logprobs, out);
                }
                Delta::Reasoning(text) => self.say("thinking", text.into(), &[], out),
                Delta::Call(call) => {
                    self.send_calls(answer, call, out);
                    begun = call + 1;
                }
                Delta::Text { .. } | Delta::Input(_) => {}
            }
        }
    }

    fn ended(&mut self, _index: usize, answer: &Answer, out: &mut String) {
        self.send_calls(answer, answer.calls.len(), out);
        let mut line = self.line(Map::new());
        if let Ok(end) = answer.end() {
            self.close(&mut line, answer, end);
        }
        write(&line, out);
    }

    fn end(&mut self, _answers: &[Answer], _out: &mut String) {}

    fn failed(&mut self, error: &ApiError, out: &mut String) {
        write(&json!({"error": error.message}), out);
    }

    /// There is no line that means nothing.
    fn beat(&mut self, _out: &mut String) {}
}

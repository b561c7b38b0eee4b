//! A run for programs: one JSON object per line, with the names and the shapes that the Codex CLI prints.
//!
//! `thread.started`, `turn.started`, `item.started`, `item.updated`, `item.completed`, `turn.completed`, `turn.failed`
//! and `error`. Items are `agent_message`, `file_change`, `command_execution` and `todo_list`. What Codex has no name for
//! (timings, the diff) stands in fields beside its own, and in `intent.decided` and `files.read`.

use std::collections::HashMap;

use agent::{Decided, Event, Outcome, PlanStep};
use serde_json::{Value, json};

use super::Follow;

/// A run for programs.
#[derive(Default)]
pub struct Lines {
    started: bool,
    items: usize,
    message: String,
    /// Calls under way: their item's number, command and output.
    calls: HashMap<u64, (usize, String, String)>,
    /// The diff of each edit as it stands.
    diffs: HashMap<u64, String>,
}

impl Follow for Lines {
    fn event(&mut self, event: &Event) -> anyhow::Result<()> {
        match event {
            Event::Status(status) if !self.started => {
                self.started = true;
                return print(&json!({"type": "thread.started", "thread_id": status.session, "model": status.model}));
            }
            Event::Text { delta } => {
                self.message.push_str(delta);
                return Ok(());
            }
            Event::EditStarted { .. } | Event::ToolStarted { .. } | Event::TurnEnded { .. } => self.end_message()?,
            _ => {}
        }
        match event {
            Event::Intent(decided) => print(&self::decided(decided)),
            Event::FilesRead(files) => print(&json!({"type": "files.read", "files": files})),
            Event::TurnStarted { .. } => print(&json!({"type": "turn.started"})),
            Event::EditGrew { edit, diff, .. } => {
                self.diffs.insert(*edit, diff.to_string());
                Ok(())
            }
            Event::EditApplied { edit, path, lines } => {
                let diff = self.diffs.remove(edit).unwrap_or_default();
                let change = json!({"path": path, "kind": kind(&diff), "added": lines.0, "removed": lines.1});
                self.item(json!({"type": "file_change", "changes": [change], "status": "completed", "diff": diff}))
            }
            Event::EditFailed { path, why, .. } => {
                let change = json!({"path": path, "kind": "update"});
                self.item(json!({"type": "file_change", "changes": [change], "status": "failed", "error": why}))
            }
            Event::ToolStarted { call, title, .. } => {
                let number = self.next();
                self.calls.insert(*call, (number, title.clone(), String::new()));
                let item = command(number, title, "", None, "in_progress");
                print(&json!({"type": "item.started", "item": item}))
            }
            Event::ToolOutput { call, delta } => {
                if let Some((_, _, output)) = self.calls.get_mut(call) {
                    output.push_str(delta);
                }
                Ok(())
            }
            Event::ToolEnded { call, exit_code, ok, .. } => {
                let Some((number, title, output)) = self.calls.remove(call) else { return Ok(()) };
                let status = if *ok { "completed" } else { "failed" };
                let item = command(number, &title, &output, *exit_code, status);
                print(&json!({"type": "item.completed", "item": item}))
            }
            Event::Plan(steps) => self.item(json!({"type": "todo_list", "items": plan(steps)})),
            Event::Trouble { text } => print(&json!({"type": "error", "message": text})),
            Event::Notice { text } => self.item(json!({"type": "error", "message": text, "severity": "notice"})),
            Event::TurnEnded { outcome, usage, .. } => {
                let mut usage = serde_json::to_value(usage)?;
                usage["cached_input_tokens"] = usage["cached_tokens"].clone();
                match outcome {
                    Outcome::Done => print(&json!({"type": "turn.completed", "usage": usage})),
                    Outcome::Asked { question } => {
                        print(&json!({"type": "turn.completed", "usage": usage, "question": question}))
                    }
                    Outcome::Stopped => failed("stopped", &usage),
                    Outcome::Failed { why } => failed(why, &usage),
                }
            }
            Event::Diff { text } => print(&json!({"type": "diff", "text": text})),
            _ => Ok(()),
        }
    }
}

impl Lines {
    fn next(&mut self) -> usize {
        self.items += 1;
        self.items - 1
    }

    /// An item that is whole at once.
    fn item(&mut self, mut item: Value) -> anyhow::Result<()> {
        item["id"] = json!(format!("item_{}", self.next()));
        print(&json!({"type": "item.completed", "item": item}))
    }

    fn end_message(&mut self) -> anyhow::Result<()> {
        let text = std::mem::take(&mut self.message);
        match text.trim().is_empty() {
            true => Ok(()),
            false => self.item(json!({"type": "agent_message", "text": text.trim()})),
        }
    }
}

/// What a message was taken for.
pub fn decided(decided: &Decided) -> Value {
    json!({"type": "intent.decided", "intent": decided.intent, "odds": decided.odds,
           "evidence": decided.evidence, "prompt_tokens": decided.tokens,
           "ms": decided.ms})
}

fn command(number: usize, title: &str, output: &str, exit_code: Option<i32>, status: &str) -> Value {
    json!({"id": format!("item_{number}"), "type": "command_execution", "command": title, "aggregated_output": output,
           "exit_code": exit_code, "status": status})
}

fn plan(steps: &[PlanStep]) -> Vec<Value> {
    steps.iter().map(|step| json!({"text": step.text, "completed": step.done})).collect()
}

fn failed(why: &str, usage: &Value) -> anyhow::Result<()> {
    print(&json!({"type": "turn.failed", "error": {"message": why}, "usage": usage}))
}

/// A file whose diff has no old lines is new.
fn kind(diff: &str) -> &'static str {
    if diff.starts_with("@@ -0,0") { "add" } else { "update" }
}

fn print(value: &Value) -> anyhow::Result<()> {
    Ok(boundary::print::json_line(value)?)
}

//! The same question asked many times: a prompt that is made once, and answers that are read without a screen.
//!
//! For `candidates`, where several answers come at the same time and nothing is shown before it was checked.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::draft::{Block, Draft};
use super::parser::{Parser, Part};
use super::{Task, changes, gather, message, place, settings};
use crate::candidates::{Author, Sampling, Written};
use crate::command::Prompt;
use crate::context::Shown;
use crate::desk::Desk;
use crate::edit::Batch;

/// A question in the pair style, ready to be asked.
pub struct Question {
    client: client::Client,
    body: Value,
    root: PathBuf,
    files: Vec<Shown>,
    task: Task,
    /// What the person's words became.
    pub message: String,
}

impl Question {
    /// Gathers what the task is about. The conversation stays as it is.
    pub async fn new(desk: &mut Desk, prompt: &Prompt) -> Result<Self, String> {
        let gathered = gather(desk, prompt).await;
        let message = message(&gathered, prompt);
        let mut files = gathered.fresh;
        files.extend(gathered.known);
        let client = desk.client().await?;
        let mut body = desk.body(&desk.options.instructions.clone(), settings(desk, &files));
        let said = json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": message}]});
        if let Some(input) = body["input"].as_array_mut() {
            input.push(said);
        }
        Ok(Self { client, body, root: desk.root(), files, task: Task::of(&prompt.text), message })
    }

    /// The files the model sees.
    pub fn files(&self) -> &[Shown] {
        &self.files
    }

    /// What an answer makes of the files.
    fn read(&self, answer: &str, whole: bool) -> Result<Vec<crate::edit::Written>, String> {
        let mut draft = Draft::new(self.root.clone(), self.files.clone(), self.task);
        let mut parser = Parser::default();
        let mut parts = parser.push(answer);
        parts.extend(parser.finish());
        for part in parts {
            match part {
                Part::Text(_) => {}
                Part::Opened(head) => {
                    draft.blocks.push(Block { head, text: String::new(), path: None, edit: None, whole: false });
                }
                Part::Line(line) => {
                    let around = place::Surroundings { root: &self.root, files: &self.files, task: self.task };
                    let Some(block) = draft.blocks.last_mut() else { continue };
                    block.text.push_str(&line);
                    if block.path.is_none() {
                        block.path = place::target(&block.head, &block.text, &around);
                    }
                }
                Part::Closed { whole: closed } => {
                    if let Some(block) = draft.blocks.last_mut() {
                        block.whole = closed || whole;
                    }
                }
            }
        }
        let edits: Vec<_> = draft.blocks.iter().filter_map(|block| Some((block, 0, block.path.as_ref()?))).collect();
        if edits.is_empty() {
            return Err("the answer has no code for a file".to_owned());
        }
        let changes = changes(&draft, &edits).map_err(|(_, _, failed)| failed.why())?;
        let batch = Batch::resolve(&self.root, &changes).map_err(|error| error.to_string())?;
        Ok(batch.files())
    }
}

impl Author for std::sync::Arc<Question> {
    async fn write(&self, sampling: Sampling) -> Result<Written, String> {
        let mut body = self.body.clone();
        body["temperature"] = json!(sampling.temperature);
        body["top_p"] = json!(sampling.top_p);
        body["seed"] = json!(sampling.seed);
        let answer = self.client.respond(body).await.map_err(|error| error.to_string())?;
        let response = answer.finish().await.map_err(|error| error.to_string())?;
        let text: String = response.output.iter().filter_map(api::responses::OutputItem::text).collect();
        let cut = response.incomplete_details.is_some();
        let question = std::sync::Arc::clone(self);
        let usage = response.usage.unwrap_or_default();
        // Reading looks at files, and matching can take a moment.
        let work = tokio::task::spawn_blocking(move || {
            let files = question.read(&text, !cut);
            Written { answer: text, files, usage }
        });
        work.await.map_err(|error| format!("reading the answer broke: {error}"))
    }
}

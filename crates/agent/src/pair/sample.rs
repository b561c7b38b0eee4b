//! The same question asked many times: a prompt that is made once, and answers that are read without a screen.
//!
//! For `candidates`, where several answers come at the same time and nothing is shown before it was checked, and for the
//! answer after one that did not pass its check.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use api::responses::{OutputItem, Usage};
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use workspace::edit::Batch;

use super::apply::{changes, nothing_to_write, placed};
use super::doubt::{self, departures};
use super::draft::{Block, Draft};
use super::parser::{Parser, Part};
use super::{FRESH_TRIES, NotApplied, Task, anew, gather, message, place, settings};
use crate::candidates::{Author, Sampling, Strategy, Taken, Written};
use crate::command::Prompt;
use crate::context::{Gathered, Shown};
use crate::turn_context::TurnContext;

/// A question in the pair style, ready to be asked.
pub struct Question {
    client: client::Client,
    body: Value,
    root: PathBuf,
    gathered: Gathered,
    prompt: Prompt,
    task: Task,
    /// Of a plain turn.
    temperature: f64,
    /// Other servers refuse a seed, and an answer that was begun; what they sample differs all the same.
    local: bool,
    /// The first answer, which others depart from.
    first: OnceCell<Answer>,
    /// Departures of it that were asked for.
    departed: AtomicUsize,
}

/// What the model answered.
#[derive(Clone)]
struct Answer {
    text: String,
    /// It had said all.
    whole: bool,
    usage: Usage,
    /// How it could have begun instead.
    departures: Vec<String>,
}

impl Question {
    /// Gathers what the task is about. The conversation stays as it is.
    pub async fn new(ctx: &mut TurnContext, prompt: &Prompt) -> Result<Self, String> {
        let gathered = gather(ctx, prompt).await;
        let client = ctx.client().await?;
        let files: Vec<Shown> = gathered.files().cloned().collect();
        let body = ctx.body(&ctx.options.instructions.clone(), settings(ctx, &files));
        let (task, local) = (Task::of(&prompt.text), ctx.config().is_local());
        let (root, prompt) = (ctx.root(), prompt.clone());
        let temperature = ctx.config().temperature.unwrap_or(0.0);
        let (first, departed) = (OnceCell::new(), AtomicUsize::new(0));
        Ok(Self { client, body, root, gathered, prompt, task, temperature, local, first, departed })
    }

    /// The same for somebody who has had so many departures of the first answer.
    pub fn after(mut self, departures: usize) -> Self {
        self.departed = AtomicUsize::new(departures);
        self
    }

    /// What the person's words became.
    pub fn message(&self) -> String {
        message(&self.gathered, &self.prompt)
    }

    /// Asks once. The answer begins with `begun`.
    async fn ask(&self, prompt: &Prompt, sampling: Sampling, begun: &str) -> Result<Answer, String> {
        let mut body = self.body.clone();
        let said = |role: &str, kind: &str, text: &str| {
            let content = json!([{"type": kind, "text": text}]);
            json!({"type": "message", "role": role, "content": content})
        };
        if let Some(input) = body["input"].as_array_mut() {
            input.push(said("user", "input_text", &message(&self.gathered, prompt)));
            if !begun.is_empty() {
                input.push(said("assistant", "output_text", begun));
            }
        }
        body["temperature"] = json!(sampling.temperature);
        body["top_p"] = json!(sampling.top_p);
        if self.local {
            body["seed"] = json!(sampling.seed);
            body["continue_final_message"] = json!(!begun.is_empty());
            if sampling.strategy == Strategy::First {
                body["top_logprobs"] = json!(doubt::ALTERNATIVES);
            }
        }
        let answer = self.client.respond(body).await.map_err(|error| error.to_string())?;
        let response = answer.finish().await.map_err(|error| error.to_string())?;
        let more: String = response.output.iter().filter_map(OutputItem::text).collect();
        Ok(Answer {
            text: format!("{begun}{more}"),
            whole: response.incomplete_details.is_none(),
            usage: response.usage.unwrap_or_default(),
            departures: departures(&response.output),
        })
    }

    /// The first answer, asked for by whoever wants it first; they pay for it.
    async fn first(&self, usage: &mut Usage) -> Result<&Answer, String> {
        let ask = async {
            let mut answer = self.ask(&self.prompt, Sampling::of(1, self.temperature), "").await?;
            add(usage, std::mem::take(&mut answer.usage));
            Ok(answer)
        };
        self.first.get_or_try_init(|| ask).await
    }

    /// An answer that departs from the first at a place where no other did; none when there is no such place.
    async fn depart(&self, usage: &mut Usage) -> Result<Option<Answer>, String> {
        let first = self.first(usage).await?;
        let Some(begun) = first.departures.get(self.departed.fetch_add(1, Ordering::Relaxed)) else { return Ok(None) };
        let greedy = Sampling { strategy: Strategy::Depart, temperature: 0.0, top_p: 1.0, seed: 0 };
        self.ask(&self.prompt, greedy, begun).await.map(Some)
    }

    /// What an answer makes of the files.
    fn read(&self, answer: &str, whole: bool) -> Result<Vec<workspace::edit::Written>, NotApplied> {
        let mut draft =
            Draft::new(self.root.clone(), self.gathered.files().cloned().collect(), self.task, &self.prompt.text);
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
                    if let Some(block) = draft.blocks.last_mut() {
                        block.text.push_str(&line);
                    }
                }
                Part::Closed { whole: closed } => {
                    let path =
                        draft.blocks.last().and_then(|block| place::target(&block.head, &block.text, &draft.around()));
                    if let Some(block) = draft.blocks.last_mut() {
                        (block.whole, block.path) = (closed || whole, path);
                    }
                }
            }
        }
        let placed = placed(&draft).map_err(|(_, _, failed)| failed)?;
        let changes = changes(&placed);
        if let Some(failed) = nothing_to_write(&draft, &placed, &changes) {
            return Err(failed);
        }
        if changes.is_empty() {
            return Err(NotApplied::Unclear { why: "the answer has no code for a file".to_owned(), path: None });
        }
        let batch = Batch::resolve(&self.root, &changes);
        let batch = batch.map_err(|error| NotApplied::Refused(error.to_string()))?;
        Ok(batch.files())
    }
}

impl Author for Arc<Question> {
    /// Asks until something would change, as a plain turn does. What all of it cost is counted.
    async fn write(&self, mut sampling: Sampling, taken: &Taken) -> Result<Written, String> {
        let mut prompt = self.prompt.clone();
        let mut usage = Usage::default();
        let mut fresh = 0;
        loop {
            let answer = match sampling.strategy {
                Strategy::First => self.first(&mut usage).await?.clone(),
                Strategy::Depart if self.local => match self.depart(&mut usage).await? {
                    Some(answer) => answer,
                    None => {
                        sampling.strategy = Strategy::Sample;
                        continue;
                    }
                },
                _ => self.ask(&prompt, sampling, "").await?,
            };
            add(&mut usage, answer.usage.clone());
            let (question, text, whole) = (Arc::clone(self), answer.text.clone(), answer.whole);
            // Reading looks at files, and matching can take a moment.
            let read = tokio::task::spawn_blocking(move || question.read(&text, whole)).await;
            let files = read.map_err(|error| format!("reading the answer broke: {error}"))?;
            match files {
                Err(NotApplied::Unchanged { names, .. }) if fresh < FRESH_TRIES => {
                    fresh += 1;
                    prompt = anew(&self.prompt, &names);
                    sampling = sampling.anew();
                }
                Ok(files) if fresh < FRESH_TRIES && !taken.take(&files) => {
                    fresh += 1;
                    sampling = sampling.apart();
                }
                files => {
                    let files = files.map_err(|failed| failed.why());
                    return Ok(Written { answer: answer.text, files, usage });
                }
            }
        }
    }
}

fn add(sum: &mut Usage, usage: Usage) {
    sum.input_tokens += usage.input_tokens;
    sum.input_tokens_details.cached_tokens += usage.input_tokens_details.cached_tokens;
    sum.output_tokens += usage.output_tokens;
}

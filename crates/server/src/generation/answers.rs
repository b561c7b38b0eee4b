//! The answers to one request of a client that knows nothing of items: text, thoughts and calls, several at a time.
//!
//! What is sent piece by piece and what is sent whole come from the same [`Delta`]s, so they cannot differ.

use std::sync::Arc;

use api::chat::ChatUsage;
use api::responses::{Flint, LogProb};
use engine::{FinishReason, Finished, Started};
use futures_util::future::select_all;
use text::Part;

use crate::error::ApiError;
use crate::generation::answer_token_cache::Shown;
use crate::generation::drafts;
use crate::generation::tools::ToolSet;
use crate::generation::{Generation, Job, Piece};
use crate::lock::lock;
use crate::models::ModelLease;
use crate::{facts, ids};

/// What is new in an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Delta {
    /// More text, perhaps none, and the tokens it came from when log-probabilities are wanted.
    Text {
        /// The text.
        text: String,
        /// One per token.
        logprobs: Vec<LogProb>,
    },
    /// More thought.
    Reasoning(String),
    /// A call starts: its index in [`Answer::calls`].
    Call(usize),
    /// More of the call that started last.
    Input(String),
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// What the result must name.
    pub id: String,
    /// The tool.
    pub name: String,
    /// Arguments in JSON, or free text.
    pub input: String,
    /// Whether it is free text.
    pub custom: bool,
}

/// Why an answer is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The model was done.
    Done,
    /// A text that the client named came.
    StopText,
    /// There was no more room.
    Length,
    /// The client must answer calls.
    Calls,
}

/// One answer as it grows.
pub struct Answer {
    /// What the model said.
    pub text: String,
    /// What it thought.
    pub reasoning: String,
    /// What it called.
    pub calls: Vec<Call>,
    /// Tokens of the text, when log-probabilities are wanted.
    pub logprobs: Vec<LogProb>,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// How it began.
    pub started: Option<Started>,
    /// How it ended.
    pub finished: Option<Finished>,
    /// Tokens that were thoughts.
    pub thought: usize,
    tools: Arc<ToolSet>,
    call_prefix: &'static str,
    pending: Vec<LogProb>,
}

/// What happened to the answers.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// This one left the queue.
    Started(usize),
    /// This one grew.
    Grew(usize, Vec<Delta>),
    /// This one is over.
    Ended(usize),
}

/// All answers to one request.
pub struct Answers {
    /// As they stand.
    pub all: Vec<Answer>,
    loaded: ModelLease,
    running: Vec<Option<Generation>>,
}

impl Answers {
    /// Hands the jobs to the engine: all of them or none. Identities of calls begin with `call_prefix`.
    pub fn start(
        loaded: &ModelLease,
        jobs: Vec<Job>,
        tools: &Arc<ToolSet>,
        call_prefix: &'static str,
    ) -> Result<Self, ApiError> {
        let start = |job| Generation::start(loaded, job).map(Some);
        let running: Vec<Option<Generation>> = jobs.into_iter().map(start).collect::<Result<_, _>>()?;
        let answer = |generation: &Generation| Answer {
            text: String::new(),
            reasoning: String::new(),
            calls: Vec::new(),
            logprobs: Vec::new(),
            prompt_tokens: generation.prompt_tokens(),
            started: None,
            finished: None,
            thought: 0,
            tools: Arc::clone(tools),
            call_prefix,
            pending: Vec::new(),
        };
        let all = running.iter().flatten().map(answer).collect();
        Ok(Self { all, loaded: loaded.clone(), running })
    }

    /// What happens next; `None` when all answers are over. Can be dropped and called again without losing anything.
    pub async fn next(&mut self) -> Option<Step> {
        loop {
            let over = |index: &usize| self.all[*index].finished.is_some() && self.running[*index].is_some();
            if let Some(index) = (0..self.all.len()).find(over) {
                self.settle(index);
                return Some(Step::Ended(index));
            }
            let running = self.running.iter_mut().enumerate().filter_map(|(index, run)| Some((index, run.as_mut()?)));
            let waiting = running.map(|(index, run)| Box::pin(async move { (index, run.next().await) }));
            let waiting: Vec<_> = waiting.collect();
            if waiting.is_empty() {
                return None;
            }
            let ((index, piece), ..) = select_all(waiting).await;
            let deltas = match piece {
                Some(Piece::Started(started)) => {
                    self.all[index].started = Some(started);
                    return Some(Step::Started(index));
                }
                Some(Piece::Parts { parts, logprobs }) => self.all[index].grow(parts, logprobs),
                Some(Piece::Finished(finished)) => self.all[index].finish(*finished),
                None => {
                    self.running[index] = None;
                    return Some(Step::Ended(index));
                }
            };
            if !deltas.is_empty() {
                return Some(Step::Grew(index, deltas));
            }
        }
    }

    /// Waits for the end of all answers, or for the first that fails.
    pub async fn whole(&mut self) -> Result<(), ApiError> {
        while let Some(step) = self.next().await {
            if let Step::Ended(index) = step {
                self.all[index].end()?;
            }
        }
        Ok(())
    }

    /// Ends all answers at the next step.
    pub fn cancel(&mut self) {
        self.running.iter_mut().flatten().for_each(Generation::cancel);
    }

    /// Frees the sequence and remembers its tokens for the time when the client sends the answer back.
    fn settle(&mut self, index: usize) {
        let Some(generation) = self.running[index].take() else { return };
        self.all[index].thought = generation.thought_tokens();
        let answer = &self.all[index];
        // A stop text is no part of the tokens, and an answer that was cut off behind a call lacks the call's end:
        // only what the model ended itself is worth repeating.
        let by_itself = |finished: &Finished| matches!(finished.reason, FinishReason::StopToken(_));
        if answer.finished.as_ref().is_some_and(by_itself) {
            let mut answer_tokens = lock(&self.loaded.answer_tokens);
            answer_tokens.remember(generation.owner(), &answer.shown(), generation.tokens());
        }
    }
}

impl Answer {
    fn grow(&mut self, parts: Vec<Part>, logprobs: Vec<LogProb>) -> Vec<Delta> {
        self.pending.extend(logprobs);
        let mut deltas = Vec::with_capacity(parts.len());
        for part in parts {
            match part {
                Part::Text(text) => deltas.push(self.say(text)),
                Part::Reasoning(text) => {
                    self.reasoning.push_str(&text);
                    self.pending.clear();
                    deltas.push(Delta::Reasoning(text));
                }
                Part::CallStart { tool } => deltas.extend(self.call(tool)),
                Part::CallDelta(text) => {
                    self.pending.clear();
                    if let Some(call) = self.calls.last_mut() {
                        call.input.push_str(&text);
                        deltas.push(Delta::Input(text));
                    }
                }
                Part::CallEnd { .. } => self.pending.clear(),
            }
        }
        deltas
    }

    fn say(&mut self, text: String) -> Delta {
        let logprobs = std::mem::take(&mut self.pending);
        self.text.push_str(&text);
        self.logprobs.extend_from_slice(&logprobs);
        Delta::Text { text, logprobs }
    }

    fn call(&mut self, tool: usize) -> Option<Delta> {
        self.pending.clear();
        let called = self.tools.called(tool)?;
        self.calls.push(Call {
            id: ids::new(self.call_prefix),
            name: called.name.to_owned(),
            input: String::new(),
            custom: called.custom,
        });
        Some(Delta::Call(self.calls.len() - 1))
    }

    /// Tokens without a text of their own are told of at the end.
    fn finish(&mut self, finished: Finished) -> Vec<Delta> {
        self.finished = Some(finished);
        if self.pending.is_empty() { Vec::new() } else { vec![self.say(String::new())] }
    }

    /// Why it is over, or how it failed.
    pub fn end(&self) -> Result<End, ApiError> {
        let reason = self.finished.as_ref().map(|finished| &finished.reason);
        match reason {
            Some(FinishReason::Length | FinishReason::ContextFull) => Ok(End::Length),
            Some(FinishReason::Stop | FinishReason::StopToken(_) | FinishReason::Cancelled)
                if !self.calls.is_empty() =>
            {
                Ok(End::Calls)
            }
            Some(FinishReason::Stop) => Ok(End::StopText),
            Some(FinishReason::StopToken(_) | FinishReason::Cancelled) => Ok(End::Done),
            Some(FinishReason::Shutdown) => Err(ApiError::closing()),
            Some(other) => Err(ApiError::internal(facts::failure(other).1)),
            None => Err(ApiError::internal("the engine ended the stream")),
        }
    }

    fn shown(&self) -> Shown {
        let calls = self.calls.iter().map(|call| (call.name.clone(), call.input.clone())).collect();
        Shown { text: self.text.clone(), calls }
    }

    /// Adds to `flint` what this answer came to.
    pub fn describe(&self, flint: &mut Flint) {
        let started = self.started.as_ref();
        let restored = started.map_or(0, |started| started.restored_tokens);
        flint.cache_miss = started.and_then(|started| started.miss).map(facts::describe);
        flint.timings = self.finished.as_ref().map(|finished| facts::timings(finished, restored));
    }
}

/// What answers cost, of which each `per_prompt` have one prompt.
pub fn usage(answers: &[Answer], per_prompt: usize) -> ChatUsage {
    let mut usage = ChatUsage::default();
    for (index, answer) in answers.iter().enumerate() {
        let used = answer.finished.as_ref().map(|finished| finished.usage).unwrap_or_default();
        if index % per_prompt.max(1) == 0 {
            usage.prompt_tokens += answer.prompt_tokens;
            usage.prompt_tokens_details.cached_tokens += used.cached;
        }
        usage.completion_tokens += used.generated;
        usage.completion_tokens_details.reasoning_tokens += answer.thought;
        let (accepted, rejected) = drafts::predicted(&used);
        usage.completion_tokens_details.accepted_prediction_tokens += accepted;
        usage.completion_tokens_details.rejected_prediction_tokens += rejected;
    }
    usage.total_tokens = usage.prompt_tokens + usage.completion_tokens;
    usage
}

//! One growing list of tokens: what it holds, and what a step's logits do to it.
//!
//! Between steps: `tokens` is the prompt and everything picked, `kv_len` of them are in the KV blocks, and at least one
//! is not (its row gives the next token). During a step drafted tokens stand after them, to be verified and removed.

use std::sync::Arc;
use std::time::Instant;

use model::{BLOCK, Chunk, NOT_A_NUMBER, StateSave, StateUse, Want};

use crate::block_pool::{BlockTable, Miss};
use crate::constraint::Constraint;
use crate::draft::{DraftCounts, DraftKind, Drafters, Gate, StepSoFar};
use crate::event::{ErrorKind, FinishReason, Finished, RequestId, Started, Timings, TokenOut, Usage};
use crate::guard::guard;
use crate::request::{Priority, Request};
use crate::sampler::{SampleError, Sampler, Scratch};
use crate::stop::StopMatcher;
use crate::stream::{Mailbox, SlowReader};
use crate::token_bytes::TokenBytes;

pub(crate) struct Sequence {
    pub id: RequestId,
    pub priority: Priority,
    /// Whose KV it may share.
    pub owner: u64,
    /// Whether its KV stays in memory.
    pub private: bool,
    pub tokens: Vec<u32>,
    pub kv_len: usize,
    pub table: BlockTable,
    /// Rows of the step in progress, drafted ones included; 0 when the sequence sits it out.
    pub rows: usize,
    pub usage: Usage,
    /// Lost its blocks and must go back to its queue.
    pub preempted: bool,
    /// Whether saved blocks were looked for since it last had none.
    pub restore_tried: bool,
    /// Tokens whose KV was read from disk for it.
    pub restored: usize,
    /// The slot of its recurrent state while it runs, where the model has any.
    pub state: Option<u32>,
    /// Positions after which its state is to be kept in the prefix cache, ascending.
    pub state_positions: Vec<usize>,
    /// Where its state was last kept while it answers.
    pub answer_state: Option<usize>,
    /// Those of the step in progress, and the position it starts at.
    pub saves: Vec<StateSave>,
    pub saves_from: usize,
    /// Tokens that later prompts are likely to begin with.
    pub lasting: usize,
    max_tokens: usize,
    sampler: Sampler,
    stop_tokens: Vec<u32>,
    stop: StopMatcher,
    drafters: Drafters,
    constraint: Option<Box<dyn Constraint>>,
    /// Tokens proposed for the step in progress.
    draft: Vec<u32>,
    /// Who proposed them.
    draft_kind: DraftKind,
    /// What a drafter or constraint said when it panicked outside a pick.
    failure: Option<String>,
    mailbox: Arc<Mailbox>,
    submitted: Instant,
    started: Option<Instant>,
    first_token: Option<Instant>,
}

/// How a sequence ends.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct End {
    pub reason: FinishReason,
    pub tail: Vec<u8>,
    /// The last tokens: who reads them is woken once for them and the end.
    pub tokens: Vec<TokenOut>,
}

impl From<FinishReason> for End {
    fn from(reason: FinishReason) -> Self {
        Self { reason, tail: Vec::new(), tokens: Vec::new() }
    }
}

impl End {
    pub fn error(kind: ErrorKind, error: impl std::fmt::Display) -> Self {
        FinishReason::Error { kind, text: error.to_string() }.into()
    }
}

/// The wanted rows of a step: logits, or what the backend picked from them.
pub(crate) enum Rows<'a> {
    Logits(&'a mut [f32]),
    Picks(&'a [u32]),
}

/// One of them.
enum Row<'a> {
    Logits(&'a mut [f32]),
    Pick(u32),
}

impl<'a> Rows<'a> {
    fn each(self, vocab: usize) -> impl Iterator<Item = Row<'a>> {
        let (logits, picks) = match self {
            Rows::Logits(logits) => (logits, &[][..]),
            Rows::Picks(picks) => (&mut [][..], picks),
        };
        logits.chunks_exact_mut(vocab).map(Row::Logits).chain(picks.iter().map(|&pick| Row::Pick(pick)))
    }
}

/// What bounds every sequence of an engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub vocab: usize,
    pub tokens_max: usize,
}

/// What all sequences need to take in a step's rows.
pub(crate) struct Intake<'a> {
    pub limits: Limits,
    pub token_bytes: &'a TokenBytes,
    pub scratch: &'a mut Scratch,
    pub gate: &'a mut Gate,
    /// What came of the drafts of all sequences.
    pub drafts: &'a mut DraftCounts,
    /// Tokens to publish, cleared by the caller.
    pub out: &'a mut Vec<TokenOut>,
}

impl Sequence {
    pub fn new(id: RequestId, request: Request, seed: u64, mailbox: Arc<Mailbox>) -> Self {
        Self {
            id,
            priority: request.priority,
            owner: request.owner,
            private: request.private,
            kv_len: 0,
            table: BlockTable::default(),
            rows: 0,
            usage: Usage { prompt: request.prompt.len(), ..Usage::default() },
            preempted: false,
            restore_tried: false,
            restored: 0,
            state: None,
            state_positions: Vec::new(),
            answer_state: None,
            saves: Vec::new(),
            saves_from: 0,
            lasting: request.lasting,
            max_tokens: request.max_tokens,
            sampler: Sampler::new(request.sampling, seed, &request.prompt),
            tokens: request.prompt,
            stop_tokens: request.stop_tokens,
            stop: StopMatcher::new(request.stop_strings),
            drafters: Drafters::new(request.drafting, request.drafter),
            constraint: request.constraint,
            draft: Vec::new(),
            draft_kind: DraftKind::Own,
            failure: None,
            mailbox,
            submitted: Instant::now(),
            started: None,
            first_token: None,
        }
    }

    /// Tokens not yet in the KV blocks. One is decoding, more is reading a prompt.
    pub fn pending(&self) -> usize {
        self.tokens.len() - self.kv_len
    }

    pub fn is_started(&self) -> bool {
        self.started.is_some()
    }

    /// Why the sequence must end whatever its tokens say, if so.
    pub fn interruption(&self) -> Option<End> {
        if self.mailbox.is_cancelled() {
            return Some(FinishReason::Cancelled.into());
        }
        self.failure()
    }

    /// What broke of the code that came with the request.
    pub fn failure(&self) -> Option<End> {
        let text = self.failure.as_deref().or(self.mailbox.broken());
        text.map(|text| End::error(ErrorKind::Internal, text))
    }

    /// Leaves the queue with `cached` tokens in the KV blocks. The first time there is something to announce.
    pub fn start(&mut self, cached: usize, miss: Option<Miss>) -> Option<Started> {
        self.kv_len = cached;
        if self.started.is_some() {
            return None;
        }
        self.started = Some(Instant::now());
        self.usage.cached = cached;
        let (prompt_tokens, seed) = (self.usage.prompt, self.sampler.seed());
        let restored_tokens = self.restored.min(cached);
        Some(Started { prompt_tokens, cached_tokens: cached, restored_tokens, miss, seed })
    }

    /// Has the state at a position ahead kept, rounded down to whole blocks.
    pub fn keep_state_at(&mut self, position: usize) {
        let position = position / BLOCK * BLOCK;
        if self.state.is_some()
            && position > self.kv_len
            && let Err(place) = self.state_positions.binary_search(&position)
        {
            self.state_positions.insert(place, position);
        }
    }

    pub fn announce(&self, started: Started) {
        self.mailbox.start(started);
    }

    /// Asks the drafters, or else the constraint, for up to `max` tokens, never more than the sequence could still
    /// generate after the next one. The step is told of them.
    pub fn propose(&mut self, max: usize, limits: &Limits, step: &mut StepSoFar, gate: &mut Gate) {
        self.draft.clear();
        let room = (self.max_tokens - self.usage.generated).min(limits.tokens_max - self.tokens.len());
        let max = max.min(room.saturating_sub(1));
        if max == 0 || self.pending() > 1 {
            return;
        }
        let expected = self.fill_draft(max, step, gate).unwrap_or_else(|error| {
            self.draft.clear();
            self.failure = Some(error);
            0.0
        });
        let known = self.draft.iter().take_while(|&&token| (token as usize) < limits.vocab).count();
        self.draft.truncate(known.min(max));
        step.rows += self.draft.len();
        step.tokens += expected;
    }

    /// Fills the draft and says how many of it are expected to be right.
    fn fill_draft(&mut self, max: usize, step: &StepSoFar, gate: &mut Gate) -> Result<f64, String> {
        let Self { drafters, constraint, draft, tokens, .. } = self;
        if let Some((kind, expected)) = drafters.propose(tokens, max, step, gate, draft)? {
            self.draft_kind = kind;
            return Ok(expected);
        }
        // What must come is right for certain, and finding it costs nothing: it is not weighed.
        if let Some(constraint) = constraint {
            self.draft_kind = DraftKind::Grammar;
            guard("constraint", || constraint.forced(max, draft))?;
        }
        Ok(draft.len() as f64)
    }

    /// Tokens proposed for the next step.
    pub fn proposed(&self) -> usize {
        self.draft.len()
    }

    /// Adds the first `count` proposed tokens to the step and forgets the others.
    pub fn add_draft(&mut self, count: usize) {
        self.draft.truncate(count);
        self.tokens.extend_from_slice(&self.draft);
        self.rows += self.draft.len();
    }

    /// This sequence's share of the step.
    pub fn chunk(&self) -> Chunk<'_> {
        let tokens = &self.tokens[self.kv_len..self.kv_len + self.rows];
        let want = match tokens.len() == self.pending() && self.max_tokens > 0 {
            false => Want::Nothing,
            true if self.draft.is_empty() && self.usage.generated + 1 >= self.max_tokens => Want::Final,
            true if self.draft.is_empty() => Want::Last,
            true => Want::All,
        };
        let state = self.state.map(|slot| StateUse { slot, drafted: self.draft.len(), saves: &self.saves });
        Chunk { tokens, start: self.kv_len, blocks: self.table.blocks(), want, state }
    }

    /// Takes in the wanted rows of the step: picks tokens, as many as drafted ones turn out right plus one.
    pub fn absorb(&mut self, wanted: Rows<'_>, intake: &mut Intake<'_>) -> Option<End> {
        let rows = std::mem::take(&mut self.rows);
        self.tokens.truncate(self.tokens.len() - self.draft.len());
        if rows < self.pending() {
            self.kv_len += rows;
            return None;
        }
        if self.max_tokens == 0 {
            self.kv_len += rows;
            return Some(FinishReason::Length.into());
        }
        let mut end = None;
        let mut accepted = 0;
        for (index, row) in wanted.each(intake.limits.vocab).enumerate() {
            end = self.next_token(row, intake);
            let right = self.draft.get(index).is_some_and(|drafted| self.tokens.last() == Some(drafted));
            accepted += usize::from(right);
            if end.is_some() || !right {
                break;
            }
        }
        // The last token was picked, not fed; what drafting wrote beyond it will be written again.
        self.kv_len = self.tokens.len() - 1;
        self.settle_draft(accepted, intake);
        end
    }

    /// Whether nothing but the likeliest token of a row is ever asked for, so that a backend may pick it.
    pub fn takes_likeliest(&self) -> bool {
        self.constraint.is_none() && self.sampler.takes_likeliest()
    }

    /// Whether a shortlist of each row will do. What a constraint allows behind a drafted token is not known before that
    /// token is picked.
    pub fn takes_shortlist(&self) -> bool {
        self.sampler.takes_shortlist() && (self.constraint.is_none() || self.draft.is_empty())
    }

    pub fn sampler(&self) -> &Sampler {
        &self.sampler
    }

    /// Lends the constraint to whoever makes masks while the step runs.
    pub fn lend_constraint(&mut self) -> Option<Box<dyn Constraint>> {
        self.constraint.take()
    }

    pub fn take_back(&mut self, constraint: Option<Box<dyn Constraint>>) {
        self.constraint = constraint;
    }

    /// Forgets a step that failed.
    pub fn abandon_step(&mut self) {
        self.rows = 0;
        self.tokens.truncate(self.tokens.len() - self.draft.len());
        self.draft.clear();
    }

    pub fn publish(&self, tokens: &mut Vec<TokenOut>) -> Result<(), SlowReader> {
        self.mailbox.push(tokens)
    }

    /// Tells the reader how it ended. Tokens held back for a stop string that did not come are published first.
    pub fn finish(&mut self, mut end: End) {
        if end.reason != FinishReason::Stop {
            self.stop.flush(&mut end.tokens);
        }
        let (usage, timings) = (self.usage, self.timings());
        let tokens = std::mem::take(&mut self.tokens);
        self.mailbox.finish(end.tokens, Finished { tokens, reason: end.reason, tail: end.tail, usage, timings });
    }

    fn next_token(&mut self, row: Row<'_>, intake: &mut Intake<'_>) -> Option<End> {
        let token = match self.pick(row, intake.scratch) {
            Ok(token) => token,
            Err(end) => return Some(end),
        };
        let id = token.id;
        self.tokens.push(id);
        self.sampler.accept(&self.tokens);
        self.usage.generated += 1;
        self.first_token.get_or_insert_with(Instant::now);
        if self.stop_tokens.contains(&id) {
            return Some(FinishReason::StopToken(id).into());
        }
        if let Some(tail) = self.stop.push(token, intake.token_bytes, intake.out) {
            return Some(End { tail, ..FinishReason::Stop.into() });
        }
        if self.usage.generated >= self.max_tokens {
            return Some(FinishReason::Length.into());
        }
        (self.tokens.len() >= intake.limits.tokens_max).then(|| FinishReason::ContextFull.into())
    }

    /// Picks one token within the constraint, which hears of it.
    fn pick(&mut self, row: Row<'_>, scratch: &mut Scratch) -> Result<TokenOut, End> {
        let Self { constraint, sampler, tokens, .. } = self;
        let broken = |error| End::error(ErrorKind::Internal, error);
        let failed = |error| End::error(ErrorKind::Constraint, format_args!("the constraint failed: {error}"));
        let token = match row {
            Row::Pick(NOT_A_NUMBER) => return Err(End::error(ErrorKind::Device, SampleError::NotANumber)),
            Row::Pick(id) => TokenOut { id, logprob: None, top: Vec::new() },
            Row::Logits(row) => {
                let mask = match constraint {
                    Some(held) => guard("constraint", move || held.allowed()).map_err(broken)?.map_err(failed)?,
                    None => None,
                };
                sampler.sample(row, mask, tokens.len(), scratch).map_err(|error| match error {
                    SampleError::NotANumber => End::error(ErrorKind::Device, error),
                    _ => End::error(ErrorKind::Constraint, error),
                })?
            }
        };
        if let Some(constraint) = constraint {
            guard("constraint", || constraint.accept(token.id)).map_err(broken)?.map_err(failed)?;
        }
        Ok(token)
    }

    fn settle_draft(&mut self, accepted: usize, intake: &mut Intake<'_>) {
        let proposed = self.draft.len();
        self.draft.clear();
        if proposed > 0 {
            self.usage.drafts.add(self.draft_kind, proposed, accepted);
            intake.drafts.add(self.draft_kind, proposed, accepted);
            let observed = self.drafters.observe(self.draft_kind, proposed, accepted, intake.gate);
            self.failure = observed.err().or(self.failure.take());
        }
    }

    fn timings(&self) -> Timings {
        let now = Instant::now();
        let started = self.started.unwrap_or(now);
        let mut timings = Timings { queued: started - self.submitted, ..Timings::default() };
        if let Some(first) = self.first_token {
            timings.prefill = first - started;
            timings.first_token = first - self.submitted;
            timings.decode = now - first;
        }
        timings
    }
}

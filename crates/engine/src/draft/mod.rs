//! Speculative decoding: a drafter proposes tokens, the engine verifies them in one step and keeps those that plain
//! decoding would have picked. A wrong proposal costs rows, never a different output.
//!
//! What an edit will say is mostly known before it is said: by the client ([`Prediction`]), or because it stands in the
//! conversation already ([`NgramDrafter`]). Both follow a text along and find the place again after a change
//! (`align.rs`). Each says how likely its tokens are (`belief.rs`); the gate weighs that against what rows were measured
//! to cost on this backend (`gate.rs`, `costs.rs`) and asks the best one for as many as pay, which is often none.

mod account;
mod align;
mod belief;
mod costs;
mod gate;
mod index;
mod model;
mod ngram;
mod prediction;

use std::sync::Arc;

pub(crate) use gate::{Drafters, Gate, StepSoFar};
pub(crate) use model::DraftModel;
pub use ngram::NgramDrafter;
pub use prediction::{PREDICTION_TOKENS_MAX, Prediction, PredictionDrafter};

/// Most tokens of one proposal, whatever the options say.
pub(crate) const DRAFT_MAX: usize = 256;

/// Proposes how a sequence may go on. Called by the engine thread between steps: it must be quick and must not block.
pub trait Drafter: Send {
    /// For each token it could propose after `tokens` (prompt and output so far), up to `max`: how likely it is right if
    /// all before it are, from 0 to 1, appended to the empty `chances`. Asked before every step, so this is also where
    /// a drafter hears what became of the sequence.
    fn chances(&mut self, _tokens: &[u32], max: usize, chances: &mut Vec<f32>) {
        chances.resize(max, 1.0);
    }

    /// Appends up to `max` tokens that may follow `tokens` to the empty `out`. `chances` was asked with the same tokens.
    fn propose(&mut self, tokens: &[u32], max: usize, out: &mut Vec<u32>);

    /// Says how the last proposal fared, so that a drafter can learn when to keep quiet.
    fn observe(&mut self, _proposed: usize, _accepted: usize) {}

    /// What each proposed token costs to make.
    fn seconds_per_token(&self) -> f64 {
        0.0
    }
}

/// Who may propose tokens for a sequence. Nothing here changes what is generated.
#[derive(Clone, Debug)]
pub struct Drafting {
    /// What the caller expects in the output.
    pub prediction: Option<Arc<Prediction>>,
    /// Repetition of what the sequence holds already.
    pub ngram: bool,
    /// The engine's draft model, where it has one.
    pub model: bool,
    /// Propose as much as possible whether it pays or not: for tests and measurements.
    pub always: bool,
}

impl Drafting {
    /// Plain decoding.
    pub const OFF: Self = Self { prediction: None, ngram: false, model: false, always: false };
}

impl Default for Drafting {
    fn default() -> Self {
        Self { ngram: true, model: true, ..Self::OFF }
    }
}

/// Where a proposal came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DraftKind {
    /// What the client expects in the output.
    Prediction,
    /// Repetition of prompt or output.
    Ngram,
    /// The draft model.
    Model,
    /// Tokens that the constraint leaves no choice about.
    Grammar,
    /// The request's own drafter.
    Own,
}

impl DraftKind {
    /// All of them, in the order of [`DraftCounts`].
    pub const ALL: [Self; 5] = [Self::Prediction, Self::Ngram, Self::Model, Self::Grammar, Self::Own];

    /// A word for metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Prediction => "prediction",
            Self::Ngram => "ngram",
            Self::Model => "model",
            Self::Grammar => "grammar",
            Self::Own => "own",
        }
    }
}

/// What came of one kind of proposals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DraftCount {
    /// Proposals verified.
    pub drafts: u64,
    /// Tokens in them.
    pub tokens: u64,
    /// How many of those were what the model would have said.
    pub accepted: u64,
}

/// What came of proposals, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DraftCounts([DraftCount; DraftKind::ALL.len()]);

impl DraftCounts {
    /// Of one kind.
    pub fn of(&self, kind: DraftKind) -> DraftCount {
        self.0[kind as usize]
    }

    /// Of all kinds together.
    pub fn total(&self) -> DraftCount {
        let sum = |a: DraftCount, b: &DraftCount| DraftCount {
            drafts: a.drafts + b.drafts,
            tokens: a.tokens + b.tokens,
            accepted: a.accepted + b.accepted,
        };
        self.0.iter().fold(DraftCount::default(), sum)
    }

    /// Adds one verified proposal.
    pub fn add(&mut self, kind: DraftKind, tokens: usize, accepted: usize) {
        let count = &mut self.0[kind as usize];
        count.drafts += 1;
        count.tokens += tokens as u64;
        count.accepted += accepted as u64;
    }

    /// Adds what another list counted.
    pub fn merge(&mut self, other: &Self) {
        for (count, more) in self.0.iter_mut().zip(&other.0) {
            count.drafts += more.drafts;
            count.tokens += more.tokens;
            count.accepted += more.accepted;
        }
    }
}

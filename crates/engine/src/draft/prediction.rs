//! What the client expects in the output: the old file, when a file is rewritten.

use std::sync::Arc;

use super::Drafter;
use super::align::{Agreement, Aligner};
use super::belief::CLASSES;
use super::index::GramIndex;

/// Most tokens of a prediction that are used: twice what the contexts served here can hold. What goes beyond is left
/// out, which costs speed and nothing else. It takes 768 KB and a few milliseconds of the caller's thread.
pub const PREDICTION_TOKENS_MAX: usize = 65_536;

/// First guesses: a client that sends a prediction mostly knows.
const GUESS: [f32; CLASSES] = [0.5, 0.3, 0.5, 0.6, 0.75, 0.85, 0.93, 0.96, 0.98];

/// A text that the output is expected to follow, made ready once for any number of sequences.
#[derive(Debug)]
pub struct Prediction {
    tokens: Vec<u32>,
    index: GramIndex,
}

impl Prediction {
    /// Indexes a prediction, its first [`PREDICTION_TOKENS_MAX`] tokens.
    pub fn new(mut tokens: Vec<u32>) -> Self {
        tokens.truncate(PREDICTION_TOKENS_MAX);
        let mut index = GramIndex::new(tokens.len());
        index.extend(&tokens, tokens.len());
        Self { tokens, index }
    }

    /// Its tokens.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }
}

/// Proposes what the prediction says next, wherever in it the output is.
#[derive(Debug)]
pub struct PredictionDrafter {
    prediction: Arc<Prediction>,
    aligner: Aligner,
    /// Tokens of the sequence that were taken in; 0 before the first look.
    seen: usize,
}

impl PredictionDrafter {
    /// Expects the output to begin with the prediction, or to come to it.
    pub fn new(prediction: Arc<Prediction>) -> Self {
        let aligner = Aligner::new(Some(0), GUESS, Agreement { near: 1, far: 3 });
        Self { prediction, aligner, seen: 0 }
    }

    fn rest(&self) -> &[u32] {
        self.aligner.place().and_then(|place| self.prediction.tokens.get(place..)).unwrap_or_default()
    }
}

impl Drafter for PredictionDrafter {
    fn chances(&mut self, tokens: &[u32], max: usize, chances: &mut Vec<f32>) {
        let text = &self.prediction.tokens;
        if self.seen == 0 {
            // The prompt is not output: following begins with the first token behind it.
            self.seen = tokens.len().saturating_sub(1).max(1);
        }
        for &token in &tokens[self.seen..] {
            self.aligner.step(text, token);
        }
        self.seen = tokens.len();
        self.aligner.find(text, text.len(), &self.prediction.index, tokens);
        self.aligner.chances(self.rest().len().min(max), chances);
    }

    fn propose(&mut self, _tokens: &[u32], max: usize, out: &mut Vec<u32>) {
        out.extend(self.rest().iter().take(max));
    }
}

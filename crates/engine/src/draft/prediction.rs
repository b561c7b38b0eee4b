//! What the client expects in the output: the old file, when a file is rewritten.

use std::sync::Arc;

use super::Drafter;
use super::align::{Agreement, Aligner};
use super::belief::CLASSES;
use super::index::GramIndex;

/// Most tokens of a prediction that are used: twice what the contexts served here can hold. What goes beyond is left
/// out, which costs speed and nothing else. It takes 768 KB and a few milliseconds of the caller's thread.
pub const PREDICTION_TOKENS_MAX: usize = 65_536;

/// First guesses: a client that sends a prediction mostly knows, but answers often begin with words before the file, and
/// two or three tokens may agree by accident.
const GUESS: [f32; CLASSES] = [0.35, 0.15, 0.25, 0.45, 0.7, 0.85, 0.93, 0.96, 0.98];

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

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps it takes to say `output` when up to 32 drafted tokens are verified in each, and how many drafted ones were
    /// wrong. Plainly it takes as many steps as there are tokens.
    fn steps(prediction: &[u32], output: &[u32]) -> (usize, usize) {
        let mut drafter = PredictionDrafter::new(Arc::new(Prediction::new(prediction.to_vec())));
        let mut tokens = vec![900_000];
        let (mut said, mut steps, mut wrong) = (0, 0, 0);
        while said < output.len() {
            let (mut chances, mut draft) = (Vec::new(), Vec::new());
            if said > 0 {
                drafter.chances(&tokens, 32, &mut chances);
                drafter.propose(&tokens, chances.len(), &mut draft);
            }
            let right = draft.iter().zip(&output[said..]).take_while(|(a, b)| a == b).count();
            wrong += draft.len() - right;
            let end = (said + right + 1).min(output.len());
            tokens.extend_from_slice(&output[said..end]);
            (said, steps) = (end, steps + 1);
        }
        (steps, wrong)
    }

    /// A file of lines of ten tokens that all begin alike.
    fn file(lines: u32) -> Vec<Vec<u32>> {
        (0..lines)
            .map(|line| (0..10).map(|i| if i < 3 { i } else { 100 + line * 37 % 1000 + i * 3 }).collect())
            .collect()
    }

    #[test]
    fn edits_are_followed_through() {
        let old = file(100);
        let changed = |change: fn(&mut Vec<Vec<u32>>)| {
            let mut new = old.clone();
            change(&mut new);
            steps(&old.concat(), &new.concat()).0
        };
        let untouched = changed(|_| {});
        assert!(untouched <= 1000 / 33 + 3, "{untouched}");
        // What it may take more: the tokens that are new, and a few to find the way back.
        assert!(changed(|new| new[50][5] = 7) <= untouched + 8);
        assert!(changed(|new| new[20..24].iter_mut().for_each(|line| line[4..8].fill(5))) <= untouched + 40);
        assert!(changed(|new| drop(new.splice(30..30, [vec![2000; 10], vec![2001; 10]]))) <= untouched + 30);
        assert!(changed(|new| drop(new.drain(40..60))) <= untouched + 8, "deleted lines nearby");
        assert!(changed(|new| drop(new.drain(10..80))) <= untouched + 8, "deleted lines far away");
        assert!(changed(|new| new.rotate_left(50)) <= untouched + 12, "moved lines");
        assert!(changed(|new| new.insert(0, (3000..3020).collect())) <= untouched + 25, "words before the file");
    }

    #[test]
    fn what_is_of_no_use_is_harmless() {
        let output = file(30).concat();
        let other: Vec<u32> = (0..5000).map(|i| 50_000 + i).collect();
        for prediction in [vec![], vec![1], other] {
            let (steps, wrong) = steps(&prediction, &output);
            assert!(steps >= output.len() - 2 && wrong <= 32, "{steps} {wrong}");
        }
        let long = Prediction::new(vec![7; 3 * PREDICTION_TOKENS_MAX]);
        assert_eq!(long.tokens().len(), PREDICTION_TOKENS_MAX);
    }
}

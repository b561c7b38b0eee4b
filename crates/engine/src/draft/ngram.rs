//! Proposes what followed when the sequence said the same before: in the file that stands in the conversation, in an
//! earlier answer, or in what it has just generated.

use super::Drafter;
use super::align::{Agreement, Aligner};
use super::belief::CLASSES;
use super::index::GramIndex;

/// First guesses: a short repetition is mostly an accident.
const GUESS: [f32; CLASSES] = [0.1, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8, 0.9, 0.95];

/// Tokens indexed per look, so that a long prompt does not hold up a step: about 50 us.
const INDEXED_PER_LOOK: usize = 4096;

/// Follows the sequence's own past.
#[derive(Debug)]
pub struct NgramDrafter {
    index: Option<GramIndex>,
    aligner: Aligner,
    seen: usize,
}

impl NgramDrafter {
    /// One that has seen nothing. The sequence is indexed when it first decodes, not before.
    pub fn new() -> Self {
        Self { index: None, aligner: Aligner::new(None, GUESS, Agreement { near: 2, far: 3 }), seen: 0 }
    }
}

impl Default for NgramDrafter {
    fn default() -> Self {
        Self::new()
    }
}

impl Drafter for NgramDrafter {
    fn chances(&mut self, tokens: &[u32], max: usize, chances: &mut Vec<f32>) {
        let index = self.index.get_or_insert_with(|| {
            self.seen = tokens.len();
            GramIndex::new(tokens.len())
        });
        for end in self.seen..tokens.len() {
            self.aligner.step(&tokens[..end], tokens[end]);
        }
        self.seen = tokens.len();
        // The last token is left out until there is one behind it: nothing can be found to follow it.
        index.extend(&tokens[..tokens.len() - 1], INDEXED_PER_LOOK);
        self.aligner.find(tokens, tokens.len(), index, tokens);
        if self.aligner.place().is_some() {
            self.aligner.chances(max, chances);
        }
    }

    fn propose(&mut self, tokens: &[u32], max: usize, out: &mut Vec<u32>) {
        let Some(place) = self.aligner.place() else { return };
        for at in place..place + max {
            // Where the past ends the proposal itself goes on: that is how something repeats itself for ever.
            let token = tokens.get(at).or_else(|| out.get(at - tokens.len())).copied();
            out.extend(token);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_followed_before_is_proposed() {
        let check = |tokens: &[u32], max: usize, want: &[u32]| {
            let (mut drafter, mut chances, mut out) = (NgramDrafter::new(), Vec::new(), Vec::new());
            drafter.chances(tokens, max, &mut chances);
            drafter.propose(tokens, chances.len(), &mut out);
            assert_eq!(out, want, "{tokens:?}");
        };
        check(&[1, 2, 3, 4, 5, 6, 1, 2, 3], 3, &[4, 5, 6]);
        check(&[1, 2, 3, 4, 9, 2, 3, 5, 1, 2, 3], 1, &[4]);
        check(&[8, 7, 7, 7, 7], 4, &[7, 7, 7, 7]);
        check(&[1, 2, 3], 4, &[]);
        check(&[1], 4, &[]);
    }

    #[test]
    fn a_long_prompt_is_indexed_a_part_at_a_time() {
        let mut tokens: Vec<u32> = (0..20_000).collect();
        let (mut drafter, mut chances) = (NgramDrafter::new(), Vec::new());
        tokens.extend(15_000..15_004);
        drafter.chances(&tokens, 4, &mut chances);
        assert!(chances.is_empty(), "not there yet");
        for next in 15_004..15_008 {
            tokens.push(next);
            drafter.chances(&tokens, 4, &mut chances);
        }
        let mut out = Vec::new();
        drafter.propose(&tokens, 3, &mut out);
        assert_eq!(out, [15_008, 15_009, 15_010]);
    }
}

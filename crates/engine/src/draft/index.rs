//! Where runs of three tokens stand in a text, as compressors of the LZ77 family keep it: the last place of each, and
//! from each place the one before. Nothing is stored of the runs themselves, so whoever asks compares tokens.
//!
//! Cost: one multiplication and two stores per token; a lookup visits at most as many places as it asks for.

use crate::hash;

/// Tokens of a run.
pub(super) const GRAM: usize = 3;

/// No place.
const NONE: u32 = u32::MAX;

/// Places by the run of tokens before them.
#[derive(Debug)]
pub(super) struct GramIndex {
    /// The last place whose run has this hash; a power of two of them.
    last: Vec<u32>,
    /// For each place, the one before it with the same hash.
    before: Vec<u32>,
}

impl GramIndex {
    /// An index for about this many tokens. More can be added; then more places share a hash.
    pub fn new(tokens: usize) -> Self {
        let slots = tokens.next_power_of_two().clamp(1 << 8, 1 << 16);
        Self { last: vec![NONE; slots], before: Vec::new() }
    }

    /// How many tokens of the text are indexed.
    pub fn len(&self) -> usize {
        self.before.len()
    }

    /// Adds up to `count` further places of `text`, those behind tokens that are not yet indexed.
    pub fn extend(&mut self, text: &[u32], count: usize) {
        let end = text.len().min(self.len() + count);
        for place in self.len()..end {
            // `place` is the index of a token; what follows it is found by the run that ends with it.
            let slot = (place + 1).checked_sub(GRAM).map(|start| self.slot(&text[start..=place]));
            self.before.push(slot.map_or(NONE, |slot| std::mem::replace(&mut self.last[slot], place as u32)));
        }
    }

    /// Indices of tokens that end a run with the same hash as the last of `tokens`, the latest first.
    pub fn find(&self, tokens: &[u32]) -> impl Iterator<Item = usize> {
        let start = tokens.len().checked_sub(GRAM);
        let first = start.map_or(NONE, |start| self.last[self.slot(&tokens[start..])]);
        let place = |place: u32| (place != NONE).then_some(place);
        std::iter::successors(place(first), move |&at| place(self.before[at as usize])).map(|at| at as usize)
    }

    fn slot(&self, run: &[u32]) -> usize {
        let hash = run.iter().fold(0, |hash: u64, &token| hash::mix(hash ^ u64::from(token)));
        hash as usize & (self.last.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_occurrence_is_found_latest_first() {
        let text: Vec<u32> = (0..3000).map(|i| i * i % 7).collect();
        let mut index = GramIndex::new(8);
        while index.len() < text.len() {
            index.extend(&text, 100);
        }
        for end in GRAM..text.len() {
            let run = &text[end - GRAM..end];
            let found: Vec<usize> = index.find(&text[..end]).filter(|&at| &text[at + 1 - GRAM..=at] == run).collect();
            let all = (GRAM - 1..text.len()).rev().filter(|&at| &text[at + 1 - GRAM..=at] == run);
            assert_eq!(found, all.collect::<Vec<_>>());
        }
        assert_eq!(index.find(&[1, 2]).count(), 0);
    }
}

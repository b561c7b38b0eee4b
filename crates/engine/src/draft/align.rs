//! Follows a known text along a sequence that mostly repeats it.
//!
//! While the sequence says what the text says, the place moves along. At the first difference it is lost, and looked
//! for again after every token: around where it was lost, where little agreement is enough, because an edit inserts,
//! deletes or changes a few lines and goes on; and in the whole text, where it takes a longer run. A place found by
//! chance moves nothing: only a run of some length makes a new place to look around.

use super::belief::{Belief, CLASSES};
use super::index::GramIndex;

/// How far before and behind the place where it was lost a text is looked through, in tokens: about 25 lines of code.
const NEAR_BEFORE: usize = 64;
const NEAR_BEHIND: usize = 256;
/// Places with the same last tokens that are compared in the whole text.
const VISITS: usize = 16;
/// Agreement is measured no further than this.
const AGREE_MAX: usize = 33;
/// A run that long is no accident.
const SETTLED: usize = 8;

/// How much agreement it takes to go on from a place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Agreement {
    /// Around where the text was lost.
    pub near: usize,
    /// Anywhere.
    pub far: usize,
}

/// A place in a text, and what is believed of it.
#[derive(Clone, Debug)]
pub(super) struct Aligner {
    /// Index of the token that should come next.
    place: Option<usize>,
    /// How many tokens before it agree.
    run: usize,
    /// Where the text was last followed for some length.
    anchor: usize,
    belief: Belief,
    agreement: Agreement,
}

impl Aligner {
    pub fn new(place: Option<usize>, guess: [f32; CLASSES], agreement: Agreement) -> Self {
        Self { place, run: 0, anchor: 0, belief: Belief::new(guess), agreement }
    }

    /// The token that should come next, if the text is being followed.
    pub fn place(&self) -> Option<usize> {
        self.place
    }

    /// Takes in one token of the sequence.
    pub fn step(&mut self, text: &[u32], token: u32) {
        let Some(place) = self.place else { return };
        let right = text.get(place) == Some(&token);
        self.belief.hear(self.run, right);
        if !right {
            (self.place, self.run) = (None, 0);
            return;
        }
        (self.place, self.run) = (Some(place + 1), self.run + 1);
        if self.run >= SETTLED {
            self.anchor = place + 1;
        }
    }

    /// Looks for the place in the first `end` tokens of a text after which the sequence would go on.
    pub fn find(&mut self, text: &[u32], end: usize, index: &GramIndex, tokens: &[u32]) {
        if self.place.is_some() {
            return;
        }
        let near = self.anchor.saturating_sub(NEAR_BEFORE)..(self.anchor + NEAR_BEHIND).min(end);
        let near = self.best(near, text, tokens, self.agreement.near);
        let far = index.find(tokens).filter(|&at| at + 1 < end).take(VISITS).map(|at| at + 1);
        let far = self.best(far, text, tokens, self.agreement.far);
        let found = if far.map(|far| far.0) > near.map(|near| near.0) { far } else { near };
        if let Some((run, place)) = found {
            (self.place, self.run) = (Some(place), run);
        }
    }

    /// The place with the longest agreement, at least `least`; the nearest behind the anchor where several have it.
    fn best(
        &self,
        places: impl Iterator<Item = usize>,
        text: &[u32],
        tokens: &[u32],
        least: usize,
    ) -> Option<(usize, usize)> {
        let distance = |place: usize| match place >= self.anchor {
            true => place - self.anchor,
            // Text is more often left out or replaced than said again.
            false => 2 * (self.anchor - place),
        };
        places
            .map(|place| (agreement(&text[..place], tokens), place))
            .filter(|&(run, _)| run >= least)
            .max_by_key(|&(run, place)| (run, std::cmp::Reverse(distance(place))))
    }

    /// For each of the next `count` tokens, how likely it is right if those before it are.
    pub fn chances(&self, count: usize, chances: &mut Vec<f32>) {
        chances.extend((0..count).map(|ahead| self.belief.chance(self.run + ahead)));
    }
}

/// How many tokens at the end of both are equal.
fn agreement(text: &[u32], tokens: &[u32]) -> usize {
    text.iter().rev().zip(tokens.iter().rev()).take(AGREE_MAX).take_while(|(a, b)| a == b).count()
}

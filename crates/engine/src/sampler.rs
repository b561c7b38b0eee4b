//! Picks the next token from a row of logits.
//!
//! A pick depends on the row, the settings, the tokens before it and the position's own random number, and on nothing
//! else. So the token picked at a position is the same whether its row was computed alone or among drafted ones, in
//! whatever batch: exactness of drafting and of preemption rests on this.
//!
//! Cost: a few passes over the vocabulary, no sort of it. Only what survives the filters is sorted.

use std::collections::HashMap;

use crate::event::TokenOut;
use crate::hash;
use crate::request::Sampling;

mod mask;
mod math;
mod narrowed;
mod select;

/// Below this a temperature is greedy: dividing by less would overflow.
const TEMPERATURE_MIN: f32 = 1e-4;

/// Why a row cannot be sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SampleError {
    #[error("the model produced logits that are not numbers")]
    NotANumber,
    #[error("the constraint allows no token")]
    NothingAllowed,
    #[error("the constraint's mask has {bits} bits for a vocabulary of {vocab}")]
    ShortMask { bits: usize, vocab: usize },
}

/// Buffers shared by all sequences, so that a step allocates nothing.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// A copy of the row without what the constraint forbids.
    masked: Vec<f32>,
    /// Logits before bias and penalties, in the order they were changed.
    undo: Vec<(u32, f32)>,
    /// `exp((logit - max) / temperature)` for the whole vocabulary.
    weights: Vec<f32>,
    /// Sums of `weights` over runs, so that a draw need not add them all again.
    run_sums: Vec<f32>,
    /// Tokens that survived the filters, with their weights, most likely first.
    candidates: Vec<(u32, f32)>,
}

/// The sampling state of one sequence.
#[derive(Debug)]
pub(crate) struct Sampler {
    settings: Sampling,
    seed: u64,
    /// How often each token was generated; kept only when a penalty asks for it.
    generated: HashMap<u32, u32>,
    /// How often each token occurs in the repetition window; kept only when the penalty is on.
    window: HashMap<u32, u32>,
}

impl Sampler {
    /// `seed` is used when the settings name none.
    pub fn new(settings: Sampling, seed: u64, prompt: &[u32]) -> Self {
        let seed = settings.seed.unwrap_or(seed);
        let mut sampler = Self { settings, seed, generated: HashMap::new(), window: HashMap::new() };
        if sampler.penalises_repetition() {
            let start = prompt.len().saturating_sub(sampler.settings.repetition_window);
            for &token in &prompt[start..] {
                *sampler.window.entry(token).or_default() += 1;
            }
        }
        sampler
    }

    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Picks the token for `position`, among those `mask` allows, and describes it. The row is left as it was.
    pub fn sample(
        &self,
        row: &mut [f32],
        mask: Option<&[u32]>,
        position: usize,
        scratch: &mut Scratch,
    ) -> Result<TokenOut, SampleError> {
        let id = match mask {
            None => {
                self.adjust(row, &mut scratch.undo);
                let picked = self.pick(row, position, scratch);
                for (token, logit) in scratch.undo.drain(..).rev() {
                    row[token as usize] = logit;
                }
                picked?
            }
            Some(mask) => {
                // Most of a row changes: a copy is cheaper than noting what each entry was.
                let mut masked = std::mem::take(&mut scratch.masked);
                let picked = mask::apply(row, mask, &mut masked).and_then(|()| {
                    self.adjust(&mut masked, &mut scratch.undo);
                    self.pick(&masked, position, scratch)
                });
                scratch.masked = masked;
                picked?
            }
        };
        let Some(count) = self.settings.logprobs else {
            return Ok(TokenOut { id, logprob: None, top: Vec::new() });
        };
        let log_sum = math::log_sum_exp(row).ok_or(SampleError::NotANumber)?;
        select::top_k(row, count, &mut scratch.candidates);
        let top = scratch.candidates.iter().map(|&(token, logit)| (token, logit - log_sum)).collect();
        Ok(TokenOut { id, logprob: Some(row[id as usize] - log_sum), top })
    }

    /// Whether a pick is the likeliest token of its row, unchanged, and nothing else is asked of the row.
    pub fn takes_likeliest(&self) -> bool {
        self.settings.temperature < TEMPERATURE_MIN && self.takes_shortlist()
    }

    /// Whether a pick depends on nothing but how likely each token is, so that a shortlist will do.
    pub fn takes_shortlist(&self) -> bool {
        let Sampling { presence_penalty, frequency_penalty, .. } = self.settings;
        self.settings.logit_bias.is_empty()
            && self.settings.logprobs.is_none()
            && presence_penalty == 0.0
            && frequency_penalty == 0.0
            && !self.penalises_repetition()
    }

    /// Counts the last of `tokens`, which was just generated.
    pub fn accept(&mut self, tokens: &[u32]) {
        let Some((&token, before)) = tokens.split_last() else {
            return;
        };
        if self.settings.presence_penalty != 0.0 || self.settings.frequency_penalty != 0.0 {
            *self.generated.entry(token).or_default() += 1;
        }
        if !self.penalises_repetition() {
            return;
        }
        *self.window.entry(token).or_default() += 1;
        let leaving = before.len().checked_sub(self.settings.repetition_window).map(|i| before[i]);
        if let Some(leaving) = leaving
            && let Some(count) = self.window.get_mut(&leaving)
        {
            *count -= 1;
            if *count == 0 {
                self.window.remove(&leaving);
            }
        }
    }

    fn penalises_repetition(&self) -> bool {
        self.settings.repetition_penalty != 1.0 && self.settings.repetition_window > 0
    }

    /// Applies bias and penalties in place, noting what each entry was.
    fn adjust(&self, row: &mut [f32], undo: &mut Vec<(u32, f32)>) {
        undo.clear();
        let mut change = |token: u32, new: &dyn Fn(f32) -> f32| {
            let logit = &mut row[token as usize];
            undo.push((token, *logit));
            *logit = new(*logit);
        };
        for &(token, bias) in &self.settings.logit_bias {
            change(token, &|logit| logit + bias);
        }
        let penalty = self.settings.repetition_penalty;
        for &token in self.window.keys() {
            change(token, &|logit| {
                if logit > 0.0 { logit / penalty } else { logit * penalty }
            });
        }
        let (presence, frequency) = (self.settings.presence_penalty, self.settings.frequency_penalty);
        for (&token, &count) in &self.generated {
            change(token, &|logit| logit - presence - frequency * count as f32);
        }
    }

    fn pick(&self, row: &[f32], position: usize, scratch: &mut Scratch) -> Result<u32, SampleError> {
        let max = math::max(row).ok_or(SampleError::NotANumber)?;
        if self.settings.temperature < TEMPERATURE_MIN {
            return Ok(math::first_equal(row, max));
        }
        let random = hash::uniform(self.seed, position);
        let Scratch { weights, run_sums, candidates, .. } = scratch;
        let Sampling { temperature, top_k, top_p, min_p, .. } = self.settings;
        let total = if top_k > 0 && top_k < row.len() {
            select::top_k(row, top_k, candidates);
            self.weigh_candidates(max, candidates)
        } else {
            math::weigh(row, max, temperature, min_p, weights, run_sums);
            if top_p >= 1.0 {
                return Ok(select::draw_dense(weights, run_sums, random));
            }
            let total = math::total(run_sums);
            select::nucleus_candidates(row, weights, f64::from(top_p) * total, candidates);
            total
        };
        let kept = select::cut(candidates, top_p, total);
        Ok(select::draw(candidates, random * kept))
    }

    /// Turns the logits of the likeliest tokens into weights and says what they weigh together.
    fn weigh_candidates(&self, max: f32, candidates: &mut Vec<(u32, f32)>) -> f64 {
        let Sampling { temperature, min_p, .. } = self.settings;
        for (_, logit) in candidates.iter_mut() {
            *logit = math::exp((*logit - max) / temperature);
        }
        candidates.retain(|&(_, weight)| weight >= min_p);
        select::sum(candidates)
    }
}

#[cfg(test)]
mod tests;

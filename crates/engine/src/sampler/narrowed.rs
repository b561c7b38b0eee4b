//! The same pick from a shortlist, for backends whose logits are far away.
//!
//! Weights and their sums are the same bits as those of a whole row, so the token is the same too. Where a shortlist does
//! not reach far enough nothing is picked and the caller gets the row.

use std::ops::Range;

use model::shortlist::{Ask, Shortlist};

use super::{Sampler, Scratch, TEMPERATURE_MIN, math, select};
use crate::hash;
use crate::request::Sampling;

/// A part of the row that a shortlist was made of, without what its mask forbids; nothing when it cannot be had.
pub(crate) type PartOfRow<'a> = &'a mut dyn FnMut(Range<usize>) -> Option<Vec<f32>>;

impl Sampler {
    /// How a shortlist for this sampler is made.
    pub fn ask(&self) -> Ask {
        let greedy = self.settings.temperature < TEMPERATURE_MIN;
        Ask { temperature: if greedy { 1.0 } else { self.settings.temperature }, floor: self.settings.min_p }
    }

    /// Picks the token for `position`, or none where it takes the row to tell; errors are left to the row as well.
    pub fn choose(
        &self,
        list: &Shortlist,
        vocab: usize,
        position: usize,
        scratch: &mut Scratch,
        part: PartOfRow<'_>,
    ) -> Option<u32> {
        let max = list.largest;
        let (likeliest, _) = *list.tokens.first().filter(|_| max.is_finite())?;
        if self.settings.temperature < TEMPERATURE_MIN {
            return Some(likeliest);
        }
        let random = hash::uniform(self.seed, position);
        let candidates = &mut scratch.candidates;
        let Sampling { temperature, top_k, top_p, min_p, .. } = self.settings;
        let inverse = 1.0 / temperature;
        let total = if top_k > 0 && top_k < vocab {
            if list.tokens.len() < top_k && !list.complete {
                return None;
            }
            candidates.clear();
            candidates.extend(list.tokens.iter().take(top_k));
            self.weigh_candidates(max, candidates)
        } else if top_p >= 1.0 {
            let (run, target) = select::draw_from_sums(&list.run_sums, random);
            let start = run * math::RUN;
            let logits = part(start..(start + math::RUN).min(vocab))?;
            let weigh = |&logit: &f32| math::weight(logit, max, inverse, min_p);
            let weights: Vec<f32> = logits.iter().map(weigh).collect();
            return Some(start as u32 + select::draw_run(&weights, target));
        } else {
            let total = math::total(&list.run_sums);
            let weighed = list.tokens.iter().map(|&(id, logit)| (id, math::weight(logit, max, inverse, min_p)));
            candidates.clear();
            candidates.extend(weighed.filter(|&(_, weight)| weight > 0.0));
            if select::sum(candidates) < f64::from(top_p) * total && !list.complete {
                return None;
            }
            total
        };
        let kept = select::cut(candidates, top_p, total);
        Some(select::draw(candidates, random * kept))
    }
}

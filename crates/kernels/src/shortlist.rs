//! What a sampler needs of a row of logits when the row itself is far away, and the plain code that says what that is.
//!
//! A row of a real model is 600 KB, and most of it is never looked at. A [`Shortlist`] holds the likeliest tokens and how
//! much the tokens of each run of ids weigh, 6 KB in all, and a sampler arrives at the very token it would pick from the
//! row. For that the weights must be the same bits wherever they are made, so the exponential and the order of sums are
//! defined here and nowhere else; a card repeats them operation by operation.

/// Token ids that share one sum.
pub const RUN: usize = 256;
/// Partial sums within a run.
const LANES: usize = 16;
/// Runs whose likeliest token is in a shortlist, so it has at least as many tokens.
pub const RUNS_LISTED: usize = 128;
/// Most tokens of a shortlist.
pub const LIST_MAX: usize = 512;

/// How a row's tokens will be weighed.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// Divides logits.
    pub temperature: f32,
    /// Weights below this count as nothing; the likeliest token weighs 1.
    pub floor: f32,
}

/// The likeliest tokens of a row, and what all of them weigh.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shortlist {
    /// Tokens and logits, likeliest first and then by id: all that are at least as likely as the last. Empty where more
    /// than [`LIST_MAX`] are.
    pub tokens: Vec<(u32, f32)>,
    /// Whether every allowed token is in it.
    pub complete: bool,
    /// The largest allowed logit; not a number where one of the allowed is not, and infinite where nothing is allowed.
    pub largest: f32,
    /// Sums of the weights of each run of [`RUN`] ids.
    pub run_sums: Vec<f32>,
}

impl Shortlist {
    /// Makes the shortlist of a row among the tokens that `mask` allows: bit `t % 32` of word `t / 32`.
    pub fn fill(&mut self, row: &[f32], mask: Option<&[u32]>, ask: Ask) {
        let allowed = |id: usize| mask.is_none_or(|mask| mask[id / 32] >> (id % 32) & 1 == 1);
        let masked = |(id, &logit): (usize, &f32)| if allowed(id) { logit } else { f32::NEG_INFINITY };
        let row: Vec<f32> = row.iter().enumerate().map(masked).collect();
        let larger = |a: f32, &b: &f32| if a.is_nan() || b.is_nan() { f32::NAN } else { a.max(b) };
        let maxima: Vec<f32> = row.chunks(RUN).map(|run| run.iter().fold(f32::NEG_INFINITY, larger)).collect();
        self.largest = maxima.iter().fold(f32::NEG_INFINITY, larger);
        let mut sorted = maxima;
        sorted.sort_by(|a, b| b.total_cmp(a));
        let bar = sorted.get(RUNS_LISTED - 1).copied().unwrap_or(f32::NEG_INFINITY);
        self.complete = bar == f32::NEG_INFINITY;
        let listed = |&(_, logit): &(u32, f32)| logit >= bar && logit > f32::NEG_INFINITY;
        self.tokens.clear();
        self.tokens.extend(row.iter().enumerate().map(|(id, &logit)| (id as u32, logit)).filter(listed));
        self.sort();
        let weigh = |&logit: &f32| weight(logit, self.largest, 1.0 / ask.temperature, ask.floor);
        let weights: Vec<f32> = row.iter().map(weigh).collect();
        self.run_sums.clear();
        self.run_sums.extend(weights.chunks(RUN).map(sum));
    }

    /// Puts tokens in order; too many become none.
    pub fn sort(&mut self) {
        if self.tokens.len() > LIST_MAX {
            self.tokens.clear();
            self.complete = false;
        }
        let likelier = |a: &(u32, f32), b: &(u32, f32)| b.1.partial_cmp(&a.1).unwrap_or(std::cmp::Ordering::Equal);
        self.tokens.sort_unstable_by(|a, b| likelier(a, b).then(a.0.cmp(&b.0)));
    }
}

/// What a token weighs beside the likeliest, whose logit is `largest`.
pub fn weight(logit: f32, largest: f32, inverse_temperature: f32, floor: f32) -> f32 {
    let weight = exp((logit - largest) * inverse_temperature);
    if weight < floor { 0.0 } else { weight }
}

/// `exp(x)` for `x <= 0`; exactly 0 below -87, where f32 runs out.
///
/// Our own, because it vectorises and gives the same bits on every machine, which the C library's does not promise.
/// Relative error below 1e-5 over the whole range (tested), where probabilities are f32 anyway.
pub fn exp(x: f32) -> f32 {
    // 2^t = 2^n * 2^f with n the nearest integer; adding 1.5 * 2^23 rounds and leaves n in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let t = x.max(-87.0) * std::f32::consts::LOG2_E;
    let rounded = t + ROUND;
    let f = (t - (rounded - ROUND)) * std::f32::consts::LN_2;
    let power = 1.0 + f * (1.0 + f * (0.5 + f * (1.0 / 6.0 + f * (1.0 / 24.0 + f * (1.0 / 120.0 + f / 720.0)))));
    let n = rounded.to_bits().wrapping_sub(ROUND.to_bits());
    let scale = f32::from_bits(n.wrapping_add(127) << 23);
    if x < -87.0 { 0.0 } else { power * scale }
}

/// The sum of a run of weights.
pub fn sum(run: &[f32]) -> f32 {
    let (parts, rest) = run.as_chunks::<LANES>();
    let mut lanes = [0.0f32; LANES];
    for part in parts {
        lanes.iter_mut().zip(part).for_each(|(lane, x)| *lane += x);
    }
    lanes.iter().chain(rest).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_close_everywhere_and_zero_at_the_end() {
        for i in 0..870_000 {
            let x = -(i as f32) * 1e-4;
            let exact = f64::from(x).exp();
            assert!((f64::from(exp(x)) / exact - 1.0).abs() < 1e-5, "exp({x}) = {}", exp(x));
        }
        assert_eq!([exp(0.0), exp(-88.0), exp(f32::NEG_INFINITY)], [1.0, 0.0, 0.0]);
    }

    #[test]
    fn a_shortlist_has_what_is_likeliest() {
        let ask = Ask { temperature: 1.0, floor: 0.0 };
        // 200 runs, in each of which token i has the logit i % 256.
        let row: Vec<f32> = (0..200 * RUN).map(|i| (i % RUN) as f32 + (i / RUN) as f32 / 256.0).collect();
        let mut list = Shortlist::default();
        list.fill(&row, None, ask);
        assert_eq!(list.tokens.len(), RUNS_LISTED);
        assert_eq!((list.tokens[0].0 as usize, list.largest), (200 * RUN - 1, row[200 * RUN - 1]));
        assert!(!list.complete && list.run_sums.len() == 200);
        // Three tokens are allowed: all of them are listed, in order.
        let mut mask = vec![0; row.len() / 32];
        [5usize, 300, 700].iter().for_each(|&id| mask[id / 32] |= 1 << (id % 32));
        list.fill(&row, Some(&mask), ask);
        let ids: Vec<u32> = list.tokens.iter().map(|token| token.0).collect();
        assert!(list.complete && ids == [700, 300, 5]);
        assert_eq!(list.run_sums[2], 1.0);
        // All are equal: too many to be listed.
        list.fill(&vec![1.0; row.len()], None, ask);
        assert!(list.tokens.is_empty() && !list.complete && list.largest == 1.0);
    }
}

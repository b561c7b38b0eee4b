//! Choosing among many tokens without sorting them all.
//!
//! One order everywhere: higher value first, lower id on ties. `f64` sums keep a draw consistent with its total.

use std::cmp::Ordering;

use super::math::{RUN, total};

/// Order of likelihood: the likelier, or else the lower id, first.
fn rank(a: &(u32, f32), b: &(u32, f32)) -> Ordering {
    b.1.partial_cmp(&a.1).unwrap_or(Ordering::Equal).then(a.0.cmp(&b.0))
}

/// The `k` largest entries of a row without NaN, in order.
///
/// One pass: entries above the k-th best so far are gathered, and whenever 2k have come together the worse half is
/// dropped and the bar rises. On real logits the bar settles within a few thousand entries.
pub(super) fn top_k(row: &[f32], k: usize, out: &mut Vec<(u32, f32)>) {
    out.clear();
    if k == 0 {
        return;
    }
    let mut bar = f32::NEG_INFINITY;
    for (id, &logit) in row.iter().enumerate() {
        // An entry equal to the bar has a higher id than the one that set it, so it loses; before that, all enter.
        if logit > bar || out.len() < k {
            out.push((id as u32, logit));
            if out.len() == 2 * k {
                out.select_nth_unstable_by(k - 1, rank);
                out.truncate(k);
                bar = out[k - 1].1;
            }
        }
    }
    out.sort_unstable_by(rank);
    out.truncate(k);
}

/// Tokens that surely include the nucleus of `top_p`, in order.
///
/// A nucleus is nearly always within a small factor of the most likely token, so ever lower thresholds are tried until
/// what is above them weighs enough; the last one takes everything, so the result is exact. The order is that of the
/// logits, because near-equal logits can have weights that are equal or, by rounding, the wrong way round.
pub(super) fn nucleus_candidates(row: &[f32], weights: &[f32], wanted: f64, out: &mut Vec<(u32, f32)>) {
    for threshold in [1.0 / 64.0, 1.0 / 4096.0, 1.0 / 16_777_216.0, f32::MIN_POSITIVE] {
        out.clear();
        let heavy = weights.iter().enumerate().filter(|&(_, &w)| w >= threshold);
        out.extend(heavy.map(|(id, &weight)| (id as u32, weight)));
        if sum(out) >= wanted {
            break;
        }
    }
    let logit = |&(id, _): &(u32, f32)| (id, row[id as usize]);
    out.sort_unstable_by(|a, b| rank(&logit(a), &logit(b)));
}

/// What the candidates weigh together.
pub(super) fn sum(candidates: &[(u32, f32)]) -> f64 {
    candidates.iter().map(|&(_, weight)| f64::from(weight)).sum()
}

/// Cuts ordered candidates to the smallest head that weighs at least `top_p` of `total`; returns its weight.
pub(super) fn cut(candidates: &mut Vec<(u32, f32)>, top_p: f32, total: f64) -> f64 {
    let wanted = if top_p < 1.0 { f64::from(top_p) * total } else { f64::INFINITY };
    let mut sum = 0.0;
    let mut count = 0;
    while count < candidates.len() && (count == 0 || sum < wanted) {
        sum += f64::from(candidates[count].1);
        count += 1;
    }
    candidates.truncate(count);
    sum
}

/// The candidate at `target`, a number from 0 up to the sum of weights.
pub(super) fn draw(candidates: &[(u32, f32)], target: f64) -> u32 {
    let mut sum = 0.0;
    let hit = candidates.iter().find(|&&(_, weight)| {
        sum += f64::from(weight);
        target < sum
    });
    // Rounding can leave the target a hair beyond the sum: then it is the last candidate that has any weight.
    let last = || candidates.iter().rev().find(|&&(_, weight)| weight > 0.0);
    hit.or_else(last).map_or(0, |&(id, _)| id)
}

/// Draws from the whole vocabulary in order of id: first the run, then the token in it.
pub(super) fn draw_dense(weights: &[f32], run_sums: &[f32], random: f64) -> u32 {
    let (run, target) = draw_from_sums(run_sums, random);
    let start = run * RUN;
    start as u32 + draw_run(&weights[start..], target)
}

/// The run that a draw falls into, and how far into it.
pub(super) fn draw_from_sums(run_sums: &[f32], random: f64) -> (usize, f64) {
    let mut target = random * total(run_sums);
    let mut last = 0;
    for (run, &run_sum) in run_sums.iter().enumerate() {
        if run_sum == 0.0 {
            continue;
        }
        if target >= f64::from(run_sum) {
            target -= f64::from(run_sum);
            last = run;
            continue;
        }
        return (run, target);
    }
    (last, f64::INFINITY)
}

/// The token at `target` among the first run of `weights`.
pub(super) fn draw_run(weights: &[f32], target: f64) -> u32 {
    let mut sum = 0.0;
    let mut last = 0;
    for (offset, &weight) in weights.iter().take(RUN).enumerate() {
        sum += f64::from(weight);
        if weight > 0.0 {
            last = offset as u32;
        }
        if target < sum {
            break;
        }
    }
    last
}

//! Passes over a row of logits, written so that the compiler vectorises them.

pub(super) use model::shortlist::{RUN, exp, weight};

use model::shortlist::sum;

const LANES: usize = 16;

/// The largest entry, or `None` when an entry is not a number or nothing finite is largest.
pub(super) fn max(row: &[f32]) -> Option<f32> {
    let mut largest = [f32::NEG_INFINITY; LANES];
    let mut broken = [false; LANES];
    let mut visit = |run: &[f32]| {
        for ((largest, broken), &x) in largest.iter_mut().zip(&mut broken).zip(run) {
            *largest = if x > *largest { x } else { *largest };
            *broken |= x.is_nan();
        }
    };
    let (runs, rest) = row.as_chunks::<LANES>();
    runs.iter().for_each(|run| visit(run));
    visit(rest);
    let largest = largest.into_iter().fold(f32::NEG_INFINITY, f32::max);
    (largest.is_finite() && !broken.contains(&true)).then_some(largest)
}

/// Index of the first entry equal to `value`, which is in the row.
pub(super) fn first_equal(row: &[f32], value: f32) -> u32 {
    let run = row.chunks(RUN).position(|run| run.iter().fold(false, |found, &x| found | (x == value)));
    let start = run.unwrap_or(0) * RUN;
    let offset = row[start..].iter().position(|&x| x == value);
    (start + offset.unwrap_or(0)) as u32
}

/// Fills `weights` with `exp((logit - max) / temperature)`, zero where that is below `floor`, and `run_sums` with the
/// sum of each run of them.
pub(super) fn weigh(
    row: &[f32],
    max: f32,
    temperature: f32,
    floor: f32,
    weights: &mut Vec<f32>,
    run_sums: &mut Vec<f32>,
) {
    weights.clear();
    run_sums.clear();
    let inverse = 1.0 / temperature;
    weights.extend(row.iter().map(|&logit| weight(logit, max, inverse, floor)));
    run_sums.extend(weights.chunks(RUN).map(sum));
}

/// The sum of all runs.
pub(super) fn total(run_sums: &[f32]) -> f64 {
    run_sums.iter().map(|&sum| f64::from(sum)).sum()
}

/// `ln(sum(exp(row)))`, or `None` when an entry is not a number.
pub(super) fn log_sum_exp(row: &[f32]) -> Option<f32> {
    let max = max(row)?;
    let mut buffer = [0.0; RUN];
    let sum: f64 = row
        .chunks(RUN)
        .map(|run| {
            let weights = &mut buffer[..run.len()];
            weights.iter_mut().zip(run).for_each(|(weight, &logit)| *weight = exp(logit - max));
            f64::from(sum(weights))
        })
        .sum();
    Some(max + sum.ln() as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn max_sees_every_entry() {
        for length in [1, 15, 16, 17, 300] {
            for at in 0..length {
                let mut row = vec![-1.0; length];
                row[at] = 2.0;
                assert_eq!(max(&row), Some(2.0));
                assert_eq!(first_equal(&row, 2.0), at as u32);
                row[at] = f32::NAN;
                assert_eq!(max(&row), None);
                row[at] = f32::INFINITY;
                assert_eq!(max(&row), None);
            }
        }
        assert_eq!(max(&[f32::NEG_INFINITY; 20]), None);
        assert_eq!(max(&[f32::NEG_INFINITY, 1.0]), Some(1.0));
    }

    #[test]
    fn log_sum_exp_matches_the_definition() {
        let row: Vec<f32> = (0..1000).map(|i| ((i * 37) % 101) as f32 / 7.0 - 5.0).collect();
        let exact = row.iter().map(|&x| f64::from(x).exp()).sum::<f64>().ln();
        assert!((f64::from(log_sum_exp(&row).unwrap()) - exact).abs() < 1e-5);
    }
}

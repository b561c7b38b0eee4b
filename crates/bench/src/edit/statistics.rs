//! Ratios of pairs, and how sure they are.

use kernels::cases::Random;

use super::turns::{Slice, Step};
use crate::report::median;

/// How often pairs are drawn again for an interval.
const RESAMPLES: usize = 2000;
/// Steps of one row around a step that say how fast the machine was at that time.
const AROUND: usize = 8;

/// A figure and the interval that holds it in 95 of 100 cases.
pub struct Estimate {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

/// How many times faster the second side was, all pairs together: plain seconds per token by drafted seconds per token.
pub fn of_totals(pairs: &[[Slice; 2]]) -> f64 {
    let per_token = |side: usize| {
        let seconds: f64 = pairs.iter().map(|pair| pair[side].seconds).sum();
        seconds / pairs.iter().map(|pair| pair[side].tokens).sum::<usize>() as f64
    };
    per_token(0) / per_token(1)
}

/// The same pair by pair, and of those the middle one: blind to the few pairs in which something else ran, and to
/// the few in which drafting gained much or lost much.
pub fn of_medians(pairs: &[[Slice; 2]]) -> f64 {
    let ratios: Vec<f64> = pairs.iter().map(|pair| of_totals(std::slice::from_ref(pair))).collect();
    median(&ratios)
}

/// A figure of pairs with its interval: the figure of as many pairs drawn from them, with repetition, many times
/// (the percentile bootstrap).
pub fn estimate(pairs: &[[Slice; 2]], figure: fn(&[[Slice; 2]]) -> f64) -> Estimate {
    let mut random = Random(1);
    let mut drawn = Vec::with_capacity(pairs.len());
    let mut figures: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            drawn.clear();
            drawn.extend((0..pairs.len()).map(|_| pairs[(random.next_u64() % pairs.len() as u64) as usize]));
            figure(&drawn)
        })
        .collect();
    figures.sort_by(f64::total_cmp);
    let at = |share: f64| figures[(share * (RESAMPLES - 1) as f64).round() as usize];
    Estimate { value: figure(pairs), low: at(0.025), high: at(0.975) }
}

/// What steps cost by their number of rows, in steps of one row at about the same time, or of `single_seconds` where an
/// answer has none; and how often each was seen.
pub fn costs(answers: &[&[Step]], single_seconds: f64) -> Vec<(usize, f64, usize)> {
    let relative = answers.iter().flat_map(|steps| relative_costs(steps, single_seconds));
    let mut relative: Vec<(usize, f64)> = relative.collect();
    relative.sort_by_key(|&(rows, _)| rows);
    let of_rows = |same: &[(usize, f64)]| {
        let costs: Vec<f64> = same.iter().map(|&(_, cost)| cost).collect();
        (same[0].0, median(&costs), same.len())
    };
    relative.chunk_by(|a, b| a.0 == b.0).map(of_rows).collect()
}

fn relative_costs(steps: &[Step], single_seconds: f64) -> Vec<(usize, f64)> {
    let mut relative = Vec::new();
    for (index, step) in steps.iter().enumerate().filter(|(_, step)| step.rows > 1) {
        let single = |step: &&Step| step.rows == 1;
        let before = steps[..index].iter().rev().filter(single).take(AROUND / 2);
        let behind = steps[index + 1..].iter().filter(single).take(AROUND / 2);
        let around: Vec<f64> = before.chain(behind).map(|step| step.seconds).collect();
        let single_seconds = if around.is_empty() { single_seconds } else { median(&around) };
        relative.push((step.rows, step.seconds / single_seconds));
    }
    relative
}

/// Seconds per token that counting gives: each step at the median cost of its number of rows, and each at the median of
/// what the engine does between two steps. No noise of the machine is left in it but in those medians.
pub fn counted(answers: &[&[Step]], costs: &[(usize, f64, usize)], single_seconds: f64) -> f64 {
    let cost = |rows: usize| costs.iter().find(|cost| cost.0 == rows).map_or(1.0, |cost| cost.1);
    let host = host_seconds(answers);
    let (mut seconds, mut tokens) = (0.0, 0);
    for steps in answers {
        // What the last step gave is not known.
        let Some((last, steps)) = steps.split_last() else { continue };
        tokens += steps.first().map_or(0, |first| last.position - first.position);
        seconds += steps.iter().map(|step| cost(step.rows) * single_seconds + host).sum::<f64>();
    }
    seconds / tokens as f64
}

/// What the engine does between two steps, in the median.
pub fn host_seconds(answers: &[&[Step]]) -> f64 {
    let steps = answers.iter().copied().flatten();
    median(&steps.filter_map(|step| step.host_seconds).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pairs on a machine whose speed wanders by half, where the second side needs `times` the seconds.
    fn pairs(times: f64) -> Vec<[Slice; 2]> {
        let mut random = Random(7);
        let mut noise = || 1.0 + 0.05 * ((random.next_u64() % 1000) as f64 / 500.0 - 1.0);
        let slice = |seconds: f64| Slice { tokens: 10, seconds };
        (0..200)
            .map(|turn| {
                let speed = 1.0 + 0.5 * (f64::from(turn) / 17.0).sin();
                [slice(speed * noise()), slice(speed * times * noise())]
            })
            .collect()
    }

    #[test]
    fn an_interval_tells_two_percent_apart_on_a_machine_that_wanders_by_half() {
        for figure in [of_totals, of_medians] {
            let same = estimate(&pairs(1.0), figure);
            assert!(same.low < 1.0 && same.high > 1.0 && same.high - same.low < 0.03, "{} {}", same.low, same.high);
            let slower = estimate(&pairs(1.04), figure);
            assert!(slower.high < 0.98 && slower.low < slower.value && slower.value < slower.high);
        }
    }

    #[test]
    fn counting_sees_through_a_machine_that_slows_down() {
        // Every tenth step has three rows, costs 1.4 and gives two tokens; the machine gets slower all the time.
        let mut position = 100;
        let steps: Vec<Step> = (0..400)
            .map(|index| {
                let rows = if index % 10 == 5 { 3 } else { 1 };
                let seconds = 0.03 * (1.0 + f64::from(index) / 400.0) * if rows == 3 { 1.4 } else { 1.0 };
                let step = Step { position, rows, seconds, host_seconds: (index % 12 > 0).then_some(0.0001) };
                position += if rows == 3 { 2 } else { 1 };
                step
            })
            .collect();
        let costs = costs(&[&steps], 0.03);
        assert!(costs.len() == 1 && costs[0].0 == 3 && (costs[0].1 - 1.4).abs() < 0.01, "{costs:?}");
        let seconds = counted(&[&steps], &costs, 0.03);
        let want = (0.9 * 0.03 + 0.1 * 0.042 + 0.0001) / 1.1;
        assert!((seconds / want - 1.0).abs() < 0.01, "{seconds} {want}");
        let long: Vec<Step> = steps.iter().copied().filter(|step| step.rows > 1).collect();
        assert!(super::costs(&[&long], 0.03)[0].1 > 1.4, "also where no step has one row");
    }
}

//! Rotary position encoding, with linear and YaRN stretching.
//!
//! Angles are computed once per row of a step and used by every layer.

use crate::config::{Pairs, RopeConfig, Scaling};

/// The frequencies of a model, ready for use.
pub struct Rope {
    dimensions: usize,
    pairs: Pairs,
    /// Angle per position for each pair.
    frequencies: Vec<f32>,
    /// Length of the rotated vector relative to the original (YaRN's temperature).
    magnitude: f32,
}

impl Rope {
    /// Prepares the frequencies. `factors`, where a file has them, divide the frequency of each pair (Llama 3).
    pub fn new(config: &RopeConfig, factors: Option<&[f32]>) -> Rope {
        let n = config.dimensions;
        let plain = |i: usize| {
            let frequency = f64::from(config.base).powf(-2.0 * i as f64 / n as f64) as f32;
            frequency / factors.and_then(|f| f.get(i)).copied().unwrap_or(1.0)
        };
        let (frequencies, magnitude) = match config.scaling {
            Scaling::None => ((0..n / 2).map(plain).collect(), 1.0),
            Scaling::Linear { factor } => ((0..n / 2).map(|i| plain(i) / factor).collect(), 1.0),
            Scaling::Yarn { factor, original, turns, log_multiplier } => {
                let kept = |i| yarn_kept(i, n, config.base, original, turns);
                let mix = |i| plain(i) / factor * (1.0 - kept(i)) + plain(i) * kept(i);
                let longer = 0.1 * factor.ln();
                ((0..n / 2).map(mix).collect(), (1.0 + longer) / (1.0 + longer * log_multiplier))
            }
        };
        Rope { dimensions: n, pairs: config.pairs, frequencies, magnitude }
    }

    /// Floats of one row of angles.
    pub fn angles(&self) -> usize {
        self.dimensions
    }

    /// Writes the cosines, then the sines, of a position.
    pub fn fill(&self, position: usize, angles: &mut [f32]) {
        let (cosines, sines) = angles.split_at_mut(self.dimensions / 2);
        for ((c, s), f) in cosines.iter_mut().zip(sines).zip(&self.frequencies) {
            let (sine, cosine) = (position as f32 * f).sin_cos();
            (*c, *s) = (cosine * self.magnitude, sine * self.magnitude);
        }
    }

    /// Rotates every head of a row in place and multiplies it by `scale`.
    pub fn rotate(&self, row: &mut [f32], head: usize, angles: &[f32], scale: f32) {
        let (cosines, sines) = angles.split_at(self.dimensions / 2);
        for x in row.chunks_exact_mut(head) {
            match self.pairs {
                Pairs::Halves => {
                    let (first, second) = x[..self.dimensions].split_at_mut(self.dimensions / 2);
                    for (((a, b), c), s) in first.iter_mut().zip(second).zip(cosines).zip(sines) {
                        (*a, *b) = ((*a * c - *b * s) * scale, (*a * s + *b * c) * scale);
                    }
                }
                Pairs::Neighbours => {
                    for ((pair, c), s) in x[..self.dimensions].chunks_exact_mut(2).zip(cosines).zip(sines) {
                        let (a, b) = (pair[0], pair[1]);
                        (pair[0], pair[1]) = ((a * c - b * s) * scale, (a * s + b * c) * scale);
                    }
                }
            }
            x[self.dimensions..].iter_mut().for_each(|x| *x *= scale);
        }
    }
}

/// Share of pair `i`'s own frequency that YaRN keeps: one for fast pairs, zero for slow ones.
///
/// A pair that turns often (32 times, where the file does not say) within the trained length is fast, one that turns less
/// than once is slow.
fn yarn_kept(i: usize, dimensions: usize, base: f32, original: usize, (fast, slow): (f32, f32)) -> f32 {
    let pair_with_turns = |turns: f32| {
        dimensions as f32 * (original as f32 / (turns * 2.0 * std::f32::consts::PI)).ln() / (2.0 * base.ln())
    };
    let low = pair_with_turns(fast).floor().max(0.0);
    let high = pair_with_turns(slow).ceil().min(dimensions as f32 - 1.0);
    1.0 - ((i as f32 - low) / (high - low).max(0.001)).clamp(0.0, 1.0)
}

//! Products straight from packed weights, and many rows through experts.

use super::{Outcome, Test, dequantised, different, in_halves};
use crate::arguments::*;
use crate::error::Error;
use crate::launch::visit_tiles;
use crate::memory::{Buffer, Matrix};
use kernels::cases::{floats, random_weights};
use kernels::{Format, Shape};

/// Experts, and how many a row visits.
const EXPERTS: (usize, usize) = (5, 2);

impl Test<'_> {
    /// Products of packed weights have the bits of expanded ones, which are `expected`, for every number of strips and in wide tiles.
    pub(super) fn packed(
        &self,
        matrix: &Matrix,
        input: &Buffer<u16>,
        expected: &Buffer<f32>,
        outcomes: &mut Vec<Outcome>,
    ) -> Result<(), Error> {
        let n = matrix.rows;
        let all = expected.len() / n;
        let found = Buffer::new(self.device, &vec![f32::NAN; expected.len()])?;
        let mut first = 0;
        for rows in [20, 1, 50, 79, 129, all - 279] {
            self.kernels.gemm_packed(&GemmPackedCall {
                parts: &[Part { matrix, bias: None, output: 0 }],
                input: input.part(first * matrix.columns..input.len()),
                rows,
                then: GemmPackedThen::Store(found.part(first * n..found.len())),
                stride: n,
                visits: None,
                cuts: 1,
            })?;
            first += rows;
        }
        let name = format!("packed {:?} {all} x {n} x {}", matrix.format, matrix.columns);
        outcomes.push(Outcome { name, error: different(expected, &found)? as f32, bound: 0.0 });
        Ok(())
    }

    /// Rows cut into parts whose results are added up.
    pub(super) fn cuts(
        &self,
        matrix: &Matrix,
        input: &Buffer<u16>,
        expected: &[f32],
        outcomes: &mut Vec<Outcome>,
    ) -> Result<(), Error> {
        let (n, cuts) = (matrix.rows, 2);
        let rows = expected.len() / n;
        let parts = Buffer::new(self.device, &vec![f32::NAN; rows * cuts * n])?;
        let found = Buffer::new(self.device, &vec![f32::NAN; rows * n])?;
        self.kernels.gemm_packed(&GemmPackedCall {
            parts: &[Part { matrix, bias: None, output: 0 }],
            input: input.all(),
            rows,
            then: GemmPackedThen::Store(parts.all()),
            stride: n,
            visits: None,
            cuts,
        })?;
        let (parts, x) = (parts.all(), found.all());
        self.kernels.add_parts(&AddPartsCall { parts, rows, each: cuts, shares: None, x, anew: true })?;
        let name = format!("packed in {cuts} parts {:?} {rows} x {n} x {}", matrix.format, matrix.columns);
        self.compare(name, &found, expected, 1e-3, outcomes)
    }

    /// Rows through experts, against each row alone through those it should visit.
    pub(super) fn visits(&self, outcomes: &mut Vec<Outcome>) -> Result<(), Error> {
        let formats = [Format::Q4_K, Format::Q6_K, Format::Q5_0];
        for format in formats.into_iter().filter(|format| self.options.formats.contains(format)) {
            for rows in [1, 40, 330] {
                self.visits_of(format, rows, outcomes)?;
            }
        }
        Ok(())
    }

    fn visits_of(&self, format: Format, rows: usize, outcomes: &mut Vec<Outcome>) -> Result<(), Error> {
        let (device, (count, used), (width, ff)) = (self.device, EXPERTS, (256, 256));
        let stack = |rows: usize, columns, seed| -> Result<(Matrix, Vec<f32>), Error> {
            let shape = Shape { format, rows: count * rows, columns };
            let source = random_weights(shape, seed);
            Ok((Matrix::new(device, shape, &source)?, dequantised(shape, &source)))
        };
        let ((gate, gates), (up, ups), (down, downs)) =
            (stack(ff, width, 1)?, stack(ff, width, 2)?, stack(width, ff, 3)?);
        // What the experts say is small, and what it is added to is no larger.
        let normed = floats(5, rows * width);
        let x: Vec<f32> = floats(4, rows * width).into_iter().map(|x| 0.01 * x).collect();
        // The last expert is rarely visited, so that one of them is not at all where there are few rows.
        let mut scores = floats(6, rows * count);
        scores.chunks_exact_mut(count).for_each(|row| row[count - 1] -= 1.0);
        let mut expected = x.clone();
        for row in 0..rows {
            let input = &normed[row * width..][..width];
            for (expert, share) in chosen(&scores[row * count..][..count], used) {
                let dot = |matrix: &[f32], n: usize, input: &[f32]| -> f32 {
                    matrix[n * input.len()..].iter().zip(input).map(|(w, x)| w * x).sum()
                };
                let gated = |n: usize| {
                    let gate = dot(&gates, expert * ff + n, input);
                    gate / (1.0 + (-gate).exp()) * dot(&ups, expert * ff + n, input)
                };
                let gated: Vec<f32> = (0..ff).map(gated).collect();
                for (n, out) in expected[row * width..][..width].iter_mut().enumerate() {
                    *out += share * dot(&downs, expert * width + n, &gated);
                }
            }
        }
        let (input, x, scores) =
            (Buffer::new(device, &in_halves(&normed))?, Buffer::new(device, &x)?, Buffer::new(device, &scores)?);
        let visits = rows * used;
        let (chosen, slots) = (Buffer::zeroed(device, visits)?, Buffer::zeroed(device, visits)?);
        let shares = Buffer::zeroed(device, visits)?;
        let tiles = Buffer::zeroed(device, visit_tiles(visits, count))?;
        let (gated, outputs) =
            (Buffer::zeroed(device, visits * ff)?, Buffer::new(device, &vec![f32::NAN; visits * width])?);
        let call = ExpertRowsCall {
            rows,
            count,
            used,
            scores: (scores.all(), 1),
            chosen: chosen.all(),
            shares: shares.all(),
            slots: slots.all(),
            tiles: tiles.all(),
        };
        self.kernels.expert_rows(&call)?;
        let product = |matrix, input, then, stride| {
            let parts = &[Part { matrix, bias: None, output: 0 }];
            self.kernels.gemm_packed(&GemmPackedCall {
                parts,
                input,
                rows: visits,
                then,
                stride,
                visits: Some(&call),
                cuts: 1,
            })
        };
        product(&gate, input.all(), GemmPackedThen::Gate(&up, gated.all()), ff)?;
        product(&down, gated.all(), GemmPackedThen::Store(outputs.all()), width)?;
        let (parts, shares) = (outputs.all(), Some(shares.all()));
        self.kernels.add_parts(&AddPartsCall { parts, rows, each: used, shares, x: x.all(), anew: false })?;
        self.compare(format!("{rows} rows through experts {format:?}"), &x, &expected, 2e-3, outcomes)
    }
}

/// The experts with the highest scores, in the order of their numbers, and their shares.
fn chosen(scores: &[f32], used: usize) -> Vec<(usize, f32)> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
    order.truncate(used);
    order.sort_unstable();
    let all: f32 = order.iter().map(|&e| scores[e].exp()).sum();
    order.into_iter().map(|e| (e, scores[e].exp() / all)).collect()
}

//! Products with matrices of floats: against the CPU's, which are not rounded, and against each other for any number of rows.

use super::{Outcome, Test};
use crate::arguments::*;
use crate::error::Error;
use crate::memory::{Buffer, Matrix};
use kernels::cases::{Case, floats, random_weights};
use kernels::{Format, Runtime, Shape};

/// Most rows of a product.
const ROWS: usize = 32;
/// Sixteen bits of the input are kept with brain floats.
const BOUND: f32 = 2e-5;
/// Far beyond what a half can hold.
const FACTOR: f32 = (1 << 20) as f32;

impl Test<'_> {
    /// All kinds of products with matrices of one format.
    pub(super) fn floats(
        &self,
        format: Format,
        oracle: &mut Runtime,
        outcomes: &mut Vec<Outcome>,
    ) -> Result<(), Error> {
        for (rows, columns) in [(40, 256), (48, 96), (33, 104), (1000, 1536), (96, 8960)] {
            let shape = Shape { format, rows, columns };
            let matrix = Matrix::new(self.device, shape, &random_weights(shape, 3))?;
            let input = floats(4, ROWS * columns);
            let all = self.multiplied(&matrix, &input, ROWS, Then::Store)?;
            for batch in [1, 3, 9, ROWS] {
                let case = Case::Matmul { shape, batch };
                let expected = case.prepare(oracle)(oracle);
                let found = self.multiplied(&matrix, &input, batch, Then::Store)?;
                self.compare(format!("floats {case:?}"), &found, &expected, BOUND, outcomes)?;
                let name = format!("floats {format:?} {rows} x {columns}, {batch} of {ROWS} rows");
                outcomes.push(Outcome { name, error: different(&found, &all, 1.0)?, bound: 0.0 });
            }
            let large: Vec<f32> = input.iter().map(|x| x * FACTOR).collect();
            let found = self.multiplied(&matrix, &large, ROWS, Then::Store)?;
            let name = format!("floats {format:?} {rows} x {columns}, large numbers");
            outcomes.push(Outcome { name, error: different(&found, &all, FACTOR)?, bound: 0.0 });
            self.gated(shape, &matrix, &input, &all, outcomes)?;
        }
        self.float_picks(format, outcomes)
    }

    fn multiplied(&self, matrix: &Matrix, input: &[f32], rows: usize, then: Then<'_>) -> Result<Buffer<f32>, Error> {
        let (device, columns) = (self.device, matrix.columns);
        let output = Buffer::new(device, &vec![f32::NAN; rows * matrix.rows])?;
        self.kernels.floats(&FloatsCall {
            parts: &[Part { matrix, bias: None, output: 0 }],
            rows,
            input: Buffer::new(device, &input[..rows * columns])?.all(),
            ready: Buffer::zeroed(device, 2 * rows * columns)?.all(),
            scales: Buffer::zeroed(device, rows)?.all(),
            output: output.all(),
            stride: matrix.rows,
            then,
        })?;
        Ok(output)
    }

    /// A gate and its up, from the products of each alone.
    fn gated(
        &self,
        shape: Shape,
        gate: &Matrix,
        input: &[f32],
        gates: &Buffer<f32>,
        outcomes: &mut Vec<Outcome>,
    ) -> Result<(), Error> {
        let up = Matrix::new(self.device, shape, &random_weights(shape, 9))?;
        let gates = values(gates)?;
        let ups = values(&self.multiplied(&up, input, ROWS, Then::Store)?)?;
        let expected: Vec<f32> = gates.iter().zip(&ups).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
        let found = self.multiplied(gate, input, ROWS, Then::Gate(&up))?;
        self.compare(format!("gate of floats {shape:?}"), &found, &expected, 1e-5, outcomes)
    }

    /// Logits, and the first of the best ones in every row.
    fn float_picks(&self, format: Format, outcomes: &mut Vec<Outcome>) -> Result<(), Error> {
        const VOCAB: usize = 3000;
        let (device, kernels) = (self.device, &self.kernels);
        let shape = Shape { format, rows: VOCAB, columns: 256 };
        let matrix = Matrix::new(device, shape, &random_weights(shape, 3))?;
        let input = floats(4, 5 * 256);
        let candidates = Buffer::zeroed(device, 5 * kernels.candidates(VOCAB))?;
        let logits = values(&self.multiplied(&matrix, &input, 5, Then::Logits(candidates.all()))?)?;
        self.best(format.name(), &logits, VOCAB, &candidates, outcomes)
    }
}

fn values(buffer: &Buffer<f32>) -> Result<Vec<f32>, Error> {
    let mut values = vec![0.0; buffer.len()];
    buffer.read(0, &mut values)?;
    Ok(values)
}

/// How many of the values are not exactly `factor` times the first of the others.
fn different(found: &Buffer<f32>, all: &Buffer<f32>, factor: f32) -> Result<f32, Error> {
    let (found, all) = (values(found)?, values(all)?);
    Ok(found.iter().zip(&all).filter(|(a, b)| **a != **b * factor).count() as f32)
}

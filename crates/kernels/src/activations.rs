//! Activations, quantised once and used by every matrix that reads them.
//!
//! Rows of floats go in; next to them stand 8-bit forms with one scale per 32 or per 256 elements, and the sums that the
//! offsets and minimums of the weight formats need. Scales and rounding are those llama.cpp uses, so that two engines
//! running the same file differ only in the order of additions.

use crate::format::{Precision, SMALL, SUPER};
use crate::memory::{Buffer, Number};
use half::f16;

/// A batch of activation rows and their quantised forms.
pub struct Activations {
    /// Row length.
    pub columns: usize,
    /// `rows x columns` floats: the producer writes here, then calls for quantisation.
    pub values: Buffer<f32>,
    pub(crate) small: Quantised,
    pub(crate) wide: Quantised,
}

/// The 8-bit form of all rows.
#[derive(Default)]
pub(crate) struct Quantised {
    /// `rows x columns`.
    pub(crate) quants: Buffer<i8>,
    /// One scale per block, `rows x columns / block`.
    pub(crate) scales: Buffer<f32>,
    /// Small blocks: minus the sum of each. K formats: minus 32 times the sum of each 16, which is the offset of Q6_K.
    pub(crate) negated_sums: Buffer<i32>,
    /// Small blocks: scale times sum, as the `_1` formats multiply their minimum with.
    pub(crate) scaled_sums: Buffer<f32>,
    /// K formats: sums of 16 and of 32 elements, as pairs for a 16-bit dot product.
    pub(crate) sums_16: Buffer<i16>,
    pub(crate) sums_32: Buffer<i16>,
}

/// One row of [`Quantised`], for writing.
pub(crate) struct QuantisedRow<'a> {
    pub(crate) quants: &'a mut [i8],
    pub(crate) scales: &'a mut [f32],
    pub(crate) negated_sums: &'a mut [i32],
    pub(crate) scaled_sums: &'a mut [f32],
    pub(crate) sums_16: &'a mut [i16],
    pub(crate) sums_32: &'a mut [i16],
}

impl Activations {
    /// Room for `rows` rows. `columns` that are no multiple of a block simply cannot be quantised to it.
    pub fn new(rows: usize, columns: usize) -> Activations {
        let values = Buffer::new(rows * columns);
        let (n, mut small, mut wide) = (rows * columns, Quantised::default(), Quantised::default());
        if columns.is_multiple_of(SMALL) {
            small.quants = Buffer::new(n);
            small.scales = Buffer::new(n / SMALL);
            small.negated_sums = Buffer::new(n / SMALL);
            small.scaled_sums = Buffer::new(n / SMALL);
        }
        if columns.is_multiple_of(SUPER) {
            wide.quants = Buffer::new(n);
            wide.scales = Buffer::new(n / SUPER);
            wide.negated_sums = Buffer::new(n / 16);
            wide.sums_16 = Buffer::new(n / 16);
            wide.sums_32 = Buffer::new(n / 32);
        }
        Activations { columns, values, small, wide }
    }

    /// One row of floats.
    pub fn row(&self, row: usize) -> &[f32] {
        &self.values[row * self.columns..][..self.columns]
    }

    /// One row of floats, for writing.
    pub fn row_mut(&mut self, row: usize) -> &mut [f32] {
        &mut self.values[row * self.columns..][..self.columns]
    }

    /// What the quantised row stands for: used by the reference product and by tests.
    pub fn dequantized(&self, row: usize, precision: Precision) -> Vec<f32> {
        let (form, block) = match precision {
            Precision::Float => return self.row(row).to_vec(),
            Precision::Small => (&self.small, SMALL),
            Precision::Super => (&self.wide, SUPER),
        };
        let quants = &form.quants[row * self.columns..][..self.columns];
        let scales = &form.scales[row * self.columns / block..];
        quants.iter().enumerate().map(|(i, &q)| f32::from(q) * scales[i / block]).collect()
    }
}

impl Quantised {
    /// Splits off the rows one by one.
    pub(crate) fn row(&mut self, row: usize, columns: usize) -> QuantisedRow<'_> {
        fn part<T: Number>(all: &mut Buffer<T>, row: usize, length: usize) -> &mut [T] {
            if all.is_empty() { &mut [] } else { &mut all[row * length..][..length] }
        }
        let block = if self.sums_16.is_empty() { SMALL } else { SUPER };
        let group = if self.sums_16.is_empty() { 32 } else { 16 };
        QuantisedRow {
            quants: part(&mut self.quants, row, columns),
            scales: part(&mut self.scales, row, columns / block),
            negated_sums: part(&mut self.negated_sums, row, columns / group),
            scaled_sums: part(&mut self.scaled_sums, row, columns / block),
            sums_16: part(&mut self.sums_16, row, columns / 16),
            sums_32: part(&mut self.sums_32, row, columns / 32),
        }
    }
}

/// Quantises one row with one scale per 32 elements; the scale is rounded to half precision, as in files.
pub(crate) fn quantize_small(values: &[f32], row: &mut QuantisedRow<'_>) {
    for (b, block) in values.chunks_exact(SMALL).enumerate() {
        let largest = block.iter().fold(0.0f32, |m, x| m.max(x.abs()));
        let inverse = if largest == 0.0 { 0.0 } else { 127.0 / largest };
        let quants = &mut row.quants[b * SMALL..][..SMALL];
        for (q, x) in quants.iter_mut().zip(block) {
            *q = (x * inverse).round_ties_even() as i8;
        }
        let sum: i32 = quants.iter().map(|&q| i32::from(q)).sum();
        finish_small(largest, sum, b, row);
    }
}

/// The scale and sums of block `b`, from its largest magnitude and the sum of its quants.
#[inline(always)]
pub(crate) fn finish_small(largest: f32, sum: i32, b: usize, row: &mut QuantisedRow<'_>) {
    let scale = largest / 127.0;
    row.scales[b] = f16::from_f32(scale).to_f32();
    row.negated_sums[b] = -sum;
    row.scaled_sums[b] = f16::from_f32(scale * sum as f32).to_f32();
}

/// Quantises one row with one scale per 256 elements.
pub(crate) fn quantize_super(values: &[f32], row: &mut QuantisedRow<'_>) {
    for (b, block) in values.chunks_exact(SUPER).enumerate() {
        let largest = block.iter().fold(0.0f32, |m, x| m.max(x.abs()));
        let inverse = if largest == 0.0 { 0.0 } else { 127.0 / largest };
        row.scales[b] = if largest == 0.0 { 0.0 } else { 1.0 / inverse };
        let quants = &mut row.quants[b * SUPER..][..SUPER];
        for (q, x) in quants.iter_mut().zip(block) {
            *q = (x * inverse).round_ties_even() as i8;
        }
        for g in b * 16..(b + 1) * 16 {
            let sum = row.quants[g * 16..][..16].iter().map(|&q| i32::from(q)).sum();
            set_sum_16(g, sum, row);
        }
    }
}

/// Records the sum of sixteen quants in the three forms the kernels read.
#[inline(always)]
pub(crate) fn set_sum_16(g: usize, sum: i32, row: &mut QuantisedRow<'_>) {
    row.negated_sums[g] = -32 * sum;
    row.sums_16[g] = sum as i16;
    let both = if g.is_multiple_of(2) { sum as i16 } else { row.sums_32[g / 2] + sum as i16 };
    row.sums_32[g / 2] = both;
}

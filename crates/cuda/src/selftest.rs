//! Every kernel against its oracle on the CPU, over tables of cases: what `flint selftest --device cuda` runs.
//!
//! Weights and inputs are those of `kernels::cases`, so the oracle is the very code the CPU kernels are tested against.
//! Bounds are of the normalised error `|a - b| / |b|`. Products quantise as the CPU does and differ in the order of a few
//! float additions; half-precision products and weights of attention round to 11 bits.

mod attention;
mod delta;
mod expert_rows;
mod floats;
mod shortlist;

use crate::arguments::*;
use crate::error::Error;
use crate::launch::{Kernels, KernelsOptions, PICK_RING, PICK_ROWS_MAX, quantised_bytes};
use crate::memory::{Buffer, Mailbox, Matrix};
use crate::{Device, pack};
use half::f16;
use kernels::cases::{Case, floats, normalised_error, random_weights};
use kernels::{Format, Runtime, Shape};

/// Rows for each multiprocessor with which the partial sums of 2,560 columns are no longer kept apart.
const MANY_ROWS: usize = 272;

/// Head, heads and KV heads where they do not matter: those of the 1.5B.
const HEADS: (usize, usize, usize) = (128, 12, 2);
/// Long ones.
const LONG_HEADS: (usize, usize, usize) = (256, 8, 1);

/// How one case went.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What was compared.
    pub name: String,
    /// `|a - b| / |b|`.
    pub error: f32,
    /// What is allowed.
    pub bound: f32,
}

impl Outcome {
    /// Whether the case passed.
    pub fn passed(&self) -> bool {
        self.error <= self.bound
    }
}

/// Which cases are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cases {
    /// All of them.
    All,
    /// Every kernel and format, over small shapes: what a race checker, which is a thousand times slower, gets through in minutes.
    Small,
}

/// Runs cases on a card.
pub fn selftest(device: &Device, cases: Cases) -> Result<Vec<Outcome>, Error> {
    let mut outcomes = Vec::new();
    let mut oracle = Runtime::new(kernels::Kernels::reference(), 1);
    let (floats, quantised) = formats();
    let shapes = [(128, 12, 2), (64, 14, 2), (64, 9, 3), (80, 4, 4), (128, 32, 2), LONG_HEADS, (256, 24, 4)];
    let in_8_bits = [(128, 12, 2), (64, 9, 3), (80, 4, 4), LONG_HEADS].map(|heads| (heads, true));
    let all = shapes.map(|heads| (heads, false)).into_iter().chain(in_8_bits);
    for (heads, kv8) in all.filter(|&(heads, _)| cases == Cases::All || heads == HEADS || heads == LONG_HEADS) {
        let test = Test::new(device, &quantised, heads, kv8, cases)?;
        if outcomes.is_empty() {
            for &format in &quantised {
                test.products(format, &mut oracle, &mut outcomes)?;
                test.prefill(format, &mut outcomes)?;
            }
            test.product_batch_of_all(&mut outcomes)?;
            test.visits(&mut outcomes)?;
            test.picks(&mut outcomes)?;
            test.shortlists(&mut outcomes)?;
            test.delta(&mut outcomes)?;
        }
        for &(depth, queries) in attention::depths(cases) {
            test.attention(depth, queries, &mut oracle, &mut outcomes)?;
        }
    }
    let test = Test::new(device, &floats, HEADS, false, cases)?;
    for &format in &floats {
        test.floats(format, &mut oracle, &mut outcomes)?;
        test.prefill(format, &mut outcomes)?;
    }
    Ok(outcomes)
}

/// Only the products of several rows, which must equal those of one row bit for bit.
pub fn selftest_of_several(device: &Device) -> Result<Vec<Outcome>, Error> {
    let mut outcomes = Vec::new();
    Test::new(device, &formats().1, HEADS, false, Cases::All)?.product_batch_of_all(&mut outcomes)?;
    Ok(outcomes)
}

/// Those of floats, and those that are quantised.
fn formats() -> (Vec<Format>, Vec<Format>) {
    Format::ALL.into_iter().filter(|&format| pack::is_supported(format)).partition(|&format| pack::is_float(format))
}

/// All values of a matrix.
fn dequantised(shape: Shape, source: &[u8]) -> Vec<f32> {
    let Shape { format, rows, columns } = shape;
    let mut values = vec![0.0; rows * columns];
    for (row, out) in source.chunks_exact(format.row_bytes(columns)).zip(values.chunks_exact_mut(columns)) {
        kernels::blocks::dequantize_row(format, row, out);
    }
    values
}

fn in_halves(values: &[f32]) -> Vec<u16> {
    values.iter().map(|&x| f16::from_f32(x).to_bits()).collect()
}

/// Places in which two results are not the same number, bit for bit.
fn different(one: &Buffer<f32>, other: &Buffer<f32>) -> Result<usize, Error> {
    let (mut a, mut b) = (vec![0.0; one.len()], vec![0.0; other.len()]);
    one.read(0, &mut a)?;
    other.read(0, &mut b)?;
    Ok(a.iter().zip(&b).filter(|(a, b)| a.to_bits() != b.to_bits() || a.is_nan()).count())
}

struct Test<'a> {
    device: &'a Device,
    kernels: Kernels,
    options: KernelsOptions,
    cases: Cases,
}

impl<'a> Test<'a> {
    fn new(
        device: &'a Device,
        formats: &[Format],
        (head, heads, kv_heads): (usize, usize, usize),
        kv8: bool,
        cases: Cases,
    ) -> Result<Test<'a>, Error> {
        let (formats, multiprocessors) = (formats.to_vec(), device.facts().multiprocessors as usize);
        let (columns, experts, times, delta) = (0, false, false, true);
        let (shared, gated) = (false, false);
        let options = KernelsOptions {
            formats,
            head,
            heads,
            kv_heads,
            kv8,
            columns,
            experts,
            shared,
            gated,
            delta,
            multiprocessors,
            times,
        };
        Ok(Test { device, kernels: Kernels::new(device, options.clone())?, options, cases })
    }

    fn products(&self, format: Format, oracle: &mut Runtime, outcomes: &mut Vec<Outcome>) -> Result<(), Error> {
        let mut shapes = vec![(40, 256), (48, 768)];
        if self.cases == Cases::All {
            shapes.extend([(1000, 1536), (96, 8960)]);
        }
        if format.block_elements() == 32 {
            shapes.extend([(48, 576), (48, 896), (48, 96)]);
        }
        for (rows, columns) in shapes {
            let shape = Shape { format, rows, columns };
            let matrix = Matrix::new(self.device, shape, &random_weights(shape, 3))?;
            for batch in [1, 3] {
                let case = Case::Matmul { shape, batch };
                let expected = case.prepare(oracle)(oracle);
                let input = Buffer::new(self.device, &floats(4, batch * columns))?;
                let output = Buffer::new(self.device, &vec![f32::NAN; batch * rows])?;
                self.kernels.product(&ProductCall {
                    parts: &[Part { matrix: &matrix, bias: None, output: 0 }],
                    rows: batch,
                    input: input.all(),
                    norm: None,
                    output: output.all(),
                    stride: rows,
                    then: Then::Store,
                })?;
                self.compare(format!("product {case:?}"), &output, &expected, case.bound().max(2e-5), outcomes)?;
            }
        }
        Ok(())
    }

    fn product_batch_of_all(&self, outcomes: &mut Vec<Outcome>) -> Result<(), Error> {
        for &format in &self.options.formats {
            // One slice per super-block; then, with many rows over long columns, one slice in all.
            self.product_batch(format, (512, 768), outcomes)?;
            if self.cases == Cases::All {
                let prefill = self.options.multiprocessors * MANY_ROWS;
                self.product_batch(format, (prefill, 2560), outcomes)?;
            }
            // Rows that end within a super-block, as the smallest models have them.
            if format.block_elements() == 32 {
                self.product_batch(format, (512, 576), outcomes)?;
                self.product_batch(format, (512, 896), outcomes)?;
            }
        }
        Ok(())
    }

    /// Products of several rows, bit for bit as those of one row: logits, then gate, up and down with the residual between.
    fn product_batch(
        &self,
        format: Format,
        (wide, width): (usize, usize),
        outcomes: &mut Vec<Outcome>,
    ) -> Result<(), Error> {
        let (device, kernels) = (self.device, &self.kernels);
        let make = |rows, columns, seed| -> Result<Matrix, Error> {
            let matrix = Matrix::zeroed(device, Shape { format, rows, columns })?;
            kernels.random(&matrix, seed)?;
            Ok(matrix)
        };
        let deep = 5120;
        let (gate, up, down) = (make(wide, width, 1)?, make(wide, width, 2)?, make(width, deep, 3)?);
        let norm = Buffer::new(device, &floats(6, width))?;
        let bias = Buffer::new(device, &floats(7, width))?;
        let squares = Buffer::zeroed(device, 32 * pack::supers(width))?;
        let arrived = Buffer::zeroed(device, 32)?;
        let quantised = Buffer::zeroed(device, quantised_bytes(width))?;
        // A race checker takes its time for every launch, and there is one for each row.
        let rows: &[usize] = match (self.cases, format) {
            (Cases::All, _) => &[2, 8, 13, 21, 32],
            (Cases::Small, Format::Q4_K | Format::Q6_K) => &[21],
            (Cases::Small, _) => &[2],
        };
        for &rows in rows {
            let slot = |len: usize| Buffer::new(device, &vec![f32::NAN; len]);
            let x = floats(5, rows * width);
            let (x_one, x_all) = (Buffer::new(device, &x)?, Buffer::new(device, &x)?);
            let (one, all) = (slot(rows * wide)?, slot(rows * wide)?);
            let (best_one, best_all) = (
                Buffer::zeroed(device, 32 * kernels.candidates(wide))?,
                Buffer::zeroed(device, 32 * kernels.candidates(wide))?,
            );
            let mut check = |what: &str, one: &Buffer<f32>, all: &Buffer<f32>| -> Result<(), Error> {
                let name = format!("product_batch {what} {format:?} {wide} x {width}, {rows} rows");
                outcomes.push(Outcome { name, error: different(one, all)? as f32, bound: 0.0 });
                Ok(())
            };
            let residual_norm_quant = |partial| {
                kernels.residual_norm_quant(&ResidualNormQuantCall {
                    x: x_all.all(),
                    rows,
                    partial,
                    norm: (&norm, 1e-6),
                    squares: squares.all(),
                    arrived: arrived.all(),
                    format,
                    output: quantised.all(),
                    normed: None,
                })
            };
            let parts = [Part { matrix: &gate, bias: None, output: 0 }];
            let product = |parts: &[Part<'_>], input: &Buffer<f32>, norm, output: &Buffer<f32>, stride, then| {
                kernels.product(&ProductCall {
                    parts,
                    rows,
                    input: input.all(),
                    norm,
                    output: output.all(),
                    stride,
                    then,
                })
            };
            let product_batch = |parts: &[Part<'_>], input: Rows<'_>, output: &Buffer<f32>, stride, then| {
                kernels.product_batch(&ProductBatchCall { parts, rows, input, output: output.all(), stride, then })
            };
            let quantised = Rows::Quantised(quantised.all());
            product(&parts, &x_one, Some((&norm, 1e-6)), &one, wide, Then::Logits(best_one.all()))?;
            residual_norm_quant(None)?;
            product_batch(&parts, quantised, &all, wide, Then::Logits(best_all.all()))?;
            check("logits", &one, &all)?;
            product(&parts, &x_one, Some((&norm, 1e-6)), &one, wide, Then::Gate(&up))?;
            product_batch(&parts, quantised, &all, wide, Then::Gate(&up))?;
            check("gate", &one, &all)?;
            let parts = [Part { matrix: &down, bias: Some(bias.all()), output: 0 }];
            let input = Buffer::new(device, &floats(8, rows * deep))?;
            product(&parts, &input, None, &x_one, width, Then::Add)?;
            let sums = slot(pack::supers(deep) * rows * width)?;
            product_batch(&[Part { bias: None, ..parts[0] }], Rows::Plain(input.all()), &sums, width, Then::Add)?;
            residual_norm_quant(Some(Partial {
                sums: sums.all(),
                columns: deep,
                bias: Some(bias.all()),
                visits: None,
            }))?;
            check("down", &x_one, &x_all)?;
        }
        Ok(())
    }

    /// Expanding a matrix and the half-precision product, against plain sums.
    fn prefill(&self, format: Format, outcomes: &mut Vec<Outcome>) -> Result<(), Error> {
        let (m, n, k) = (540, 200, if format.block_elements() == 32 { 576 } else { 512 });
        let shape = Shape { format, rows: n, columns: k };
        let source = random_weights(shape, 3);
        let matrix = Matrix::new(self.device, shape, &source)?;
        let weights = dequantised(shape, &source);
        let x: Vec<f32> = floats(4, m * k);
        let halves = in_halves(&x);
        let expected: Vec<f32> =
            (0..m * n).map(|at| (0..k).map(|c| x[at / n * k + c] * weights[at % n * k + c]).sum::<f32>()).collect();
        let expanded = Buffer::zeroed(self.device, n * k)?;
        let output = Buffer::new(self.device, &vec![f32::NAN; m * n])?;
        let input = Buffer::new(self.device, &halves)?;
        self.kernels.expand(&ExpandCall { matrix: &matrix, step: 1, offset: 0, output: expanded.all() })?;
        self.kernels.gemm(&GemmCall {
            input: input.all(),
            weights: expanded.all(),
            shape: (m, n, k),
            bias: None,
            output: GemmOutput::Store(output.all()),
            cuts: 1,
        })?;
        self.compare(format!("expand and gemm {format:?} {m} x {n} x {k}"), &output, &expected, 1e-3, outcomes)?;
        if !pack::is_float(format) {
            self.packed(&matrix, &input, &output, outcomes)?;
            self.cuts(&matrix, &input, &expected, outcomes)?;
        }
        let tokens = Buffer::new(self.device, &[3u32, 199, 0])?;
        let rows = Buffer::new(self.device, &vec![f32::NAN; 3 * k])?;
        self.kernels.embed(&EmbedCall { table: &matrix, tokens: tokens.all(), output: rows.all() })?;
        let expected = [&weights[3 * k..4 * k], &weights[199 * k..], &weights[..k]].concat();
        self.compare(format!("embed {format:?}"), &rows, &expected, 1e-6, outcomes)
    }

    /// Logits and their best: the first of equal ones, found in every row.
    fn picks(&self, outcomes: &mut Vec<Outcome>) -> Result<(), Error> {
        let shape = Shape { format: Format::Q8_0, rows: 3000, columns: 256 };
        let matrix = Matrix::new(self.device, shape, &random_weights(shape, 3))?;
        let input = Buffer::new(self.device, &floats(4, 5 * 256))?;
        let output = Buffer::zeroed(self.device, 5 * 3000)?;
        let candidates = Buffer::zeroed(self.device, 5 * self.kernels.candidates(3000))?;
        self.kernels.product(&ProductCall {
            parts: &[Part { matrix: &matrix, bias: None, output: 0 }],
            rows: 5,
            input: input.all(),
            norm: None,
            output: output.all(),
            stride: 3000,
            then: Then::Logits(candidates.all()),
        })?;
        let mut logits = vec![0.0; 5 * 3000];
        output.read(0, &mut logits)?;
        self.best("Q8_0", &logits, 3000, &candidates, outcomes)
    }

    /// The pick of every row is the first of its best.
    fn best(
        &self,
        what: &str,
        logits: &[f32],
        vocab: usize,
        candidates: &Buffer<u64>,
        outcomes: &mut Vec<Outcome>,
    ) -> Result<(), Error> {
        let rows = logits.len() / vocab;
        let tickets = Buffer::zeroed(self.device, rows)?;
        let mailbox = Mailbox::new(self.device, PICK_RING * PICK_ROWS_MAX)?;
        let (candidates, tickets) = (candidates.all(), tickets.all());
        self.kernels.pick(&PickCall { candidates, rows, vocab, next: None, tickets, mailbox: &mailbox })?;
        for (row, logits) in logits.chunks_exact(vocab).enumerate() {
            let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let expected = logits.iter().position(|&x| x == largest).unwrap_or(0) as u32;
            let word = mailbox.wait(PICK_ROWS_MAX + row, |word| word >> 32 == 1)?;
            let error = if word as u32 == expected { 0.0 } else { 1.0 };
            outcomes.push(Outcome { name: format!("pick of {what}, row {row}"), error, bound: 0.0 });
        }
        Ok(())
    }

    fn compare(
        &self,
        name: String,
        found: &Buffer<f32>,
        expected: &[f32],
        bound: f32,
        outcomes: &mut Vec<Outcome>,
    ) -> Result<(), Error> {
        let mut values = vec![0.0; found.len()];
        found.read(0, &mut values)?;
        outcomes.push(Outcome { name, error: normalised_error(&values, expected), bound });
        Ok(())
    }
}

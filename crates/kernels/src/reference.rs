//! Every operation in plain scalar code: the oracle of the tests, and the engine on machines without SIMD kernels.
//!
//! Reads like the maths. Weights are in file layout, so nothing of the packing or of the vector code is shared with
//! what it checks.

use crate::activations::{self, QuantisedRow};
use crate::blocks::{dequantize_row, half_at};
use crate::kv::{BLOCK, KvLayout, KvType, SPAN};
use crate::pack::TILE;
use crate::simd::{Correction, PARTIAL_HEAD, Product, Recurrence, Span};
use std::ops::Range;

/// `out[m][n] = sum over k of weight[n][k] * x[m][k]` for the rows of the given tiles.
///
/// # Safety
///
/// `p.output` is valid for every output row and nobody else touches these columns of it.
pub(crate) unsafe fn product(p: &Product<'_>, tiles: Range<usize>) {
    let row_bytes = p.matrix.format.row_bytes(p.matrix.columns);
    let mut weights = vec![0.0; p.matrix.columns];
    let precision = p.matrix.format.precision();
    let inputs: Vec<Vec<f32>> = p.input_rows.iter().map(|&m| p.input.dequantized(m as usize, precision)).collect();
    for n in tiles.start * TILE..(tiles.end * TILE).min(p.matrix.rows) {
        dequantize_row(p.matrix.format, &p.matrix.bytes()[n * row_bytes..][..row_bytes], &mut weights);
        for (x, &m) in inputs.iter().zip(p.output_rows) {
            let sum: f32 = weights.iter().zip(x).map(|(w, x)| w * x).sum();
            // SAFETY: row and column are inside the output, as the caller promised.
            unsafe { *p.output.add(m as usize * p.output_stride + n) = sum };
        }
    }
}

/// `out = x / rms(x) * weight`.
///
/// # Safety
///
/// None needed; the signature is that of the table.
pub(crate) unsafe fn rms_norm(x: &[f32], weight: &[f32], epsilon: f32, out: &mut [f32]) {
    let mean = x.iter().map(|x| x * x).sum::<f32>() / x.len() as f32;
    let scale = 1.0 / (mean + epsilon).sqrt();
    for ((o, x), w) in out.iter_mut().zip(x).zip(weight) {
        *o = x * scale * w;
    }
}

/// `out = silu(gate) * up`.
///
/// # Safety
///
/// None needed; the signature is that of the table.
pub(crate) unsafe fn silu_multiply(gate: &[f32], up: &[f32], out: &mut [f32]) {
    for ((o, g), u) in out.iter_mut().zip(gate).zip(up) {
        *o = g / (1.0 + (-g).exp()) * u;
    }
}

/// `out = sigmoid(gate) * up`.
///
/// # Safety
///
/// None needed; the signature is that of the table.
pub(crate) unsafe fn sigmoid_multiply(gate: &[f32], up: &[f32], out: &mut [f32]) {
    for ((o, g), u) in out.iter_mut().zip(gate).zip(up) {
        *o = u / (1.0 + (-g).exp());
    }
}

/// `out = silu(sum over taps of weight * row)`, channel by channel.
///
/// # Safety
///
/// None needed; the signature is that of the table.
pub(crate) unsafe fn convolve(rows: &[&[f32]], weights: &[f32], out: &mut [f32]) {
    let channels = out.len();
    for (c, out) in out.iter_mut().enumerate() {
        let sum: f32 = rows.iter().enumerate().map(|(tap, row)| row[c] * weights[tap * channels + c]).sum();
        *out = sum / (1.0 + (-sum).exp());
    }
}

/// Divides every head by its length, or by `least` where it is shorter, and multiplies it by `scale`.
///
/// # Safety
///
/// None needed; the signature is that of the table.
pub(crate) unsafe fn unit_heads(x: &mut [f32], head: usize, least: f32, scale: f32) {
    for head in x.chunks_exact_mut(head) {
        let length = head.iter().map(|x| x * x).sum::<f32>().sqrt();
        head.iter_mut().for_each(|x| *x = *x * scale / length.max(least));
    }
}

/// One token of the recurrence: decay, correct, read.
///
/// # Safety
///
/// None needed; the signature is that of the table.
pub(crate) unsafe fn recur(r: &Recurrence<'_>, state: &mut [f32], d: &mut [f32], out: &mut [f32]) {
    let head = r.key.len();
    state.iter_mut().for_each(|s| *s *= r.decay);
    for j in 0..head {
        let known: f32 = (0..head).map(|i| state[i * head + j] * r.key[i]).sum();
        d[j] = r.beta * (r.value[j] - known);
    }
    let correction = Correction { key: r.key, decay: 1.0, d };
    // SAFETY: none needed.
    unsafe { correct(&correction, state) };
    for j in 0..head {
        out[j] = (0..head).map(|i| state[i * head + j] * r.query[i]).sum();
    }
}

/// `state = decay * state + key * d'`.
///
/// # Safety
///
/// None needed; the signature is that of the table.
pub(crate) unsafe fn correct(c: &Correction<'_>, state: &mut [f32]) {
    for (row, k) in state.chunks_exact_mut(c.key.len()).zip(c.key) {
        row.iter_mut().zip(c.d).for_each(|(s, d)| *s = *s * c.decay + k * d);
    }
}

/// # Safety
///
/// None needed; the signature is that of the table.
pub(crate) unsafe fn quantize_small(values: &[f32], row: &mut QuantisedRow<'_>) {
    activations::quantize_small(values, row);
}

/// # Safety
///
/// None needed; the signature is that of the table.
pub(crate) unsafe fn quantize_super(values: &[f32], row: &mut QuantisedRow<'_>) {
    activations::quantize_super(values, row);
}

/// Softmax attention of each query over one span of positions.
///
/// # Safety
///
/// Every block up to the largest limit exists and is written there.
pub(crate) unsafe fn span(s: &Span<'_>, partials: &mut [f32]) {
    let head = s.layout.head;
    for (r, (query, row)) in s.queries.iter().zip(partials.chunks_exact_mut(head + PARTIAL_HEAD)).enumerate() {
        let end = s.limits[r].min(s.start + SPAN);
        let score = |position| (0..head).map(|c| query[c] * cached(s, position, c, key_at)).sum::<f32>();
        let scores: Vec<f32> = (s.start..end).map(score).collect();
        let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        row.fill(0.0);
        row[0] = largest;
        for (position, score) in (s.start..end).zip(scores) {
            let p = (score - largest).exp();
            row[1] += p;
            for c in 0..head {
                row[PARTIAL_HEAD + c] += p * cached(s, position, c, value_at);
            }
        }
    }
}

/// One element of the cache, found by `at` in its head's part.
fn cached(s: &Span<'_>, position: usize, c: usize, at: fn(&KvLayout, &[u8], usize, usize) -> f32) -> f32 {
    let bytes = s.layout.offset(0, 1);
    // SAFETY: the caller of `span` promised a whole head's part at this address.
    let part = unsafe { std::slice::from_raw_parts((s.blocks)(position / BLOCK), bytes) };
    at(s.layout, part, position % BLOCK, c)
}

fn key_at(layout: &KvLayout, part: &[u8], position: usize, c: usize) -> f32 {
    let at = layout.key_at(position, c);
    element(layout, part, 0, at, layout.key_scales() + position * 4)
}

fn value_at(layout: &KvLayout, part: &[u8], position: usize, c: usize) -> f32 {
    let at = layout.value_at(position, c);
    element(layout, part, layout.values(), at, layout.value_scales() + position * 4)
}

fn element(layout: &KvLayout, part: &[u8], start: usize, at: usize, scale: usize) -> f32 {
    match layout.kind {
        KvType::F16 => half_at(part, start + at * 2),
        KvType::Q8 => {
            let scale = f32::from_le_bytes([part[scale], part[scale + 1], part[scale + 2], part[scale + 3]]);
            f32::from(part[start + at] as i8) * scale
        }
    }
}

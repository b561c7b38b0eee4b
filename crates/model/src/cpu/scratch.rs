//! The buffers of one step, allocated once for the largest step.

use super::ROWS_MAX;
use crate::config::{Config, USED_MAX};
use kernels::{Activations, Buffer, Matrix, Precision, Runtime, output_stride};

/// Shapes: `rows` is the largest number of rows of a step; names as in the forward pass.
pub(super) struct Scratch {
    /// Residual stream, rows x embedding.
    pub x: Buffer<f32>,
    /// Input of the next projections, rows x embedding.
    pub normed: Activations,
    /// Queries, rows x (heads * head).
    pub q: Buffer<f32>,
    /// Queries with their gates as they come out of their product, rows x (2 * heads * head), where attention is gated.
    pub gated_q: Buffer<f32>,
    /// Those gates, rows x (heads * head).
    pub q_gate: Buffer<f32>,
    /// Keys, rows x (kv_heads * head).
    pub k: Buffer<f32>,
    /// Values, rows x (kv_heads * head).
    pub v: Buffer<f32>,
    /// Cosines and sines, rows x dimensions.
    pub angles: Buffer<f32>,
    /// What the query of each row is multiplied with.
    pub query_scale: Buffer<f32>,
    /// Attention result, rows x (heads * head).
    pub attended: Activations,
    /// What is added to the residual stream, rows x embedding; one row per visited expert where there are experts.
    pub added: Buffer<f32>,
    /// Gate and up products, rows x feed_forward, likewise.
    pub gate: Buffer<f32>,
    /// See `gate`.
    pub up: Buffer<f32>,
    /// Input of the down projection, likewise.
    pub gated: Activations,
    /// Router scores, rows x experts.
    pub scores: Buffer<f32>,
}

impl Scratch {
    pub fn new(config: &Config, rows: usize) -> Scratch {
        let (width, q, kv) = (config.embedding, config.heads * config.head, config.kv_heads * config.head);
        let visits = rows * config.experts.map_or(1, |experts| experts.used + usize::from(experts.shared));
        let gated = if config.gated_attention { rows } else { 0 };
        let ff = visits * output_stride(config.feed_forward);
        Scratch {
            x: Buffer::new(rows * width),
            normed: Activations::new(rows, width),
            q: Buffer::new(rows * output_stride(q)),
            gated_q: Buffer::new(gated * output_stride(2 * q)),
            q_gate: Buffer::new(gated * q),
            k: Buffer::new(rows * output_stride(kv)),
            v: Buffer::new(rows * output_stride(kv)),
            angles: Buffer::new(rows * config.rope.dimensions),
            query_scale: Buffer::new(rows),
            attended: Activations::new(rows, q),
            added: Buffer::new(visits * output_stride(width)),
            gate: Buffer::new(ff),
            up: Buffer::new(ff),
            gated: Activations::new(visits, config.feed_forward),
            scores: Buffer::new(rows * output_stride(config.experts.map_or(0, |experts| experts.count))),
        }
    }
}

/// The numbers `0..count`, as products want their rows.
pub(super) fn numbers(count: usize) -> &'static [u32] {
    static NUMBERS: [u32; ROWS_MAX * (USED_MAX + 1)] = {
        let mut numbers = [0; ROWS_MAX * (USED_MAX + 1)];
        let mut i = 0;
        while i < numbers.len() {
            numbers[i] = i as u32;
            i += 1;
        }
        numbers
    };
    &NUMBERS[..count]
}

/// Quantises `rows` rows of `x` in every form that these matrices read.
pub(super) fn quantize(runtime: &mut Runtime, x: &mut Activations, rows: usize, matrices: &[&Matrix]) {
    for precision in [Precision::Small, Precision::Super] {
        if matrices.iter().any(|matrix| matrix.format.precision() == precision) {
            runtime.quantize(x, rows, precision);
        }
    }
}

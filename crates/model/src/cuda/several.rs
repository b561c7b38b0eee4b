//! The products of a step of 2 to 32 rows: weights are read once for all of them, on tensor cores.
//!
//! ```text
//! per layer:
//!   settle     x += what the layer before left; norm, quantise
//!   several    q k v, bias                        -> heads
//!   ...        attention, as in `few.rs`          -> attended
//!   several    quantise, output projection        -> sums
//!   settle     x += sums; norm, quantise
//!   several    gate and up, silu                  -> gated
//!   several    quantise, down                     -> sums, left for the next settle
//! settle       x += sums; norm, quantise
//! several      logits, best of each block
//! ```
//!
//! The same sums in the same order as `Kernels::product` does for one row.

use super::Net;
use ::cuda::{Buffer, Error, Matrix, Part, Partial, Rows, SettleCall, SeveralCall, Slice, Then, quantised_bytes};

/// Buffers between the kernels.
pub(super) struct Several {
    quantised: Buffer<u8>,
    sums: Buffer<f32>,
    squares: Buffer<f32>,
    arrived: Buffer<u32>,
}

/// Whether two matrices meet activations quantised in the same way.
fn alike(a: &Matrix, b: &Matrix) -> bool {
    a.format.block_elements() == b.format.block_elements()
}

impl Several {
    /// Room for `rows` rows.
    pub fn new(net: &Net, rows: usize) -> Result<Several, Error> {
        let (config, device) = (&net.config, &net.device);
        let longest = config.feed_forward.max(config.heads * config.head).max(config.embedding);
        let supers = |columns: usize| columns.div_ceil(::cuda::pack::CHUNK_COLUMNS);
        Ok(Several {
            quantised: Buffer::zeroed(device, quantised_bytes(config.embedding))?,
            sums: Buffer::zeroed(device, supers(longest) * rows * config.embedding)?,
            squares: Buffer::zeroed(device, supers(config.embedding) * rows)?,
            arrived: Buffer::zeroed(device, rows)?,
        })
    }

    /// Adds what is left to the residual and multiplies its norm with matrices.
    #[allow(clippy::too_many_arguments, reason = "they are the parts of a product")]
    pub fn normed(
        &self,
        net: &Net,
        rows: usize,
        (x, left): (Slice<'_, f32>, Option<Partial<'_>>),
        norm: &Buffer<f32>,
        parts: &[Part<'_>],
        (output, stride): (Slice<'_, f32>, usize),
        then: Then<'_>,
    ) -> Result<(), Error> {
        let mut left = left;
        let mut rest = parts.to_vec();
        // Matrices that want their input quantised in the same way share a product; nearly always all of them.
        while let Some(first) = rest.first().copied() {
            let (now, later) = rest.into_iter().partition(|part| alike(part.matrix, first.matrix));
            let parts: Vec<Part<'_>> = now;
            net.kernels.settle(&SettleCall {
                x,
                rows,
                partial: left.take(),
                norm: (norm, net.config.epsilon),
                squares: self.squares.all(),
                arrived: self.arrived.all(),
                format: first.matrix.format,
                output: self.quantised.all(),
            })?;
            let input = Rows::Settled(self.quantised.all());
            net.kernels.several(&SeveralCall { parts: &parts, rows, input, output, stride, then })?;
            rest = later;
        }
        Ok(())
    }

    /// Multiplies rows with a matrix; the sums are left for the next [`Several::normed`].
    pub fn left<'a>(
        &'a self,
        net: &Net,
        rows: usize,
        input: Slice<'_, f32>,
        matrix: &Matrix,
        bias: Option<Slice<'a, f32>>,
    ) -> Result<Partial<'a>, Error> {
        net.kernels.several(&SeveralCall {
            parts: &[Part { matrix, bias: None, output: 0 }],
            rows,
            input: Rows::Plain(input),
            output: self.sums.all(),
            stride: matrix.rows,
            then: Then::Add,
        })?;
        Ok(Partial { sums: self.sums.all(), columns: matrix.columns, bias })
    }

    /// Adds what is left to the residual, for whoever reads it.
    pub fn finish(&self, net: &Net, rows: usize, x: Slice<'_, f32>, left: Partial<'_>) -> Result<(), Error> {
        net.kernels.settle(&SettleCall {
            x,
            rows,
            partial: Some(left),
            norm: (&net.weights.output_norm, net.config.epsilon),
            squares: self.squares.all(),
            arrived: self.arrived.all(),
            format: net.weights.output.format,
            output: self.quantised.all(),
        })
    }
}

//! The products of a step of 2 to 32 rows: weights are read once for all of them, on tensor cores.
//!
//! ```text
//! per layer:
//!   residual_norm_quant     x += what the layer before left; norm, quantise
//!   product_batch q k v, bias                        -> heads
//!   ...        attention, as in `decode.rs`          -> attended
//!   product_batch quantise, output projection        -> sums
//!   residual_norm_quant     x += sums; norm, quantise
//!   product_batch gate and up, silu                  -> gated
//!   product_batch quantise, down                     -> sums, left for the next residual_norm_quant
//! residual_norm_quant       x += sums; norm, quantise
//! product_batch   logits, best of each block
//! ```
//!
//! Matrices of floats are multiplied with floats (`floats` instead of `product_batch`), in steps of one row too.
//!
//! Experts, where there are any, take the place of gate, up and down: `route`, then one row at a time through the experts it
//! visits. Steps of one row go this way too on cards that cannot do them as one kernel.
//!
//! Otherwise the same sums in the same order as `Kernels::product` does for one row.

use super::Net;
use super::weights::Layer;
use crate::config::Experts;
use ::cuda::{
    Buffer, Error, ExpertsCall, FloatsCall, Matrix, Part, Partial, ProductBatchCall, ResidualNormQuantCall, RouteCall,
    Rows, Slice, Then, pack, quantised_bytes,
};

/// Buffers between the kernels.
pub(super) struct DecodeBatch {
    quantised: Buffer<u8>,
    sums: Buffer<f32>,
    squares: Buffer<f32>,
    arrived: Buffer<u32>,
    mixture: Option<Mixture>,
    floats: Option<Floats>,
}

/// What matrices of floats need besides.
struct Floats {
    normed: Buffer<f32>,
    ready: Buffer<u16>,
    scales: Buffer<f32>,
}

impl Floats {
    fn new(net: &Net, rows: usize) -> Result<Floats, Error> {
        let (config, device) = (&net.config, &net.device);
        let widest = config.embedding.max(config.feed_forward).max(net.mixer_widths().1);
        Ok(Floats {
            normed: Buffer::zeroed(device, rows * config.embedding)?,
            ready: Buffer::zeroed(device, 2 * rows * widest)?,
            scales: Buffer::zeroed(device, rows)?,
        })
    }
}

/// What experts need besides.
struct Mixture {
    experts: Experts,
    normed: Buffer<f32>,
    scores: Buffer<f32>,
    chosen: Buffer<u32>,
    shares: Buffer<f32>,
}

impl Mixture {
    fn new(net: &Net, experts: Experts, rows: usize) -> Result<Mixture, Error> {
        let device = &net.device;
        Ok(Mixture {
            experts,
            normed: Buffer::zeroed(device, rows * net.config.embedding)?,
            scores: Buffer::zeroed(device, rows * (experts.count + usize::from(experts.shared)))?,
            chosen: Buffer::zeroed(device, rows * experts.used)?,
            shares: Buffer::zeroed(device, rows * (experts.used + usize::from(experts.shared)))?,
        })
    }
}

/// Whether two matrices meet activations made ready in the same way.
fn alike(a: &Matrix, b: &Matrix) -> bool {
    let quantised = !pack::is_float(a.format) && !pack::is_float(b.format);
    a.format == b.format || quantised && a.format.block_elements() == b.format.block_elements()
}

impl DecodeBatch {
    /// Room for `rows` rows.
    pub fn new(net: &Net, rows: usize) -> Result<DecodeBatch, Error> {
        let (config, device) = (&net.config, &net.device);
        let supers = pack::supers;
        let visits = config.experts.map_or(1, |experts| experts.used + usize::from(experts.shared));
        let slices = (visits * supers(config.feed_forward)).max(supers(net.mixer_widths().1));
        Ok(DecodeBatch {
            quantised: Buffer::zeroed(device, quantised_bytes(config.embedding))?,
            sums: Buffer::zeroed(device, slices * rows * config.embedding)?,
            squares: Buffer::zeroed(device, supers(config.embedding) * rows)?,
            arrived: Buffer::zeroed(device, rows)?,
            mixture: config.experts.map(|experts| Mixture::new(net, experts, rows)).transpose()?,
            floats: net.kernels.has_floats().then(|| Floats::new(net, rows)).transpose()?,
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
            let floats = self.floats.as_ref().filter(|_| pack::is_float(first.matrix.format));
            let normed = floats.map(|floats| floats.normed.all());
            self.residual_norm_quant(net, rows, (x, left.take()), norm, first.matrix, normed)?;
            match normed {
                Some(input) => self.floats(net, rows, input, &parts, (output, stride), then)?,
                None => {
                    let input = Rows::Quantised(self.quantised.all());
                    net.kernels.product_batch(&ProductBatchCall {
                        parts: &parts,
                        rows,
                        input,
                        output,
                        stride,
                        then,
                    })?;
                }
            }
            rest = later;
        }
        Ok(())
    }

    fn floats(
        &self,
        net: &Net,
        rows: usize,
        input: Slice<'_, f32>,
        parts: &[Part<'_>],
        (output, stride): (Slice<'_, f32>, usize),
        then: Then<'_>,
    ) -> Result<(), Error> {
        let floats = self.floats.as_ref().ok_or_else(|| Error::Unsupported("matrices of floats".to_owned()))?;
        let (ready, scales) = (floats.ready.all(), floats.scales.all());
        net.kernels.floats(&FloatsCall { parts, rows, input, ready, scales, output, stride, then })
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
        let parts = &[Part { matrix, bias: None, output: 0 }];
        if pack::is_float(matrix.format) {
            self.floats(net, rows, input, parts, (self.sums.all(), matrix.rows), Then::Store)?;
            // Whole sums, as if the matrix had one super-block of columns.
            return Ok(Partial { sums: self.sums.all(), columns: pack::CHUNK_COLUMNS, bias, visits: None });
        }
        net.kernels.product_batch(&ProductBatchCall {
            parts,
            rows,
            input: Rows::Plain(input),
            output: self.sums.all(),
            stride: matrix.rows,
            then: Then::Add,
        })?;
        Ok(Partial { sums: self.sums.all(), columns: matrix.columns, bias, visits: None })
    }

    /// Adds what is left to the residual, for whoever reads it.
    pub fn finish(&self, net: &Net, rows: usize, x: Slice<'_, f32>, left: Partial<'_>) -> Result<(), Error> {
        self.residual_norm_quant(net, rows, (x, Some(left)), &net.weights.output_norm, &net.weights.output, None)
    }

    fn residual_norm_quant(
        &self,
        net: &Net,
        rows: usize,
        (x, partial): (Slice<'_, f32>, Option<Partial<'_>>),
        norm: &Buffer<f32>,
        matrix: &Matrix,
        normed: Option<Slice<'_, f32>>,
    ) -> Result<(), Error> {
        net.kernels.residual_norm_quant(&ResidualNormQuantCall {
            x,
            rows,
            partial,
            norm: (norm, net.config.epsilon),
            squares: self.squares.all(),
            arrived: self.arrived.all(),
            format: matrix.format,
            output: self.quantised.all(),
            normed,
        })
    }

    /// The feed-forward part of a layer with experts: residual_norm_quant and norm, route, gates and ups, downs; what is added is left.
    pub fn experts<'a>(
        &'a self,
        net: &Net,
        rows: usize,
        x: (Slice<'_, f32>, Partial<'_>),
        layer: &Layer,
        router: &Buffer<f32>,
        gated: Slice<'_, f32>,
    ) -> Result<Partial<'a>, Error> {
        let mixture = self.mixture.as_ref().ok_or_else(|| Error::Unsupported("experts".to_owned()))?;
        let Experts { count, used, shared } = mixture.experts;
        let (normed, chosen, shares) = (mixture.normed.all(), mixture.chosen.all(), mixture.shares.all());
        self.residual_norm_quant(net, rows, (x.0, Some(x.1)), &layer.feed_forward_norm, &layer.gate, Some(normed))?;
        let (scores, arrived) = (mixture.scores.all(), self.arrived.all());
        let (input, norm) = (x.0, (&layer.feed_forward_norm, net.config.epsilon));
        net.kernels.route(&RouteCall {
            input,
            norm,
            rows,
            router,
            count,
            used,
            shared,
            scores,
            arrived,
            chosen,
            shares,
        })?;
        let (matrix, up) = (&layer.gate, Some(&layer.up));
        let (input, output) = (normed, gated);
        net.kernels.experts(&ExpertsCall { matrix, up, count, chosen, used, rows, input, output })?;
        let (matrix, output) = (&layer.down, self.sums.all());
        net.kernels.experts(&ExpertsCall { matrix, up: None, count, chosen, used, rows, input: gated, output })?;
        let Some([shared_gate, shared_up, shared_down]) = &layer.shared else {
            return Ok(Partial { sums: output, columns: matrix.columns, bias: None, visits: Some((shares, used)) });
        };
        // What all rows visit follows what they chose, as one more visit.
        if !alike(shared_gate, &layer.gate) {
            self.residual_norm_quant(net, rows, (x.0, None), &layer.feed_forward_norm, shared_gate, None)?;
        }
        let own = gated.part(rows * used * matrix.columns..gated.len);
        net.kernels.product_batch(&ProductBatchCall {
            parts: &[Part { matrix: shared_gate, bias: None, output: 0 }],
            rows,
            input: Rows::Quantised(self.quantised.all()),
            output: own,
            stride: matrix.columns,
            then: Then::Gate(shared_up),
        })?;
        let before = used * pack::supers(matrix.columns) * rows * shared_down.rows;
        net.kernels.product_batch(&ProductBatchCall {
            parts: &[Part { matrix: shared_down, bias: None, output: 0 }],
            rows,
            input: Rows::Plain(own),
            output: self.sums.part(before..self.sums.len()),
            stride: shared_down.rows,
            then: Then::Add,
        })?;
        Ok(Partial { sums: output, columns: matrix.columns, bias: None, visits: Some((shares, used + 1)) })
    }
}

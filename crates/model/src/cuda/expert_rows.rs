//! Experts in a step of many rows: all rows that visit an expert meet its weights together, on tensor cores.
//!
//! ```text
//! gemm     scores: what the router says of every row
//! visits   each row chooses; visits get places in the order of experts
//! packed   gate and up, silu         rows -> gated, by places
//! packed   down                      gated -> outputs, by visits
//! add      x += outputs by their shares, in the order of experts
//! ```

use super::weights::Layer;
use super::{Net, ROWS_MAX};
use crate::config::Experts;
use ::cuda::{
    AddPartsCall, Buffer, Error, ExpertRowsCall, GemmCall, GemmOutput, GemmPackedCall, GemmPackedThen, Part, Slice,
    visit_tiles,
};
use half::f16;

/// Buffers between the kernels.
pub(super) struct ExpertRows {
    experts: Experts,
    /// By layer, in half precision: rounding them is as rounding their input is.
    routers: Vec<Buffer<u16>>,
    scores: Buffer<f32>,
    chosen: Buffer<u32>,
    shares: Buffer<f32>,
    slots: Buffer<u32>,
    tiles: Buffer<[u32; 4]>,
    gated: Buffer<u16>,
    outputs: Buffer<f32>,
}

impl ExpertRows {
    pub fn new(net: &Net, experts: Experts) -> Result<ExpertRows, Error> {
        let (config, device) = (&net.config, &net.device);
        let visits = ROWS_MAX * experts.used;
        let routers = net.weights.layers.iter().filter_map(|layer| layer.router.as_ref());
        Ok(ExpertRows {
            experts,
            routers: routers.map(|router| in_halves(net, router)).collect::<Result<_, _>>()?,
            scores: Buffer::zeroed(device, ROWS_MAX * router_cuts(config.embedding) * experts.count)?,
            chosen: Buffer::zeroed(device, visits)?,
            shares: Buffer::zeroed(device, visits)?,
            slots: Buffer::zeroed(device, visits)?,
            tiles: Buffer::zeroed(device, visit_tiles(visits, experts.count))?,
            gated: Buffer::zeroed(device, visits * config.feed_forward)?,
            outputs: Buffer::zeroed(device, visits * config.embedding)?,
        })
    }

    /// `x += feed_forward(normed)` of layer `i`.
    pub fn feed_forward(&self, net: &Net, i: usize, normed: Slice<'_, u16>, x: Slice<'_, f32>) -> Result<(), Error> {
        let (kernels, Experts { count, used, .. }) = (&net.kernels, self.experts);
        let (width, ff) = (net.config.embedding, net.config.feed_forward);
        let (rows, cuts) = (x.len / width, router_cuts(width));
        kernels.gemm(&GemmCall {
            input: normed,
            weights: self.routers[i].all(),
            shape: (rows, count, width),
            bias: None,
            output: GemmOutput::Store(self.scores.all()),
            cuts,
        })?;
        let visits = ExpertRowsCall {
            rows,
            count,
            used,
            scores: (self.scores.all(), cuts),
            chosen: self.chosen.all(),
            shares: self.shares.all(),
            slots: self.slots.all(),
            tiles: self.tiles.all(),
        };
        kernels.expert_rows(&visits)?;
        let Layer { gate, up, down, .. } = &net.weights.layers[i];
        let product = |matrix, input, then, stride| {
            let parts = &[Part { matrix, bias: None, output: 0 }];
            kernels.gemm_packed(&GemmPackedCall {
                parts,
                input,
                rows: rows * used,
                then,
                stride,
                visits: Some(&visits),
                cuts: 1,
            })
        };
        product(gate, normed, GemmPackedThen::Gate(up, self.gated.all()), ff)?;
        product(down, self.gated.all(), GemmPackedThen::Store(self.outputs.all()), width)?;
        let (parts, shares) = (self.outputs.all(), Some(self.shares.all()));
        kernels.add_parts(&AddPartsCall { parts, rows, each: used, shares, x, anew: false })
    }
}

/// A router has one tile of outputs, so its rows are cut into parts of 256 columns and more.
fn router_cuts(width: usize) -> usize {
    (width / 256).clamp(1, 8)
}

/// The same values in half precision.
pub(super) fn in_halves(net: &Net, values: &Buffer<f32>) -> Result<Buffer<u16>, Error> {
    let mut floats = vec![0.0; values.len()];
    values.read(0, &mut floats)?;
    let halves: Vec<u16> = floats.iter().map(|&x| f16::from_f32(x).to_bits()).collect();
    Buffer::new(&net.device, &halves)
}

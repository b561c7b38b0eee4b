//! Launching mixtures of experts: which experts rows visit, and one row at a time through their matrices.
//!
//! Rows that visit the same expert read its weights each for themselves: eight of 128 experts are rarely shared by the rows
//! of a step.

use super::product_batch::{self, THREADS, WARPS};
use super::{Kernels, Module, products, room};
use crate::arguments::*;
use crate::blocks::*;
use crate::device::{Device, Function};
use crate::error::Error;
use crate::pack;

/// Most experts of a layer, and most that a row visits, as `kernels/route.cuh` has them.
pub(super) const COUNT_MAX: usize = 256;
const USED_MAX: usize = 32;

/// The kernels.
pub(super) struct Experts {
    route: Function,
    gate: Function,
    partial: Function,
}

impl Experts {
    pub fn new(device: &Device, module: &Module) -> Result<Experts, Error> {
        Ok(Experts {
            route: module.function(device, "route", false)?,
            gate: module.function(device, "experts_gate", true)?,
            partial: module.function(device, "experts_partial", true)?,
        })
    }
}

impl Kernels {
    /// Whether there are kernels for so many experts.
    pub fn has_experts(&self, count: usize, used: usize) -> bool {
        count <= COUNT_MAX && used <= USED_MAX.min(count)
    }

    /// Which experts rows visit.
    pub fn route(&self, call: &RouteCall<'_>) -> Result<(), Error> {
        let RouteCall { rows, count, used, .. } = *call;
        let shared = usize::from(call.shared);
        let columns = call.router.len() / (count + shared);
        assert!(self.has_experts(count, used) && columns.is_multiple_of(8), "experts were checked");
        assert_eq!(call.norm.0.len(), columns, "the norm is as long as a row");
        room(call.input, rows * columns, "input rows");
        room(call.scores, rows * (count + shared), "scores");
        room(call.arrived, rows, "counters");
        room(call.chosen, rows * used, "chosen experts");
        room(call.shares, rows * (used + shared), "shares");
        let mut a = Arguments::default();
        let params = RouteBlock {
            input: a.at(call.input),
            norm: a.at(call.norm.0.all()),
            router: a.at(call.router.all()),
            scores: a.at(call.scores),
            arrived: a.at(call.arrived),
            chosen: a.at(call.chosen),
            shares: a.at(call.shares),
            columns: columns as u32,
            count: count as u32,
            used: used as u32,
            epsilon: call.norm.1,
            shared: shared as u32,
            padding: 0,
        };
        let grid = ((count + shared).div_ceil(8) as u32, rows as u32, 1);
        self.launch(&self.experts.route, grid, 256, 0, a, &params)
    }

    /// Rows through the experts they visit.
    pub fn experts(&self, call: &ExpertsCall<'_>) -> Result<(), Error> {
        let (matrix, visits) = (call.matrix, call.rows * call.used);
        self.has(matrix);
        if let Some(up) = call.up {
            products::same_shape(matrix, up)?;
        }
        let (rows, supers) = (matrix.rows / call.count, pack::supers(matrix.columns));
        assert!(rows.is_multiple_of(pack::TILE_ROWS), "an expert begins with a tile");
        let (inputs, outputs) = if call.up.is_some() { (call.rows, visits) } else { (visits, visits * supers) };
        room(call.chosen, visits, "chosen experts");
        room(call.input, inputs * matrix.columns, "input rows");
        room(call.output, outputs * rows, "output rows");
        let each = if call.up.is_some() { 2 } else { 4 };
        let groups = (rows / pack::TILE_ROWS).div_ceil(each);
        let blocks = (self.device.facts().multiprocessors as usize / call.used).clamp(1, groups);
        let mut a = Arguments::default();
        let part = Part { matrix, bias: None, output: 0 };
        let then = call.up.map_or(Then::Add, Then::Gate);
        let mut segments = products::segments(&mut a, &[part], then, &[blocks]);
        (segments[0].rows, segments[0].tiles) = (rows as u32, (rows / pack::TILE_ROWS) as u32);
        let wave = groups.div_ceil(blocks);
        let params = ProductBatchBlock {
            segments,
            input: a.at(call.input),
            output: a.at(call.output),
            candidates: 0,
            supers: supers as u32,
            rows: 1,
            output_stride: rows as u32,
            splits: 1,
            wave: wave as u32,
            columns: matrix.columns as u32,
            chosen: a.at(call.chosen),
            slice_rows: call.rows as u32,
            used: call.used as u32,
        };
        let stages = product_batch::depth(1) * 4 * pack::chunk_bytes(matrix.format);
        let input = supers * product_batch::input_bytes(1, product_batch::is_wide(matrix.format));
        let held = if call.up.is_some() { product_batch::partial_bytes_held(wave * supers, 1) } else { 0 };
        let shared = input + held + WARPS * (product_batch::scales_bytes(matrix.format, false) + stages);
        if shared > self.device.facts().shared_bytes {
            return Err(Error::Unsupported(format!("experts with rows of {} columns", matrix.columns)));
        }
        let kernel = if call.up.is_some() { &self.experts.gate } else { &self.experts.partial };
        self.launch(kernel, (blocks as u32, visits as u32, 1), THREADS, shared, a, &params)
    }
}

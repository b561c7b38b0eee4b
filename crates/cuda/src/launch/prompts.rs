//! Launching the kernels of prompts: norms, expanded matrices, products of many rows, attention of many rows.

use super::{Kernels, room};
use crate::arguments::*;
use crate::blocks::*;
use crate::error::Error;
use crate::pack;

/// Tile of a product of many rows, and its shared memory: three stages of both operands.
pub(super) const TILE: usize = 128;
const TILE_BYTES: usize = TILE * 64 * 2;
const GEMM_SHARED_BYTES: usize = 3 * 2 * TILE_BYTES;
/// The same from packed weights: three stages of rows, two of weights.
const PACKED_SHARED_BYTES: usize = 5 * TILE_BYTES;

impl Kernels {
    /// Norm of rows into half precision.
    pub fn norm_half(&self, call: &NormCall<'_>) -> Result<(), Error> {
        let columns = call.weight.len();
        assert!(columns.is_multiple_of(4), "rows are read four at a time");
        let rows = call.input.len / columns;
        room(call.output, rows * columns, "the output");
        let mut a = Arguments::default();
        let params = NormBlock {
            input: a.at(call.input),
            weight: a.at(call.weight.all()),
            output: a.at(call.output),
            epsilon: call.epsilon,
            columns: columns as u32,
        };
        self.launch("norm_half", &self.norm_half, (rows as u32, 1, 1), 256, 0, a, &params)
    }

    /// A matrix written out in half precision.
    pub fn expand(&self, call: &ExpandCall<'_>) -> Result<(), Error> {
        let matrix = call.matrix;
        self.has(matrix);
        assert!(call.offset < call.step, "rows go to places of their own");
        room(call.output, ((matrix.rows - 1) * call.step + call.offset + 1) * matrix.columns, "the expanded matrix");
        let mut a = Arguments::default();
        let params = ExpandBlock {
            weights: a.at(matrix.bytes.all()),
            output: a.at(call.output),
            format: matrix.format.file_id(),
            rows: matrix.rows as u32,
            columns: matrix.columns as u32,
            supers: pack::supers(matrix.columns) as u32,
            step: call.step as u32,
            offset: call.offset as u32,
        };
        let chunks = matrix.rows.div_ceil(pack::TILE_ROWS) * pack::supers(matrix.columns);
        let grid = (chunks.div_ceil(8) as u32).min(self.device.facts().multiprocessors * 16);
        self.launch("expand", &self.expand, (grid, 1, 1), 256, 0, a, &params)
    }

    /// Matrix times many rows, in half precision.
    pub fn gemm(&self, call: &GemmCall<'_>) -> Result<(), Error> {
        let (m, n, k) = call.shape;
        assert!(k.is_multiple_of(8) && n.is_multiple_of(2), "rows are read eight and written two at a time");
        assert!(call.bias.is_none_or(|bias| bias.len() == n), "one bias per output");
        room(call.input, m * k, "input rows");
        room(call.weights, n * k, "weights");
        let mut a = Arguments::default();
        let (which, output, stride) = match call.output {
            GemmOutput::Store(output) | GemmOutput::Add(output) => {
                room(output, m * n, "the output");
                (usize::from(matches!(call.output, GemmOutput::Add(_))), a.at(output), n)
            }
            GemmOutput::Gate(output) => {
                room(output, m * n / 2, "the output");
                (2, a.at(output), n / 2)
            }
        };
        let params = GemmBlock {
            input: a.at(call.input),
            weights: a.at(call.weights),
            output,
            bias: a.optional(call.bias.map(|bias| bias.all())),
            m: m as u32,
            n: n as u32,
            k: k as u32,
            output_stride: stride as u32,
        };
        let grid = (m.div_ceil(TILE) as u32, n.div_ceil(TILE) as u32, 1);
        self.launch("gemm", &self.gemms[which], grid, 256, GEMM_SHARED_BYTES, a, &params)
    }

    /// Matrix times many rows, in half precision, from packed weights.
    pub fn packed(&self, call: &PackedCall<'_>) -> Result<(), Error> {
        let (matrix, visits, rows) = (call.matrix, call.visits, call.rows);
        let (k, outputs) = (matrix.columns, matrix.rows / visits.map_or(1, |visits| visits.count));
        self.has(matrix);
        assert!(!pack::is_float(matrix.format), "packed weights are quantised");
        assert!(k.is_multiple_of(8) && outputs.is_multiple_of(2), "rows are read eight and written two at a time");
        assert!(visits.is_none() || outputs.is_multiple_of(pack::TILE_ROWS), "an expert's matrix is whole tiles");
        assert!(visits.is_none_or(|visits| rows == visits.rows * visits.used), "every visit is a row");
        let reach = |width: usize| (rows - 1) * call.stride + width;
        let mut a = Arguments::default();
        let (kind, second, output, n, input_rows) = match call.then {
            PackedThen::Store(output) | PackedThen::Add(output) => {
                room(output, reach(outputs), "the output");
                let kind = u32::from(matches!(call.then, PackedThen::Add(_)));
                (kind, 0, a.at(output), outputs, rows)
            }
            PackedThen::Gate(up, output) => {
                let same = (up.format, up.rows, up.columns) == (matrix.format, matrix.rows, matrix.columns);
                assert!(same && call.bias.is_none(), "a gate and its up are alike");
                room(output, reach(outputs), "the output");
                (2, a.at(up.bytes.all()), a.at(output), 2 * outputs, visits.map_or(rows, |visits| visits.rows))
            }
        };
        room(call.input, input_rows * k, "input rows");
        call.bias.iter().for_each(|bias| room(*bias, n, "the bias"));
        let places = visits.map(|visits| visits.places);
        let params = PackedBlock {
            input: a.at(call.input),
            weights: a.at(matrix.bytes.all()),
            second,
            output,
            bias: a.optional(call.bias),
            tiles: a.optional(visits.map(|visits| visits.tiles)),
            from: a.optional(places.filter(|_| kind == 2)),
            to: a.optional(places.filter(|_| kind != 2)),
            format: matrix.format.file_id(),
            kind,
            m: rows as u32,
            n: n as u32,
            k: k as u32,
            supers: pack::supers(k) as u32,
            used: visits.map_or(1, |visits| visits.used) as u32,
            output_stride: call.stride as u32,
        };
        let tiles = visits.map_or(rows.div_ceil(TILE), VisitsCall::tiles_max);
        let grid = (tiles as u32, n.div_ceil(TILE) as u32, 1);
        self.launch("packed", &self.packed, grid, 256, PACKED_SHARED_BYTES, a, &params)
    }

    /// Attention of many rows.
    pub fn flash(&self, call: &FlashCall<'_>, rows: usize) -> Result<(), Error> {
        let (head, heads) = (self.options.head, self.options.heads);
        room(call.queries, rows * heads * head, "queries");
        room(call.output, rows * heads * head, "the output");
        let mut a = Arguments::default();
        let params = FlashBlock {
            heads: self.heads_block(&mut a, &call.heads, rows),
            queries: a.at(call.queries),
            tiles: a.at(call.tiles),
            output: a.at(call.output),
        };
        let pieces = if head <= 64 { 8 } else { 16 };
        let grid = (call.tiles.len as u32, heads as u32, 1);
        self.launch("flash", &self.flash, grid, 128, 4 * 64 * pieces * 16, a, &params)
    }
}

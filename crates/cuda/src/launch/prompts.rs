//! Launching the kernels of prompts: norms, expanded matrices, products of many rows, attention of many rows.

use super::{Kernels, KernelsOptions, Module, room};
use crate::arguments::*;
use crate::blocks::*;
use crate::device::{Device, Function};
use crate::error::Error;
use crate::memory::Matrix;
use crate::pack;
use kernels::Format;

/// Tile of a product of many rows, and its shared memory: three stages of both operands.
pub(super) const TILE: usize = 128;
const TILE_K: usize = 64;
const TILE_BYTES: usize = TILE * TILE_K * 2;
const GEMM_SHARED_BYTES: usize = 3 * 2 * TILE_BYTES;
/// The same from packed weights: three stages of rows, two of weights.
const TILE_128_SHARED_BYTES: usize = 5 * TILE_BYTES;
/// The same in wide tiles: four stages of both, with two barriers each.
const TILE_256: usize = 2 * TILE;
const TILE_256_SHARED_BYTES: usize = 4 * (3 * TILE_BYTES + 2 * 8);

/// The kernels of [`Kernels::packed`] for a quantised format.
pub(super) struct GemmPackedKernel {
    format: Format,
    tile_128: Function,
    /// For more than [`TILE`] rows; compute capability 9.0 alone.
    tile_256: Option<Function>,
}

impl GemmPackedKernel {
    pub fn all(device: &Device, module: &Module, options: &KernelsOptions) -> Result<Vec<GemmPackedKernel>, Error> {
        let kernel = |format: &Format| {
            let function = |name| module.variant(name, format.name(), device.facts().shared_bytes);
            let tile_256 = has_tile_256(device).then(|| function("gemm_packed_256")).transpose()?;
            Ok(GemmPackedKernel { format: *format, tile_128: function("gemm_packed")?, tile_256 })
        };
        options.formats.iter().filter(|&&format| !pack::is_float(format)).map(kernel).collect()
    }
}

fn has_tile_256(device: &Device) -> bool {
    device.facts().capability == (9, 0)
}

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
        self.launch(&self.norm_half, (rows as u32, 1, 1), 256, 0, a, &params)
    }

    /// A matrix written out in half precision.
    pub fn expand(&self, call: &ExpandCall<'_>) -> Result<(), Error> {
        let matrix = call.matrix;
        self.has(matrix);
        assert!(call.offset < call.step, "rows go to slots of their own");
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
        self.launch(&self.expand, (grid, 1, 1), 256, 0, a, &params)
    }

    /// Matrix times many rows, in half precision.
    pub fn gemm(&self, call: &GemmCall<'_>) -> Result<(), Error> {
        let (m, n, k) = call.shape;
        assert!(k.is_multiple_of(8) && n.is_multiple_of(2), "rows are read eight and written two at a time");
        assert!(call.bias.is_none_or(|bias| bias.len() == n), "one bias per output");
        let is_stored = matches!(call.output, GemmOutput::Store(_)) && call.bias.is_none();
        assert!(call.cuts == 1 || is_stored, "parts are stored as they are");
        room(call.input, m * k, "input rows");
        room(call.weights, n * k, "weights");
        let mut a = Arguments::default();
        let (kind, output, stride) = match call.output {
            GemmOutput::Store(output) | GemmOutput::Add(output) => {
                room(output, m * call.cuts * n, "the output");
                (u32::from(matches!(call.output, GemmOutput::Add(_))), a.at(output), n)
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
            each: k.div_ceil(TILE_K).div_ceil(call.cuts) as u32,
            kind,
        };
        let grid = (m.div_ceil(TILE) as u32, n.div_ceil(TILE) as u32, call.cuts as u32);
        self.launch(&self.gemm, grid, 256, GEMM_SHARED_BYTES, a, &params)
    }

    /// Whether any number of rows is best multiplied from packed weights.
    pub fn has_gemm_packed_256(&self) -> bool {
        has_tile_256(&self.device)
    }

    /// Whether there are matrices that are best written out for many rows.
    pub fn expands(&self) -> bool {
        !self.has_gemm_packed_256() || self.has_floats()
    }

    /// Matrix times many rows, in half precision, from packed weights; those of the same format in one launch.
    pub fn gemm_packed(&self, call: &GemmPackedCall<'_>) -> Result<(), Error> {
        assert!(
            call.visits.is_none_or(|visits| call.parts.len() == 1 && call.rows == visits.rows * visits.used),
            "visits"
        );
        for part in call.parts {
            self.has(part.matrix);
            assert!(!pack::is_float(part.matrix.format), "packed weights are quantised");
        }
        for kernel in &self.gemm_packed_kernels {
            let alike = |part: &&Part<'_>| part.matrix.format == kernel.format;
            let parts: Vec<Part<'_>> = call.parts.iter().filter(alike).copied().collect();
            if !parts.is_empty() {
                self.gemm_packed_parts(kernel, &parts, call)?;
            }
        }
        Ok(())
    }

    fn gemm_packed_parts(
        &self,
        kernel: &GemmPackedKernel,
        parts: &[Part<'_>],
        call: &GemmPackedCall<'_>,
    ) -> Result<(), Error> {
        let (visits, rows, k) = (call.visits, call.rows, parts[0].matrix.columns);
        let mut a = Arguments::default();
        let (blocks, tiles_n) = self.part_blocks(&mut a, parts, call);
        let last = parts.iter().map(|part| part.output + part.matrix.rows / visits.map_or(1, |visits| visits.count));
        let reach = (rows * call.cuts - 1) * call.stride + last.max().unwrap_or(0);
        let (kind, output, input_rows) = match call.then {
            GemmPackedThen::Store(output) | GemmPackedThen::Add(output) => {
                room(output, reach, "the output");
                (u32::from(matches!(call.then, GemmPackedThen::Add(_))), a.at(output), rows)
            }
            GemmPackedThen::Gate(_, output) => {
                assert!(call.cuts == 1, "a gate meets its up when both are whole");
                room(output, reach, "the output");
                (2, a.at(output), visits.map_or(rows, |visits| visits.rows))
            }
        };
        room(call.input, input_rows * k, "input rows");
        let slots = visits.map(|visits| visits.slots);
        let params = GemmPackedBlock {
            parts: blocks,
            input: a.at(call.input),
            output,
            tiles: a.optional(visits.map(|visits| visits.tiles)),
            from: a.optional(slots.filter(|_| kind == 2)),
            to: a.optional(slots.filter(|_| kind != 2)),
            kind,
            m: rows as u32,
            k: k as u32,
            supers: pack::supers(k) as u32,
            used: visits.map_or(1, |visits| visits.used) as u32,
            output_stride: call.stride as u32,
            each: pack::supers(k).div_ceil(call.cuts) as u32,
            padding: 0,
        };
        if let Some(function) = kernel.tile_256.as_ref().filter(|_| rows > TILE && visits.is_none() && call.cuts == 1) {
            let grid = (rows.div_ceil(TILE_256) as u32, tiles_n, 1);
            return self.launch(function, grid, 256 + 256, TILE_256_SHARED_BYTES, a, &params);
        }
        let tiles_m = visits.map_or(rows.div_ceil(TILE), ExpertRowsCall::tiles_max);
        let grid = (tiles_m as u32, tiles_n, call.cuts as u32);
        self.launch(&kernel.tile_128, grid, 256, TILE_128_SHARED_BYTES, a, &params)
    }

    /// The parts as the kernel reads them, and how many tiles of outputs they have.
    fn part_blocks(
        &self,
        a: &mut Arguments,
        of: &[Part<'_>],
        call: &GemmPackedCall<'_>,
    ) -> ([PackedPartBlock; 3], u32) {
        let (mut parts, mut tiles) = ([PackedPartBlock { first: u32::MAX, ..PackedPartBlock::default() }; 3], 0);
        assert!(of.len() <= parts.len(), "at most three matrices");
        for (&Part { matrix, bias, output }, block) in of.iter().zip(&mut parts) {
            let outputs = matrix.rows / call.visits.map_or(1, |visits| visits.count);
            let up = if let GemmPackedThen::Gate(up, _) = call.then { Some(up) } else { None };
            assert!(matrix.columns == call.parts[0].matrix.columns, "the same input");
            assert!(matrix.columns.is_multiple_of(8) && outputs.is_multiple_of(2), "whole words are read and written");
            assert!(call.visits.is_none() || outputs.is_multiple_of(pack::TILE_ROWS), "an expert has whole tiles");
            assert!(bias.is_none_or(|bias| up.is_none() && bias.len >= outputs), "one bias per output, none of gates");
            let alike = |up: &Matrix| (up.format, up.rows, up.columns) == (matrix.format, matrix.rows, matrix.columns);
            assert!(up.is_none_or(alike), "a gate and its up are alike");
            let n = outputs * if up.is_some() { 2 } else { 1 };
            *block = PackedPartBlock {
                weights: a.at(matrix.bytes.all()),
                second: a.optional(up.map(|up| up.bytes.all())),
                bias: a.optional(bias),
                n: n as u32,
                first: tiles,
                output: output as u32,
                padding: 0,
            };
            tiles += n.div_ceil(TILE) as u32;
        }
        (parts, tiles)
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
        // Queries of long heads stay, and there is room for half as many positions.
        let (pieces, tiles) = match head {
            ..=64 => (8, 4 * 64),
            65..=128 => (16, 4 * 64),
            _ => (32, 64 + 4 * 32),
        };
        let grid = (call.tiles.len as u32, heads as u32, 1);
        self.launch(&self.flash, grid, 128, tiles * pieces * 16, a, &params)
    }
}

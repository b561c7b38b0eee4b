//! Launching products of a matrix and single rows: how the work is cut up.

use super::{Kernels, Module, room};
use crate::arguments::*;
use crate::blocks::*;
use crate::device::{Device, Function};
use crate::error::Error;
use crate::memory::Matrix;
use crate::pack;

pub(super) const WARPS: usize = 16;
/// Chunks each warp has in flight: so many that two kernels still fit a multiprocessor together, because the next one's
/// first chunks should arrive while this one runs.
pub(super) const DEPTH: usize = 8;
/// Most bytes of partial results of one row that a block keeps.
pub(super) const PARTIAL_BYTES_MAX: usize = 16 << 10;

/// The kernels for one row.
pub(super) struct Products {
    store: Function,
    add: Function,
    gate: Function,
    logits: Function,
}

impl Products {
    pub fn new(device: &Device, module: &Module) -> Result<Products, Error> {
        let function = |name| module.function(device, name, true);
        Ok(Products {
            store: function("product_store")?,
            add: function("product_add")?,
            gate: function("product_gate")?,
            logits: function("product_logits")?,
        })
    }
}

impl Kernels {
    /// Blocks of a product with this many outputs in all: one per multiprocessor, unless there is less to do.
    pub(super) fn product_blocks(&self, rows: usize) -> usize {
        (self.device.facts().multiprocessors as usize).min(rows.div_ceil(pack::TILE_ROWS))
    }

    /// Candidates of one row of [`Then::Logits`].
    pub fn candidates(&self, vocab: usize) -> usize {
        self.product_blocks(vocab)
    }

    /// Matrix times few rows.
    pub fn product(&self, call: &ProductCall<'_>) -> Result<(), Error> {
        let plan = self.product_plan(call, false)?;
        let (blocks, threads) = (plan.blocks.iter().sum::<usize>() as u32, (WARPS * 32) as u32);
        let products = &self.products;
        let function = match call.then {
            Then::Store => &products.store,
            Then::Add => &products.add,
            Then::Gate(_) => &products.gate,
            Then::Logits(_) => &products.logits,
        };
        for row in 0..call.rows {
            let (params, a) = self.product_block(call, &plan, row);
            self.launch(function, (blocks, 1, 1), threads, plan.shared_bytes(), a, &params)?;
        }
        Ok(())
    }

    /// How a product is cut up: as a launch, or as a phase of a persistent step.
    pub(super) fn product_plan(&self, call: &ProductCall<'_>, persistent: bool) -> Result<Plan, Error> {
        let columns = call.parts[0].matrix.columns;
        assert!((1..=3).contains(&call.parts.len()), "one to three matrices");
        for part in call.parts {
            self.has(part.matrix);
            assert_eq!(part.matrix.columns, columns, "matrices over the same input are equally wide");
            assert!(part.output + part.matrix.rows <= call.stride, "results fit an output row");
            assert!(part.bias.is_none_or(|bias| bias.len == part.matrix.rows), "one bias per output");
        }
        if let Then::Gate(up) = call.then {
            same_shape(call.parts[0].matrix, up)?;
        }
        assert!(call.norm.is_none_or(|(norm, _)| norm.len() == columns), "the norm is as long as a row");
        room(call.input, call.rows * columns, "input rows");
        room(call.output, call.rows * call.stride, "output rows");
        let multiprocessors = self.device.facts().multiprocessors as usize;
        let mut plan = Plan::new(call.parts, call.then, call.norm.is_some(), multiprocessors, persistent);
        if persistent && matches!(call.then, Then::Store) {
            plan.spare(self.options.attending(), call.parts, multiprocessors);
        }
        if plan.shared_bytes() > self.device.facts().shared_bytes {
            return Err(Error::Unsupported(format!("a row of {columns} columns on a card with little shared memory")));
        }
        Ok(plan)
    }

    pub(super) fn product_block(&self, call: &ProductCall<'_>, plan: &Plan, first: usize) -> (ProductBlock, Arguments) {
        let (mut a, columns) = (Arguments::default(), call.parts[0].matrix.columns);
        let mut params = ProductBlock {
            input: a.at(call.input) + (first * columns * 4) as u64,
            norm: a.optional(call.norm.map(|(norm, _)| norm.all())),
            output: a.at(call.output) + (first * call.stride * 4) as u64,
            epsilon: call.norm.map_or(0.0, |(_, epsilon)| epsilon),
            columns: columns as u32,
            supers: plan.supers as u32,
            slices: plan.slices as u32,
            rows: 1,
            input_stride: columns as u32,
            output_stride: call.stride as u32,
            ..ProductBlock::default()
        };
        params.segments = segments(&mut a, call.parts, call.then, &plan.blocks);
        params.segments.iter_mut().filter(|s| s.blocks > 0).for_each(|s| s.first_block += plan.spared as u32);
        if let Then::Logits(candidates) = call.then {
            let blocks: usize = plan.blocks.iter().sum();
            room(candidates, call.rows * blocks, "candidates");
            params.candidates = a.at(candidates) + (first * blocks * 8) as u64;
        }
        (params, a)
    }
}

/// A gate and its up are equal but for their values.
pub(super) fn same_shape(gate: &Matrix, up: &Matrix) -> Result<(), Error> {
    if (up.format, up.rows, up.columns) == (gate.format, gate.rows, gate.columns) {
        return Ok(());
    }
    let (gate, up) = (gate.format.name(), up.format.name());
    Err(Error::Unsupported(format!("a gate in {gate} beside an up in {up}")))
}

/// What kernels are told of the matrices, each with its number of blocks.
pub(super) fn segments(a: &mut Arguments, parts: &[Part<'_>], then: Then<'_>, blocks: &[usize]) -> [SegmentBlock; 3] {
    // Segments that are not used begin where no block is.
    let mut segments = [SegmentBlock { first_block: u32::MAX, ..SegmentBlock::default() }; 3];
    let mut first_block = 0;
    for ((segment, part), &blocks) in segments.iter_mut().zip(parts).zip(blocks) {
        *segment = SegmentBlock {
            weights: a.at(part.matrix.bytes.all()),
            second: if let Then::Gate(up) = then { a.at(up.bytes.all()) } else { 0 },
            bias: a.optional(part.bias),
            format: part.matrix.format.file_id(),
            rows: part.matrix.rows as u32,
            tiles: part.matrix.rows.div_ceil(pack::TILE_ROWS) as u32,
            first_block: first_block as u32,
            blocks: blocks as u32,
            output: part.output as u32,
        };
        first_block += blocks;
    }
    segments
}

/// How the work of a product is cut up. It depends on the shapes alone, never on the rows, so that the result of a row
/// does not depend on how many there are.
pub(super) struct Plan {
    supers: usize,
    pub slices: usize,
    /// Blocks of each part.
    blocks: Vec<usize>,
    /// Most tiles, or gate and up tiles, that one block has.
    block_tiles: usize,
    chunk_bytes: usize,
    with_norm: bool,
    /// Blocks before the first that has work.
    spared: usize,
}

impl Plan {
    /// Sums that are stored or added are always kept apart by super-blocks, as products of several rows keep them. Where a block
    /// would have too many of them there are more blocks than multiprocessors, but for a persistent step, whose blocks all stay.
    pub fn new(parts: &[Part<'_>], then: Then<'_>, with_norm: bool, multiprocessors: usize, persistent: bool) -> Plan {
        let pair = if matches!(then, Then::Gate(_)) { 2 } else { 1 };
        let tiles: Vec<usize> = parts.iter().map(|p| p.matrix.rows.div_ceil(pack::TILE_ROWS)).collect();
        let bytes: Vec<usize> = parts.iter().map(|part| part.matrix.bytes()).collect();
        let supers = pack::supers(parts[0].matrix.columns);
        let apart = matches!(then, Then::Store | Then::Add);
        let (blocks, block_tiles) = match apart && !persistent {
            true => cut_apart(&tiles, &bytes, supers, multiprocessors),
            false => cut(&tiles, &bytes, multiprocessors),
        };
        let block_tiles = block_tiles * pair;
        let slices = if apart { supers } else { slices(block_tiles, supers) };
        let chunk_bytes = parts.iter().map(|part| pack::chunk_bytes(part.matrix.format)).max().unwrap_or(0);
        Plan { supers, slices, blocks, block_tiles, chunk_bytes, with_norm, spared: 0 }
    }

    /// Leaves the first blocks of a persistent step without work where no other gets more than an eighth more tiles for it: they wait for
    /// the keys and values of attention meanwhile, which everybody else waits for next, and longer than for a tile.
    fn spare(&mut self, attending: usize, parts: &[Part<'_>], multiprocessors: usize) {
        let tiles: Vec<usize> = parts.iter().map(|part| part.matrix.rows.div_ceil(pack::TILE_ROWS)).collect();
        let bytes: Vec<usize> = parts.iter().map(|part| part.matrix.bytes()).collect();
        let left = multiprocessors.saturating_sub(attending);
        if left < tiles.len() || left < attending {
            return;
        }
        let (blocks, block_tiles) = cut(&tiles, &bytes, left);
        if 8 * block_tiles <= 9 * self.block_tiles {
            (self.blocks, self.block_tiles, self.spared) = (blocks, block_tiles, attending);
        }
    }

    /// Whether tiles are added up as a whole instead of one sum for each super-block.
    pub fn is_whole(&self) -> bool {
        self.slices == 1 && self.supers > 1
    }

    /// Bytes of the partial results of a block.
    pub fn partial_bytes(&self) -> usize {
        partial_bytes(self.block_tiles, self.slices)
    }

    /// Shared memory of a block: quantised rows, partial results (the squares of the norm before), chunks in flight.
    fn shared_bytes(&self) -> usize {
        let activations = self.supers * (256 + 64);
        let squares = if self.with_norm { self.supers * 4 } else { 0 };
        let partial = self.partial_bytes().max(squares).next_multiple_of(16);
        activations + partial + WARPS * DEPTH * self.chunk_bytes
    }
}

/// Blocks of each part, and the most tiles that one of them has.
fn cut(tiles: &[usize], bytes: &[usize], blocks: usize) -> (Vec<usize>, usize) {
    let blocks = share(tiles, bytes, blocks.min(tiles.iter().sum()));
    let block_tiles = tiles.iter().zip(&blocks).map(|(t, b)| t.div_ceil(*b)).max().unwrap_or(1);
    (blocks, block_tiles)
}

/// The same with as many blocks for each multiprocessor as it takes for the partial results of all super-blocks to fit.
fn cut_apart(tiles: &[usize], bytes: &[usize], supers: usize, multiprocessors: usize) -> (Vec<usize>, usize) {
    let mut blocks = multiprocessors;
    loop {
        let (given, block_tiles) = cut(tiles, bytes, blocks);
        if slices(block_tiles, supers) == supers || blocks >= tiles.iter().sum() {
            return (given, block_tiles);
        }
        blocks += multiprocessors;
    }
}

/// Gives every part blocks by its bytes: at least one, at most one per tile.
pub(super) fn share(tiles: &[usize], bytes: &[usize], blocks: usize) -> Vec<usize> {
    let total: usize = bytes.iter().sum();
    let mut given: Vec<usize> =
        tiles.iter().zip(bytes).map(|(&t, &b)| (blocks * b / total.max(1)).clamp(1, t)).collect();
    // What rounding left over goes where a block has most to do.
    while given.iter().sum::<usize>() < blocks {
        let load = |i: &usize| bytes[*i] / given[*i];
        match (0..tiles.len()).filter(|&i| given[i] < tiles[i]).max_by_key(load) {
            Some(i) => given[i] += 1,
            None => break,
        }
    }
    given
}

/// Slices of the columns: one per super-block, so that the warps of a block have nearly equal work, or one in all where
/// a block has so many tiles that the partial results would not fit. `decode_persistent.cu` knows these two cases.
pub(super) fn slices(block_tiles: usize, supers: usize) -> usize {
    if partial_bytes(block_tiles, supers) <= PARTIAL_BYTES_MAX { supers } else { 1 }
}

/// Bytes of partial results of this many tiles, one sum for each row and slice.
pub(super) fn partial_bytes(block_tiles: usize, slices: usize) -> usize {
    block_tiles * slices * pack::TILE_ROWS * 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_results_fit() {
        // Queries, keys and values of the 1.5B; its gate and up; its down; its logits; gate and up, and down, of the 7B.
        let cases = [(4, 6), (34, 6), (3, 35), (288, 6), (72, 14), (7, 74)];
        assert_eq!(cases.map(|(block_tiles, supers)| slices(block_tiles, supers)), [6, 6, 35, 1, 14, 74]);
    }

    #[test]
    fn there_are_more_blocks_where_sums_do_not_fit() {
        // Down of the 7B (896 tiles, 74 super-blocks) and of the 32B (1,280 and 108), by multiprocessors.
        let blocks = |tiles: usize, supers, multiprocessors| {
            let (blocks, block_tiles) = cut_apart(&[tiles], &[tiles], supers, multiprocessors);
            assert!(partial_bytes(block_tiles, supers) <= PARTIAL_BYTES_MAX && blocks[0] * block_tiles >= tiles);
            blocks[0]
        };
        assert_eq!([blocks(896, 74, 132), blocks(896, 74, 108), blocks(896, 74, 46)], [132, 108, 92]);
        assert_eq!([blocks(1280, 108, 132), blocks(1280, 108, 20)], [264, 160]);
    }

    #[test]
    fn blocks_are_shared_by_bytes_and_all_given() {
        let blocks = share(&[384, 64, 64], &[384 * 36, 64 * 36, 64 * 53], 132);
        assert_eq!(blocks.iter().sum::<usize>(), 132);
        assert!(blocks[0] > 90 && blocks[2] > blocks[1], "{blocks:?}");
        assert_eq!(share(&[1, 1], &[10, 1000], 2), [1, 1]);
    }
}

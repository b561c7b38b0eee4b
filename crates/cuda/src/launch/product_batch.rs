//! Launching products of a matrix and 2 to 32 rows on tensor cores, and what goes before them: rows made ready once.

use super::products::{self, Plan};
use super::{Kernels, Module, room};
use crate::arguments::*;
use crate::blocks::*;
use crate::device::{Device, Function, Start};
use crate::error::Error;
use crate::pack;
use kernels::Format;

/// Numbers of tiles of eight rows there are kernels for.
pub(super) const TILES: [usize; 4] = [1, 2, 3, 4];
pub(super) const TILES_MAX: usize = TILES[TILES.len() - 1];
pub(super) const WARPS: usize = 12;
pub(super) const THREADS: u32 = (WARPS * 32) as u32;
/// Shared memory of a warp for the scales of its sixteen rows, where it multiplies block by block.
const SCALES_BYTES: usize = 1024;
/// Floats between the results of two rows in what a unit leaves.
const PARTIAL_STRIDE: usize = 20;
/// Most blocks that may read each other's shared memory.
const CLUSTER_MAX: usize = 8;
/// Most super-blocks of a row for one such block, as `OWN_MAX` in `product_batch.cu`.
const OWN_MAX: usize = 8;
/// Most shared memory for the rows of a product that is cut along the columns.
const SPLIT_INPUT_BYTES_MAX: usize = 64 << 10;

/// Units each warp has in flight or is working on.
pub(super) fn depth(tiles: usize) -> usize {
    if tiles == 1 { 3 } else { 2 }
}

/// Whether activations that meet this format have one scale per 256 columns.
pub(super) fn is_wide(format: Format) -> bool {
    format.block_elements() == pack::CHUNK_COLUMNS
}

/// Bytes of a super-block of quantised rows, as `input_bytes` in `product_batch.cu` has them, for all tiles.
pub(super) fn input_bytes(tiles: usize, wide: bool) -> usize {
    tiles * (2048 + if wide { 128 + 32 } else { 256 + 256 })
}

/// Shared memory of a warp for scales. Those of super-blocks that are kept apart are integers and stay where they are.
pub(super) fn scales_bytes(format: Format, whole: bool) -> usize {
    if is_wide(format) && !whole { 0 } else { SCALES_BYTES }
}

/// Bytes of what so many units leave for so many rows.
pub(super) fn partial_bytes_held(units: usize, rows: usize) -> usize {
    (units * rows * PARTIAL_STRIDE * 4).next_multiple_of(128)
}

/// Bytes of quantised rows of this many columns, at most [`crate::PICK_ROWS_MAX`] of them.
pub fn quantised_bytes(columns: usize) -> usize {
    pack::supers(columns) * input_bytes(TILES_MAX, false)
}

/// The kernels for one number of tiles.
pub(super) struct ProductBatch {
    tiles: usize,
    store: Function,
    partial: Function,
    gates: [Function; 2],
    logits: [Function; 2],
    residual_norm_quant: Function,
}

impl ProductBatch {
    pub fn new(device: &Device, tiles: usize, module: &Module) -> Result<ProductBatch, Error> {
        let much = |name| module.function_with(name, device.facts().shared_bytes - STATIC_SHARED_BYTES);
        Ok(ProductBatch {
            tiles,
            store: much("product_batch_store")?,
            partial: much("product_batch_partial")?,
            gates: [much("product_batch_gate")?, much("product_batch_gate_whole")?],
            logits: [much("product_batch_logits")?, much("product_batch_logits_whole")?],
            residual_norm_quant: module
                .function_with("residual_norm_quant", device.facts().shared_bytes - RESIDUAL_NORM_QUANT_SHARED_BYTES)?,
        })
    }
}

/// Fixed shared memory of these kernels, which counts against the most they may ask for.
const STATIC_SHARED_BYTES: usize = 512;
const RESIDUAL_NORM_QUANT_SHARED_BYTES: usize = 9 << 10;
/// A thread for each column of a super-block.
const RESIDUAL_NORM_QUANT_THREADS: u32 = pack::CHUNK_COLUMNS as u32;

/// How one product is cut up.
struct Cut {
    blocks: Vec<usize>,
    splits: usize,
    wave: usize,
    shared_bytes: usize,
}

impl Kernels {
    fn tiles_for(&self, rows: usize) -> &ProductBatch {
        assert!((1..=TILES_MAX * 8).contains(&rows), "at most {} rows", TILES_MAX * 8);
        self.product_batch
            .iter()
            .find(|product_batch| rows <= product_batch.tiles * 8)
            .expect("there are kernels for 32 rows")
    }

    /// The residual with what was left to add, normalised and quantised.
    pub fn residual_norm_quant(&self, call: &ResidualNormQuantCall<'_>) -> Result<(), Error> {
        let (product_batch, columns) = (self.tiles_for(call.rows), call.norm.0.len());
        let supers = pack::supers(columns);
        let visits = call.partial.as_ref().and_then(|partial| partial.visits);
        let slices = call.partial.as_ref().map_or(0, |partial| pack::supers(partial.columns));
        let slices = slices * visits.map_or(1, |(_, used)| used);
        if let Some((shares, used)) = visits {
            room(shares, call.rows * used, "shares");
        }
        if let Some(normed) = call.normed {
            room(normed, call.rows * columns, "normalised rows");
        }
        room(call.x, call.rows * columns, "the residual");
        room(call.squares, call.rows * supers, "squares");
        room(call.arrived, call.rows, "counters");
        room(call.output, quantised_bytes(columns), "quantised rows");
        let bias = call.partial.as_ref().and_then(|partial| partial.bias);
        if let Some(partial) = &call.partial {
            room(partial.sums, slices * call.rows * columns, "partial sums");
            assert!(bias.is_none_or(|bias| bias.len == columns), "one bias per column");
        }
        let mut a = Arguments::default();
        let params = ResidualNormQuantBlock {
            x: a.at(call.x),
            partial: a.optional(call.partial.as_ref().map(|partial| partial.sums)),
            bias: a.optional(bias),
            norm: a.at(call.norm.0.all()),
            squares: a.at(call.squares),
            arrived: a.at(call.arrived),
            output: a.at(call.output),
            epsilon: call.norm.1,
            columns: columns as u32,
            supers: supers as u32,
            slices: slices as u32,
            rows: call.rows as u32,
            wide: u32::from(is_wide(call.format)),
            normed: a.optional(call.normed),
            shares: a.optional(visits.map(|(shares, _)| shares)),
            visits: visits.map_or(1, |(_, used)| used) as u32,
            padding: 0,
        };
        // The blocks of a row are one cluster: at most eight, and as equally busy as can be.
        let blocks = supers.div_ceil(supers.div_ceil(CLUSTER_MAX));
        self.launch_with(
            Start::Clusters(blocks as u32),
            &product_batch.residual_norm_quant,
            (blocks as u32, call.rows as u32, 1),
            RESIDUAL_NORM_QUANT_THREADS,
            slices * 1024,
            a,
            &params,
        )
    }

    /// Whether a decoder of this width, with rows this long inside, can do several rows at once: what they need fits into
    /// shared memory.
    pub fn has_product_batch(&self, width: usize, longest: usize) -> bool {
        let facts = self.device.facts();
        let available = facts.shared_bytes - STATIC_SHARED_BYTES;
        let supers = pack::supers(width);
        let input = supers * input_bytes(TILES[1], false) + partial_bytes_held(supers, TILES[1] * 8);
        let ring = WARPS * (SCALES_BYTES + depth(TILES[1]) * self.unit_bytes());
        let quantises = supers <= CLUSTER_MAX * OWN_MAX
            && pack::supers(longest) * 1024 <= facts.shared_bytes - RESIDUAL_NORM_QUANT_SHARED_BYTES;
        quantises && input + ring <= available
    }

    fn unit_bytes(&self) -> usize {
        let quantised = self.options.formats.iter().filter(|&&format| !pack::is_float(format));
        quantised.map(|&format| 4 * pack::chunk_bytes(format)).max().unwrap_or(0)
    }

    /// Matrix times several rows.
    pub fn product_batch(&self, call: &ProductBatchCall<'_>) -> Result<(), Error> {
        let matrix = call.parts[0].matrix;
        assert!((1..=3).contains(&call.parts.len()), "one to three matrices");
        for part in call.parts {
            self.has(part.matrix);
            assert_eq!(part.matrix.columns, matrix.columns, "matrices over the same input are equally wide");
            assert_eq!(is_wide(part.matrix.format), is_wide(matrix.format), "matrices over the same quantised rows");
            assert!(part.output + part.matrix.rows <= call.stride, "results fit an output row");
            assert!(part.bias.is_none_or(|bias| bias.len == part.matrix.rows), "one bias per output");
        }
        if let Then::Gate(up) = call.then {
            products::same_shape(matrix, up)?;
        }
        let adds = matches!(call.then, Then::Add);
        match call.input {
            Rows::Quantised(rows) => room(rows, quantised_bytes(matrix.columns), "quantised rows"),
            Rows::Plain(rows) => room(rows, call.rows * matrix.columns, "input rows"),
        }
        assert_eq!(matches!(call.input, Rows::Plain(_)), adds, "only what is added is quantised by its product");
        let slices = if adds { pack::supers(matrix.columns) } else { 1 };
        assert!(call.parts.len() == 1 || slices == 1, "one matrix is added");
        room(call.output, slices * call.rows * call.stride, "output rows");
        // Where 32 rows do not fit into shared memory the weights are read twice.
        let product_batch = self.tiles_for(call.rows);
        let fits = |product_batch: &&ProductBatch| self.cut(call, product_batch.tiles).is_some();
        let product_batch = Some(product_batch).filter(fits).or_else(|| self.product_batch.get(1).filter(fits));
        let product_batch =
            product_batch.ok_or_else(|| Error::Unsupported(format!("rows of {} columns", matrix.columns)))?;
        for first in (0..call.rows).step_by(product_batch.tiles * 8) {
            self.product_batch_rows(call, product_batch, first)?;
        }
        Ok(())
    }

    fn product_batch_rows(
        &self,
        call: &ProductBatchCall<'_>,
        product_batch: &ProductBatch,
        first: usize,
    ) -> Result<(), Error> {
        let matrix = call.parts[0].matrix;
        let supers = pack::supers(matrix.columns);
        let cut = self.cut(call, product_batch.tiles).ok_or_else(|| Error::Unsupported("a product".to_owned()))?;
        let mut a = Arguments::default();
        let skipped = supers * input_bytes(first / 8, is_wide(matrix.format));
        let mut params = ProductBatchBlock {
            input: match call.input {
                Rows::Quantised(rows) => a.at(rows) + skipped as u64,
                Rows::Plain(rows) => a.at(rows),
            },
            columns: matrix.columns as u32,
            output: a.at(call.output) + (first * call.stride * 4) as u64,
            supers: supers as u32,
            rows: (call.rows - first).min(product_batch.tiles * 8) as u32,
            output_stride: call.stride as u32,
            splits: cut.splits as u32,
            wave: cut.wave as u32,
            slice_rows: call.rows as u32,
            segments: products::segments(&mut a, call.parts, call.then, &cut.blocks),
            ..ProductBatchBlock::default()
        };
        let blocks: usize = cut.blocks.iter().sum();
        let whole = usize::from(self.plan(call).is_whole());
        let function = match call.then {
            Then::Store => &product_batch.store,
            Then::Add => {
                assert_eq!(first, 0, "sums of all rows are left at once");
                &product_batch.partial
            }
            Then::Gate(_) => &product_batch.gates[whole],
            Then::Logits(candidates) => {
                room(candidates, call.rows * blocks, "candidates");
                params.candidates = a.at(candidates) + (first * blocks * 8) as u64;
                &product_batch.logits[whole]
            }
        };
        self.launch(function, (blocks as u32, 1, 1), THREADS, cut.shared_bytes, a, &params)
    }

    fn plan(&self, call: &ProductBatchCall<'_>) -> Plan {
        Plan::new(call.parts, call.then, false, self.device.facts().multiprocessors as usize, false)
    }

    /// How a product is cut up for a number of tiles; `None` when its rows do not fit into shared memory. Cuts must not
    /// change sums: whether a group is added up as a whole is the one-row kernel's choice, and it depends on shapes only.
    fn cut(&self, call: &ProductBatchCall<'_>, tiles: usize) -> Option<Cut> {
        let facts = self.device.facts();
        let (multiprocessors, available) = (facts.multiprocessors as usize, facts.shared_bytes - STATIC_SHARED_BYTES);
        let matrix = call.parts[0].matrix;
        let supers = pack::supers(matrix.columns);
        let input = input_bytes(tiles, is_wide(matrix.format));
        let unit = call.parts.iter().map(|part| 4 * pack::chunk_bytes(part.matrix.format)).max().unwrap_or(0);
        let whole = self.plan(call).is_whole();
        let scales = call.parts.iter().map(|part| scales_bytes(part.matrix.format, whole)).max().unwrap_or(0);
        let fixed = WARPS * (scales + depth(tiles) * unit);
        let each = if matches!(call.then, Then::Gate(_)) { 2 } else { 4 };
        let groups: Vec<usize> =
            call.parts.iter().map(|p| p.matrix.rows.div_ceil(pack::TILE_ROWS).div_ceil(each)).collect();
        if matches!(call.then, Then::Add) {
            let splits = splits(groups[0], supers, multiprocessors, SPLIT_INPUT_BYTES_MAX / input)?;
            let blocks = (multiprocessors / splits).min(groups[0]) * splits;
            let shared_bytes = supers.div_ceil(splits) * input + fixed;
            return Some(Cut { blocks: vec![blocks], splits, wave: groups[0], shared_bytes });
        }
        let blocks = match call.then {
            Then::Logits(_) => vec![self.candidates(matrix.rows)],
            _ => {
                let bytes: Vec<usize> = call.parts.iter().map(|part| part.matrix.bytes()).collect();
                products::share(&groups, &bytes, multiprocessors.min(groups.iter().sum()))
            }
        };
        let most = groups.iter().zip(&blocks).map(|(g, b)| g.div_ceil(*b)).max().unwrap_or(1);
        let left = available.checked_sub(supers * input + fixed)?;
        let held =
            |groups: usize| if whole { 0 } else { partial_bytes_held(groups * supers, call.rows.min(8 * tiles)) };
        let wave = left.checked_div(held(1)).map_or(most, |wave| wave.min(most));
        let shared_bytes = supers * input + fixed + held(wave);
        (wave > 0).then_some(Cut { blocks, splits: 1, wave, shared_bytes })
    }
}

/// Parts the columns are cut into: what leaves the busiest warp least to do, and then the least input to read.
fn splits(groups: usize, supers: usize, multiprocessors: usize, supers_max: usize) -> Option<usize> {
    let cost = |&splits: &usize| {
        let (blocks, supers) = ((multiprocessors / splits).min(groups), supers.div_ceil(splits));
        let units = groups.div_ceil(blocks) * supers;
        // A round of units takes about as long as reading ten super-blocks of rows.
        10 * units.div_ceil(WARPS) + supers
    };
    (1..=supers.min(multiprocessors)).filter(|&splits| supers.div_ceil(splits) <= supers_max).min_by_key(cost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_cut_so_that_warps_are_busy() {
        // The output and down projections of the 1.5B and of the 7B on 132 multiprocessors.
        let cases = [(96, 6), (96, 35), (224, 14), (224, 74)];
        for (groups, supers) in cases {
            let splits = splits(groups, supers, 132, 14).unwrap();
            let blocks = (132 / splits).min(groups);
            let rounds = (groups.div_ceil(blocks) * supers.div_ceil(splits)).div_ceil(WARPS);
            let least = (groups * supers).div_ceil(132 * WARPS);
            assert!(rounds <= least + 1, "{groups} x {supers}: {splits} splits, {rounds} rounds of {least}");
        }
        assert_eq!(splits(96, 35, 132, 0), None);
    }
}

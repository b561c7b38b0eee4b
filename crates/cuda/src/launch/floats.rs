//! Launching products with matrices of halves or brain floats, which are multiplied as they are.

use super::{Kernels, Module, product_batch, products, room};
use crate::arguments::*;
use crate::blocks::*;
use crate::device::{Device, Function};
use crate::error::Error;
use crate::pack;

const THREADS: u32 = 256;
/// Weight rows that a block takes at a time.
const GROUP_ROWS: usize = 16;
/// Blocks that share a multiprocessor: so many that enough weights are in flight.
const BLOCKS_EACH: usize = 3;

/// The kernels.
pub(super) struct Floats {
    ready: Function,
    /// By number of tiles, as [`several::TILES`]: store, gate, logits.
    products: Vec<[Function; 3]>,
}

impl Floats {
    pub fn new(device: &Device, module: &Module) -> Result<Floats, Error> {
        let function = |kind: &str, tiles: usize| module.variant("floats", &format!("{kind}_{tiles}"), 0);
        let of = |tiles| Ok([function("store", tiles)?, function("gate", tiles)?, function("logits", tiles)?]);
        let products = product_batch::TILES.iter().map(|&tiles| of(tiles)).collect::<Result<_, Error>>()?;
        Ok(Floats { ready: module.function(device, "ready", false)?, products })
    }
}

impl Kernels {
    /// Whether some matrices are of floats, which programs and products of one row do not read.
    pub fn has_floats(&self) -> bool {
        self.options.formats.iter().any(|&format| pack::is_float(format))
    }

    /// Matrices of floats times rows.
    pub fn floats(&self, call: &FloatsCall<'_>) -> Result<(), Error> {
        let (first, rows) = (call.parts[0].matrix, call.rows);
        assert!((1..=3).contains(&call.parts.len()), "one to three matrices");
        assert!((1..=product_batch::TILES_MAX * 8).contains(&rows), "as prefill rows as there are kernels for");
        for part in call.parts {
            self.has(part.matrix);
            assert_eq!(part.matrix.columns, first.columns, "matrices over the same input are equally wide");
            assert!(pack::is_float(first.format) && part.matrix.format == first.format, "floats of one kind");
            assert!(part.output + part.matrix.rows <= call.stride, "results fit an output row");
            assert!(part.bias.is_none_or(|bias| bias.len == part.matrix.rows), "one bias per output");
        }
        if let Then::Gate(up) = call.then {
            products::same_shape(first, up)?;
        }
        room(call.input, rows * first.columns, "input rows");
        room(call.ready, 2 * rows * first.columns, "input rows made ready");
        room(call.scales, rows, "scales");
        room(call.output, rows * call.stride, "output rows");
        let kernels = self.floats.as_ref().ok_or_else(|| Error::Unsupported("matrices of floats".to_owned()))?;
        self.make_ready(kernels, call)?;
        let mut a = Arguments::default();
        let blocks = self.float_blocks(call);
        let all: usize = blocks.iter().sum();
        let mut params = FloatsBlock {
            segments: products::segments(&mut a, call.parts, call.then, &blocks),
            input: a.at(call.ready),
            scales: a.at(call.scales),
            output: a.at(call.output),
            candidates: 0,
            columns: first.columns as u32,
            rows: rows as u32,
            output_stride: call.stride as u32,
            padding: 0,
        };
        let kind = match call.then {
            Then::Store => 0,
            Then::Gate(_) => 1,
            Then::Logits(candidates) => {
                room(candidates, rows * all, "candidates");
                params.candidates = a.at(candidates);
                2
            }
            Then::Add => unreachable!("floats are stored, and added by the residual's own kernel"),
        };
        let tiles =
            product_batch::TILES.iter().position(|tiles| rows <= tiles * 8).unwrap_or(product_batch::TILES.len() - 1);
        self.launch(&kernels.products[tiles][kind], (all as u32, 1, 1), THREADS, 0, a, &params)
    }

    fn make_ready(&self, kernels: &Floats, call: &FloatsCall<'_>) -> Result<(), Error> {
        let (matrix, mut a) = (call.parts[0].matrix, Arguments::default());
        let params = ReadyBlock {
            input: a.at(call.input),
            output: a.at(call.ready),
            scales: a.at(call.scales),
            columns: matrix.columns as u32,
            rows: call.rows as u32,
            format: matrix.format.file_id(),
            padding: 0,
        };
        self.launch(&kernels.ready, (call.rows as u32, 1, 1), THREADS, 0, a, &params)
    }

    /// Blocks of each part. Those of logits are as many as picks look at.
    fn float_blocks(&self, call: &FloatsCall<'_>) -> Vec<usize> {
        if matches!(call.then, Then::Logits(_)) {
            return vec![self.candidates(call.parts[0].matrix.rows)];
        }
        let groups: Vec<usize> = call.parts.iter().map(|part| part.matrix.rows.div_ceil(GROUP_ROWS)).collect();
        let most = self.device.facts().multiprocessors as usize * BLOCKS_EACH;
        products::share(&groups, &groups, most.min(groups.iter().sum()))
    }
}

//! One method per kernel: it checks shapes, fills the parameter block and launches.
//!
//! Kernels are compiled for the number formats, head size and head grouping of one model, all modules at once.

mod attention;
mod delta;
mod expert_rows;
mod experts;
mod floats;
mod job;
mod mixture;
mod modules;
mod options;
mod persistent;
mod phase;
mod product_batch;
mod products;
mod prompts;
mod recorder;
mod shortlist;

use crate::arguments::*;
use crate::blocks::*;
use crate::compile::{Source, watched};
use crate::device::{Call, Device, Function, Start};
use crate::error::Error;
use crate::memory::{Buffer, Matrix, Slice};
use crate::pack;

pub use expert_rows::visit_tiles;
use modules::{Module, Modules};
use options::{HEAD_MAX, HEAD_SHORT};
pub use options::{KernelsOptions, SPLITS};
pub use persistent::{PersistentStep, READINGS};
pub use product_batch::quantised_bytes;
pub use recorder::{Recorder, RowStep};
pub use shortlist::SHORTLIST_HEAD;

/// Most rows of one [`Kernels::pick`].
pub const PICK_ROWS_MAX: usize = 32;
/// Unread picks of a row that the mailbox has room for.
pub const PICK_RING: usize = 4;

/// The kernels of one model on one card.
pub struct Kernels {
    device: Device,
    options: KernelsOptions,
    products: products::Products,
    /// By number of tiles.
    product_batch: Vec<product_batch::ProductBatch>,
    experts: experts::Experts,
    /// Where some matrices are of floats.
    floats: Option<floats::Floats>,
    attention: Function,
    /// Where heads are short enough.
    attention_rows: Option<Function>,
    deltas: Option<delta::Deltas>,
    store_heads: Function,
    embed: Function,
    pick: Function,
    shortlist_kernels: shortlist::ShortlistKernels,
    norm_half: Function,
    random: Function,
    expand: Function,
    gemm: Function,
    gemm_packed_kernels: Vec<prompts::GemmPackedKernel>,
    expert_rows_kernels: expert_rows::ExpertRows,
    flash: Function,
    persistent: Option<persistent::PersistentKernel>,
}

impl Kernels {
    /// Compiles, or finds on disk, everything a model needs. Takes seconds the first time.
    pub fn new(device: &Device, options: KernelsOptions) -> Result<Kernels, Error> {
        if options.head > HEAD_MAX || !options.head.is_multiple_of(16) {
            return Err(Error::Unsupported(format!("a head of {} elements", options.head)));
        }
        if let Some(format) = options.formats.iter().find(|&&format| !pack::is_supported(format)) {
            return Err(Error::Unsupported(format!("a matrix in {}", format.name())));
        }
        let with_floats = options.formats.iter().any(|&format| pack::is_float(format));
        let whole = device.facts().capability.0 >= 9 && device.facts().shared_bytes >= persistent::SHARED_BYTES;
        let whole = whole && !with_floats && !watched();
        let is_wanted = |&source: &Source| match source {
            Source::DecodePersistent => whole,
            Source::Floats => with_floats,
            Source::Delta => options.delta,
            _ => true,
        };
        let modules = Modules::load(device, &options, Source::ALL.into_iter().filter(is_wanted))?;
        let batch = |tiles| product_batch::ProductBatch::new(device, tiles, modules.for_tiles(tiles));
        let [attention, heads, rows] =
            [Source::Attention, Source::Heads, Source::Rows].map(|source| modules.of(source));
        let [gemm, packed, flash] = [Source::Gemm, Source::GemmPacked, Source::Flash].map(|source| modules.of(source));
        let persistent = || persistent::PersistentKernel::new(device, modules.of(Source::DecodePersistent), &options);
        let plain = |module: &Module, name| module.function(device, name, false);
        Ok(Kernels {
            products: products::Products::new(device, modules.of(Source::Product))?,
            product_batch: product_batch::TILES.into_iter().map(batch).collect::<Result<_, Error>>()?,
            experts: experts::Experts::new(device, modules.for_tiles(1))?,
            floats: with_floats.then(|| floats::Floats::new(device, modules.of(Source::Floats))).transpose()?,
            attention: attention.function(device, "attention", true)?,
            attention_rows: (options.head <= HEAD_SHORT)
                .then(|| attention.function(device, "attention_rows", true))
                .transpose()?,
            deltas: options.delta.then(|| delta::Deltas::new(device, modules.of(Source::Delta))).transpose()?,
            store_heads: plain(heads, "store_heads")?,
            embed: plain(rows, "embed")?,
            pick: plain(rows, "pick")?,
            shortlist_kernels: shortlist::ShortlistKernels::new(device, rows)?,
            norm_half: plain(rows, "norm_half")?,
            random: plain(rows, "random_weights")?,
            expand: plain(gemm, "expand")?,
            gemm: gemm.function(device, "gemm", true)?,
            gemm_packed_kernels: prompts::GemmPackedKernel::all(device, packed, &options)?,
            expert_rows_kernels: expert_rows::ExpertRows::new(device, packed)?,
            flash: flash.function(device, "flash", true)?,
            persistent: whole.then(persistent).transpose()?,
            device: device.clone(),
            options,
        })
    }

    /// Keys and values into the cache; queries made ready.
    pub fn store_heads(&self, call: &StoreCall<'_>) -> Result<(), Error> {
        let KernelsOptions { head, heads, kv_heads, .. } = self.options;
        assert!(call.queries.is_none_or(|queries| queries.len >= call.rows * heads * head), "room for queries");
        let mut a = Arguments::default();
        let heads_block = self.heads_block(&mut a, &call.heads, call.rows);
        let params = StoreBlock { heads: heads_block, queries: a.optional(call.queries) };
        let grid = (call.rows as u32, (heads + 2 * kv_heads).div_ceil(4) as u32, 1);
        self.launch(&self.store_heads, grid, 128, 0, a, &params)
    }

    /// Embeddings of tokens. A token outside the table is the caller's mistake and reads memory it should not.
    pub fn embed(&self, call: &EmbedCall<'_>) -> Result<(), Error> {
        let (params, a) = self.embed_block(call);
        self.launch(&self.embed, (call.tokens.len as u32, 1, 1), 128, 0, a, &params)
    }

    fn embed_block(&self, call: &EmbedCall<'_>) -> (EmbedBlock, Arguments) {
        let (table, rows) = (call.table, call.tokens.len);
        assert!(call.output.len >= rows * table.columns, "room for the output");
        self.has(table);
        let mut a = Arguments::default();
        let params = EmbedBlock {
            table: a.at(table.bytes.all()),
            tokens: a.at(call.tokens),
            output: a.at(call.output),
            format: table.format.file_id(),
            columns: table.columns as u32,
            supers: pack::supers(table.columns) as u32,
            padding: 0,
        };
        (params, a)
    }

    /// The most likely token of each row, into the mailbox and perhaps into the next step.
    pub fn pick(&self, call: &PickCall<'_>) -> Result<(), Error> {
        let (params, a) = self.pick_block(call);
        self.launch(&self.pick, (call.rows as u32, 1, 1), 256, 0, a, &params)
    }

    fn pick_block(&self, call: &PickCall<'_>) -> (PickBlock, Arguments) {
        let (rows, blocks) = (call.rows, self.product_blocks(call.vocab));
        assert!(rows <= PICK_ROWS_MAX && call.mailbox.len() >= PICK_RING * PICK_ROWS_MAX, "rows fit the mailbox");
        assert!(call.candidates.len >= rows * blocks && call.tickets.len >= rows, "candidates of every row");
        assert!(call.next.is_none_or(|(tokens, positions)| tokens.len.min(positions.len) >= rows), "room for the next");
        let mut a = Arguments::default();
        let params = PickBlock {
            candidates: a.at(call.candidates),
            tokens: a.optional(call.next.map(|next| next.0)),
            positions: a.optional(call.next.map(|next| next.1)),
            tickets: a.at(call.tickets),
            mailbox: a.mailbox(call.mailbox),
            blocks: blocks as u32,
            padding: 0,
        };
        (params, a)
    }

    /// Fills a matrix with random weights of a sensible size.
    pub fn random(&self, matrix: &Matrix, seed: u32) -> Result<(), Error> {
        self.has(matrix);
        assert!(!pack::is_float(matrix.format), "random weights are quantised");
        let mut a = Arguments::default();
        let params = RandomBlock {
            output: a.at(matrix.bytes.all()),
            chunks: (matrix.bytes() / pack::chunk_bytes(matrix.format)) as u64,
            format: matrix.format.file_id(),
            seed,
        };
        self.launch_with(Start::Plain, &self.random, (1024, 1, 1), 256, 0, a, &params)
    }

    fn heads_block(&self, a: &mut Arguments, call: &HeadsCall<'_>, rows: usize) -> HeadsBlock {
        let KernelsOptions { head, heads, kv_heads, .. } = self.options;
        let layer_bytes = self.options.layer_bytes();
        assert!(call.rows.len >= rows * self.options.row_heads() * head, "every row has its heads");
        assert!(call.positions.len >= rows && call.sequences.len >= rows, "every row has its slot");
        assert!((call.layer + 1) * layer_bytes <= call.block_bytes, "the layer is inside a block");
        let norm = |norm: Option<&Buffer<f32>>| norm.is_none_or(|norm| norm.len() == head);
        assert!(norm(call.q_norm) && norm(call.k_norm) && call.dimensions <= head, "norms and rotation fit a head");
        HeadsBlock {
            rows: a.at(call.rows),
            positions: a.at(call.positions),
            tables: a.at(call.tables),
            sequences: a.at(call.sequences),
            cache: a.at(call.cache),
            q_norm: a.optional(call.q_norm.map(Buffer::all)),
            k_norm: a.optional(call.k_norm.map(Buffer::all)),
            angles: a.at(call.angles.all()),
            block_bytes: call.block_bytes as u64,
            layer_offset: (call.layer * layer_bytes) as u64,
            epsilon: call.epsilon,
            scale: 1.0 / (head as f32).sqrt(),
            heads: heads as u32,
            kv_heads: kv_heads as u32,
            dimensions: call.dimensions as u32,
            neighbours: u32::from(call.neighbours),
            table_stride: call.table_stride as u32,
            padding: 0,
        }
    }

    fn has(&self, matrix: &Matrix) {
        assert!(self.options.formats.contains(&matrix.format), "kernels were compiled for {}", matrix.format.name());
    }

    /// Launches a kernel that may start while the one before ends, and waits by itself.
    fn launch<P>(
        &self,
        function: &Function,
        grid: (u32, u32, u32),
        threads: u32,
        shared_bytes: usize,
        arguments: Arguments,
        params: &P,
    ) -> Result<(), Error> {
        self.launch_with(Start::Early, function, grid, threads, shared_bytes, arguments, params)
    }

    #[allow(clippy::too_many_arguments, reason = "they are the parts of a launch")]
    fn launch_with<P>(
        &self,
        start: Start,
        function: &Function,
        grid: (u32, u32, u32),
        threads: u32,
        shared_bytes: usize,
        arguments: Arguments,
        params: &P,
    ) -> Result<(), Error> {
        self.device.launch(Call { function, grid, threads, shared_bytes, start }, arguments, params)
    }
}

/// Panics unless a slice has room: wrappers use it where a block of addresses is made.
fn room<T>(slice: Slice<'_, T>, len: usize, what: &str) {
    assert!(slice.len >= len, "room for {what}: {} of {len}", slice.len);
}

//! One method per kernel: it checks shapes, fills the parameter block and launches.
//!
//! Kernels are compiled for the number formats, head size and head grouping of one model, all modules at once.

mod attention;
mod experts;
mod floats;
mod job;
mod mixture;
mod narrow;
mod options;
mod phase;
mod products;
mod program;
mod prompts;
mod script;
mod several;
mod visits;

use crate::arguments::*;
use crate::blocks::*;
use crate::compile::{Source, architecture_option, compile, watched};
use crate::device::{Call, Device, Function, Start, check};
use crate::error::Error;
use crate::memory::{Buffer, Matrix, Slice};
use crate::pack;
use cudarc::driver::sys;
use std::ffi::{CString, c_void};
use std::sync::{Mutex, PoisonError};

pub use narrow::NARROW_HEAD;
use options::HEAD_MAX;
pub use options::{KernelsOptions, SPLITS};
pub use program::{Program, READINGS};
use script::Script;
pub use several::quantised_bytes;
pub use visits::visit_tiles;

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
    several: Vec<several::Several>,
    experts: experts::Experts,
    /// Where some matrices are of floats.
    floats: Option<floats::Floats>,
    attention: Function,
    attention_rows: Function,
    store_heads: Function,
    embed: Function,
    pick: Function,
    narrow: narrow::Narrow,
    norm_half: Function,
    random: Function,
    expand: Function,
    gemm: Function,
    packed: Vec<prompts::PackedKernel>,
    visits: visits::Visits,
    flash: Function,
    token: Option<program::TokenKernel>,
    /// While a program is written: what was asked for, instead of being launched.
    script: Mutex<Option<Script>>,
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
        let several = several::TILES.map(|tiles| (Source::Several, tiles));
        let with_floats = options.formats.iter().any(|&format| pack::is_float(format));
        let whole = device.facts().capability.0 >= 9 && device.facts().shared_bytes >= program::SHARED_BYTES;
        let whole = whole && !with_floats && !watched();
        let others = Source::ALL.into_iter().filter(|&source| source != Source::Several).map(|source| (source, 0));
        let others = others.filter(|&(source, _)| whole || source != Source::Token);
        let others = others.filter(|&(source, _)| with_floats || source != Source::Floats);
        let wanted: Vec<(Source, usize)> = several.into_iter().chain(others).collect();
        let architecture = architecture_option(device.facts().capability);
        let compiled = std::thread::scope(|scope| {
            let (options, architecture) = (&options, &architecture);
            let start = |(source, tiles): &(Source, usize)| {
                let (source, definitions) = (*source, options.definitions(*source, *tiles));
                scope.spawn(move || compile(source, &definitions, architecture))
            };
            let threads: Vec<_> = wanted.iter().map(start).collect();
            threads.into_iter().map(|thread| thread.join().expect("compiling does not panic")).collect::<Vec<_>>()
        });
        let mut modules = compiled.into_iter().map(|bytes| Module::load(device, &bytes?));
        let mut next = || modules.next().expect("one module for each that was wanted");
        let modules_of_several = several::TILES.iter().map(|_| next()).collect::<Result<Vec<_>, Error>>()?;
        let several = several::TILES.iter().zip(&modules_of_several);
        let several = several.map(|(&tiles, module)| several::Several::new(device, tiles, module));
        let several = several.collect::<Result<_, Error>>()?;
        let experts = experts::Experts::new(device, &modules_of_several[0])?;
        let products = products::Products::new(device, &next()?)?;
        let floats = if with_floats { Some(floats::Floats::new(device, &next()?)?) } else { None };
        let (attention, heads, rows) = (next()?, next()?, next()?);
        let (gemm, packed, flash) = (next()?, next()?, next()?);
        let token = if whole { Some(program::TokenKernel::new(device, &next()?, &options)?) } else { None };
        let plain = |module: &Module, name| module.function(device, name, false);
        Ok(Kernels {
            products,
            several,
            experts,
            floats,
            attention: attention.function(device, "attention", true)?,
            attention_rows: attention.function(device, "attention_rows", true)?,
            store_heads: plain(&heads, "store_heads")?,
            embed: plain(&rows, "embed")?,
            pick: plain(&rows, "pick")?,
            narrow: narrow::Narrow::new(device, &rows)?,
            norm_half: plain(&rows, "norm_half")?,
            random: plain(&rows, "random_weights")?,
            expand: plain(&gemm, "expand")?,
            gemm: gemm.function(device, "gemm", true)?,
            packed: prompts::PackedKernel::all(device, &packed, &options)?,
            visits: visits::Visits::new(device, &packed)?,
            flash: flash.function(device, "flash", true)?,
            token,
            script: Mutex::new(None),
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
        self.launch("store_heads", &self.store_heads, grid, 128, 0, a, &params)
    }

    /// Embeddings of tokens. A token outside the table is the caller's mistake and reads memory it should not.
    pub fn embed(&self, call: &EmbedCall<'_>) -> Result<(), Error> {
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
        if let Some(script) = self.script().as_mut() {
            return script.embed(params, a);
        }
        self.launch("embed", &self.embed, (rows as u32, 1, 1), 128, 0, a, &params)
    }

    /// The most likely token of each row, into the mailbox and perhaps into the next step.
    pub fn pick(&self, call: &PickCall<'_>) -> Result<(), Error> {
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
        if let Some(script) = self.script().as_mut() {
            return script.pick(params, a);
        }
        self.launch("pick", &self.pick, (rows as u32, 1, 1), 256, 0, a, &params)
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
        self.launch("random_weights", &self.random, (1024, 1, 1), 256, 0, a, &params)
    }

    fn heads_block(&self, a: &mut Arguments, call: &HeadsCall<'_>, rows: usize) -> HeadsBlock {
        let KernelsOptions { head, heads, kv_heads, .. } = self.options;
        let layer_bytes = self.options.layer_bytes();
        assert!(call.rows.len >= rows * (heads + 2 * kv_heads) * head, "every row has its heads");
        assert!(call.positions.len >= rows && call.sequences.len >= rows, "every row has its place");
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

    #[allow(clippy::too_many_arguments, reason = "they are the parts of a launch")]
    fn launch<P>(
        &self,
        name: &'static str,
        function: &Function,
        grid: (u32, u32, u32),
        threads: u32,
        shared_bytes: usize,
        arguments: Arguments,
        params: &P,
    ) -> Result<(), Error> {
        if self.script().is_some() {
            return Err(Error::Unsupported(format!("`{name}` in a program")));
        }
        let start = match name {
            "random_weights" => Start::Plain,
            "settle" => Start::Clusters(grid.0),
            _ => Start::Early,
        };
        self.device.launch(Call { name, function, grid, threads, shared_bytes, start }, arguments, params)
    }

    fn script(&self) -> std::sync::MutexGuard<'_, Option<Script>> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Loaded machine code. It stays loaded: a process loads a handful.
struct Module(sys::CUmodule);

impl Module {
    fn load(device: &Device, bytes: &[u8]) -> Result<Module, Error> {
        device.inner.bind()?;
        let mut module = std::ptr::null_mut();
        // SAFETY: the bytes are machine code made by the compiler, and live through the call.
        check("cuModuleLoadData", unsafe { sys::cuModuleLoadData(&mut module, bytes.as_ptr().cast::<c_void>()) })?;
        Ok(Module(module))
    }

    /// A kernel by name; `much` when it asks for more shared memory at launch than kernels usually may.
    fn function(&self, device: &Device, name: &str, much: bool) -> Result<Function, Error> {
        self.function_with(name, if much { device.facts().shared_bytes } else { 0 })
    }

    /// A kernel by name that may ask for this much shared memory at launch; 0 is what kernels usually may.
    fn function_with(&self, name: &str, shared_bytes: usize) -> Result<Function, Error> {
        let name = CString::new(name).expect("names of kernels have no zero bytes");
        let mut function = std::ptr::null_mut();
        // SAFETY: the module is loaded and the name ends with a zero.
        check("cuModuleGetFunction", unsafe { sys::cuModuleGetFunction(&mut function, self.0, name.as_ptr()) })?;
        use sys::CUfunction_attribute as A;
        // All kernels ask for the same split between cache and shared memory: a multiprocessor cannot run two kernels
        // with different splits side by side, and dependent kernels are meant to overlap.
        let split = (A::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 100);
        let most = (A::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_bytes as i32);
        for (attribute, value) in [Some(split), (shared_bytes > 0).then_some(most)].into_iter().flatten() {
            // SAFETY: the function was just found.
            check("cuFuncSetAttribute", unsafe { sys::cuFuncSetAttribute(function, attribute, value) })?;
        }
        Ok(Function(function))
    }
}

/// Panics unless a slice has room: wrappers use it where a block of addresses is made.
fn room<T>(slice: Slice<'_, T>, len: usize, what: &str) {
    assert!(slice.len >= len, "room for {what}: {} of {len}", slice.len);
}

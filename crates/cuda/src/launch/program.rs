//! A whole step of one row as one kernel: calls are written down as a list that the kernel `token` works through.
//!
//! The list holds the parameter blocks that the kernels of a graph would get, so the two ways cannot drift apart. Only
//! vectors that one phase hands to another are replaced: each gets a tagged twin (`kernels/tagged.cuh`), and the list says
//! which phase wrote what a phase reads.

use super::{Kernels, KernelsOptions, Module, SPLITS, products};
use crate::arguments::*;
use crate::device::{Call, Function, Start};
use crate::error::Error;
use crate::memory::{Buffer, Keep, Plain};
use crate::{Device, pack};
use kernels::Format;
use std::collections::HashMap;
use std::sync::Arc;

/// The kernel's fixed shared memory, which counts against the most it may ask for.
const FIXED_BYTES: usize = 4096;
/// Shared memory that wide rows need; attention usually needs more.
const WORK_BYTES_MIN: usize = 48 << 10;
/// Most phases of a program: a model of 50 layers.
const PHASES_MAX: usize = 256;
/// Bytes of parameters of a phase that is no product.
const OP_BYTES: usize = 208;
/// Widest row a norm may have: two super-blocks for each warp.
const NORM_COLUMNS_MAX: usize = 2 * products::WARPS * pack::CHUNK_COLUMNS;
/// Shared memory of a multiprocessor of compute capability 9.0; later ones have as much.
const SHARED_BYTES: usize = 227 << 10;

/// Bytes that a warp fetches at once: four chunks of four bits, two of six or eight.
pub(super) const STAGE_BYTES: usize = 2304;
/// After the last stage: sums of pairs of chunks may read past it.
const SLACK_BYTES: usize = 2048;

/// How many stages each warp has under way: as many as fit beside everything else.
pub(super) fn depth(options: &KernelsOptions) -> usize {
    let work = options.attention_bytes().max(WORK_BYTES_MIN);
    let others = FIXED_BYTES + work + PHASES_MAX * size_of::<StretchBlock>() + SLACK_BYTES + 256;
    (SHARED_BYTES - others) / (products::WARPS * STAGE_BYTES)
}

/// The kernel.
pub(super) struct TokenKernel {
    function: Function,
    ring_bytes: usize,
}

impl TokenKernel {
    pub fn new(device: &Device, module: &Module, options: &KernelsOptions) -> Result<TokenKernel, Error> {
        let function = module.function_with("token", device.facts().shared_bytes - FIXED_BYTES)?;
        Ok(TokenKernel { function, ring_bytes: products::WARPS * STAGE_BYTES * depth(options) + SLACK_BYTES })
    }
}

/// A vector that phases hand on: value and tag of each element.
struct Tagged {
    values: Buffer<u64>,
    /// The phase that wrote it last, counted from 1.
    written_by: u32,
    /// The vector of floats it stands for.
    plain: u64,
    len: usize,
}

/// One phase.
struct Phase {
    kind: u32,
    input_from: u32,
    before_from: u32,
    product: Option<ProductBlock>,
    /// Parameters where it is no product.
    params: Vec<u8>,
}

const EMBED: u32 = 0;
const STORE: u32 = 1;
const ADD: u32 = 2;
const GATE: u32 = 3;
const LOGITS: u32 = 4;
const ATTENTION: u32 = 5;
const PICK: u32 = 6;
const PLAIN: u32 = 7;

/// What was asked for so far.
pub(super) struct Script {
    device: Device,
    options: KernelsOptions,
    phases: Vec<Phase>,
    kept: Vec<Arc<dyn Keep>>,
    shared_bytes: usize,
    vectors: HashMap<u64, Tagged>,
    embed: EmbedBlock,
    heads: HeadsBlock,
}

impl Script {
    fn new(device: &Device, options: &KernelsOptions) -> Script {
        Script {
            device: device.clone(),
            options: options.clone(),
            phases: Vec::new(),
            kept: Vec::new(),
            shared_bytes: options.attention_bytes(),
            vectors: HashMap::new(),
            embed: EmbedBlock::default(),
            heads: HeadsBlock::default(),
        }
    }

    pub fn embed(&mut self, mut params: EmbedBlock, arguments: Arguments) -> Result<(), Error> {
        (params.output, _) = self.write(params.output, params.columns as usize)?;
        self.embed = params;
        self.add(EMBED, 0, &params, arguments);
        Ok(())
    }

    pub fn product(
        &mut self,
        name: &'static str,
        shared_bytes: usize,
        mut params: ProductBlock,
        arguments: Arguments,
    ) -> Result<(), Error> {
        assert_eq!(params.rows, 1, "a program is for one row");
        let kind = match name {
            "product_store" => STORE,
            "product_add" => ADD,
            "product_gate" => GATE,
            _ => LOGITS,
        };
        let (input, input_from) = self.read(params.input)?;
        params.input = input;
        let mut before_from = 0;
        if kind != LOGITS {
            (params.output, before_from) = self.write(params.output, params.output_stride as usize)?;
        }
        self.shared_bytes = self.shared_bytes.max(shared_bytes);
        self.kept.extend(arguments.kept);
        self.phases.push(Phase { kind, input_from, before_from, product: Some(params), params: vec![0; OP_BYTES] });
        Ok(())
    }

    pub fn attention(&mut self, mut params: AttentionBlock, arguments: Arguments) -> Result<(), Error> {
        let KernelsOptions { head, heads, .. } = self.options;
        let (rows, input_from) = self.read(params.heads.rows)?;
        params.heads.rows = rows;
        (params.output, _) = self.write(params.output, heads * head)?;
        (params.partial, _) = self.write(params.partial, heads * SPLITS * (head + 2))?;
        self.heads = params.heads;
        self.add(ATTENTION, input_from, &params, arguments);
        Ok(())
    }

    pub fn pick(&mut self, params: PickBlock, arguments: Arguments) -> Result<(), Error> {
        self.add(PICK, 0, &params, arguments);
        Ok(())
    }

    /// A program without a pick ends with its result as plain floats.
    fn finish(&mut self) {
        if self.phases.last().is_some_and(|phase| phase.kind == PICK) {
            return;
        }
        let last = self.phases.len() as u32;
        if let Some(vector) = self.vectors.values().find(|vector| vector.written_by == last) {
            let (input, output) = (vector.values.all().address, vector.plain);
            let params = PlainBlock { input, output, columns: vector.len as u32, padding: 0 };
            self.add(PLAIN, last, &params, Arguments::default());
        }
    }

    /// The twin of a vector that an earlier phase wrote, and which one.
    fn read(&mut self, plain: u64) -> Result<(u64, u32), Error> {
        let vector = self.vectors.get(&plain);
        let vector =
            vector.ok_or_else(|| Error::Unsupported("a program that reads what it did not write".to_owned()))?;
        Ok((vector.values.all().address, vector.written_by))
    }

    /// The twin of a vector that this phase writes, and the phase that wrote it before.
    fn write(&mut self, plain: u64, len: usize) -> Result<(u64, u32), Error> {
        let this = self.phases.len() as u32 + 1;
        if !self.vectors.contains_key(&plain) {
            let values = Buffer::zeroed(&self.device, len.next_multiple_of(pack::CHUNK_COLUMNS))?;
            self.vectors.insert(plain, Tagged { values, written_by: 0, plain, len });
        }
        let vector = self.vectors.get_mut(&plain).expect("it was just inserted where it was missing");
        assert_eq!(vector.len, len, "a vector keeps its length");
        Ok((vector.values.all().address, std::mem::replace(&mut vector.written_by, this)))
    }

    fn add<P>(&mut self, kind: u32, input_from: u32, params: &P, arguments: Arguments) {
        // SAFETY: parameter blocks are `repr(C)` numbers without padding, so all of their bytes are initialised.
        let bytes = unsafe { std::slice::from_raw_parts(std::ptr::from_ref(params).cast::<u8>(), size_of::<P>()) };
        assert!(bytes.len() <= OP_BYTES, "parameter blocks fit an entry");
        let mut params = bytes.to_vec();
        params.resize(OP_BYTES, 0);
        self.kept.extend(arguments.kept);
        self.phases.push(Phase { kind, input_from, before_from: 0, product: None, params });
    }
}

impl Phase {
    /// What this phase is for one block.
    fn on_block(&self, block: u32) -> (JobBlock, StretchBlock) {
        let Phase { kind, input_from, before_from, .. } = *self;
        let mut job = JobBlock { kind, input_from, before_from, ..JobBlock::default() };
        let mut stretch = StretchBlock::default();
        let Some(p) = &self.product else { return (job, stretch) };
        let s = p.segments.iter().rev().find(|s| block >= s.first_block).unwrap_or(&p.segments[0]);
        let own = block - s.first_block;
        if own >= s.blocks {
            return (job, stretch);
        }
        let first = s.tiles * own / s.blocks;
        let tiles = s.tiles * (own + 1) / s.blocks - first;
        let row = first * pack::TILE_ROWS as u32;
        let format = Format::from_file_id(s.format).expect("it came from a format");
        job = JobBlock {
            format: s.format,
            input: p.input,
            norm: p.norm,
            bias: if s.bias == 0 { 0 } else { s.bias + 4 * u64::from(row) },
            output: p.output,
            candidates: p.candidates,
            tiles,
            rows: (tiles * pack::TILE_ROWS as u32).min(s.rows - row),
            place: s.output + row,
            columns: p.columns,
            supers: p.supers,
            slices: p.slices,
            epsilon: p.epsilon,
            wide: u32::from(format.block_elements() == pack::CHUNK_COLUMNS),
            ..job
        };
        let (chunk, whole) = (pack::chunk_bytes(format) as u32, p.slices == 1);
        let skipped = u64::from(first * p.supers) * u64::from(chunk);
        let (run, matrix_runs) = if whole { (p.supers, tiles) } else { (tiles * p.supers, 1) };
        stretch = StretchBlock {
            weights: s.weights + skipped,
            second: if s.second == 0 { 0 } else { s.second + skipped },
            run,
            runs: (matrix_runs * if s.second == 0 { 1 } else { 2 }) as u16,
            matrix_runs: matrix_runs as u16,
            chunk: chunk as u16,
            stage: (STAGE_BYTES / chunk as usize * chunk as usize) as u16,
            whole: u32::from(whole),
        };
        (job, stretch)
    }
}

/// A list on the card, ready to be worked through any number of times.
pub struct Program {
    device: Device,
    ops: Buffer<u8>,
    jobs: Buffer<JobBlock>,
    stretches: Buffer<StretchBlock>,
    embed: EmbedBlock,
    heads: HeadsBlock,
    count: usize,
    function: Function,
    /// Arrivals of blocks and launches, ever.
    counters: Buffer<u32>,
    stretches_offset: usize,
    ring_offset: usize,
    shared_bytes: usize,
    /// Clock readings, when the kernel was compiled to take them.
    times: Option<Buffer<u64>>,
    _kept: Vec<Arc<dyn Keep>>,
    _vectors: Vec<Tagged>,
}

/// Clock readings of a phase on one block.
pub const READINGS: usize = 6;

#[repr(C)]
struct TokenBlock {
    embed: EmbedBlock,
    heads: HeadsBlock,
    ops: u64,
    jobs: u64,
    stretches: u64,
    counters: u64,
    times: u64,
    count: u32,
    stretches_offset: u32,
    ring_offset: u32,
    padding: u32,
}

/// `Job` in `kernels/token.cu`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct JobBlock {
    kind: u32,
    format: u32,
    input_from: u32,
    before_from: u32,
    input: u64,
    norm: u64,
    bias: u64,
    output: u64,
    candidates: u64,
    tiles: u32,
    rows: u32,
    place: u32,
    columns: u32,
    supers: u32,
    slices: u32,
    epsilon: f32,
    wide: u32,
    padding: [u32; 2],
}

/// `Stretch` in `kernels/ring.cuh`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct StretchBlock {
    weights: u64,
    second: u64,
    run: u32,
    runs: u16,
    matrix_runs: u16,
    chunk: u16,
    stage: u16,
    whole: u32,
}

// SAFETY: numbers without padding.
unsafe impl Plain for JobBlock {}
// SAFETY: numbers without padding.
unsafe impl Plain for StretchBlock {}

impl Kernels {
    /// Whether steps of one row of a model with this width and this many layers can be programs.
    pub fn has_programs(&self, columns: usize, layers: usize) -> bool {
        self.token.is_some() && columns <= NORM_COLUMNS_MAX && 5 * layers + 3 <= PHASES_MAX
    }

    /// Writes down what `work` asks for, without doing it.
    pub fn program(&self, work: impl FnOnce() -> Result<(), Error>) -> Result<Program, Error> {
        let token = self.token.as_ref().ok_or_else(|| Error::Unsupported("a program".to_owned()))?;
        *self.script() = Some(Script::new(&self.device, &self.options));
        let worked = work();
        let script = self.script().take();
        worked?;
        let mut script = script.ok_or_else(|| Error::Unsupported("a program inside a program".to_owned()))?;
        script.finish();
        let (count, blocks) = (script.phases.len(), self.device.facts().multiprocessors);
        let ops: Vec<u8> = script.phases.iter().flat_map(|phase| phase.params.iter().copied()).collect();
        let parts = (0..blocks).flat_map(|block| script.phases.iter().map(move |phase| phase.on_block(block)));
        let (jobs, stretches): (Vec<_>, Vec<_>) = parts.unzip();
        let stretches_offset = script.shared_bytes.next_multiple_of(128);
        let ring_offset = (stretches_offset + count * size_of::<StretchBlock>()).next_multiple_of(128);
        let shared_bytes = ring_offset + token.ring_bytes;
        if shared_bytes > self.device.facts().shared_bytes - FIXED_BYTES {
            return Err(Error::Unsupported("a program with rows this wide".to_owned()));
        }
        let readings = count * blocks as usize * READINGS;
        Ok(Program {
            times: self.options.times.then(|| Buffer::zeroed(&self.device, readings)).transpose()?,
            ops: Buffer::new(&self.device, &ops)?,
            jobs: Buffer::new(&self.device, &jobs)?,
            stretches: Buffer::new(&self.device, &stretches)?,
            embed: script.embed,
            heads: script.heads,
            count,
            device: self.device.clone(),
            function: token.function,
            counters: Buffer::zeroed(&self.device, 2)?,
            stretches_offset,
            ring_offset,
            shared_bytes,
            _kept: script.kept,
            _vectors: script.vectors.into_values().collect(),
        })
    }
}

impl Program {
    /// Clock readings of the last launch, `[phase][block][READINGS]`, when kernels were compiled to take them.
    pub fn times(&self) -> Result<Vec<u64>, Error> {
        let Some(times) = &self.times else { return Ok(Vec::new()) };
        let mut readings = vec![0; times.len()];
        times.read(0, &mut readings)?;
        Ok(readings)
    }

    /// Works through the list after everything asked for before.
    pub fn launch(&self) -> Result<(), Error> {
        let mut a = Arguments::default();
        let params = TokenBlock {
            embed: self.embed,
            heads: self.heads,
            ops: a.at(self.ops.all()),
            jobs: a.at(self.jobs.all()),
            stretches: a.at(self.stretches.all()),
            counters: a.at(self.counters.all()),
            times: self.times.as_ref().map_or(0, |times| a.at(times.all())),
            count: self.count as u32,
            stretches_offset: self.stretches_offset as u32,
            ring_offset: self.ring_offset as u32,
            padding: 0,
        };
        let call = Call {
            name: "token",
            function: &self.function,
            grid: (self.device.facts().multiprocessors, 1, 1),
            threads: (products::WARPS * 32) as u32,
            shared_bytes: self.shared_bytes,
            // Blocks of the next step start as this one's end, with their weights on the way. Waiting for each other they
            // rely on all of a step's being on the card: one fits each multiprocessor, and what ran before ends.
            start: Start::Early,
        };
        self.device.launch(call, a, &params)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Memory it uses goes with it; nothing may be running on that.
        let _ = self.device.synchronize();
    }
}

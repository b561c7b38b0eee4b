//! A whole step of one row as one kernel: a list of phases (`script.rs`) that the kernel `token` works through.

use super::job::{JobBlock, Ring, StretchBlock};
use super::script::{Handed, Script};
use super::{Kernels, KernelsOptions, Module, products};
use crate::arguments::*;
use crate::blocks::*;
use crate::device::{Call, Function, Start};
use crate::error::Error;
use crate::memory::{Buffer, Keep};
use crate::{Device, pack};
use std::sync::Arc;

/// The kernel's fixed shared memory, which counts against the most it may ask for.
const FIXED_BYTES: usize = 5120;
/// Shared memory that wide rows need; attention usually needs more.
pub(super) const WORK_BYTES_MIN: usize = 48 << 10;
/// Most phases of a program: a model of 60 layers, or of 50 with experts.
pub(super) const PHASES_MAX: usize = 304;
/// Widest row a norm may have: two super-blocks for each warp.
const NORM_COLUMNS_MAX: usize = 2 * products::WARPS * pack::CHUNK_COLUMNS;
/// Threads beside those that compute: a warp fetches weights, one descriptions, and registers are dealt out to four warps.
pub(super) const FEEDERS: usize = 128;
/// Shared memory the kernel is made for, that of compute capability 9.0.
pub(super) const SHARED_BYTES: usize = 227 << 10;

/// The kernel.
pub(super) struct TokenKernel {
    function: Function,
    ring_bytes: usize,
}

impl TokenKernel {
    pub fn new(device: &Device, module: &Module, options: &KernelsOptions) -> Result<TokenKernel, Error> {
        let function = module.function_with("token", device.facts().shared_bytes - FIXED_BYTES)?;
        let ring = Ring::new(options.experts);
        Ok(TokenKernel { function, ring_bytes: products::WARPS * ring.slot_bytes * ring.depth })
    }
}

/// Where what stands in shared memory: first the input of products, or attention.
struct Room {
    partial_offset: usize,
    norm_offset: usize,
    stretches_offset: usize,
    /// The last.
    ring_offset: usize,
}

impl Room {
    fn new(script: &Script) -> Room {
        let partial_offset = (script.shared_begin() + script.input_bytes).next_multiple_of(128);
        let work = script.attention_bytes.max(partial_offset + script.partial_bytes);
        let norm_offset = work.next_multiple_of(128);
        let normed = (norm_offset + script.norm_bytes).max(partial_offset + script.normed_partial_bytes);
        let stretches_offset = normed.next_multiple_of(128);
        let stretches = script.phases.len() * size_of::<StretchBlock>();
        let ring_offset = (stretches_offset + stretches).next_multiple_of(128);
        Room { partial_offset, norm_offset, stretches_offset, ring_offset }
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
    room: Room,
    known: u32,
    start: Start,
    shared_bytes: usize,
    /// Clock readings, when the kernel was compiled to take them.
    times: Option<Buffer<u64>>,
    _kept: Vec<Arc<dyn Keep>>,
    _vectors: Vec<Handed>,
    _partial: Option<Buffer<u64>>,
    _scores: Option<Buffer<u64>>,
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
    partial_offset: u32,
    norm_offset: u32,
    known: u32,
}

impl Kernels {
    /// Whether steps of one row of a model with this width, this width between gate and down and this many layers can be
    /// programs. Every block must have rows of the gate, see `kernels/handed.cuh`, and room for the sums of its rows of down.
    pub fn has_programs(&self, columns: usize, feed_forward: usize, layers: usize) -> bool {
        let blocks = self.device.facts().multiprocessors as usize;
        let places = columns.div_ceil(pack::TILE_ROWS).div_ceil(blocks);
        let sums = products::partial_bytes(places, pack::supers(feed_forward));
        let fits = columns <= NORM_COLUMNS_MAX && 5 * layers + 3 <= PHASES_MAX && sums <= products::PARTIAL_BYTES_MAX;
        self.token.is_some() && fits && feed_forward.div_ceil(pack::TILE_ROWS) >= blocks
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
        if !script.keeps_up(blocks) {
            return Err(Error::Unsupported("a program of a model this narrow".to_owned()));
        }
        let most = self.device.facts().shared_bytes - FIXED_BYTES - token.ring_bytes;
        let mut room = Room::new(&script);
        if room.ring_offset > most && script.pairs {
            script.pairs = false;
            room = Room::new(&script);
        }
        if room.ring_offset > most {
            return Err(Error::Unsupported("a program with rows this wide".to_owned()));
        }
        let (jobs, stretches): (Vec<_>, Vec<_>) = (0..blocks).flat_map(|block| script.on_block(block)).unzip();
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
            shared_bytes: room.ring_offset + token.ring_bytes,
            room,
            known: script.known,
            // Blocks of the next step start as this one's end, with their weights on the way. Waiting for each other they
            // rely on all of a step's being on the card: one fits each multiprocessor, and what ran before ends.
            start: if script.pairs { Start::Clusters(2) } else { Start::Early },
            _kept: script.kept,
            _vectors: script.vectors.into_values().collect(),
            _partial: script.partial,
            _scores: script.scores,
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
            stretches_offset: self.room.stretches_offset as u32,
            ring_offset: self.room.ring_offset as u32,
            partial_offset: self.room.partial_offset as u32,
            norm_offset: self.room.norm_offset as u32,
            known: self.known,
        };
        let call = Call {
            name: "token",
            function: &self.function,
            grid: (self.device.facts().multiprocessors, 1, 1),
            threads: (products::WARPS * 32 + FEEDERS) as u32,
            shared_bytes: self.shared_bytes,
            start: self.start,
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

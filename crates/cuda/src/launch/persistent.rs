//! A whole step of one row as one kernel: a list of phases (`recorder.rs`) that the kernel `token` works through.

use super::job::{JobBlock, Ring, StretchBlock};
use super::recorder::{ReadyVector, Recorder};
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
/// Most phases of a persistent step: a model of 60 layers, or of 50 with experts.
pub(super) const PHASES_MAX: usize = 336;
/// Widest row a norm may have: two super-blocks for each warp.
const NORM_COLUMNS_MAX: usize = 2 * products::WARPS * pack::CHUNK_COLUMNS;
/// Threads beside those that compute: a warp fetches weights, one descriptions, and registers are dealt out to four warps.
pub(super) const FEEDERS: usize = 128;
/// Shared memory the kernel is made for, that of compute capability 9.0.
pub(super) const SHARED_BYTES: usize = 227 << 10;

/// The kernel.
pub(super) struct PersistentKernel {
    function: Function,
    ring_bytes: usize,
}

impl PersistentKernel {
    pub fn new(device: &Device, module: &Module, options: &KernelsOptions) -> Result<PersistentKernel, Error> {
        let function = module.function_with("decode_persistent", device.facts().shared_bytes - FIXED_BYTES)?;
        let ring = Ring::new(options.experts);
        Ok(PersistentKernel { function, ring_bytes: products::WARPS * ring.slot_bytes * ring.depth })
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
    fn new(recorder: &Recorder) -> Room {
        let partial_offset = (recorder.shared_begin() + recorder.input_bytes).next_multiple_of(128);
        let work = recorder.attention_bytes.max(partial_offset + recorder.partial_bytes);
        let norm_offset = work.next_multiple_of(128);
        let normed = (norm_offset + recorder.norm_bytes).max(partial_offset + recorder.normed_partial_bytes);
        let stretches_offset = normed.next_multiple_of(128);
        let stretches = recorder.phases.len() * size_of::<StretchBlock>();
        let ring_offset = (stretches_offset + stretches).next_multiple_of(128);
        Room { partial_offset, norm_offset, stretches_offset, ring_offset }
    }
}

/// A list on the card, ready to be worked through any number of times.
pub struct PersistentStep {
    device: Device,
    ops: Buffer<u8>,
    jobs: Buffer<JobBlock>,
    stretches: Buffer<StretchBlock>,
    embed: EmbedBlock,
    heads: HeadsBlock,
    slots: DeltaSlotsBlock,
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
    _held: Vec<Arc<dyn Keep>>,
    _vectors: Vec<ReadyVector>,
    _partial: Option<Buffer<u64>>,
    _scores: Option<Buffer<u64>>,
}

/// Clock readings of a phase on one block.
pub const READINGS: usize = 6;

/// `Token` in `kernels/decode_persistent.cu`.
#[repr(C)]
pub(super) struct PersistentBlock {
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
    slots: DeltaSlotsBlock,
}

impl Kernels {
    /// Whether steps of one row of a model with this width, this width between gate and down and this many layers can be
    /// programs. Every block must have rows of the gate, see `kernels/ready_bits.cuh`, and room for the sums of its rows of down.
    pub fn has_persistent(&self, columns: usize, feed_forward: usize, layers: usize) -> bool {
        let blocks = self.device.facts().multiprocessors as usize;
        let block_tiles = columns.div_ceil(pack::TILE_ROWS).div_ceil(blocks);
        let sums = products::partial_bytes(block_tiles, pack::supers(feed_forward));
        let fits = columns <= NORM_COLUMNS_MAX && 5 * layers + 3 <= PHASES_MAX && sums <= products::PARTIAL_BYTES_MAX;
        self.persistent.is_some() && fits && feed_forward.div_ceil(pack::TILE_ROWS) >= blocks
    }

    /// Whether a persistent step can have layers with recurrent states: each head of values has two rates, each made by a
    /// multiprocessor of its own that is not spared rows of q, k and v.
    pub fn has_states(&self, value_heads: usize) -> bool {
        2 * value_heads + self.options.attending() <= self.device.facts().multiprocessors as usize
    }

    /// A recorder of a persistent step, to be given the calls of one row.
    pub fn recorder(&self) -> Recorder<'_> {
        Recorder::new(self)
    }
}

impl Recorder<'_> {
    /// The step whose calls were recorded.
    pub fn finish(mut self) -> Result<PersistentStep, Error> {
        let Kernels { device, options, persistent, .. } = self.kernels;
        let persistent = persistent.as_ref().ok_or_else(|| Error::Unsupported("a persistent step".to_owned()))?;
        self.end();
        let (count, blocks) = (self.phases.len(), device.facts().multiprocessors);
        let ops: Vec<u8> = self.phases.iter().flat_map(|phase| phase.params.iter().copied()).collect();
        if !self.keeps_up(blocks) {
            return Err(Error::Unsupported("a persistent step of a model this narrow".to_owned()));
        }
        let most = device.facts().shared_bytes - FIXED_BYTES - persistent.ring_bytes;
        let mut room = Room::new(&self);
        if room.ring_offset > most && self.pairs {
            self.pairs = false;
            room = Room::new(&self);
        }
        if room.ring_offset > most {
            return Err(Error::Unsupported("a persistent step with rows this wide".to_owned()));
        }
        let (jobs, stretches): (Vec<_>, Vec<_>) = (0..blocks).flat_map(|block| self.on_block(block)).unzip();
        let readings = count * blocks as usize * READINGS;
        Ok(PersistentStep {
            times: options.times.then(|| Buffer::zeroed(device, readings)).transpose()?,
            ops: Buffer::new(device, &ops)?,
            jobs: Buffer::new(device, &jobs)?,
            stretches: Buffer::new(device, &stretches)?,
            embed: self.embed,
            heads: self.heads,
            slots: self.slots,
            count,
            device: device.clone(),
            function: persistent.function,
            counters: Buffer::zeroed(device, 2)?,
            shared_bytes: room.ring_offset + persistent.ring_bytes,
            room,
            known: self.known,
            // Blocks of the next step start as this one's end, with their weights in flight. Waiting for each other they
            // rely on all of a step's being on the card: one fits each multiprocessor, and what ran before ends.
            start: if self.pairs { Start::Clusters(2) } else { Start::Early },
            _held: self.held,
            _vectors: self.vectors.into_values().collect(),
            _partial: self.partial,
            _scores: self.scores,
        })
    }
}

impl PersistentStep {
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
        let params = PersistentBlock {
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
            slots: self.slots,
        };
        let call = Call {
            function: &self.function,
            grid: (self.device.facts().multiprocessors, 1, 1),
            threads: (products::WARPS * 32 + FEEDERS) as u32,
            shared_bytes: self.shared_bytes,
            start: self.start,
        };
        self.device.launch(call, a, &params)
    }
}

impl Drop for PersistentStep {
    fn drop(&mut self) {
        // Memory it uses goes with it; nothing may be running on that.
        let _ = self.device.synchronize();
    }
}

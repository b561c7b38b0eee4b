//! The decoder on an NVIDIA card.
//!
//! The same network as `cpu`, over the kernels of the `cuda` crate. A step of at most [`DECODE_ROWS_MAX`] rows (decoding, drafts, the
//! end of a prompt) reads packed weights and 8-bit activations, as the CPU does; it is recorded when the same number of rows
//! comes again, and then started with one call (`decode.rs`). Longer chunks multiply in half precision on tensor cores
//! (`prefill.rs`): up to 512 rows with sums cut along K, more with whole ones. Within each of these three kinds of step
//! ([`StepKind`]) a row's result depends on nothing but its own sequence; between them it differs by rounding.
//!
//! Everything is allocated when the model is loaded, so no step can run out of memory.

mod ahead;
mod decode;
mod decode_batch;
mod expert_rows;
mod inputs;
mod l2_placement;
mod prefill;
mod recorded;
mod rows;
mod selftest;
mod shapes;
mod shortlist;
mod states;
mod steps;
mod weights;

pub use selftest::{SelftestError, selftest};
pub use shapes::{SHAPES, shape};

use crate::backend::{BLOCK, Backend, BackendError, Chunk, ModelInfo, check_batch};
use crate::config::{Config, ConfigOptions, Pairs};
use crate::cpu::fingerprint;
use crate::gguf::Gguf;
use crate::load::LoadError;
use crate::rope::Rope;
use ::cuda::{Buffer, DeltaRun, Device, Error, Facts, HeadsCall, Kernels, KernelsOptions, Pinned, Slice};
use ahead::Ahead;
use decode::Decode;
use kernels::KvType;
use kernels::shortlist::{Ask, Shortlist};
use prefill::Prefill;
use rows::{StepKind, groups, wanted_rows};
use shortlist::ShortlistStep;
use states::States;
use std::ops::Range;
use std::path::Path;
use weights::{Attention, FileSource, RandomSource, Source, Weights};

/// Most rows of a step that is computed like single tokens.
pub const DECODE_ROWS_MAX: usize = 32;
/// Most rows of any step.
pub const ROWS_MAX: usize = 2048;
/// Most sequences of one step.
pub const SEQUENCES_MAX: usize = 256;

/// How to load a model.
#[derive(Clone, Copy, Debug)]
pub struct CudaOptions {
    /// Which card.
    pub card: usize,
    /// Positions the KV cache has room for, over all sequences.
    pub kv_tokens: usize,
    /// How keys and values are stored.
    pub kv_type: KvType,
    /// Changes to the model's own configuration.
    pub config: ConfigOptions,
    /// Threads that read and pack the file.
    pub threads: usize,
    /// Whether single steps note when their phases begin and end, for [`CudaModel::times`].
    pub times: bool,
    /// Places in memory that single steps are tried in at first, because some are several percent faster; 1 for the first that comes.
    pub placements: usize,
}

/// A decoder on a card, with its weights and its KV cache.
pub struct CudaModel {
    config: Config,
    info: ModelInfo,
    net: Net,
    decode: Decode,
    prefill: Prefill,
    ahead: Ahead,
    shortlist: Option<ShortlistStep>,
    logits: Pinned<f32>,
}

/// What all kinds of step share: it does not change after loading.
struct Net {
    config: Config,
    device: Device,
    kernels: Kernels,
    weights: Weights,
    kv: Buffer<u8>,
    block_bytes: usize,
    angles: Buffer<[f32; 2]>,
    /// Where some layers have recurrent states.
    states: Option<States>,
    /// Block numbers per sequence in a step's inputs.
    table_stride: usize,
}

impl CudaModel {
    /// Loads a model from a GGUF file.
    pub fn load(path: &Path, options: CudaOptions) -> Result<CudaModel, LoadError> {
        let gguf = Gguf::open(path)?;
        let config = Config::new(&gguf, options.config)?;
        if config.temperature.is_some() {
            return Err(LoadError::NotOnCard(
                "queries that grow with the position (mistral3) do not run on a card yet",
            ));
        }
        let device = Device::open(options.card)?;
        // Saved blocks of other orders of elements (`exchange` in the crate's `kernels/heads.cuh`) are not read.
        let held = ("cuda, turned", options.kv_type, config.kv_heads, config.head);
        let identity = fingerprint(&gguf, &held, &config);
        let source = FileSource::new(path, &gguf, &device, options.threads);
        CudaModel::build(config, options, device.clone(), &source, identity)
    }

    /// A model of a known shape with random weights, made on the card: for measuring without a file.
    pub fn random(config: Config, options: CudaOptions) -> Result<CudaModel, LoadError> {
        let device = Device::open(options.card)?;
        let source = RandomSource::new(&config, &device)?;
        CudaModel::build(config, options, device.clone(), &source, 0)
    }

    fn build(
        config: Config,
        options: CudaOptions,
        device: Device,
        source: &dyn Source,
        identity: u64,
    ) -> Result<CudaModel, LoadError> {
        let weights = Weights::load(&config, &device, source)?;
        let Config { head, heads, kv_heads, gated_attention: gated, .. } = config;
        let formats = weights.formats();
        let multiprocessors = device.facts().multiprocessors as usize;
        let (columns, experts, times) = (config.embedding, config.experts.is_some(), options.times);
        let kv8 = options.kv_type == KvType::Q8;
        let shared = config.experts.is_some_and(|experts| experts.shared);
        let wanted = KernelsOptions {
            formats,
            head,
            heads,
            kv_heads,
            kv8,
            columns,
            experts,
            shared,
            gated,
            delta: config.delta_net.is_some(),
            multiprocessors,
            times,
        };
        let block_bytes = config.attention_layers() * wanted.layer_bytes();
        let kernels = Kernels::new(&device, wanted)?;
        source.fill(&kernels, &weights)?;
        let blocks = options.kv_tokens.div_ceil(BLOCK).max(1);
        let positions = config.context.min(blocks * BLOCK);
        let states = |delta| States::new(&config, delta, blocks * block_bytes, &device);
        let states = config.delta_net.map(states).transpose()?;
        let info = ModelInfo {
            vocab: config.vocab,
            context: positions,
            blocks,
            block_bytes,
            rows_max: ROWS_MAX,
            bytes_per_token: weights.bytes_per_token(config.experts),
            fingerprint: identity,
            states: states.as_ref().map(States::info),
        };
        let net = Net {
            angles: angles(&config, weights.rope_factors.as_deref(), positions, &device)?,
            kv: Buffer::zeroed(&device, blocks * block_bytes)?,
            block_bytes,
            states,
            table_stride: positions.div_ceil(BLOCK),
            config: config.clone(),
            device: device.clone(),
            kernels,
            weights,
        };
        let mut decode = Decode::new(&net)?;
        decode.prepare(&net, options.placements)?;
        Ok(CudaModel {
            decode,
            prefill: Prefill::new(&net)?,
            ahead: Ahead::default(),
            shortlist: ShortlistStep::new(&net)?,
            logits: Pinned::zeroed(&device, DECODE_ROWS_MAX * config.vocab)?,
            config,
            info,
            net,
        })
    }

    /// The model's shape.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What the card says of itself.
    pub fn card(&self) -> &Facts {
        self.net.device.facts()
    }

    /// Clock readings of the last step of one row, `[phase][multiprocessor][cuda::READINGS]`.
    pub fn times(&self) -> Result<Vec<u64>, BackendError> {
        self.decode.times().map_err(failed)
    }

    /// Waits until the card has nothing left to do, for measuring.
    pub fn synchronize(&self) -> Result<(), BackendError> {
        self.net.device.synchronize().map_err(failed)
    }

    fn check(&self, batch: &[Chunk<'_>]) -> Result<(), BackendError> {
        check(&self.info, batch)?;
        self.net.states.as_ref().map_or(Ok(()), |states| states.check(batch))
    }

    fn states(&self) -> Result<&States, BackendError> {
        self.net.states.as_ref().ok_or_else(|| BackendError::BadBatch("the model has no recurrent state".to_owned()))
    }

    fn block(&self, block: u32) -> Result<usize, BackendError> {
        let exists = (block as usize) < self.info.blocks;
        let missing = || BackendError::BadBatch(format!("block {block} does not exist"));
        if exists { Ok(block as usize * self.info.block_bytes) } else { Err(missing()) }
    }
}

impl Backend for CudaModel {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn forward(&mut self, batch: &[Chunk<'_>], logits: &mut Vec<f32>) -> Result<(), BackendError> {
        self.check(batch)?;
        self.ahead.forget();
        self.step(batch, logits).map_err(failed)
    }

    fn pick(&mut self, batch: &[Chunk<'_>], picks: &mut Vec<u32>) -> Result<bool, BackendError> {
        self.check(batch)?;
        let rows: usize = batch.iter().map(|chunk| chunk.tokens.len()).sum();
        let wanted = wanted_rows(batch);
        let kind_of = self.kinds();
        if wanted.len() != rows || !batch.iter().all(|chunk| kind_of(chunk) == StepKind::Decode) {
            return self.pick_wanted(batch, &wanted, picks).map_err(failed);
        }
        if rows <= DECODE_ROWS_MAX {
            self.ahead.pick(&self.net, &mut self.decode, &self.info, batch, picks).map_err(failed)?;
            return Ok(true);
        }
        self.ahead.forget();
        picks.clear();
        for group in groups(batch.iter(), DECODE_ROWS_MAX) {
            self.decode.pick(&self.net, &group, picks).map_err(failed)?;
        }
        Ok(true)
    }

    fn shortlist(
        &mut self,
        batch: &[Chunk<'_>],
        asks: &[Ask],
        mask: &mut dyn FnMut(usize, &mut [u32]) -> bool,
        lists: &mut Vec<Shortlist>,
    ) -> Result<bool, BackendError> {
        self.check(batch)?;
        let rows: usize = batch.iter().map(|chunk| chunk.tokens.len()).sum();
        let Some(shortlist) =
            self.shortlist.as_mut().filter(|_| rows <= DECODE_ROWS_MAX && wanted_rows(batch).len() == rows)
        else {
            return Ok(false);
        };
        if asks.len() != rows {
            return Err(BackendError::BadBatch(format!("{} asks for {rows} rows", asks.len())));
        }
        self.ahead.forget();
        shortlist.run(&self.net, &mut self.decode, batch, asks, mask, lists).map_err(failed)?;
        Ok(true)
    }

    fn part_of_row(&mut self, row: usize, part: Range<usize>) -> Result<Vec<f32>, BackendError> {
        let shortlist = self.shortlist.as_mut().filter(|_| row < DECODE_ROWS_MAX && part.end <= self.config.vocab);
        let none = || BackendError::BadBatch(format!("row {row} has no part {part:?}"));
        shortlist.ok_or_else(none)?.part_of_row(&self.decode, self.config.vocab, row, part).map_err(failed)
    }

    fn copy_block(&mut self, from: u32, to: u32) -> Result<(), BackendError> {
        let (from, to) = (self.block(from)?, self.block(to)?);
        if from == to {
            return Ok(());
        }
        self.net.kv.copy_within(from, to, self.info.block_bytes).map_err(failed)
    }

    fn export_block(&self, block: u32, bytes: &mut Vec<u8>) -> Result<(), BackendError> {
        let at = self.block(block)?;
        bytes.clear();
        bytes.resize(self.info.block_bytes, 0);
        self.net.kv.read(at, bytes).map_err(failed)
    }

    fn import_block(&mut self, block: u32, bytes: &[u8]) -> Result<(), BackendError> {
        let at = self.block(block)?;
        if bytes.len() != self.info.block_bytes {
            let wanted = self.info.block_bytes;
            return Err(BackendError::BadBatch(format!("a block has {wanted} bytes, not {}", bytes.len())));
        }
        self.net.kv.write(at, bytes).map_err(failed)
    }

    fn copy_state(&mut self, from: u32, to: u32, position: usize) -> Result<(), BackendError> {
        self.states()?.copy(&self.net.kernels, from, to, position)
    }

    fn export_state(&self, slot: u32, position: usize, bytes: &mut Vec<u8>) -> Result<(), BackendError> {
        self.states()?.export(slot, position, bytes)
    }

    fn import_state(&mut self, slot: u32, position: usize, bytes: &[u8]) -> Result<(), BackendError> {
        self.states()?.import(slot, position, bytes)
    }
}

impl Net {
    /// What every kernel that touches heads is told.
    fn heads<'a>(&'a self, layer: &'a Attention, rows: Slice<'a, f32>, inputs: &'a inputs::Inputs) -> HeadsCall<'a> {
        HeadsCall {
            rows,
            positions: inputs.positions(),
            sequences: inputs.sequences(),
            tables: inputs.tables(),
            table_stride: self.table_stride,
            cache: self.kv.all(),
            block_bytes: self.block_bytes,
            layer: layer.index,
            q_norm: layer.q_norm.as_ref(),
            k_norm: layer.k_norm.as_ref(),
            epsilon: self.config.epsilon,
            angles: &self.angles,
            dimensions: self.config.rope.dimensions,
            neighbours: self.config.rope.pairs == Pairs::Neighbours,
        }
    }

    /// Floats of a row of queries, their gates, keys and values.
    fn heads_width(&self) -> usize {
        let Config { heads, kv_heads, head, gated_attention, .. } = self.config;
        (heads * if gated_attention { 2 } else { 1 } + 2 * kv_heads) * head
    }

    /// Floats of the widest row that a layer's first products leave, and of what its mixer makes of it.
    fn mixer_widths(&self) -> (usize, usize) {
        let (width, result) = self.states.as_ref().map_or((0, 0), |s| (s.shape.width(), s.shape.values()));
        (width.max(self.heads_width()), result.max(self.config.heads * self.config.head))
    }

    /// What a step is told of its sequences' states.
    fn begin_states(&self, batch: &[Chunk<'_>]) -> Result<Vec<DeltaRun>, Error> {
        self.states.as_ref().map_or(Ok(Vec::new()), |states| states.begin(&self.kernels, batch))
    }
}

fn check(info: &ModelInfo, batch: &[Chunk<'_>]) -> Result<(), BackendError> {
    check_batch(info, batch)?;
    if batch.len() > SEQUENCES_MAX {
        let found = batch.len();
        return Err(BackendError::BadBatch(format!("{found} sequences, at most {SEQUENCES_MAX} fit in a step")));
    }
    Ok(())
}

fn failed(error: Error) -> BackendError {
    BackendError::Device(error.to_string())
}

/// Cosine and sine of every position and pair, computed as the CPU does.
fn angles(
    config: &Config,
    factors: Option<&[f32]>,
    positions: usize,
    device: &Device,
) -> Result<Buffer<[f32; 2]>, Error> {
    let rope = Rope::new(&config.rope, factors);
    let pairs = rope.angles() / 2;
    let (mut row, mut all) = (vec![0.0; 2 * pairs], Vec::with_capacity(positions * pairs));
    for position in 0..positions {
        rope.fill(position, &mut row);
        all.extend((0..pairs).map(|i| [row[i], row[pairs + i]]));
    }
    Buffer::new(device, &all)
}

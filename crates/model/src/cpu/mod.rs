//! The decoder on the CPU.
//!
//! [`CpuModel::step`] is the whole network, top to bottom, for a batch of rows from any number of sequences. The
//! arithmetic is in the `kernels` crate; here is only its order.

mod delta_net;
mod feed_forward;
mod scratch;

use crate::backend::{BLOCK, Backend, BackendError, Chunk, ModelInfo, check_batch};
use crate::config::{Config, ConfigOptions, LayerKind};
use crate::gguf::Gguf;
use crate::load::{Embeddings, LoadError, load};
use crate::rope::Rope;
use crate::weights::{Attention, Mixer, Weights};
use delta_net::States;
use kernels::{Heads, Kernels, KvLayout, KvStore, KvType, Output, Queries, RowMap, Runtime, output_stride};
use scratch::{Scratch, numbers, quantize};
use std::path::Path;

/// Rows computed in one pass over the weights. More would only cost memory: at this size reading weights is already a
/// few hundredths of the time.
pub const ROWS_MAX: usize = 256;

/// How to load a model.
#[derive(Clone, Copy, Debug)]
pub struct CpuOptions {
    /// Threads that compute.
    pub threads: usize,
    /// Positions the KV cache has room for, over all sequences. Memory is taken as it is used.
    pub kv_tokens: usize,
    /// How keys and values are stored.
    pub kv_type: KvType,
    /// Changes to the model's own configuration.
    pub config: ConfigOptions,
    /// Kernels to use.
    pub kernels: &'static Kernels,
}

/// A decoder, its weights and its KV cache.
pub struct CpuModel {
    config: Config,
    info: ModelInfo,
    weights: Weights,
    embeddings: Embeddings,
    rope: Rope,
    kv: KvStore,
    states: Option<States>,
    runtime: Runtime,
    scratch: Scratch,
}

impl CpuModel {
    /// Loads a model from a GGUF file.
    pub fn load(path: &Path, options: CpuOptions) -> Result<CpuModel, LoadError> {
        let gguf = Gguf::open(path)?;
        let config = Config::new(&gguf, options.config)?;
        let runtime = Runtime::new(options.kernels, options.threads);
        let weights = load(path, &gguf, &config, runtime.layout(), options.threads)?;
        let layers = config.attention_layers();
        let layout = KvLayout { kind: options.kv_type, layers, heads: config.kv_heads, head: config.head };
        let kv = KvStore::new(layout, options.kv_tokens.div_ceil(BLOCK));
        let states = config.delta_net.map(|delta| States::new(&config, delta, kv.blocks * layout.block_bytes()));
        let info = ModelInfo {
            vocab: config.vocab,
            context: config.context,
            blocks: kv.blocks,
            block_bytes: layout.block_bytes(),
            rows_max: ROWS_MAX,
            // States are small beside the weights, but they are read and written.
            bytes_per_token: weights.bytes_per_token(config.experts.map_or(0, |e| e.used))
                + states.as_ref().map_or(0, |states| 2 * states.info().bytes),
            fingerprint: fingerprint(&gguf, &layout, &config),
            states: states.as_ref().map(States::info),
        };
        Ok(CpuModel {
            rope: Rope::new(&config.rope, weights.rope_factors.as_deref()),
            embeddings: Embeddings::open(path, &gguf, &config)?,
            scratch: Scratch::new(&config, ROWS_MAX),
            config,
            info,
            weights,
            kv,
            states,
            runtime,
        })
    }

    /// The model's shape.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Name of the kernels in use.
    pub fn kernels(&self) -> &'static str {
        self.runtime.name()
    }

    /// One pass over all layers; the residual stream of every row ends up in the scratch space.
    fn step(&mut self, batch: &[Chunk<'_>]) -> Result<(), BackendError> {
        let mut sequences = Vec::with_capacity(batch.len());
        let mut row = 0;
        for chunk in batch {
            sequences.push(Queries { blocks: chunk.blocks, start: chunk.start, row, count: chunk.tokens.len() });
            for (i, &token) in chunk.tokens.iter().enumerate() {
                let x = &mut self.scratch.x[row * self.config.embedding..][..self.config.embedding];
                self.embeddings.row(token, x).map_err(|e| BackendError::Device(e.to_string()))?;
                let angles = self.rope.angles();
                self.rope.fill(chunk.start + i, &mut self.scratch.angles[row * angles..][..angles]);
                self.scratch.query_scale[row] = self.config.query_scale(chunk.start + i);
                row += 1;
            }
        }
        self.check_states(batch)?;
        let mut kv_layer = 0;
        for i in 0..self.weights.layers.len() {
            match self.config.kinds[i] {
                LayerKind::Attention => {
                    self.attention(i, kv_layer, &sequences, row);
                    kv_layer += 1;
                }
                LayerKind::DeltaNet => self.delta_net(i, i - kv_layer, batch, row),
            }
            self.feed_forward(i, row);
        }
        self.advance_states(batch);
        Ok(())
    }

    /// `x += output(attention(norm(x)))`.
    fn attention(&mut self, i: usize, kv_layer: usize, sequences: &[Queries<'_>], rows: usize) {
        let (config, s, runtime, layer) = (&self.config, &mut self.scratch, &mut self.runtime, &self.weights.layers[i]);
        let Mixer::Attention(attention) = &layer.mixer else { return };
        let Attention { q, k, v, .. } = attention;
        let (width, q_width, kv_width) = (config.embedding, config.heads * config.head, config.kv_heads * config.head);
        let map = numbers(rows);
        runtime.rms_norm(&s.x, &layer.norm, config.epsilon, &mut s.normed.values[..rows * width]);
        quantize(runtime, &mut s.normed, rows, &[&q.matrix, &k.matrix, &v.matrix]);
        let all = RowMap { input: map, output: map };
        let queries = if config.gated_attention { &mut s.gated_q } else { &mut s.q };
        runtime.matmul(
            &s.normed,
            &mut [
                Output { matrix: &q.matrix, rows: all, out: queries },
                Output { matrix: &k.matrix, rows: all, out: &mut s.k },
                Output { matrix: &v.matrix, rows: all, out: &mut s.v },
            ],
        );
        if config.gated_attention {
            part_queries(runtime, config, &s.gated_q, &mut s.q[..rows * q_width], &mut s.q_gate[..rows * q_width]);
        }
        let (rope, angles) = (&self.rope, &s.angles);
        let scales = &s.query_scale;
        let head = HeadWork { config, rope, angles };
        runtime.rows_of(&mut s.q[..rows * q_width], q_width, &|row, x| {
            head.finish(row, x, &q.bias, &attention.q_norm, Some(scales[row]));
        });
        runtime.rows_of(&mut s.k[..rows * kv_width], kv_width, &|row, x| {
            head.finish(row, x, &k.bias, &attention.k_norm, Some(1.0));
        });
        runtime.rows_of(&mut s.v[..rows * kv_width], kv_width, &|row, x| {
            head.finish(row, x, &v.bias, &None, None);
        });
        for sequence in sequences {
            for r in 0..sequence.count {
                let (position, row) = (sequence.start + r, (sequence.row + r) * kv_width);
                let block = sequence.blocks[position / BLOCK] as usize;
                self.kv.write(kv_layer, block, position % BLOCK, &s.k[row..][..kv_width], &s.v[row..][..kv_width]);
            }
        }
        let heads = Heads { layer: kv_layer, count: config.heads };
        runtime.attention(&self.kv, heads, sequences, &s.q, &mut s.attended.values);
        if config.gated_attention {
            // The queries have done their work: their room takes what was attended to.
            s.q[..rows * q_width].copy_from_slice(&s.attended.values[..rows * q_width]);
            let out = &mut s.attended.values[..rows * q_width];
            runtime.sigmoid_multiply(&s.q_gate, &s.q, q_width, q_width, out);
        }
        quantize(runtime, &mut s.attended, rows, &[&attention.output.matrix]);
        let out = Output { matrix: &attention.output.matrix, rows: all, out: &mut s.added };
        runtime.matmul(&s.attended, &mut [out]);
        add_rows(runtime, &mut s.x[..rows * width], &s.added, width, attention.output.bias.as_deref());
    }

    /// Logits of the wanted rows, in batch order.
    fn logits(&mut self, batch: &[Chunk<'_>], logits: &mut Vec<f32>) {
        let (config, s, runtime) = (&self.config, &mut self.scratch, &mut self.runtime);
        let width = config.embedding;
        let (mut row, mut wanted) = (0, 0);
        for chunk in batch {
            let rows = chunk.wanted();
            // Wanted rows move to the front; they never overtake rows not yet moved.
            s.x.copy_within((row + rows.start) * width..(row + rows.end) * width, wanted * width);
            row += chunk.tokens.len();
            wanted += rows.len();
        }
        let stride = output_stride(config.vocab);
        // What is there is written over: zeroing it first would cost 2 % of a step of 24 rows.
        logits.resize(wanted * stride, 0.0);
        if wanted == 0 {
            return;
        }
        runtime.rms_norm(&s.x, &self.weights.output_norm, config.epsilon, &mut s.normed.values[..wanted * width]);
        quantize(runtime, &mut s.normed, wanted, &[&self.weights.output]);
        let map = numbers(wanted);
        let rows = RowMap { input: map, output: map };
        runtime.matmul(&s.normed, &mut [Output { matrix: &self.weights.output, rows, out: logits }]);
        if stride != config.vocab {
            for row in 0..wanted {
                logits.copy_within(row * stride..row * stride + config.vocab, row * config.vocab);
            }
            logits.truncate(wanted * config.vocab);
        }
    }
}

/// Parts each head's query from the gate that follows it.
fn part_queries(runtime: &mut Runtime, config: &Config, both: &[f32], queries: &mut [f32], gates: &mut [f32]) {
    let (width, head) = (config.heads * config.head, config.head);
    for (half, out) in [queries, gates].into_iter().enumerate() {
        runtime.rows_of(out, width, &|row, out| {
            let heads = both[row * output_stride(2 * width)..].chunks_exact(2 * head);
            for (out, head_and_gate) in out.chunks_exact_mut(head).zip(heads) {
                out.copy_from_slice(&head_and_gate[half * head..][..head]);
            }
        });
    }
}

/// What happens to a query, key or value row between its product and attention.
struct HeadWork<'a> {
    config: &'a Config,
    rope: &'a Rope,
    angles: &'a [f32],
}

impl HeadWork<'_> {
    /// Bias, norm of each head, rotation: whichever the model has. Values are not rotated (`scale` is none).
    fn finish(&self, row: usize, x: &mut [f32], bias: &Option<Vec<f32>>, norm: &Option<Vec<f32>>, scale: Option<f32>) {
        if let Some(bias) = bias {
            x.iter_mut().zip(bias).for_each(|(x, b)| *x += b);
        }
        if let Some(weight) = norm {
            for head in x.chunks_exact_mut(self.config.head) {
                let mean = head.iter().map(|x| x * x).sum::<f32>() / head.len() as f32;
                let scale = 1.0 / (mean + self.config.epsilon).sqrt();
                head.iter_mut().zip(weight).for_each(|(x, w)| *x *= scale * w);
            }
        }
        if let Some(scale) = scale {
            let angles = self.rope.angles();
            self.rope.rotate(x, self.config.head, &self.angles[row * angles..][..angles], scale);
        }
    }
}

/// Adds what a part of a layer computed, and its bias where it has one, to the rows of the residual stream.
fn add_rows(runtime: &mut Runtime, x: &mut [f32], added: &[f32], width: usize, bias: Option<&[f32]>) {
    runtime.rows_of(x, width, &|row, x| {
        x.iter_mut().zip(&added[row * width..]).for_each(|(x, a)| *x += a);
        if let Some(bias) = bias {
            x.iter_mut().zip(bias).for_each(|(x, b)| *x += b);
        }
    });
}

impl Backend for CpuModel {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn forward(&mut self, batch: &[Chunk<'_>], logits: &mut Vec<f32>) -> Result<(), BackendError> {
        check_batch(&self.info, batch)?;
        self.step(batch)?;
        self.logits(batch, logits);
        Ok(())
    }

    fn copy_block(&mut self, from: u32, to: u32) -> Result<(), BackendError> {
        self.block_exists(from)?;
        self.block_exists(to)?;
        self.kv.copy(from as usize, to as usize);
        Ok(())
    }

    fn export_block(&self, block: u32, bytes: &mut Vec<u8>) -> Result<(), BackendError> {
        self.block_exists(block)?;
        bytes.clear();
        bytes.extend_from_slice(self.kv.block(block as usize));
        Ok(())
    }

    fn import_block(&mut self, block: u32, bytes: &[u8]) -> Result<(), BackendError> {
        self.block_exists(block)?;
        if bytes.len() != self.info.block_bytes {
            let wanted = self.info.block_bytes;
            return Err(BackendError::BadBatch(format!("a block has {wanted} bytes, not {}", bytes.len())));
        }
        self.kv.block_mut(block as usize).copy_from_slice(bytes);
        Ok(())
    }

    fn copy_state(&mut self, from: u32, to: u32, position: usize) -> Result<(), BackendError> {
        CpuModel::copy_state(self, from, to, position)
    }

    fn export_state(&self, slot: u32, position: usize, bytes: &mut Vec<u8>) -> Result<(), BackendError> {
        CpuModel::export_state(self, slot, position, bytes)
    }

    fn import_state(&mut self, slot: u32, position: usize, bytes: &[u8]) -> Result<(), BackendError> {
        CpuModel::import_state(self, slot, position, bytes)
    }
}

impl CpuModel {
    fn block_exists(&self, block: u32) -> Result<(), BackendError> {
        let exists = (block as usize) < self.info.blocks;
        if exists { Ok(()) } else { Err(BackendError::BadBatch(format!("block {block} does not exist"))) }
    }
}

/// Identity of a model and of its KV bytes: everything in the header that the weights depend on (FNV-1a, 64 bits).
pub(crate) fn fingerprint(gguf: &Gguf, layout: &dyn std::fmt::Debug, config: &Config) -> u64 {
    let mut text = format!("{} {layout:?} {config:?} {BLOCK}", gguf.file_len);
    for tensor in &gguf.tensors {
        text.push_str(&format!("{} {:?} {:?} {}", tensor.name, tensor.dims, tensor.kind, tensor.offset));
    }
    for (key, value) in gguf.metadata.iter().filter(|(key, _)| key.starts_with("general.")) {
        text.push_str(&format!("{key} {value:?}"));
    }
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

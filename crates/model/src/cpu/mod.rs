//! The decoder on the CPU.
//!
//! [`CpuModel::step`] is the whole network, top to bottom, for a batch of rows from any number of sequences. The
//! arithmetic is in the `kernels` crate; here is only its order.

mod feed_forward;
mod scratch;

use crate::backend::{BLOCK, Backend, BackendError, Chunk, ModelInfo, check_batch};
use crate::config::{Config, ConfigOptions};
use crate::gguf::Gguf;
use crate::load::{Embeddings, LoadError, load};
use crate::rope::Rope;
use crate::weights::Weights;
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
        let layout =
            KvLayout { kind: options.kv_type, layers: config.layers, heads: config.kv_heads, head: config.head };
        let kv = KvStore::new(layout, options.kv_tokens.div_ceil(BLOCK));
        let info = ModelInfo {
            vocab: config.vocab,
            context: config.context,
            blocks: kv.blocks,
            block_bytes: layout.block_bytes(),
            rows_max: ROWS_MAX,
            bytes_per_token: weights.bytes_per_token(config.experts.map_or(0, |e| e.used)),
            fingerprint: fingerprint(&gguf, &layout, &config),
        };
        Ok(CpuModel {
            rope: Rope::new(&config.rope, weights.rope_factors.as_deref()),
            embeddings: Embeddings::open(path, &gguf, &config)?,
            scratch: Scratch::new(&config, ROWS_MAX),
            config,
            info,
            weights,
            kv,
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
                row += 1;
            }
        }
        for i in 0..self.weights.layers.len() {
            self.attention(i, &sequences, row);
            self.feed_forward(i, row);
        }
        Ok(())
    }

    /// `x += output(attention(norm(x)))`.
    fn attention(&mut self, i: usize, sequences: &[Queries<'_>], rows: usize) {
        let (config, s, runtime, layer) = (&self.config, &mut self.scratch, &mut self.runtime, &self.weights.layers[i]);
        let (width, q_width, kv_width) = (config.embedding, config.heads * config.head, config.kv_heads * config.head);
        let map = numbers(rows);
        runtime.rms_norm(&s.x, &layer.attention_norm, config.epsilon, &mut s.normed.values[..rows * width]);
        quantize(runtime, &mut s.normed, rows, &[&layer.q.matrix, &layer.k.matrix, &layer.v.matrix]);
        let all = RowMap { input: map, output: map };
        runtime.matmul(
            &s.normed,
            &mut [
                Output { matrix: &layer.q.matrix, rows: all, out: &mut s.q },
                Output { matrix: &layer.k.matrix, rows: all, out: &mut s.k },
                Output { matrix: &layer.v.matrix, rows: all, out: &mut s.v },
            ],
        );
        let (rope, angles) = (&self.rope, &s.angles);
        let scale = 1.0 / (config.head as f32).sqrt();
        let head = HeadWork { config, rope, angles };
        runtime.rows_of(&mut s.q[..rows * q_width], q_width, &|row, q| {
            head.finish(row, q, &layer.q.bias, &layer.q_norm, Some(scale));
        });
        runtime.rows_of(&mut s.k[..rows * kv_width], kv_width, &|row, k| {
            head.finish(row, k, &layer.k.bias, &layer.k_norm, Some(1.0));
        });
        runtime.rows_of(&mut s.v[..rows * kv_width], kv_width, &|row, v| {
            head.finish(row, v, &layer.v.bias, &None, None);
        });
        for sequence in sequences {
            for r in 0..sequence.count {
                let (position, row) = (sequence.start + r, (sequence.row + r) * kv_width);
                let block = sequence.blocks[position / BLOCK] as usize;
                self.kv.write(i, block, position % BLOCK, &s.k[row..][..kv_width], &s.v[row..][..kv_width]);
            }
        }
        let heads = Heads { layer: i, count: config.heads };
        runtime.attention(&self.kv, heads, sequences, &s.q, &mut s.attended.values);
        quantize(runtime, &mut s.attended, rows, &[&layer.attention_output.matrix]);
        let out = Output { matrix: &layer.attention_output.matrix, rows: all, out: &mut s.added };
        runtime.matmul(&s.attended, &mut [out]);
        add_rows(runtime, &mut s.x[..rows * width], &s.added, width, layer.attention_output.bias.as_deref());
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

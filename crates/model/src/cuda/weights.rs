//! The weights of a decoder on the card, from a file or from a random generator.
//!
//! Files are read and packed on all cores, a few MiB at a time, and copied over as they become ready.

use crate::config::{Config, DeltaNetConfig, Experts, LayerKind};
use crate::gguf::Gguf;
use crate::load::{LoadError, Loader, Wanted};
use ::cuda::{Buffer, Device, Error, Kernels, Matrix, pack};
use kernels::{Format, Layout, Shape};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Source bytes that are read, packed and copied in one go.
const PIECE_BYTES: usize = 8 << 20;

/// All weights.
pub(super) struct Weights {
    pub layers: Vec<Layer>,
    pub output_norm: Buffer<f32>,
    pub output: Arc<Matrix>,
    /// The same as `output` where the file has no other.
    pub embeddings: Arc<Matrix>,
    pub rope_factors: Option<Vec<f32>>,
}

/// One layer.
pub(super) struct Layer {
    /// Before the mixer.
    pub norm: Buffer<f32>,
    pub mixer: Mixer,
    /// Of the mixer's result.
    pub output: Matrix,
    pub output_bias: Option<Buffer<f32>>,
    pub feed_forward_norm: Buffer<f32>,
    /// Where there are experts, `[expert][width]`, and the gate of the shared one where there is one; gate, up and down are those of
    /// all experts then, one behind the other.
    pub router: Option<Buffer<f32>>,
    pub gate: Matrix,
    pub up: Matrix,
    pub down: Matrix,
    /// Gate, up and down of the shared expert.
    pub shared: Option<[Matrix; 3]>,
}

/// What looks at earlier positions.
pub(super) enum Mixer {
    Attention(Attention),
    Delta(Delta),
}

/// Attention over keys and values.
pub(super) struct Attention {
    /// Which of the layers with keys and values it is.
    pub index: usize,
    /// Queries, and behind them their gates where there are any.
    pub q: Matrix,
    pub k: Matrix,
    pub v: Matrix,
    /// Of queries, keys and values, one after another.
    pub bias: Option<Buffer<f32>>,
    pub q_norm: Option<Buffer<f32>>,
    pub k_norm: Option<Buffer<f32>>,
}

/// A recurrent state.
pub(super) struct Delta {
    /// Which of the layers with a state it is.
    pub index: usize,
    pub qkv: Matrix,
    pub gate: Matrix,
    /// `[channel][tap]`, oldest row first.
    pub taps: Buffer<f32>,
    pub dt: Buffer<f32>,
    pub a: Buffer<f32>,
    pub norm: Buffer<f32>,
    /// Alphas and then betas, `[2 value heads][width]`.
    pub rates: Buffer<f32>,
}

/// Where weights come from.
pub(super) trait Source {
    fn has(&self, name: &str) -> bool;
    fn matrix(&self, name: &str, rows: usize, columns: usize) -> Result<Matrix, LoadError>;
    /// A matrix of queries, each head's gate behind it in the file: first all queries, then all gates.
    fn gated(&self, name: &str, heads: usize, head: usize, columns: usize) -> Result<Matrix, LoadError>;
    /// The matrices of all experts, one behind the other.
    fn stacked(&self, name: &str, count: usize, rows: usize, columns: usize) -> Result<Matrix, LoadError>;
    /// The same of two matrices for each expert that stand behind each other.
    fn fused(&self, name: &str, count: usize, rows: usize, columns: usize) -> Result<(Matrix, Matrix), LoadError>;
    /// A matrix of floats.
    fn table(&self, name: &str, rows: usize, columns: usize) -> Result<Vec<f32>, LoadError>;
    fn vector(&self, name: &str, length: usize) -> Result<Vec<f32>, LoadError>;
    /// Called when the kernels are there.
    fn fill(&self, kernels: &Kernels, weights: &Weights) -> Result<(), Error>;

    fn optional(&self, name: &str, length: usize) -> Result<Option<Vec<f32>>, LoadError> {
        if self.has(name) { self.vector(name, length).map(Some) } else { Ok(None) }
    }
}

impl Weights {
    pub fn load(config: &Config, device: &Device, source: &dyn Source) -> Result<Weights, LoadError> {
        let table = |name: &str| source.matrix(name, config.vocab, config.embedding).map(Arc::new);
        let embeddings = table("token_embd.weight")?;
        let output = if source.has("output.weight") { table("output.weight")? } else { embeddings.clone() };
        Ok(Weights {
            layers: (0..config.layers).map(|i| layer(config, device, source, i)).collect::<Result<_, _>>()?,
            output_norm: Buffer::new(device, &source.vector("output_norm.weight", config.embedding)?)?,
            output,
            embeddings,
            rope_factors: source.optional("rope_freqs.weight", config.rope.dimensions / 2)?,
        })
    }

    fn matrices(&self) -> impl Iterator<Item = &Matrix> {
        let layers = self.layers.iter().flat_map(Layer::matrices);
        layers.chain([self.output.as_ref()])
    }

    /// Formats of all matrices, each once.
    pub fn formats(&self) -> Vec<Format> {
        let mut formats = Vec::new();
        for matrix in self.matrices().chain([self.embeddings.as_ref()]) {
            if !formats.contains(&matrix.format) {
                formats.push(matrix.format);
            }
        }
        formats
    }

    /// Bytes that decoding one token reads.
    pub fn bytes_per_token(&self, experts: Option<Experts>) -> usize {
        let all: usize = self.matrices().map(Matrix::bytes).sum();
        let Some(Experts { count, used, .. }) = experts else { return all };
        let experts: usize = self.layers.iter().flat_map(|l| [&l.gate, &l.up, &l.down]).map(Matrix::bytes).sum();
        all - experts + experts / count * used
    }
}

impl Layer {
    fn matrices(&self) -> Vec<&Matrix> {
        let mut matrices = match &self.mixer {
            Mixer::Attention(a) => vec![&a.q, &a.k, &a.v],
            Mixer::Delta(d) => vec![&d.qkv, &d.gate],
        };
        matrices.extend([&self.output, &self.gate, &self.up, &self.down]);
        matrices.extend(self.shared.iter().flatten());
        matrices
    }

    /// Whether a shared expert has the formats of the others, so that one kernel can have all of a row's experts.
    pub fn is_alike(&self) -> bool {
        let alike = |[gate, up, down]: &[Matrix; 3]| {
            (gate.format, up.format, down.format) == (self.gate.format, self.up.format, self.down.format)
        };
        self.shared.as_ref().is_none_or(alike)
    }
}

/// Reads the tensors of one layer.
struct LayerSource<'a> {
    config: &'a Config,
    device: &'a Device,
    source: &'a dyn Source,
    i: usize,
}

fn layer(config: &Config, device: &Device, source: &dyn Source, i: usize) -> Result<Layer, LoadError> {
    LayerSource { config, device, source, i }.layer()
}

impl LayerSource<'_> {
    fn name(&self, part: &str) -> String {
        format!("blk.{}.{part}", self.i)
    }

    fn matrix(&self, part: &str, rows: usize, columns: usize) -> Result<Matrix, LoadError> {
        self.source.matrix(&self.name(part), rows, columns)
    }

    fn vector(&self, part: &str, length: usize) -> Result<Buffer<f32>, LoadError> {
        Ok(Buffer::new(self.device, &self.source.vector(&self.name(part), length)?)?)
    }

    fn optional(&self, part: &str, length: usize) -> Result<Option<Buffer<f32>>, LoadError> {
        let values = self.source.optional(&self.name(part), length)?;
        Ok(values.map(|values| Buffer::new(self.device, &values)).transpose()?)
    }

    fn table(&self, part: &str, rows: usize, columns: usize) -> Result<Vec<f32>, LoadError> {
        self.source.table(&self.name(part), rows, columns)
    }

    fn layer(&self) -> Result<Layer, LoadError> {
        let Config { embedding: width, heads, head, feed_forward: ff, experts, .. } = *self.config;
        // Layers of each kind are counted by themselves.
        let index = self.config.kinds[..self.i].iter().filter(|&&kind| kind == self.config.kinds[self.i]).count();
        let delta = self.config.delta_net.filter(|_| self.config.kinds[self.i] == LayerKind::DeltaNet);
        let (mixer, output) = match delta {
            Some(delta) => (Mixer::Delta(self.delta(delta, index)?), ("ssm_out.weight", delta.values())),
            None => (Mixer::Attention(self.attention(index)?), ("attn_output.weight", heads * head)),
        };
        let after = if self.config.delta_net.is_some() { "post_attention_norm.weight" } else { "ffn_norm.weight" };
        let feed = |part: &str, rows, columns| match experts {
            Some(experts) => {
                self.source.stacked(&self.name(&format!("ffn_{part}_exps.weight")), experts.count, rows, columns)
            }
            None => self.matrix(&format!("ffn_{part}.weight"), rows, columns),
        };
        let (gate, up) = match experts.filter(|_| self.source.has(&self.name("ffn_gate_up_exps.weight"))) {
            Some(experts) => self.source.fused(&self.name("ffn_gate_up_exps.weight"), experts.count, ff, width)?,
            None => (feed("gate", ff, width)?, feed("up", ff, width)?),
        };
        let shared = experts.is_some_and(|experts| experts.shared);
        let shared_matrix = |part: &str, rows, columns| self.matrix(&format!("ffn_{part}_shexp.weight"), rows, columns);
        let router = experts.map(|experts| self.router(experts)).transpose()?;
        Ok(Layer {
            norm: self.vector("attn_norm.weight", width)?,
            mixer,
            output: self.matrix(output.0, width, output.1)?,
            output_bias: self.optional("attn_output.bias", width)?,
            feed_forward_norm: self.vector(after, width)?,
            router: router.map(|router| Buffer::new(self.device, &router)).transpose()?,
            gate,
            up,
            down: feed("down", width, ff)?,
            shared: match shared {
                true => Some([
                    shared_matrix("gate", ff, width)?,
                    shared_matrix("up", ff, width)?,
                    shared_matrix("down", width, ff)?,
                ]),
                false => None,
            },
        })
    }

    fn router(&self, experts: Experts) -> Result<Vec<f32>, LoadError> {
        let width = self.config.embedding;
        let mut router = self.table("ffn_gate_inp.weight", experts.count, width)?;
        if experts.shared {
            router.extend(self.source.vector(&self.name("ffn_gate_inp_shexp.weight"), width)?);
        }
        Ok(router)
    }

    fn attention(&self, index: usize) -> Result<Attention, LoadError> {
        let Config { embedding: width, heads, kv_heads, head, gated_attention, .. } = *self.config;
        let (q, kv) = (heads * head, kv_heads * head);
        let mut bias = Vec::new();
        for (part, length) in [("attn_q.bias", q), ("attn_k.bias", kv), ("attn_v.bias", kv)] {
            bias.push(self.source.optional(&self.name(part), length)?.ok_or(length));
        }
        let bias = match bias.iter().any(Result::is_ok) {
            true if gated_attention => {
                return Err(LoadError::NotOnCard("gated attention with biases does not run on a card"));
            }
            // Where only some have a bias the others get zeros.
            true => Some(
                bias.into_iter().flat_map(|part| part.unwrap_or_else(|length| vec![0.0; length])).collect::<Vec<_>>(),
            ),
            false => None,
        };
        Ok(Attention {
            index,
            q: match gated_attention {
                true => self.source.gated(&self.name("attn_q.weight"), heads, head, width)?,
                false => self.matrix("attn_q.weight", q, width)?,
            },
            k: self.matrix("attn_k.weight", kv, width)?,
            v: self.matrix("attn_v.weight", kv, width)?,
            bias: bias.map(|bias| Buffer::new(self.device, &bias)).transpose()?,
            q_norm: self.optional("attn_q_norm.weight", head)?,
            k_norm: self.optional("attn_k_norm.weight", head)?,
        })
    }

    fn delta(&self, delta: DeltaNetConfig, index: usize) -> Result<Delta, LoadError> {
        let (width, heads) = (self.config.embedding, delta.value_heads);
        let new = |values: &[f32]| Buffer::new(self.device, values);
        Ok(Delta {
            index,
            qkv: self.matrix("attn_qkv.weight", delta.channels(), width)?,
            gate: self.matrix("attn_gate.weight", delta.values(), width)?,
            taps: new(&self.table("ssm_conv1d.weight", delta.channels(), delta.taps)?)?,
            dt: self.vector("ssm_dt.bias", heads)?,
            a: self.vector("ssm_a", heads)?,
            norm: self.vector("ssm_norm.weight", delta.head)?,
            rates: new(&self.rates(delta)?)?,
        })
    }

    /// Alphas and then betas of all value heads. In one matrix they stand by key heads, betas first.
    fn rates(&self, delta: DeltaNetConfig) -> Result<Vec<f32>, LoadError> {
        let (width, heads) = (self.config.embedding, delta.value_heads);
        if !self.source.has(&self.name("ssm_ba.weight")) {
            let mut rates = self.table("ssm_alpha.weight", heads, width)?;
            rates.extend(self.table("ssm_beta.weight", heads, width)?);
            return Ok(rates);
        }
        let both = self.table("ssm_ba.weight", 2 * heads, width)?;
        let each = heads / delta.key_heads;
        let row = |head: usize, alpha: usize| {
            let at = (head / each * 2 * each + alpha * each + head % each) * width;
            both[at..at + width].iter().copied()
        };
        Ok((0..heads).flat_map(|head| row(head, 1)).chain((0..heads).flat_map(|head| row(head, 0))).collect())
    }
}

const SCALED: LoadError = LoadError::NotOnCard("matrices with a scale of their own do not run on a card yet");

/// Weights in a GGUF file.
pub(super) struct FileSource<'a> {
    loader: Loader<'a>,
    gguf: &'a Gguf,
    device: &'a Device,
    threads: usize,
}

impl<'a> FileSource<'a> {
    pub fn new(path: &'a Path, gguf: &'a Gguf, device: &'a Device, threads: usize) -> FileSource<'a> {
        FileSource { loader: Loader::new(path, gguf, Layout::Rows, threads), gguf, device, threads }
    }

    fn read(&self, wanted: Wanted) -> Result<Matrix, LoadError> {
        if wanted.scale != 1.0 {
            return Err(SCALED);
        }
        let Shape { rows, columns, .. } = wanted.shape;
        let matrix = Matrix::zeroed(self.device, wanted.shape)?;
        let row_bytes = wanted.shape.format.row_bytes(columns);
        let rows_at_once = (PIECE_BYTES / row_bytes).next_multiple_of(pack::TILE_ROWS).max(pack::TILE_ROWS);
        let next = Mutex::new(0);
        let threads = self.threads.min(rows.div_ceil(rows_at_once)).max(1);
        std::thread::scope(|scope| {
            let work = || self.work(wanted.source, &matrix, &next, rows_at_once);
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
            let own = work();
            others.into_iter().map(|t| t.join().expect("packing does not panic")).fold(own, |all, one| all.and(one))
        })?;
        Ok(matrix)
    }

    /// A matrix of runs of `rows` rows each, taken from where a tensor has them.
    fn read_runs(&self, wanted: &Wanted, rows: usize, runs: &[usize]) -> Result<Matrix, LoadError> {
        let Shape { format, columns, .. } = wanted.shape;
        if wanted.scale != 1.0 {
            return Err(SCALED);
        }
        let run_bytes = rows * format.row_bytes(columns);
        let matrix = Matrix::zeroed(self.device, Shape { format, rows: runs.len() * rows, columns })?;
        if !rows.is_multiple_of(pack::TILE_ROWS) {
            return Err(LoadError::NotOnCard("matrices of heads or experts this narrow do not run on a card"));
        }
        let (mut file, mut bytes) = (None, vec![0; run_bytes]);
        for (i, &run) in runs.iter().enumerate() {
            self.loader.read_at(&mut file, wanted.source + (run * run_bytes) as u64, &mut bytes)?;
            let mut packed = vec![0; pack::packed_bytes(Shape { format, rows, columns })];
            pack::pack(format, columns, &bytes, &mut packed);
            matrix.write_tiles(i * rows / pack::TILE_ROWS, &packed)?;
        }
        Ok(matrix)
    }

    /// Reads, packs and copies pieces of whole tiles until none is left.
    fn work(&self, at: u64, matrix: &Matrix, next: &Mutex<usize>, rows_at_once: usize) -> Result<(), LoadError> {
        let (format, columns) = (matrix.format, matrix.columns);
        let row_bytes = format.row_bytes(columns);
        let (mut file, mut bytes, mut packed) = (None, Vec::new(), Vec::new());
        loop {
            let first = {
                let mut next = next.lock().unwrap_or_else(PoisonError::into_inner);
                let first = *next;
                *next += rows_at_once;
                first
            };
            if first >= matrix.rows {
                return Ok(());
            }
            let rows = rows_at_once.min(matrix.rows - first);
            bytes.resize(rows * row_bytes, 0);
            self.loader.read_at(&mut file, at + (first * row_bytes) as u64, &mut bytes)?;
            packed.clear();
            packed.resize(pack::packed_bytes(Shape { format, rows, columns }), 0);
            pack::pack(format, columns, &bytes, &mut packed);
            matrix.write_tiles(first / pack::TILE_ROWS, &packed)?;
        }
    }
}

impl Source for FileSource<'_> {
    fn has(&self, name: &str) -> bool {
        self.gguf.tensor(name).is_some()
    }

    fn matrix(&self, name: &str, rows: usize, columns: usize) -> Result<Matrix, LoadError> {
        self.read(self.loader.wanted(name, rows, columns)?)
    }

    fn stacked(&self, name: &str, count: usize, rows: usize, columns: usize) -> Result<Matrix, LoadError> {
        let experts = self.loader.stacked(name, count, rows, columns)?;
        let first = experts.first().ok_or_else(|| LoadError::Missing(name.to_owned()))?;
        if experts.iter().any(|expert| expert.scale != 1.0) {
            return Err(SCALED);
        }
        self.read(Wanted { shape: Shape { rows: count * rows, ..first.shape }, ..*first })
    }

    fn gated(&self, name: &str, heads: usize, head: usize, columns: usize) -> Result<Matrix, LoadError> {
        let wanted = self.loader.wanted(name, 2 * heads * head, columns)?;
        let runs = |gates: usize| (0..heads).map(move |h| 2 * h + gates);
        self.read_runs(&wanted, head, &runs(0).chain(runs(1)).collect::<Vec<_>>())
    }

    fn fused(&self, name: &str, count: usize, rows: usize, columns: usize) -> Result<(Matrix, Matrix), LoadError> {
        let experts = self.loader.stacked(name, count, 2 * rows, columns)?;
        let first = experts.first().ok_or_else(|| LoadError::Missing(name.to_owned()))?;
        if experts.iter().any(|expert| expert.scale != 1.0) {
            return Err(SCALED);
        }
        let runs = |second: usize| (0..count).map(move |expert| 2 * expert + second).collect::<Vec<_>>();
        Ok((self.read_runs(first, rows, &runs(0))?, self.read_runs(first, rows, &runs(1))?))
    }

    fn table(&self, name: &str, rows: usize, columns: usize) -> Result<Vec<f32>, LoadError> {
        let wanted = self.loader.wanted(name, rows, columns)?;
        let format = wanted.shape.format;
        let mut bytes = vec![0; rows * format.row_bytes(columns)];
        self.loader.read_at(&mut None, wanted.source, &mut bytes)?;
        let mut values = vec![0.0; rows * columns];
        for (row, out) in bytes.chunks_exact(format.row_bytes(columns)).zip(values.chunks_exact_mut(columns)) {
            kernels::blocks::dequantize_row(format, row, out);
        }
        Ok(values)
    }

    fn vector(&self, name: &str, length: usize) -> Result<Vec<f32>, LoadError> {
        self.loader.vector(name, length)
    }

    fn fill(&self, _kernels: &Kernels, _weights: &Weights) -> Result<(), Error> {
        Ok(())
    }
}

/// Random weights of the right sizes and formats, as a Q4_K_M file has them.
pub(super) struct RandomSource<'a> {
    device: &'a Device,
    layers: usize,
    tied: bool,
    with_bias: bool,
    with_head_norms: bool,
}

impl<'a> RandomSource<'a> {
    pub fn new(config: &Config, device: &'a Device) -> Result<RandomSource<'a>, LoadError> {
        let with_bias = config.architecture == "qwen2";
        // The small ones of this family use one table for both ends.
        let tied = config.architecture == "qwen2" && config.embedding < 3584;
        let with_head_norms = config.architecture.starts_with("qwen3");
        Ok(RandomSource { device, layers: config.layers, tied, with_bias, with_head_norms })
    }

    /// The mix llama.cpp calls Q4_K_M: values and down projections of half of the layers, and the output, in Q6_K; other
    /// formats where a row is no multiple of 256.
    fn format(&self, name: &str, columns: usize) -> Format {
        let layer = name.split('.').nth(1).and_then(|number| number.parse::<usize>().ok());
        let finer = |i: usize| i < self.layers / 8 || i >= 7 * self.layers / 8 || (i - self.layers / 8) % 3 == 2;
        let fine = match layer {
            None => self.tied || name == "output.weight",
            Some(i) => finer(i) && (name.contains("attn_v") || name.contains("ffn_down")),
        };
        match (columns.is_multiple_of(256), fine) {
            (true, true) => Format::Q6_K,
            (true, false) => Format::Q4_K,
            (false, true) => Format::Q8_0,
            (false, false) => Format::Q5_0,
        }
    }
}

impl Source for RandomSource<'_> {
    fn has(&self, name: &str) -> bool {
        match name {
            "output.weight" => !self.tied,
            _ if name.ends_with("_norm.weight") => self.with_head_norms,
            _ => self.with_bias && name.ends_with(".bias") && !name.contains("attn_output"),
        }
    }

    fn matrix(&self, name: &str, rows: usize, columns: usize) -> Result<Matrix, LoadError> {
        Ok(Matrix::zeroed(self.device, Shape { format: self.format(name, columns), rows, columns })?)
    }

    fn stacked(&self, name: &str, count: usize, rows: usize, columns: usize) -> Result<Matrix, LoadError> {
        self.matrix(name, count * rows, columns)
    }

    fn gated(&self, name: &str, heads: usize, head: usize, columns: usize) -> Result<Matrix, LoadError> {
        self.matrix(name, 2 * heads * head, columns)
    }

    fn fused(&self, name: &str, count: usize, rows: usize, columns: usize) -> Result<(Matrix, Matrix), LoadError> {
        Ok((self.stacked(name, count, rows, columns)?, self.stacked(name, count, rows, columns)?))
    }

    fn table(&self, _name: &str, rows: usize, columns: usize) -> Result<Vec<f32>, LoadError> {
        let mut random = kernels::cases::Random(rows as u64);
        Ok((0..rows * columns).map(|_| 0.05 * random.float()).collect())
    }

    fn vector(&self, name: &str, length: usize) -> Result<Vec<f32>, LoadError> {
        let mut random = kernels::cases::Random(length as u64);
        // States decay.
        let sign = if name.ends_with("ssm_a") { -1.0 } else { 1.0 };
        Ok((0..length).map(|_| sign * (1.0 + 0.3 * random.float())).collect())
    }

    fn fill(&self, kernels: &Kernels, weights: &Weights) -> Result<(), Error> {
        for (seed, matrix) in weights.matrices().chain([weights.embeddings.as_ref()]).enumerate() {
            kernels.random(matrix, seed as u32)?;
        }
        Ok(())
    }
}

//! The weights of a decoder on the card, from a file or from a random generator.
//!
//! Files are read and packed on all cores, a few MiB at a time, and copied over as they become ready.

use crate::config::{Config, Experts};
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
    pub attention_norm: Buffer<f32>,
    pub q: Matrix,
    pub k: Matrix,
    pub v: Matrix,
    /// Of queries, keys and values, one after another.
    pub bias: Option<Buffer<f32>>,
    pub q_norm: Option<Buffer<f32>>,
    pub k_norm: Option<Buffer<f32>>,
    pub attention_output: Matrix,
    pub attention_output_bias: Option<Buffer<f32>>,
    pub feed_forward_norm: Buffer<f32>,
    /// Where there are experts, `[expert][width]`; gate, up and down are those of all experts then, one behind the other.
    pub router: Option<Buffer<f32>>,
    pub gate: Matrix,
    pub up: Matrix,
    pub down: Matrix,
}

/// Where weights come from.
pub(super) trait Source {
    fn has(&self, name: &str) -> bool;
    fn matrix(&self, name: &str, rows: usize, columns: usize) -> Result<Matrix, LoadError>;
    /// The matrices of all experts, one behind the other.
    fn stacked(&self, name: &str, count: usize, rows: usize, columns: usize) -> Result<Matrix, LoadError>;
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
    fn matrices(&self) -> [&Matrix; 7] {
        [&self.q, &self.k, &self.v, &self.attention_output, &self.gate, &self.up, &self.down]
    }
}

fn layer(config: &Config, device: &Device, source: &dyn Source, i: usize) -> Result<Layer, LoadError> {
    let name = |part: &str| format!("blk.{i}.{part}");
    let (width, q, kv, ff) =
        (config.embedding, config.heads * config.head, config.kv_heads * config.head, config.feed_forward);
    let matrix = |part: &str, rows, columns| source.matrix(&name(part), rows, columns);
    let vector =
        |part: &str, length| Buffer::new(device, &source.vector(&name(part), length)?).map_err(LoadError::from);
    let optional = |part: &str, length| match source.optional(&name(part), length)? {
        Some(values) => Buffer::new(device, &values).map(Some).map_err(LoadError::from),
        None => Ok(None),
    };
    let mut bias = Vec::new();
    for (part, length) in [("attn_q.bias", q), ("attn_k.bias", kv), ("attn_v.bias", kv)] {
        bias.push(source.optional(&name(part), length)?.ok_or(length));
    }
    let bias = match bias.iter().any(Result::is_ok) {
        // Where only some have a bias the others get zeros.
        true => {
            Some(bias.into_iter().flat_map(|part| part.unwrap_or_else(|length| vec![0.0; length])).collect::<Vec<_>>())
        }
        false => None,
    };
    let experts = config.experts.map(|experts| experts.count);
    let feed = |part: &str, rows, columns| match experts {
        Some(count) => source.stacked(&name(&format!("ffn_{part}_exps.weight")), count, rows, columns),
        None => source.matrix(&name(&format!("ffn_{part}.weight")), rows, columns),
    };
    let router = experts.map(|count| source.table(&name("ffn_gate_inp.weight"), count, width)).transpose()?;
    Ok(Layer {
        attention_norm: vector("attn_norm.weight", width)?,
        q: matrix("attn_q.weight", q, width)?,
        k: matrix("attn_k.weight", kv, width)?,
        v: matrix("attn_v.weight", kv, width)?,
        bias: bias.map(|bias| Buffer::new(device, &bias)).transpose()?,
        q_norm: optional("attn_q_norm.weight", config.head)?,
        k_norm: optional("attn_k_norm.weight", config.head)?,
        attention_output: matrix("attn_output.weight", width, q)?,
        attention_output_bias: optional("attn_output.bias", width)?,
        feed_forward_norm: vector("ffn_norm.weight", width)?,
        router: router.map(|router| Buffer::new(device, &router)).transpose()?,
        gate: feed("gate", ff, width)?,
        up: feed("up", ff, width)?,
        down: feed("down", width, ff)?,
    })
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

    fn table(&self, _name: &str, rows: usize, columns: usize) -> Result<Vec<f32>, LoadError> {
        let mut random = kernels::cases::Random(rows as u64);
        Ok((0..rows * columns).map(|_| 0.05 * random.float()).collect())
    }

    fn vector(&self, _name: &str, length: usize) -> Result<Vec<f32>, LoadError> {
        let mut random = kernels::cases::Random(length as u64);
        Ok((0..length).map(|_| 1.0 + 0.3 * random.float()).collect())
    }

    fn fill(&self, kernels: &Kernels, weights: &Weights) -> Result<(), Error> {
        for (seed, matrix) in weights.matrices().chain([weights.embeddings.as_ref()]).enumerate() {
            kernels.random(matrix, seed as u32)?;
        }
        Ok(())
    }
}

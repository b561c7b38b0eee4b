//! Tiny decoders with random weights, one for each architecture: real files that load and run in milliseconds.

use crate::gguf::GgufWriter;
use kernels::cases::{Random, random_weights};
use kernels::{Format, Shape};
use model::gguf::Value;

/// What a tiny model is like. The default is a two-layer llama of F32 weights.
#[derive(Clone, Debug)]
pub struct Tiny {
    /// `llama`, `qwen2`, `qwen3` or `qwen3moe`.
    pub architecture: &'static str,
    /// Format of all matrices.
    pub format: Format,
    /// Format of embeddings and output where it is another.
    pub tables: Option<Format>,
    /// Elements between gate and down.
    pub feed_forward: usize,
    /// `rope.scaling.type` and its factor.
    pub scaling: Option<(&'static str, f32)>,
    /// Seed of the weights.
    pub seed: u64,
}

/// Sizes shared by all tiny models; widths are whole super-blocks.
const WIDTH: usize = 256;
const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const HEAD: usize = 64;
const FEED_FORWARD: usize = 512;
const LAYERS: usize = 2;
const EXPERTS: usize = 4;
/// Number of token ids of a tiny model.
pub const VOCAB: usize = 328;
/// Context length of a tiny model.
pub const CONTEXT: usize = 2048;

impl Default for Tiny {
    fn default() -> Tiny {
        Tiny {
            architecture: "llama",
            format: Format::F32,
            tables: None,
            feed_forward: FEED_FORWARD,
            scaling: None,
            seed: 1,
        }
    }
}

impl Tiny {
    /// The file, ready to be written.
    pub fn writer(&self) -> GgufWriter {
        let key = |name: &str| format!("{}.{name}", self.architecture);
        let count = |n: usize| Value::U32(n as u32);
        let mut w = GgufWriter::new()
            .text("general.architecture", self.architecture)
            .meta(key("block_count"), count(LAYERS))
            .meta(key("embedding_length"), count(WIDTH))
            .meta(key("attention.head_count"), count(HEADS))
            .meta(key("attention.head_count_kv"), count(KV_HEADS))
            .meta(key("attention.key_length"), count(HEAD))
            .meta(key("attention.value_length"), count(HEAD))
            .meta(key("feed_forward_length"), count(self.feed_forward))
            .meta(key("context_length"), count(CONTEXT))
            .meta(key("vocab_size"), count(VOCAB))
            .meta(key("rope.freq_base"), Value::F32(10_000.0))
            .meta(key("attention.layer_norm_rms_epsilon"), Value::F32(1e-6))
            .text("tokenizer.ggml.model", "none");
        if let Some((kind, factor)) = self.scaling {
            w = w.text(key("rope.scaling.type"), kind).meta(key("rope.scaling.factor"), Value::F32(factor));
            w = w.meta(key("rope.scaling.original_context_length"), count(CONTEXT / 4));
        }
        let mut tensors = Tensors { seed: self.seed, format: self.format, writer: w };
        let tables = self.tables.unwrap_or(self.format);
        tensors.stacked("token_embd.weight", 1, VOCAB, WIDTH, tables);
        tensors.norm("output_norm.weight", WIDTH);
        if self.architecture != "qwen2" {
            tensors.stacked("output.weight", 1, VOCAB, WIDTH, tables);
        }
        for i in 0..LAYERS {
            self.layer(&mut tensors, &|part: &str| format!("blk.{i}.{part}"));
        }
        if self.architecture == "qwen3moe" {
            let w = tensors.writer.meta(key("expert_count"), count(EXPERTS));
            tensors.writer = w.meta(key("expert_used_count"), count(2));
            let w = tensors.writer.meta(key("expert_feed_forward_length"), count(self.feed_forward));
            tensors.writer = w;
        }
        tensors.writer
    }

    fn layer(&self, t: &mut Tensors, name: &dyn Fn(&str) -> String) {
        t.norm(&name("attn_norm.weight"), WIDTH);
        t.matrix(&name("attn_q.weight"), HEADS * HEAD, WIDTH);
        t.matrix(&name("attn_k.weight"), KV_HEADS * HEAD, WIDTH);
        t.matrix(&name("attn_v.weight"), KV_HEADS * HEAD, WIDTH);
        t.matrix(&name("attn_output.weight"), WIDTH, HEADS * HEAD);
        match self.architecture {
            "qwen2" => {
                t.norm(&name("attn_q.bias"), HEADS * HEAD);
                t.norm(&name("attn_k.bias"), KV_HEADS * HEAD);
                t.norm(&name("attn_v.bias"), KV_HEADS * HEAD);
            }
            "qwen3" | "qwen3moe" => {
                t.norm(&name("attn_q_norm.weight"), HEAD);
                t.norm(&name("attn_k_norm.weight"), HEAD);
            }
            _ => {}
        }
        t.norm(&name("ffn_norm.weight"), WIDTH);
        if self.architecture == "qwen3moe" {
            t.stacked(&name("ffn_gate_inp.weight"), 1, EXPERTS, WIDTH, Format::F32);
            t.stacked(&name("ffn_gate_exps.weight"), EXPERTS, self.feed_forward, WIDTH, self.format);
            t.stacked(&name("ffn_up_exps.weight"), EXPERTS, self.feed_forward, WIDTH, self.format);
            t.stacked(&name("ffn_down_exps.weight"), EXPERTS, WIDTH, self.feed_forward, self.format);
        } else {
            t.matrix(&name("ffn_gate.weight"), self.feed_forward, WIDTH);
            t.matrix(&name("ffn_up.weight"), self.feed_forward, WIDTH);
            t.matrix(&name("ffn_down.weight"), WIDTH, self.feed_forward);
        }
    }
}

struct Tensors {
    seed: u64,
    format: Format,
    writer: GgufWriter,
}

impl Tensors {
    fn add(&mut self, name: &str, dims: &[u64], format: Format, bytes: Vec<u8>) {
        let writer = std::mem::take(&mut self.writer);
        self.writer = writer.tensor(name, dims, format, bytes);
        self.seed += 1;
    }

    fn matrix(&mut self, name: &str, rows: usize, columns: usize) {
        self.stacked(name, 1, rows, columns, self.format);
    }

    fn stacked(&mut self, name: &str, count: usize, rows: usize, columns: usize, format: Format) {
        let bytes = random_weights(Shape { format, rows: rows * count, columns }, self.seed);
        let dims = [columns as u64, rows as u64, count as u64];
        self.add(name, if count == 1 { &dims[..2] } else { &dims }, format, bytes);
    }

    /// A vector around one, as norms are.
    fn norm(&mut self, name: &str, length: usize) {
        let mut random = Random(self.seed);
        let bytes = (0..length).flat_map(|_| (1.0 + 0.3 * random.float()).to_le_bytes()).collect();
        self.add(name, &[length as u64], Format::F32, bytes);
    }
}

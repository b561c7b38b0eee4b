//! Tiny decoders with random weights, one for each architecture: real files that load and run in milliseconds.

use crate::gguf::GgufWriter;
use kernels::cases::{Random, random_weights};
use kernels::{Format, Shape};
use model::gguf::{Array, Value};

/// What a tiny model is like. The default is a two-layer llama of F32 weights.
#[derive(Clone, Debug)]
pub struct Tiny {
    /// `llama`, `qwen2`, `qwen3`, `qwen3moe`, `qwen35`, `qwen35moe`, `qwen3next` or `mistral3`.
    pub architecture: &'static str,
    /// Format of all matrices.
    pub format: Format,
    /// Format of embeddings and output where it is another.
    pub tables: Option<Format>,
    /// Elements between gate and down.
    pub feed_forward: usize,
    /// `rope.scaling.type` and its factor.
    pub scaling: Option<(&'static str, f32)>,
    /// What only the models with recurrent layers have.
    pub hybrid: Hybrid,
    /// Seed of the weights.
    pub seed: u64,
}

/// What `qwen35`, `qwen35moe` and `qwen3next` models have. The default has four layers, of which the last attends.
#[derive(Clone, Copy, Debug)]
pub struct Hybrid {
    /// Heads of keys in recurrent layers.
    pub key_heads: usize,
    /// Heads of values, a multiple of those.
    pub value_heads: usize,
    /// Whether gates and ups of experts stand in one tensor.
    pub fused_experts: bool,
    /// Whether matrices come with a scale.
    pub scales: bool,
    /// Layers.
    pub layers: usize,
    /// Elements of a head of a recurrent layer.
    pub state: usize,
}

impl Default for Hybrid {
    fn default() -> Hybrid {
        Hybrid { key_heads: 4, value_heads: 8, fused_experts: false, scales: false, layers: 4, state: 32 }
    }
}

/// Sizes shared by all tiny models; widths are whole super-blocks.
const WIDTH: usize = 256;
const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const HEAD: usize = 64;
const FEED_FORWARD: usize = 512;
const LAYERS: usize = 2;
const EXPERTS: usize = 4;
/// Rows that its convolution sees.
const TAPS: usize = 4;
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
            hybrid: Hybrid::default(),
            seed: 1,
        }
    }
}

impl Tiny {
    /// Whether some layers carry a recurrent state.
    pub fn is_hybrid(&self) -> bool {
        matches!(self.architecture, "qwen35" | "qwen35moe" | "qwen3next")
    }

    fn has_experts(&self) -> bool {
        matches!(self.architecture, "qwen3moe" | "qwen35moe" | "qwen3next")
    }

    fn layers(&self) -> usize {
        if self.is_hybrid() { self.hybrid.layers } else { LAYERS }
    }

    /// The file, ready to be written.
    pub fn writer(&self) -> GgufWriter {
        let key = |name: &str| format!("{}.{name}", self.architecture);
        let count = |n: usize| Value::U32(n as u32);
        let mut w = GgufWriter::new()
            .text("general.architecture", self.architecture)
            .meta(key("block_count"), count(self.layers()))
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
            if self.architecture == "mistral3" {
                w = w.meta(key("rope.scaling.yarn_log_multiplier"), Value::F32(0.6));
                w = w.meta(key("attention.temperature_scale"), Value::F32(0.1));
            }
        }
        let mut tensors = Tensors { seed: self.seed, format: self.format, writer: w };
        let tables = self.tables.unwrap_or(self.format);
        tensors.stacked("token_embd.weight", 1, VOCAB, WIDTH, tables);
        tensors.norm("output_norm.weight", WIDTH);
        if self.architecture != "qwen2" {
            tensors.stacked("output.weight", 1, VOCAB, WIDTH, tables);
        }
        for i in 0..self.layers() {
            let name = |part: &str| format!("blk.{i}.{part}");
            if self.is_hybrid() { self.hybrid_layer(&mut tensors, i, &name) } else { self.layer(&mut tensors, &name) }
        }
        if self.is_hybrid() {
            let Hybrid { key_heads, value_heads, state, .. } = self.hybrid;
            let w = tensors.writer.meta(key("rope.dimension_count"), count(HEAD / 4));
            let sections = Value::Array(Array::I32(vec![3, 3, 2, 0]));
            let w = w.meta(key("rope.dimension_sections"), sections).meta(key("ssm.conv_kernel"), count(TAPS));
            let w = w.meta(key("ssm.state_size"), count(state)).meta(key("ssm.group_count"), count(key_heads));
            let w = w.meta(key("ssm.time_step_rank"), count(value_heads));
            tensors.writer = w.meta(key("ssm.inner_size"), count(value_heads * state));
            if self.has_experts() {
                let width = key("expert_shared_feed_forward_length");
                tensors.writer = tensors.writer.meta(width, count(self.feed_forward));
            }
        }
        if self.has_experts() {
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

/// Formats whose meaning is compared with llama.cpp's on a tiny model.
pub const COMPARED_FORMATS: [Format; 5] = [Format::Q4_0, Format::Q4_K, Format::IQ4_NL, Format::IQ4_XS, Format::MXFP4];

/// A model that stretches its positions and its queries: one that differs after 512 tokens.
pub fn mistral3() -> Tiny {
    Tiny { architecture: "mistral3", scaling: Some(("yarn", 4.0)), ..Tiny::default() }
}

/// Models with recurrent layers in several shapes, with names.
pub fn hybrids() -> Vec<(&'static str, Tiny)> {
    let of = |architecture, hybrid| Tiny { architecture, hybrid, feed_forward: WIDTH, ..Tiny::default() };
    let default = Hybrid::default();
    vec![
        ("qwen35", of("qwen35", default)),
        ("qwen35-one-head-each", of("qwen35", Hybrid { key_heads: 4, value_heads: 4, ..default })),
        ("qwen35-three-heads-each", of("qwen35", Hybrid { key_heads: 2, value_heads: 6, layers: 5, ..default })),
        ("qwen35-scales", of("qwen35", Hybrid { scales: true, ..default })),
        ("qwen35moe", of("qwen35moe", default)),
        ("qwen35moe-fused", of("qwen35moe", Hybrid { fused_experts: true, ..default })),
        ("qwen35moe-scales", of("qwen35moe", Hybrid { scales: true, ..default })),
        ("qwen3next", of("qwen3next", default)),
        ("qwen3next-one-head-each", of("qwen3next", Hybrid { key_heads: 2, value_heads: 2, ..default })),
    ]
}

impl Tiny {
    fn hybrid_layer(&self, t: &mut Tensors, i: usize, name: &dyn Fn(&str) -> String) {
        let Hybrid { key_heads, value_heads, state, .. } = self.hybrid;
        let (keys, values) = (key_heads * state, value_heads * state);
        t.norm(&name("attn_norm.weight"), WIDTH);
        if (i + 1).is_multiple_of(4) {
            t.matrix(&name("attn_q.weight"), 2 * HEADS * HEAD, WIDTH);
            t.matrix(&name("attn_k.weight"), KV_HEADS * HEAD, WIDTH);
            t.matrix(&name("attn_v.weight"), KV_HEADS * HEAD, WIDTH);
            t.matrix(&name("attn_output.weight"), WIDTH, HEADS * HEAD);
            t.norm(&name("attn_q_norm.weight"), HEAD);
            t.norm(&name("attn_k_norm.weight"), HEAD);
        } else {
            t.matrix(&name("attn_qkv.weight"), 2 * keys + values, WIDTH);
            t.matrix(&name("attn_gate.weight"), values, WIDTH);
            t.stacked(&name("ssm_conv1d.weight"), 1, 2 * keys + values, TAPS, Format::F32);
            if self.architecture == "qwen3next" {
                t.matrix(&name("ssm_ba.weight"), 2 * value_heads, WIDTH);
            } else {
                t.matrix(&name("ssm_beta.weight"), value_heads, WIDTH);
                t.matrix(&name("ssm_alpha.weight"), value_heads, WIDTH);
            }
            t.vector(&name("ssm_dt.bias"), value_heads, 0.2, 1.0);
            t.vector(&name("ssm_a"), value_heads, -0.8, 0.6);
            t.norm(&name("ssm_norm.weight"), state);
            let whole = values.is_multiple_of(self.format.block_elements());
            let format = if whole { self.format } else { Format::Q8_0 };
            t.stacked(&name("ssm_out.weight"), 1, WIDTH, values, format);
        }
        t.norm(&name("post_attention_norm.weight"), WIDTH);
        let ff = self.feed_forward;
        if !self.has_experts() {
            t.matrix(&name("ffn_gate.weight"), ff, WIDTH);
            t.matrix(&name("ffn_up.weight"), ff, WIDTH);
            t.matrix(&name("ffn_down.weight"), WIDTH, ff);
            if self.hybrid.scales {
                t.vector(&name("ffn_up.scale"), 1, 0.7, 0.1);
                t.vector(&name("ffn_down.scale"), 1, 1.3, 0.1);
            }
            return;
        }
        t.stacked(&name("ffn_gate_inp.weight"), 1, EXPERTS, WIDTH, Format::F32);
        if self.hybrid.fused_experts {
            t.stacked(&name("ffn_gate_up_exps.weight"), EXPERTS, 2 * ff, WIDTH, self.format);
        } else {
            t.stacked(&name("ffn_gate_exps.weight"), EXPERTS, ff, WIDTH, self.format);
            t.stacked(&name("ffn_up_exps.weight"), EXPERTS, ff, WIDTH, self.format);
        }
        t.stacked(&name("ffn_down_exps.weight"), EXPERTS, WIDTH, ff, self.format);
        if self.hybrid.scales {
            t.vector(&name("ffn_down_exps.scale"), EXPERTS, 1.0, 0.4);
        }
        t.vector(&name("ffn_gate_inp_shexp.weight"), WIDTH, 0.0, 0.1);
        t.matrix(&name("ffn_gate_shexp.weight"), ff, WIDTH);
        t.matrix(&name("ffn_up_shexp.weight"), ff, WIDTH);
        t.matrix(&name("ffn_down_shexp.weight"), WIDTH, ff);
    }
}

pub(crate) struct Tensors {
    pub seed: u64,
    pub format: Format,
    pub writer: GgufWriter,
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

    pub fn stacked(&mut self, name: &str, count: usize, rows: usize, columns: usize, format: Format) {
        let bytes = random_weights(Shape { format, rows: rows * count, columns }, self.seed);
        let dims = [columns as u64, rows as u64, count as u64];
        self.add(name, if count == 1 { &dims[..2] } else { &dims }, format, bytes);
    }

    /// A vector around one, as norms are.
    pub fn norm(&mut self, name: &str, length: usize) {
        self.vector(name, length, 1.0, 0.3);
    }

    /// A vector of numbers at most `spread` from `middle`.
    pub fn vector(&mut self, name: &str, length: usize, middle: f32, spread: f32) {
        let mut random = Random(self.seed);
        let bytes = (0..length).flat_map(|_| (middle + spread * random.float()).to_le_bytes()).collect();
        self.add(name, &[length as u64], Format::F32, bytes);
    }
}

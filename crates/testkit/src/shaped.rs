//! Files of real models' shapes with random weights, for measuring what cannot be fetched: Flint and others read the same file.

use crate::gguf::GgufWriter;
use crate::models::Tensors;
use kernels::Format;
use model::config::{DeltaNetConfig, Experts};
use model::gguf::{Array, Value};
use model::{Config, LayerKind};

/// The file of a shape, in the mix that llama.cpp calls Q4_K_M.
pub fn shaped(config: &Config) -> GgufWriter {
    let mut file = Shaped { config, tensors: Tensors { seed: 1, format: Format::Q4_K, writer: metadata(config) } };
    let (vocab, width) = (config.vocab, config.embedding);
    file.tensors.stacked("token_embd.weight", 1, vocab, width, Format::Q4_K);
    file.tensors.norm("output_norm.weight", width);
    file.tensors.stacked("output.weight", 1, vocab, width, Format::Q6_K);
    (0..config.layers).for_each(|i| file.layer(i));
    file.tensors.writer
}

fn metadata(config: &Config) -> GgufWriter {
    let key = |name: &str| format!("{}.{name}", config.architecture);
    let count = |n: usize| Value::U32(n as u32);
    let mut w = GgufWriter::new()
        .text("general.architecture", &config.architecture)
        .meta(key("block_count"), count(config.layers))
        .meta(key("embedding_length"), count(config.embedding))
        .meta(key("attention.head_count"), count(config.heads))
        .meta(key("attention.head_count_kv"), count(config.kv_heads))
        .meta(key("attention.key_length"), count(config.head))
        .meta(key("attention.value_length"), count(config.head))
        .meta(key("feed_forward_length"), count(config.feed_forward))
        .meta(key("context_length"), count(config.context))
        .meta(key("vocab_size"), count(config.vocab))
        .meta(key("rope.freq_base"), Value::F32(config.rope.base))
        .meta(key("rope.dimension_count"), count(config.rope.dimensions))
        .meta(key("attention.layer_norm_rms_epsilon"), Value::F32(config.epsilon))
        .text("tokenizer.ggml.model", "none");
    if let Some(Experts { count: experts, used, .. }) = config.experts {
        w = w.meta(key("expert_count"), count(experts)).meta(key("expert_used_count"), count(used));
        w = w.meta(key("expert_feed_forward_length"), count(config.feed_forward));
        w = w.meta(key("expert_shared_feed_forward_length"), count(config.feed_forward));
    }
    if let Some(delta) = config.delta_net {
        w = w.meta(key("rope.dimension_sections"), Value::Array(Array::I32(vec![11, 11, 10, 0])));
        w = w.meta(key("ssm.conv_kernel"), count(delta.taps)).meta(key("ssm.state_size"), count(delta.head));
        w = w.meta(key("ssm.group_count"), count(delta.key_heads));
        w = w.meta(key("ssm.time_step_rank"), count(delta.value_heads));
        w = w.meta(key("ssm.inner_size"), count(delta.values()));
    }
    w
}

struct Shaped<'a> {
    config: &'a Config,
    tensors: Tensors,
}

impl Shaped<'_> {
    fn layer(&mut self, i: usize) {
        let Config { embedding: width, layers, .. } = *self.config;
        let name = |part: &str| format!("blk.{i}.{part}");
        // Values and down projections of half of the layers are finer.
        let finer = i < layers / 8 || i >= 7 * layers / 8 || (i - layers / 8) % 3 == 2;
        let fine = if finer { Format::Q6_K } else { Format::Q4_K };
        self.tensors.norm(&name("attn_norm.weight"), width);
        match (self.config.kinds[i], self.config.delta_net) {
            (LayerKind::DeltaNet, Some(delta)) => self.delta_net(&name, delta),
            _ => self.attention(&name, fine),
        }
        let after = if self.config.delta_net.is_some() { "post_attention_norm.weight" } else { "ffn_norm.weight" };
        self.tensors.norm(&name(after), width);
        self.feed_forward(&name, fine);
    }

    fn attention(&mut self, name: &dyn Fn(&str) -> String, fine: Format) {
        let Config { embedding: width, heads, kv_heads, head, gated_attention, .. } = *self.config;
        let (q, kv, t) = (heads * head, kv_heads * head, &mut self.tensors);
        t.stacked(&name("attn_q.weight"), 1, q * (1 + usize::from(gated_attention)), width, Format::Q4_K);
        t.stacked(&name("attn_k.weight"), 1, kv, width, Format::Q4_K);
        t.stacked(&name("attn_v.weight"), 1, kv, width, fine);
        t.stacked(&name("attn_output.weight"), 1, width, q, Format::Q4_K);
        match self.config.architecture.as_str() {
            "qwen2" => {
                t.norm(&name("attn_q.bias"), q);
                t.norm(&name("attn_k.bias"), kv);
                t.norm(&name("attn_v.bias"), kv);
            }
            "llama" => {}
            _ => {
                t.norm(&name("attn_q_norm.weight"), head);
                t.norm(&name("attn_k_norm.weight"), head);
            }
        }
    }

    fn delta_net(&mut self, name: &dyn Fn(&str) -> String, delta: DeltaNetConfig) {
        let (width, values, t) = (self.config.embedding, delta.values(), &mut self.tensors);
        t.stacked(&name("attn_qkv.weight"), 1, delta.channels(), width, Format::Q4_K);
        t.stacked(&name("attn_gate.weight"), 1, values, width, Format::Q4_K);
        t.stacked(&name("ssm_conv1d.weight"), 1, delta.channels(), delta.taps, Format::F32);
        t.stacked(&name("ssm_beta.weight"), 1, delta.value_heads, width, Format::F32);
        t.stacked(&name("ssm_alpha.weight"), 1, delta.value_heads, width, Format::F32);
        t.vector(&name("ssm_dt.bias"), delta.value_heads, 0.2, 1.0);
        t.vector(&name("ssm_a"), delta.value_heads, -0.8, 0.6);
        t.norm(&name("ssm_norm.weight"), delta.head);
        t.stacked(&name("ssm_out.weight"), 1, width, values, Format::Q4_K);
    }

    fn feed_forward(&mut self, name: &dyn Fn(&str) -> String, fine: Format) {
        let Config { embedding: width, feed_forward: ff, .. } = *self.config;
        let t = &mut self.tensors;
        let mut network = |end: &str, count: usize| {
            t.stacked(&name(&format!("ffn_gate{end}.weight")), count, ff, width, Format::Q4_K);
            t.stacked(&name(&format!("ffn_up{end}.weight")), count, ff, width, Format::Q4_K);
            t.stacked(&name(&format!("ffn_down{end}.weight")), count, width, ff, fine);
        };
        let Some(Experts { count, shared, .. }) = self.config.experts else { return network("", 1) };
        network("_exps", count);
        if shared {
            network("_shexp", 1);
            t.vector(&name("ffn_gate_inp_shexp.weight"), width, 0.0, 0.1);
        }
        t.stacked(&name("ffn_gate_inp.weight"), 1, count, width, Format::F32);
    }
}

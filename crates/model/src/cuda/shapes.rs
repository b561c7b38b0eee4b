//! Shapes of well-known models, for measuring without their files.

use crate::config::{Config, Experts, LayerKind, Pairs, RopeConfig, Scaling};

/// Names that [`shape`] knows.
pub const SHAPES: [&str; 4] = ["qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b", "qwen2.5-coder-7b", "qwen3-coder-30b-a3b"];

/// The shape of a model by its name in the catalogue.
pub fn shape(name: &str) -> Option<Config> {
    // Layers, width, heads, KV heads, head, feed-forward, vocabulary: each model's own `config.json`.
    let (layers, embedding, heads, kv_heads, head, feed_forward, vocab) = match name {
        "qwen2.5-coder-0.5b" => (24, 896, 14, 2, 64, 4864, 151_936),
        "qwen2.5-coder-1.5b" => (28, 1536, 12, 2, 128, 8960, 151_936),
        "qwen2.5-coder-7b" => (28, 3584, 28, 4, 128, 18_944, 152_064),
        // Its feed-forward width is that of one of 128 experts, of which a token visits eight.
        "qwen3-coder-30b-a3b" => (48, 2048, 32, 4, 128, 768, 151_936),
        _ => return None,
    };
    let experts = (name == "qwen3-coder-30b-a3b").then_some(Experts { count: 128, used: 8, shared: false });
    Some(Config {
        architecture: if experts.is_some() { "qwen3moe" } else { "qwen2" }.to_owned(),
        layers,
        kinds: vec![LayerKind::Attention; layers],
        draft_blocks: 0,
        embedding,
        heads,
        kv_heads,
        head,
        feed_forward,
        vocab,
        context: 131_072,
        epsilon: 1e-6,
        rope: RopeConfig { dimensions: head, base: 1e6, pairs: Pairs::Halves, scaling: Scaling::None },
        experts,
        gated_attention: false,
        delta_net: None,
    })
}

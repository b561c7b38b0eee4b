//! Shapes of well-known models, for measuring without their files.

use crate::config::{Config, DeltaNetConfig, Experts, HeadOrder, LayerKind, OutputGate, Pairs, RopeConfig, Scaling};

/// Names that [`shape`] knows.
pub const SHAPES: [&str; 6] = [
    "qwen2.5-coder-0.5b",
    "qwen2.5-coder-1.5b",
    "qwen2.5-coder-7b",
    "qwen3-coder-30b-a3b",
    "qwen3.6-35b-a3b",
    "qwen3.8-27b",
];

/// The shape of a model by its name in the catalogue.
pub fn shape(name: &str) -> Option<Config> {
    // Layers, width, heads, KV heads, head, feed-forward, vocabulary: each model's own `config.json`.
    let (layers, embedding, heads, kv_heads, head, feed_forward, vocab) = match name {
        "qwen2.5-coder-0.5b" => (24, 896, 14, 2, 64, 4864, 151_936),
        "qwen2.5-coder-1.5b" => (28, 1536, 12, 2, 128, 8960, 151_936),
        "qwen2.5-coder-7b" => (28, 3584, 28, 4, 128, 18_944, 152_064),
        // Its feed-forward width is that of one of 128 experts, of which a token visits eight.
        "qwen3-coder-30b-a3b" => (48, 2048, 32, 4, 128, 768, 151_936),
        // 256 experts, and one more that every token visits.
        "qwen3.6-35b-a3b" => (40, 2048, 16, 2, 256, 512, 248_320),
        "qwen3.8-27b" => (64, 5120, 24, 4, 256, 17_408, 248_320),
        _ => return None,
    };
    let experts = match name {
        "qwen3-coder-30b-a3b" => Some(Experts { count: 128, used: 8, shared: false }),
        "qwen3.6-35b-a3b" => Some(Experts { count: 256, used: 8, shared: true }),
        _ => None,
    };
    let delta_net = match name {
        "qwen3.6-35b-a3b" => Some(delta_net(32)),
        "qwen3.8-27b" => Some(delta_net(48)),
        _ => None,
    };
    let hybrid = delta_net.is_some();
    let architecture = match (hybrid, experts.is_some()) {
        (false, false) => "qwen2",
        (false, true) => "qwen3moe",
        (true, false) => "qwen35",
        (true, true) => "qwen35moe",
    };
    let (rotated, base, context) = if hybrid { (64, 1e7, 262_144) } else { (head, 1e6, 131_072) };
    Some(Config {
        architecture: architecture.to_owned(),
        layers,
        kinds: kinds(layers, hybrid),
        draft_blocks: 0,
        embedding,
        heads,
        kv_heads,
        head,
        feed_forward,
        vocab,
        context,
        epsilon: 1e-6,
        rope: RopeConfig { dimensions: rotated, base, pairs: Pairs::Halves, scaling: Scaling::None },
        experts,
        temperature: None,
        gated_attention: hybrid,
        delta_net,
    })
}

/// Kinds of so many layers: in hybrids every fourth attends.
pub(super) fn kinds(layers: usize, hybrid: bool) -> Vec<LayerKind> {
    let kind = |number: usize| match hybrid && !number.is_multiple_of(4) {
        true => LayerKind::DeltaNet,
        false => LayerKind::Attention,
    };
    (1..=layers).map(kind).collect()
}

fn delta_net(value_heads: usize) -> DeltaNetConfig {
    let (order, gate) = (HeadOrder::Tiled, OutputGate::Silu);
    DeltaNetConfig { key_heads: 16, value_heads, head: 128, taps: 4, order, gate }
}

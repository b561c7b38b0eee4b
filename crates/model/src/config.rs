//! What distinguishes one decoder from another, as data.
//!
//! Llama, Qwen2, Qwen3 and Qwen3-MoE are the same network with a few switches. Everything the forward pass branches on
//! is in [`Config`]; biases and per-head norms are not even here, since the presence of their tensors says enough.

use crate::gguf::{Gguf, GgufError, Metadata};

/// Why a file cannot be run as a decoder.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Metadata is missing or has the wrong type.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// The architecture is not one of the known family.
    #[error("this file holds a `{0}` model; Flint runs llama, qwen2, qwen3 and qwen3moe")]
    Architecture(String),
    /// A number makes no sense.
    #[error("`{key}` is {value}, but {rule}; the file is damaged or of a kind Flint does not know")]
    Value {
        /// Metadata key.
        key: String,
        /// What the file says.
        value: String,
        /// What would be acceptable.
        rule: &'static str,
    },
    /// A kind of position scaling that is not implemented.
    #[error("rope scaling `{0}` is not supported; Flint knows none, linear and yarn")]
    Scaling(String),
}

/// The shape of a decoder.
#[derive(Clone, Debug)]
pub struct Config {
    /// Architecture name, as in the file.
    pub architecture: String,
    /// Number of layers.
    pub layers: usize,
    /// Width of the residual stream.
    pub embedding: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Elements per head.
    pub head: usize,
    /// Width of the feed-forward layer; of one expert where there are experts.
    pub feed_forward: usize,
    /// Number of token ids.
    pub vocab: usize,
    /// Longest sequence, in tokens.
    pub context: usize,
    /// Added to the mean square before the root.
    pub epsilon: f32,
    /// Position encoding.
    pub rope: RopeConfig,
    /// Experts, where the feed-forward layer has them.
    pub experts: Option<Experts>,
}

/// Position encoding.
#[derive(Clone, Debug)]
pub struct RopeConfig {
    /// Elements of a head that are rotated.
    pub dimensions: usize,
    /// Base of the frequencies.
    pub base: f32,
    /// Which elements form a pair.
    pub pairs: Pairs,
    /// Stretching beyond the trained length.
    pub scaling: Scaling,
}

/// Which elements rotate together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairs {
    /// `2 i` and `2 i + 1`: llama files.
    Neighbours,
    /// `i` and `i + dimensions / 2`: all others.
    Halves,
}

/// How positions are stretched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scaling {
    /// Not at all.
    None,
    /// Positions divided by a factor.
    Linear {
        /// The factor.
        factor: f32,
    },
    /// YaRN (arXiv 2309.00071): low frequencies divided, high ones kept, a ramp between.
    Yarn {
        /// How much longer than trained.
        factor: f32,
        /// Trained length.
        original: usize,
    },
}

/// A mixture of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Experts {
    /// Experts per layer.
    pub count: usize,
    /// Experts each token visits.
    pub used: usize,
}

/// Most experts a token may visit: it sizes the buffers of a step.
pub const USED_MAX: usize = 64;

/// What the caller may change about a model.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConfigOptions {
    /// Stretch the context by this factor with YaRN, where the model's authors say it is meant for that.
    pub yarn_factor: Option<f32>,
}

impl Config {
    /// Reads the shape from a file's metadata.
    pub fn new(gguf: &Gguf, options: ConfigOptions) -> Result<Config, ConfigError> {
        let architecture = gguf.metadata.str("general.architecture")?.to_string();
        let pairs = match architecture.as_str() {
            "llama" => Pairs::Neighbours,
            "qwen2" | "qwen3" | "qwen3moe" => Pairs::Halves,
            _ => return Err(ConfigError::Architecture(architecture)),
        };
        let keys = Keys { metadata: &gguf.metadata, architecture: &architecture };
        let embedding = keys.count("embedding_length", 1 << 16)?;
        let heads = keys.count("attention.head_count", 1 << 10)?;
        let kv_heads = keys.optional_count("attention.head_count_kv", 1 << 10)?.unwrap_or(heads);
        keys.rule("attention.head_count_kv", kv_heads, heads.is_multiple_of(kv_heads), "it must divide the heads")?;
        let head = keys.optional_count("attention.key_length", 256)?.unwrap_or(embedding / heads);
        let rule = "heads of 16 to 256 elements in steps of 16 are supported";
        keys.rule("attention.key_length", head, head.is_multiple_of(16) && (16..=256).contains(&head), rule)?;
        let experts = match keys.optional_count("expert_count", 1 << 12)? {
            None => None,
            Some(count) => {
                let used = keys.count("expert_used_count", count.min(USED_MAX))?;
                Some(Experts { count, used })
            }
        };
        let feed_forward =
            keys.count(if experts.is_some() { "expert_feed_forward_length" } else { "feed_forward_length" }, 1 << 20)?;
        let rule = "widths are multiples of 32";
        keys.rule("embedding_length", embedding, embedding.is_multiple_of(32), rule)?;
        keys.rule("feed_forward_length", feed_forward, feed_forward.is_multiple_of(32), rule)?;
        let trained = keys.count("context_length", 1 << 24)?;
        let (rope, context) = rope(&keys, head, pairs, trained, options)?;
        Ok(Config {
            layers: keys.count("block_count", 1 << 10)?,
            vocab: vocab(gguf)?,
            epsilon: gguf.metadata.f32(&keys.name("attention.layer_norm_rms_epsilon"))?,
            architecture: architecture.clone(),
            embedding,
            heads,
            kv_heads,
            head,
            feed_forward,
            context,
            rope,
            experts,
        })
    }
}

pub(crate) fn vocab(gguf: &Gguf) -> Result<usize, ConfigError> {
    let rows = gguf.tensor("token_embd.weight").and_then(|tensor| tensor.dims.get(1)).copied().unwrap_or(0);
    if rows == 0 || rows > 1 << 24 {
        let (key, value) = ("token_embd.weight".to_string(), format!("{rows} rows"));
        return Err(ConfigError::Value { key, value, rule: "one row per token is needed, at most 16 million" });
    }
    Ok(rows as usize)
}

fn rope(
    keys: &Keys<'_>,
    head: usize,
    pairs: Pairs,
    trained: usize,
    options: ConfigOptions,
) -> Result<(RopeConfig, usize), ConfigError> {
    let dimensions = keys.optional_count("rope.dimension_count", head)?.unwrap_or(head);
    keys.rule("rope.dimension_count", dimensions, dimensions.is_multiple_of(2), "rotated elements form pairs")?;
    let base = keys.metadata.optional::<f32>(&keys.name("rope.freq_base"))?.unwrap_or(10_000.0);
    let kind = keys.metadata.optional::<&str>(&keys.name("rope.scaling.type"))?.unwrap_or("none");
    let factor = keys.metadata.optional::<f32>(&keys.name("rope.scaling.factor"))?.unwrap_or(1.0);
    if !(base.is_finite() && base > 1.0 && factor.is_finite() && factor >= 1.0) {
        let (key, value) = (keys.name("rope"), format!("base {base}, factor {factor}"));
        return Err(ConfigError::Value { key, value, rule: "both must be at least one" });
    }
    let original = keys.optional_count("rope.scaling.original_context_length", 1 << 24)?;
    let (scaling, context) = match (kind, options.yarn_factor) {
        ("none", Some(factor)) => (Scaling::Yarn { factor, original: trained }, (trained as f32 * factor) as usize),
        ("none", None) => (Scaling::None, trained),
        ("linear", _) => (Scaling::Linear { factor }, trained),
        ("yarn", _) => (Scaling::Yarn { factor, original: original.unwrap_or(trained) }, trained),
        (other, _) => return Err(ConfigError::Scaling(other.to_string())),
    };
    Ok((RopeConfig { dimensions, base, pairs, scaling }, context))
}

/// Metadata keys under the architecture's own name, with sanity limits.
pub(crate) struct Keys<'a> {
    pub(crate) metadata: &'a Metadata,
    pub(crate) architecture: &'a str,
}

impl Keys<'_> {
    pub(crate) fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    pub(crate) fn optional_count(&self, key: &str, max: usize) -> Result<Option<usize>, ConfigError> {
        let Some(value) = self.metadata.optional::<u64>(&self.name(key))? else { return Ok(None) };
        self.rule(key, value, value >= 1 && value <= max as u64, "it is outside any sensible range")?;
        Ok(Some(value as usize))
    }

    pub(crate) fn count(&self, key: &str, max: usize) -> Result<usize, ConfigError> {
        match self.optional_count(key, max)? {
            Some(value) => Ok(value),
            // Let the metadata reader word the complaint about the missing key.
            None => Ok(self.metadata.u64(&self.name(key))? as usize),
        }
    }

    pub(crate) fn rule(
        &self,
        key: &str,
        value: impl ToString,
        holds: bool,
        rule: &'static str,
    ) -> Result<(), ConfigError> {
        let error = || ConfigError::Value { key: self.name(key), value: value.to_string(), rule };
        if holds { Ok(()) } else { Err(error()) }
    }
}

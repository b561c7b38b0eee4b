//! What distinguishes one decoder from another, as data.
//!
//! Llama, Qwen2, Qwen3 and Qwen3-MoE are the same network with a few switches; the Qwen3.5 family adds layers that carry a
//! recurrent state instead of keys and values. Everything the forward pass branches on is in [`Config`]; biases and per-head
//! norms are not even here, since the presence of their tensors says enough.

use crate::gguf::{Array, Gguf, GgufError, Metadata};

/// Why a file cannot be run as a decoder.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Metadata is missing or has the wrong type.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// The architecture is not one of the known family.
    #[error(
        "this file holds a `{0}` model; Flint runs llama, qwen2, qwen3, qwen3moe, qwen35, qwen35moe, qwen3next and mistral3"
    )]
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
    /// What stands in front of each layer's feed-forward part, one per layer.
    pub kinds: Vec<LayerKind>,
    /// Blocks behind the layers that draft tokens (multi-token prediction); 0 in files that leave them out.
    pub draft_blocks: usize,
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
    /// How queries grow with the position, where they do (`mistral3`).
    pub temperature: Option<Temperature>,
    /// Whether each query head comes with a gate, whose sigmoid multiplies what the head attended to.
    pub gated_attention: bool,
    /// Shape of the Gated DeltaNet layers, where there are any.
    pub delta_net: Option<DeltaNetConfig>,
}

/// Queries beyond the trained length are multiplied with `1 + scale * ln(floor(position / length) + 1)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Temperature {
    /// How fast they grow.
    pub scale: f32,
    /// Trained length.
    pub length: usize,
}

impl Temperature {
    /// What the query at a position is multiplied with.
    pub fn at(&self, position: usize) -> f32 {
        1.0 + self.scale * ((position / self.length + 1) as f32).ln()
    }
}

/// What a layer uses to look at earlier positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerKind {
    /// Attention over cached keys and values.
    Attention,
    /// Gated DeltaNet (arXiv 2412.06464): a matrix per head that every token decays and corrects.
    DeltaNet,
}

/// Shape of a Gated DeltaNet layer. Keys and values have heads of the same length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaNetConfig {
    /// Heads of queries and keys.
    pub key_heads: usize,
    /// Heads of values, a multiple of those; each has its own state.
    pub value_heads: usize,
    /// Elements of a head.
    pub head: usize,
    /// Rows that the convolution before it sees: the token's own and those before.
    pub taps: usize,
    /// Which key head a value head uses.
    pub order: HeadOrder,
    /// What is done to the gate before it multiplies the result.
    pub gate: OutputGate,
}

/// Which key head a value head uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadOrder {
    /// `j mod key_heads`: `qwen35` and `qwen35moe`.
    Tiled,
    /// `j div (value_heads / key_heads)`: `qwen3next`.
    Grouped,
}

/// The activation of a Gated DeltaNet layer's output gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputGate {
    /// `x * sigmoid(x)`.
    Silu,
    /// `sigmoid(x)`: announced for the family's next generation, no released architecture yet.
    Sigmoid,
}

impl DeltaNetConfig {
    /// Channels of the convolution: queries, keys and values.
    pub fn channels(&self) -> usize {
        (2 * self.key_heads + self.value_heads) * self.head
    }

    /// Elements of all value heads.
    pub fn values(&self) -> usize {
        self.value_heads * self.head
    }

    /// The key head that value head `j` uses.
    pub fn key_head(&self, j: usize) -> usize {
        match self.order {
            HeadOrder::Tiled => j % self.key_heads,
            HeadOrder::Grouped => j / (self.value_heads / self.key_heads),
        }
    }
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
        /// Turns within that length from which a pair is fast, and below which it is slow.
        turns: (f32, f32),
        /// What the logarithm of the factor is multiplied with where the files' authors counter the longer vectors; else 0.
        log_multiplier: f32,
    },
}

/// A mixture of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Experts {
    /// Experts per layer.
    pub count: usize,
    /// Experts each token visits.
    pub used: usize,
    /// Whether one more expert is visited by every token, weighted by a gate of its own.
    pub shared: bool,
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
            "llama" | "mistral3" => Pairs::Neighbours,
            "qwen2" | "qwen3" | "qwen3moe" | "qwen35" | "qwen35moe" | "qwen3next" => Pairs::Halves,
            _ => return Err(ConfigError::Architecture(architecture)),
        };
        let hybrid = matches!(architecture.as_str(), "qwen35" | "qwen35moe" | "qwen3next");
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
                Some(Experts { count, used, shared: gguf.tensor("blk.0.ffn_gate_inp_shexp.weight").is_some() })
            }
        };
        let feed_forward =
            keys.count(if experts.is_some() { "expert_feed_forward_length" } else { "feed_forward_length" }, 1 << 20)?;
        let rule = "widths are multiples of 32";
        keys.rule("embedding_length", embedding, embedding.is_multiple_of(32), rule)?;
        keys.rule("feed_forward_length", feed_forward, feed_forward.is_multiple_of(32), rule)?;
        if experts.is_some_and(|experts| experts.shared) {
            let width = keys.optional_count("expert_shared_feed_forward_length", 1 << 20)?.unwrap_or(feed_forward);
            let rule = "a shared expert is as wide as the others in the models Flint knows";
            keys.rule("expert_shared_feed_forward_length", width, width == feed_forward, rule)?;
        }
        let draft_blocks = keys.whole("nextn_predict_layers", 8)?;
        let blocks = keys.count("block_count", LAYERS_MAX)?;
        keys.rule("block_count", blocks, blocks > draft_blocks, "there must be layers besides the blocks that draft")?;
        let layers = blocks - draft_blocks;
        let kinds = if hybrid { kinds(&keys, layers)? } else { vec![LayerKind::Attention; layers] };
        let delta_net = match kinds.contains(&LayerKind::DeltaNet) {
            true => Some(delta_net(&keys)?),
            false => None,
        };
        let trained = keys.count("context_length", 1 << 24)?;
        let (rope, context) = rope(&keys, head, pairs, trained, options)?;
        Ok(Config {
            layers,
            kinds,
            draft_blocks,
            vocab: vocab(gguf)?,
            epsilon: gguf.metadata.f32(&keys.name("attention.layer_norm_rms_epsilon"))?,
            architecture: architecture.clone(),
            embedding,
            heads,
            kv_heads,
            head,
            feed_forward,
            context,
            temperature: temperature(&keys, &rope)?,
            rope,
            experts,
            gated_attention: hybrid,
            delta_net,
        })
    }

    /// What the query at a position is multiplied with.
    pub fn query_scale(&self, position: usize) -> f32 {
        let scale = 1.0 / (self.head as f32).sqrt();
        self.temperature.map_or(scale, |temperature| scale * temperature.at(position))
    }

    /// Layers that cache keys and values.
    pub fn attention_layers(&self) -> usize {
        self.kinds.iter().filter(|&&kind| kind == LayerKind::Attention).count()
    }
}

/// Most blocks a file may have.
const LAYERS_MAX: usize = 1 << 10;

/// Which layers attend: those an array marks as not recurrent, else every so many.
fn kinds(keys: &Keys<'_>, layers: usize) -> Result<Vec<LayerKind>, ConfigError> {
    let kind = |recurrent: bool| if recurrent { LayerKind::DeltaNet } else { LayerKind::Attention };
    let key = "attention.recurrent_layers";
    let marked: Option<Vec<bool>> = match keys.metadata.optional::<&Array>(&keys.name(key))? {
        Some(Array::Bool(marks)) => Some(marks.clone()),
        Some(Array::I32(marks)) => Some(marks.iter().map(|&mark| mark != 0).collect()),
        Some(Array::U32(marks)) => Some(marks.iter().map(|&mark| mark != 0).collect()),
        Some(_) => return Err(keys.refuse(key, "another kind of list", "it must hold a flag for each layer")),
        None => None,
    };
    if let Some(marks) = marked {
        keys.rule(key, marks.len(), marks.len() >= layers, "it must hold a flag for each layer")?;
        return Ok(marks.into_iter().take(layers).map(kind).collect());
    }
    let interval = keys.optional_count("full_attention_interval", LAYERS_MAX)?.unwrap_or(4);
    Ok((1..=layers).map(|number| kind(!number.is_multiple_of(interval))).collect())
}

fn delta_net(keys: &Keys<'_>) -> Result<DeltaNetConfig, ConfigError> {
    let head = keys.count("ssm.state_size", 256)?;
    let rule = "heads of 16 to 256 elements in steps of 16 are supported";
    keys.rule("ssm.state_size", head, head.is_multiple_of(16) && (16..=256).contains(&head), rule)?;
    let key_heads = keys.count("ssm.group_count", 1 << 10)?;
    let value_heads = keys.count("ssm.time_step_rank", 1 << 10)?;
    let rule = "the key heads (`ssm.group_count`) must divide it";
    keys.rule("ssm.time_step_rank", value_heads, value_heads.is_multiple_of(key_heads), rule)?;
    let inner = keys.count("ssm.inner_size", 1 << 18)?;
    let rule = "it must be `ssm.time_step_rank` heads of `ssm.state_size` elements";
    keys.rule("ssm.inner_size", inner, inner == value_heads * head, rule)?;
    let taps = keys.count("ssm.conv_kernel", TAPS_MAX)?;
    keys.rule("ssm.conv_kernel", taps, taps >= 2, "a convolution sees 2 to 8 rows")?;
    let order = match keys.architecture {
        "qwen3next" => HeadOrder::Grouped,
        _ => HeadOrder::Tiled,
    };
    Ok(DeltaNetConfig { key_heads, value_heads, head, taps, order, gate: OutputGate::Silu })
}

/// Most rows a convolution sees.
pub const TAPS_MAX: usize = 8;

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
    let number = |key: &str, default: f32| -> Result<f32, ConfigError> {
        let value = keys.metadata.optional::<f32>(&keys.name(key))?.unwrap_or(default);
        keys.rule(key, value, (0.0..1e6).contains(&value), "it is outside any sensible range")?;
        Ok(value)
    };
    // Only the authors of this family write them, and only for it llama.cpp reads them.
    let (turns, log_multiplier) = match keys.architecture {
        "mistral3" => (
            (number("rope.scaling.yarn_beta_fast", 32.0)?, number("rope.scaling.yarn_beta_slow", 1.0)?),
            number("rope.scaling.yarn_log_multiplier", 0.0)?,
        ),
        _ => ((32.0, 1.0), 0.0),
    };
    let yarn = |factor, original| Scaling::Yarn { factor, original, turns, log_multiplier };
    let (scaling, context) = match (kind, options.yarn_factor) {
        ("none", Some(factor)) => (yarn(factor, trained), (trained as f32 * factor) as usize),
        ("none", None) => (Scaling::None, trained),
        ("linear", _) => (Scaling::Linear { factor }, trained),
        ("yarn", _) => (yarn(factor, original.unwrap_or(trained)), trained),
        (other, _) => return Err(ConfigError::Scaling(other.to_string())),
    };
    Ok((RopeConfig { dimensions, base, pairs, scaling }, context))
}

fn temperature(keys: &Keys<'_>, rope: &RopeConfig) -> Result<Option<Temperature>, ConfigError> {
    let key = "attention.temperature_scale";
    let scale = keys.metadata.optional::<f32>(&keys.name(key))?.unwrap_or(0.0);
    if keys.architecture != "mistral3" || scale == 0.0 {
        return Ok(None);
    }
    keys.rule(key, scale, (0.0..=1e3).contains(&scale), "it is outside any sensible range")?;
    match rope.scaling {
        Scaling::Yarn { original, .. } => Ok(Some(Temperature { scale, length: original })),
        _ => Err(keys.refuse(key, &scale.to_string(), "the trained length that it counts in comes with YaRN")),
    }
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

    /// A count that may be missing or zero.
    pub(crate) fn whole(&self, key: &str, max: usize) -> Result<usize, ConfigError> {
        let value = self.metadata.optional::<u64>(&self.name(key))?.unwrap_or(0);
        self.rule(key, value, value <= max as u64, "it is outside any sensible range")?;
        Ok(value as usize)
    }

    fn refuse(&self, key: &str, value: &str, rule: &'static str) -> ConfigError {
        ConfigError::Value { key: self.name(key), value: value.to_owned(), rule }
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

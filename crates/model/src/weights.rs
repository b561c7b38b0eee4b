//! The weights of a decoder, by the names they have in a file.

use kernels::Matrix;

/// All weights.
pub struct Weights {
    /// One per layer.
    pub layers: Vec<Layer>,
    /// Norm before the output.
    pub output_norm: Vec<f32>,
    /// Residual stream to logits; the embedding table itself where the file has no other.
    pub output: Matrix,
    /// Frequency divisors of the position encoding, where the file has them.
    pub rope_factors: Option<Vec<f32>>,
}

/// One layer.
pub struct Layer {
    /// Norm before attention.
    pub attention_norm: Vec<f32>,
    /// Queries.
    pub q: Projection,
    /// Keys.
    pub k: Projection,
    /// Values.
    pub v: Projection,
    /// Norm of each query head (Qwen3).
    pub q_norm: Option<Vec<f32>>,
    /// Norm of each key head (Qwen3).
    pub k_norm: Option<Vec<f32>>,
    /// Attention result to residual stream.
    pub attention_output: Projection,
    /// Norm before the feed-forward part.
    pub feed_forward_norm: Vec<f32>,
    /// The feed-forward part.
    pub feed_forward: FeedForward,
}

/// A matrix and perhaps a bias.
pub struct Projection {
    /// Weights.
    pub matrix: Matrix,
    /// Added to the result.
    pub bias: Option<Vec<f32>>,
}

/// The feed-forward part of a layer.
pub enum FeedForward {
    /// One for all tokens.
    Dense(Expert),
    /// A few of many, chosen per token by the router.
    Experts {
        /// Residual stream to one score per expert.
        router: Matrix,
        /// The experts.
        experts: Vec<Expert>,
    },
}

/// One gated feed-forward network: `down(silu(gate x) * up x)`.
pub struct Expert {
    /// Gate.
    pub gate: Matrix,
    /// Up.
    pub up: Matrix,
    /// Down.
    pub down: Matrix,
}

impl Weights {
    /// Bytes of weights, in memory, that one token reads when `used` experts are visited.
    pub fn bytes_per_token(&self, used: usize) -> usize {
        let mut bytes = self.output.bytes().len();
        for layer in &self.layers {
            let projections = [&layer.q, &layer.k, &layer.v, &layer.attention_output];
            bytes += projections.iter().map(|p| p.matrix.bytes().len()).sum::<usize>();
            bytes += match &layer.feed_forward {
                FeedForward::Dense(expert) => expert.bytes(),
                FeedForward::Experts { router, experts } => {
                    router.bytes().len() + experts.iter().take(used).map(Expert::bytes).sum::<usize>()
                }
            };
        }
        bytes
    }
}

impl Expert {
    fn bytes(&self) -> usize {
        self.gate.bytes().len() + self.up.bytes().len() + self.down.bytes().len()
    }
}

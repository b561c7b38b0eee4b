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
    /// Norm before the mixer.
    pub norm: Vec<f32>,
    /// What looks at earlier positions.
    pub mixer: Mixer,
    /// Norm before the feed-forward part.
    pub feed_forward_norm: Vec<f32>,
    /// The feed-forward part.
    pub feed_forward: FeedForward,
}

/// What a layer uses to look at earlier positions.
pub enum Mixer {
    /// Attention over cached keys and values.
    Attention(Attention),
    /// A recurrent state.
    DeltaNet(DeltaNet),
}

/// Attention.
pub struct Attention {
    /// Queries; where attention is gated each head's query is followed by its gate.
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
    pub output: Projection,
}

/// A Gated DeltaNet.
pub struct DeltaNet {
    /// Queries, keys and values, before the convolution.
    pub qkv: Matrix,
    /// Gate of the output.
    pub gate: Matrix,
    /// What beta and the decay are made of.
    pub rates: Rates,
    /// The convolution's weights, `[tap][channel]`, the oldest row's first.
    pub convolution: Vec<f32>,
    /// Added to what the decay is made of, one per value head.
    pub decay_bias: Vec<f32>,
    /// Multiplied with its softplus: the negative rate of decay.
    pub decay_rate: Vec<f32>,
    /// Norm of each head of the result.
    pub norm: Vec<f32>,
    /// Result to residual stream.
    pub output: Matrix,
}

/// The matrices that give how much each value head corrects and how fast it forgets.
pub enum Rates {
    /// One matrix each.
    Apart {
        /// How much is corrected.
        beta: Matrix,
        /// How fast it decays.
        alpha: Matrix,
    },
    /// One for both: for every key head the betas of its value heads, then their alphas (`qwen3next`).
    Together(Matrix),
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
        /// The experts; where there is a shared one it is the last.
        experts: Vec<Expert>,
        /// What the sigmoid that weighs the shared expert is made of: multiplied with a row and summed.
        shared_gate: Option<Vec<f32>>,
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
    /// Bytes of weights, in memory, that one token reads when `used` experts are chosen for it.
    pub fn bytes_per_token(&self, used: usize) -> usize {
        let layers = self.layers.iter().map(|layer| layer.mixer.bytes() + layer.feed_forward.bytes(used));
        self.output.bytes().len() + layers.sum::<usize>()
    }
}

impl Mixer {
    fn bytes(&self) -> usize {
        let matrices: Vec<&Matrix> = match self {
            Mixer::Attention(a) => [&a.q, &a.k, &a.v, &a.output].map(|p| &p.matrix).to_vec(),
            Mixer::DeltaNet(d) => [&d.qkv, &d.gate, &d.output].into_iter().chain(d.rates.matrices()).collect(),
        };
        matrices.iter().map(|matrix| matrix.bytes().len()).sum()
    }
}

impl Rates {
    /// All of them.
    pub fn matrices(&self) -> impl Iterator<Item = &Matrix> {
        let (first, second) = match self {
            Rates::Apart { beta, alpha } => (beta, Some(alpha)),
            Rates::Together(both) => (both, None),
        };
        std::iter::once(first).chain(second)
    }
}

impl FeedForward {
    fn bytes(&self, used: usize) -> usize {
        match self {
            FeedForward::Dense(expert) => expert.bytes(),
            FeedForward::Experts { router, experts, shared_gate } => {
                let visited = used + usize::from(shared_gate.is_some());
                router.bytes().len() + experts.iter().rev().take(visited).map(Expert::bytes).sum::<usize>()
            }
        }
    }
}

impl Expert {
    fn bytes(&self) -> usize {
        self.gate.bytes().len() + self.up.bytes().len() + self.down.bytes().len()
    }
}

//! The tensors of a block by their names: first which matrices are wanted, then, when they are read, what each is for.

use super::{LoadError, Loader, Wanted};
use crate::config::{Config, DeltaNetConfig};
use crate::weights::{Attention, DeltaNet, Expert, FeedForward, Projection, Rates};
use kernels::{Matrix, Shape};

/// One block of a file.
pub(super) struct Part<'a> {
    pub loader: &'a Loader<'a>,
    pub config: &'a Config,
    pub block: usize,
}

impl Part<'_> {
    fn name(&self, part: &str) -> String {
        format!("blk.{}.{part}", self.block)
    }

    fn has(&self, part: &str) -> bool {
        self.loader.gguf.tensor(&self.name(part)).is_some()
    }

    fn wanted(&self, part: &str, rows: usize, columns: usize) -> Result<Wanted, LoadError> {
        self.loader.wanted(&self.name(part), rows, columns)
    }

    pub fn vector(&self, part: &str, length: usize) -> Result<Vec<f32>, LoadError> {
        self.loader.vector(&self.name(part), length)
    }

    fn optional(&self, part: &str, length: usize) -> Result<Option<Vec<f32>>, LoadError> {
        self.loader.optional_vector(&self.name(part), length)
    }

    /// Elements of all query heads, with their gates, and of all key heads.
    fn attention_widths(&self) -> (usize, usize) {
        let Config { heads, kv_heads, head, gated_attention, .. } = *self.config;
        (heads * head * (1 + usize::from(gated_attention)), kv_heads * head)
    }

    pub fn attention_wanted(&self) -> Result<Vec<Wanted>, LoadError> {
        let (width, (q, kv)) = (self.config.embedding, self.attention_widths());
        Ok(vec![
            self.wanted("attn_q.weight", q, width)?,
            self.wanted("attn_k.weight", kv, width)?,
            self.wanted("attn_v.weight", kv, width)?,
            self.wanted("attn_output.weight", width, self.config.heads * self.config.head)?,
        ])
    }

    pub fn attention(&self, next: &mut dyn FnMut() -> Matrix) -> Result<Attention, LoadError> {
        let (head, (q, kv)) = (self.config.head, self.attention_widths());
        Ok(Attention {
            q: Projection { matrix: next(), bias: self.optional("attn_q.bias", q)? },
            k: Projection { matrix: next(), bias: self.optional("attn_k.bias", kv)? },
            v: Projection { matrix: next(), bias: self.optional("attn_v.bias", kv)? },
            q_norm: self.optional("attn_q_norm.weight", head)?,
            k_norm: self.optional("attn_k_norm.weight", head)?,
            output: Projection { matrix: next(), bias: self.optional("attn_output.bias", self.config.embedding)? },
        })
    }

    pub fn delta_net_wanted(&self, delta: DeltaNetConfig) -> Result<Vec<Wanted>, LoadError> {
        let (width, values) = (self.config.embedding, delta.values());
        let mut wanted = vec![
            self.wanted("attn_qkv.weight", delta.channels(), width)?,
            self.wanted("attn_gate.weight", values, width)?,
        ];
        match self.has("ssm_ba.weight") {
            true => wanted.push(self.wanted("ssm_ba.weight", 2 * delta.value_heads, width)?),
            false => wanted.extend([
                self.wanted("ssm_beta.weight", delta.value_heads, width)?,
                self.wanted("ssm_alpha.weight", delta.value_heads, width)?,
            ]),
        }
        wanted.push(self.wanted("ssm_out.weight", width, values)?);
        Ok(wanted)
    }

    pub fn delta_net(&self, delta: DeltaNetConfig, next: &mut dyn FnMut() -> Matrix) -> Result<DeltaNet, LoadError> {
        let (channels, heads) = (delta.channels(), delta.value_heads);
        let by_channel = self.loader.table(&self.name("ssm_conv1d.weight"), channels, delta.taps)?;
        let tap = |tap: usize| (0..channels).map(move |channel| channel * delta.taps + tap);
        Ok(DeltaNet {
            qkv: next(),
            gate: next(),
            rates: match self.has("ssm_ba.weight") {
                true => Rates::Together(next()),
                false => Rates::Apart { beta: next(), alpha: next() },
            },
            convolution: (0..delta.taps).flat_map(tap).map(|at| by_channel[at]).collect(),
            decay_bias: self.vector("ssm_dt.bias", heads)?,
            decay_rate: self.vector("ssm_a", heads)?,
            norm: self.vector("ssm_norm.weight", delta.head)?,
            output: next(),
        })
    }

    pub fn feed_forward_wanted(&self) -> Result<Vec<Wanted>, LoadError> {
        let (width, ff) = (self.config.embedding, self.config.feed_forward);
        let network = |end: &str| -> Result<[Wanted; 3], LoadError> {
            Ok([
                self.wanted(&format!("ffn_gate{end}.weight"), ff, width)?,
                self.wanted(&format!("ffn_up{end}.weight"), ff, width)?,
                self.wanted(&format!("ffn_down{end}.weight"), width, ff)?,
            ])
        };
        let Some(experts) = self.config.experts else { return Ok(network("")?.into()) };
        let stacked = |part: &str, rows, columns| self.loader.stacked(&self.name(part), experts.count, rows, columns);
        let mut wanted = vec![self.wanted("ffn_gate_inp.weight", experts.count, width)?];
        let (gate, up) = match self.has("ffn_gate_up_exps.weight") {
            true => stacked("ffn_gate_up_exps.weight", 2 * ff, width)?.iter().map(Wanted::halves).unzip(),
            false => (stacked("ffn_gate_exps.weight", ff, width)?, stacked("ffn_up_exps.weight", ff, width)?),
        };
        let down = stacked("ffn_down_exps.weight", width, ff)?;
        wanted.extend(gate.into_iter().zip(up).zip(down).flat_map(|((gate, up), down)| [gate, up, down]));
        if experts.shared {
            wanted.extend(network("_shexp")?);
        }
        Ok(wanted)
    }

    pub fn feed_forward(&self, next: &mut dyn FnMut() -> Matrix) -> Result<FeedForward, LoadError> {
        let expert = |next: &mut dyn FnMut() -> Matrix| Expert { gate: next(), up: next(), down: next() };
        let Some(experts) = self.config.experts else { return Ok(FeedForward::Dense(expert(next))) };
        let shared_gate = match experts.shared {
            true => Some(self.vector("ffn_gate_inp_shexp.weight", self.config.embedding)?),
            false => None,
        };
        let router = next();
        let count = experts.count + usize::from(experts.shared);
        let experts = (0..count).map(|_| expert(next)).collect();
        Ok(FeedForward::Experts { router, experts, shared_gate })
    }
}

impl Wanted {
    /// Its upper and its lower half, as matrices of their own.
    fn halves(&self) -> (Wanted, Wanted) {
        let Shape { format, rows, columns } = self.shape;
        let shape = Shape { rows: rows / 2, ..self.shape };
        let second = self.source + (rows / 2 * format.row_bytes(columns)) as u64;
        (Wanted { shape, ..*self }, Wanted { source: second, shape, ..*self })
    }
}

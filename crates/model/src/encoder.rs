//! A BERT encoder on the CPU: a text as one vector.
//!
//! All tokens of a text see each other, so there is nothing to cache and nothing to step: [`Encoder::embed`] is the whole
//! network, top to bottom, for one text.

use std::path::Path;

use kernels::{Activations, Kernels, Output, RowMap, Runtime, output_stride};

use crate::config::{ConfigError, Keys, vocab};
use crate::gguf::Gguf;
use crate::load::{LoadError, Loader};
use crate::weights::Projection;

/// The shape of an encoder.
#[derive(Clone, Debug, PartialEq)]
pub struct EncoderConfig {
    /// Number of layers.
    pub layers: usize,
    /// Width of the residual stream, and numbers of a vector.
    pub width: usize,
    /// Heads.
    pub heads: usize,
    /// Width of the feed-forward layer.
    pub feed_forward: usize,
    /// Number of token ids.
    pub vocab: usize,
    /// Longest text, in tokens.
    pub context: usize,
    /// Added to the variance before the root.
    pub epsilon: f32,
    /// What becomes of the vectors of the tokens.
    pub pooling: Pooling,
}

/// What becomes of the vectors of the tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// Their mean.
    Mean,
    /// The first one stands for the text.
    First,
}

/// The architecture as files name it.
const ARCHITECTURE: &str = "bert";

impl EncoderConfig {
    /// Whether a file holds an encoder.
    pub fn is_encoder(gguf: &Gguf) -> bool {
        gguf.metadata.str("general.architecture").is_ok_and(|name| name == ARCHITECTURE)
    }

    /// Reads the shape from a file's metadata.
    pub fn new(gguf: &Gguf) -> Result<EncoderConfig, ConfigError> {
        if !Self::is_encoder(gguf) {
            return Err(ConfigError::Architecture(gguf.metadata.str("general.architecture")?.to_string()));
        }
        let keys = Keys { metadata: &gguf.metadata, architecture: ARCHITECTURE };
        let width = keys.count("embedding_length", 1 << 14)?;
        let heads = keys.count("attention.head_count", 1 << 8)?;
        let feed_forward = keys.count("feed_forward_length", 1 << 16)?;
        let rule = "widths are multiples of 32";
        keys.rule("embedding_length", width, width.is_multiple_of(32), rule)?;
        keys.rule("feed_forward_length", feed_forward, feed_forward.is_multiple_of(32), rule)?;
        keys.rule("attention.head_count", heads, width.is_multiple_of(heads), "it must divide the width")?;
        let pooling = match keys.metadata.optional::<u64>(&keys.name("pooling_type"))?.unwrap_or(1) {
            1 => Pooling::Mean,
            2 => Pooling::First,
            other => {
                let rule = "Flint knows 1, the mean of all tokens, and 2, the first one";
                return Err(ConfigError::Value { key: keys.name("pooling_type"), value: other.to_string(), rule });
            }
        };
        Ok(EncoderConfig {
            layers: keys.count("block_count", 1 << 8)?,
            context: keys.count("context_length", 1 << 14)?,
            epsilon: gguf.metadata.f32(&keys.name("attention.layer_norm_epsilon"))?,
            vocab: vocab(gguf)?,
            width,
            heads,
            feed_forward,
            pooling,
        })
    }
}

/// An encoder and its weights.
pub struct Encoder {
    config: EncoderConfig,
    /// Token, position and the first kind of segment.
    tokens: Vec<f32>,
    positions: Vec<f32>,
    segment: Vec<f32>,
    norm: Norm,
    layers: Vec<Layer>,
    runtime: Runtime,
}

/// One layer.
struct Layer {
    q: Projection,
    k: Projection,
    v: Projection,
    attention_output: Projection,
    attention_norm: Norm,
    up: Projection,
    down: Projection,
    output_norm: Norm,
}

/// `(x - mean) / deviation * weight + bias`.
struct Norm {
    weight: Vec<f32>,
    bias: Vec<f32>,
}

impl Encoder {
    /// Loads an encoder from a GGUF file.
    pub fn load(path: &Path, kernels: &'static Kernels, threads: usize) -> Result<Encoder, LoadError> {
        let gguf = Gguf::open(path)?;
        let config = EncoderConfig::new(&gguf)?;
        let runtime = Runtime::new(kernels, threads);
        let loader = Loader::new(path, &gguf, runtime.layout(), threads);
        let norm = |name: String| -> Result<Norm, LoadError> {
            let part = |part: &str| loader.vector(&format!("{name}.{part}"), config.width);
            Ok(Norm { weight: part("weight")?, bias: part("bias")? })
        };
        let mut layers = Vec::with_capacity(config.layers);
        for i in 0..config.layers {
            let (width, ff) = (config.width, config.feed_forward);
            let named = |part: &str| format!("blk.{i}.{part}");
            let shapes = [
                ("attn_q", width, width),
                ("attn_k", width, width),
                ("attn_v", width, width),
                ("attn_output", width, width),
                ("ffn_up", ff, width),
                ("ffn_down", width, ff),
            ];
            let wanted =
                shapes.map(|(part, rows, columns)| loader.wanted(&named(&format!("{part}.weight")), rows, columns));
            let matrices = loader.group(&wanted.into_iter().collect::<Result<Vec<_>, _>>()?)?;
            let biases = shapes.map(|(part, rows, _)| loader.optional_vector(&named(&format!("{part}.bias")), rows));
            let mut projections = matrices.into_iter().zip(biases);
            let mut next = || -> Result<Projection, LoadError> {
                let (matrix, bias) = projections.next().expect("a group returns what was wanted, in order");
                Ok(Projection { matrix, bias: bias? })
            };
            layers.push(Layer {
                q: next()?,
                k: next()?,
                v: next()?,
                attention_output: next()?,
                attention_norm: norm(named("attn_output_norm"))?,
                up: next()?,
                down: next()?,
                output_norm: norm(named("layer_output_norm"))?,
            });
        }
        Ok(Encoder {
            tokens: loader.table("token_embd.weight", config.vocab, config.width)?,
            positions: loader.table("position_embd.weight", config.context, config.width)?,
            segment: loader.first_row("token_types.weight", config.width)?,
            norm: norm("token_embd_norm".to_string())?,
            config,
            layers,
            runtime,
        })
    }

    /// The encoder's shape.
    pub fn config(&self) -> &EncoderConfig {
        &self.config
    }

    /// The vector of a text, of length one; none for no tokens, too many, or one that is not there.
    pub fn embed(&mut self, tokens: &[u32]) -> Option<Vec<f32>> {
        let (width, rows) = (self.config.width, tokens.len());
        if rows == 0 || rows > self.config.context || tokens.iter().any(|&token| token as usize >= self.config.vocab) {
            return None;
        }
        let mut x = vec![0.0; rows * width];
        for (row, (x, &token)) in x.chunks_exact_mut(width).zip(tokens).enumerate() {
            let (token, position) = (&self.tokens[token as usize * width..], &self.positions[row * width..]);
            for (i, x) in x.iter_mut().enumerate() {
                *x = token[i] + position[i] + self.segment[i];
            }
        }
        self.norm.apply(&mut self.runtime, &mut x, self.config.epsilon);
        for layer in &self.layers {
            layer.attention(&mut self.runtime, &self.config, &mut x);
            layer.feed_forward(&mut self.runtime, &self.config, &mut x);
        }
        let mut vector = match self.config.pooling {
            Pooling::First => x[..width].to_vec(),
            Pooling::Mean => {
                let mut sum = vec![0.0; width];
                x.chunks_exact(width).for_each(|x| sum.iter_mut().zip(x).for_each(|(sum, x)| *sum += x));
                sum
            }
        };
        // Of length one, a sum is the same as a mean.
        let length = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
        vector.iter_mut().for_each(|x| *x /= length.max(f32::MIN_POSITIVE));
        Some(vector)
    }
}

impl Norm {
    fn apply(&self, runtime: &mut Runtime, x: &mut [f32], epsilon: f32) {
        let columns = self.weight.len();
        runtime.rows_of(x, columns, &|_, x| {
            let mean = x.iter().sum::<f32>() / columns as f32;
            x.iter_mut().for_each(|x| *x -= mean);
            let variance = x.iter().map(|x| x * x).sum::<f32>() / columns as f32;
            let scale = 1.0 / (variance + epsilon).sqrt();
            x.iter_mut().zip(&self.weight).zip(&self.bias).for_each(|((x, w), b)| *x = *x * scale * w + b);
        });
    }
}

impl Layer {
    /// `x = norm(x + output(attention(x)))`.
    fn attention(&self, runtime: &mut Runtime, config: &EncoderConfig, x: &mut [f32]) {
        let (width, rows, head) = (config.width, x.len() / config.width, config.width / config.heads);
        let [q, k, v] = multiply(runtime, x, width, [&self.q, &self.k, &self.v]);
        let scale = 1.0 / (head as f32).sqrt();
        let mut attended = vec![0.0; rows * width];
        let stride = output_stride(width);
        // A row of all heads at a time; scores are as many as the text has tokens.
        runtime.rows_of(&mut attended, width, &|row, out| {
            let mut scores = vec![0.0f32; rows];
            for (h, out) in out.chunks_exact_mut(head).enumerate() {
                let query = &q[row * stride + h * head..][..head];
                let mut largest = f32::NEG_INFINITY;
                for (i, score) in scores.iter_mut().enumerate() {
                    let key = &k[i * stride + h * head..][..head];
                    *score = dot(query, key) * scale;
                    largest = largest.max(*score);
                }
                let mut total = 0.0;
                for (i, score) in scores.iter().enumerate() {
                    let weight = (score - largest).exp();
                    total += weight;
                    let value = &v[i * stride + h * head..][..head];
                    out.iter_mut().zip(value).for_each(|(out, v)| *out += weight * v);
                }
                out.iter_mut().for_each(|out| *out /= total);
            }
        });
        let [added] = multiply(runtime, &attended, width, [&self.attention_output]);
        add(x, &added, width);
        self.attention_norm.apply(runtime, x, config.epsilon);
    }

    /// `x = norm(x + down(gelu(up(x))))`.
    fn feed_forward(&self, runtime: &mut Runtime, config: &EncoderConfig, x: &mut [f32]) {
        let (width, ff) = (config.width, config.feed_forward);
        let [up] = multiply(runtime, x, width, [&self.up]);
        let mut active = vec![0.0; x.len() / width * ff];
        let stride = output_stride(ff);
        runtime.rows_of(&mut active, ff, &|row, out| {
            out.iter_mut().zip(&up[row * stride..]).for_each(|(out, up)| *out = gelu(*up));
        });
        let [added] = multiply(runtime, &active, ff, [&self.down]);
        add(x, &added, width);
        self.output_norm.apply(runtime, x, config.epsilon);
    }
}

/// Products of all rows of `x` with some matrices, and their biases; rows are [`output_stride`] apart.
fn multiply<const N: usize>(
    runtime: &mut Runtime,
    x: &[f32],
    columns: usize,
    projections: [&Projection; N],
) -> [Vec<f32>; N] {
    let rows = x.len() / columns;
    let numbers: Vec<u32> = (0..rows as u32).collect();
    let mut activations = Activations::new(rows, columns);
    activations.values[..x.len()].copy_from_slice(x);
    let precisions = projections.map(|projection| projection.matrix.format.precision());
    for (i, &precision) in precisions.iter().enumerate() {
        if !precisions[..i].contains(&precision) {
            runtime.quantize(&mut activations, rows, precision);
        }
    }
    let mut results = projections.map(|projection| vec![0.0; rows * output_stride(projection.matrix.rows)]);
    let rows = RowMap { input: &numbers, output: &numbers };
    let mut outputs: Vec<Output<'_>> = projections
        .iter()
        .zip(&mut results)
        .map(|(projection, out)| Output { matrix: &projection.matrix, rows, out })
        .collect();
    runtime.matmul(&activations, &mut outputs);
    for (projection, result) in projections.iter().zip(&mut results) {
        if let Some(bias) = &projection.bias {
            let stride = output_stride(bias.len());
            result.chunks_exact_mut(stride).for_each(|row| row.iter_mut().zip(bias).for_each(|(x, b)| *x += b));
        }
    }
    results
}

/// Eight sums side by side, which is what a vector register holds.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0f32; 8];
    let (a, b) = (a.chunks_exact(8), b.chunks_exact(8));
    let rest: f32 = a.remainder().iter().zip(b.remainder()).map(|(a, b)| a * b).sum();
    for (a, b) in a.zip(b) {
        sums.iter_mut().zip(a.iter().zip(b)).for_each(|(sum, (a, b))| *sum += a * b);
    }
    sums.iter().sum::<f32>() + rest
}

/// Adds rows that stand [`output_stride`] apart.
fn add(x: &mut [f32], added: &[f32], width: usize) {
    let rows = x.chunks_exact_mut(width).zip(added.chunks_exact(output_stride(width)));
    rows.for_each(|(x, added)| x.iter_mut().zip(added).for_each(|(x, a)| *x += a));
}

/// `x * P(X <= x)` for a normal distribution, by the error function of Abramowitz and Stegun (7.1.26), which is right to
/// seven digits.
fn gelu(x: f32) -> f32 {
    let z = (x * std::f32::consts::FRAC_1_SQRT_2).abs();
    let t = 1.0 / (1.0 + 0.327_591_1 * z);
    let poly = t * (0.254_829_6 + t * (-0.284_496_74 + t * (1.421_413_7 + t * (-1.453_152 + t * 1.061_405_4))));
    let erf = 1.0 - poly * (-z * z).exp();
    0.5 * x * (1.0 + if x < 0.0 { -erf } else { erf })
}

#[cfg(test)]
mod tests {
    use super::gelu;

    #[test]
    fn gelu_is_exact() {
        // scipy.special.ndtr(x) * x
        for (x, want) in
            [(-3.0, -0.004_049_694), (-0.5, -0.154_268_77), (0.0, 0.0), (1.0, 0.841_344_7), (4.0, 3.999_873_3)]
        {
            assert!((gelu(x) - want).abs() < 1e-6, "{x}: {}", gelu(x));
        }
    }
}

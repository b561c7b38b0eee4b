//! Whole steps on a card: a single row is one kernel from compute capability 9.0 on, several rows are many kernels, and a row must
//! have the same bits either way. That is what makes a draft's answer that of plain decoding.
//!
//! The many kernels have their oracle on the CPU (`cuda::selftest`), so this is the oracle of the one. Weights are random.

use super::shapes::kinds;
use super::{CudaModel, CudaOptions, ROWS_MAX, shape};
use crate::backend::{BLOCK, Backend, BackendError, Chunk, StateUse, Want};
use crate::config::{Config, ConfigOptions, DeltaNetConfig, Experts};
use crate::load::LoadError;
use ::cuda::selftest::{Cases, Outcome};
use kernels::KvType;
use std::ops::Range;

/// Decode logits are as good as a whole vocabulary of them to see whether a row is the same.
const VOCAB: usize = 320;

/// Why steps could not be tested.
#[derive(Debug, thiserror::Error)]
pub enum SelftestError {
    /// The card cannot take a model.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A step failed.
    #[error(transparent)]
    Step(#[from] BackendError),
}

/// A model's shape with fewer layers, and what is asked of it.
#[derive(Clone, Copy)]
struct Steps {
    name: &'static str,
    layers: usize,
    feed_forward: usize,
    experts: usize,
    kv_type: KvType,
    /// Positions before the rows that are compared.
    depths: &'static [usize],
    /// How many are compared.
    rows: usize,
    /// What is smaller of a model with states.
    smaller: Option<Smaller>,
}

/// Depths at which attention has a row's positions in one part, in one or in two, and in twenty or so.
const DEPTHS: &[usize] = &[0, 250, 5000];

/// The real shapes.
const REAL: [Steps; 7] = [
    steps("qwen2.5-coder-0.5b", 24, 4864, KvType::F16),
    steps("qwen2.5-coder-1.5b", 4, 8960, KvType::F16),
    steps("qwen2.5-coder-1.5b", 4, 8960, KvType::Q8),
    steps("qwen2.5-coder-7b", 2, 18_944, KvType::F16),
    Steps { experts: 128, ..steps("qwen3-coder-30b-a3b", 2, 768, KvType::F16) },
    Steps { experts: 256, ..steps("qwen3.6-35b-a3b", 4, 512, KvType::F16) },
    steps("qwen3.8-27b", 4, 17_408, KvType::F16),
];

/// Small ones, for what is a thousand times slower than a card.
const SMALL: [Steps; 5] = [
    Steps { depths: &[0, 252], rows: 6, ..steps("qwen2.5-coder-7b", 1, 4096, KvType::F16) },
    Steps { depths: &[0], rows: 6, ..steps("qwen2.5-coder-7b", 1, 4096, KvType::Q8) },
    Steps { depths: &[0], rows: 2, experts: 16, ..steps("qwen3-coder-30b-a3b", 1, 768, KvType::F16) },
    STATES[0],
    STATES[1],
];

/// Models with recurrent states, as small.
const STATES: [Steps; 2] = [
    Steps {
        depths: &[0, 126],
        rows: 6,
        experts: 16,
        smaller: smaller(512, 4),
        ..steps("qwen3.6-35b-a3b", 4, 512, KvType::F16)
    },
    // Wider than a norm is for one super-block per warp. A card of 12 multiprocessors has too few for it to be persistent.
    Steps { depths: &[0], rows: 6, smaller: smaller(4352, 6), ..steps("qwen3.8-27b", 4, 512, KvType::F16) },
];

/// Width, and heads of values; there are two of keys, and four of queries for one of keys in layers that attend.
#[derive(Clone, Copy)]
struct Smaller {
    embedding: usize,
    value_heads: usize,
}

const fn smaller(embedding: usize, value_heads: usize) -> Option<Smaller> {
    Some(Smaller { embedding, value_heads })
}

const fn steps(name: &'static str, layers: usize, feed_forward: usize, kv_type: KvType) -> Steps {
    Steps { name, layers, feed_forward, experts: 0, kv_type, depths: DEPTHS, rows: 70, smaller: None }
}

/// Steps of several rows against single ones; the error is the number of rows that differ in any bit.
pub fn selftest(card: usize, cases: Cases) -> Result<Vec<Outcome>, SelftestError> {
    selftest_of(card, if cases == Cases::All { &REAL } else { &SMALL })
}

fn selftest_of(card: usize, all: &[Steps]) -> Result<Vec<Outcome>, SelftestError> {
    let mut outcomes = Vec::new();
    for steps in all {
        let mut model = random_model(card, steps)?;
        for &depth in steps.depths {
            let tokens: Vec<u32> = (0..depth + steps.rows).map(|i| ((i * 37 + 11) % VOCAB) as u32).collect();
            let longest = model.info().rows_max;
            // Every comparison begins with the same state.
            let begin = |model: &mut CudaModel| match (model.info().states, depth) {
                (Some(_), 1..) => model.copy_state(1, 0, depth),
                _ => Ok(()),
            };
            read(&mut model, &tokens, 0..depth, Pieces { sizes: &[ROWS_MAX], rejects: false }, Want::Nothing)?;
            if model.info().states.is_some() && depth > 0 {
                model.copy_state(0, 1, depth)?;
            }
            let compared = depth..tokens.len();
            let ones = Pieces { sizes: &[1], rejects: false };
            let single = read(&mut model, &tokens, compared.clone(), ones, Want::All)?;
            let sizes = [&[2][..], &[4], &[7, 1], &[32], &[60]].map(|sizes| Pieces { sizes, rejects: false });
            let rejecting = model.info().states.map(|_| Pieces { sizes: &[5, 1, 8], rejects: true });
            let of_rows = |pieces: &Pieces| pieces.sizes[0] <= steps.rows.min(longest);
            for pieces in sizes.into_iter().chain(rejecting).filter(of_rows) {
                begin(&mut model)?;
                let got = read(&mut model, &tokens, compared.clone(), pieces, Want::All)?;
                let rows = got.chunks_exact(VOCAB).zip(single.chunks_exact(VOCAB));
                let error = rows.filter(|(got, single)| got != single || got.iter().any(|x| x.is_nan())).count() as f32;
                let (Steps { name, kv_type, .. }, sizes) = (steps, pieces.sizes);
                let kept = if pieces.rejects { ", some rejected" } else { "" };
                let name = format!("{name}, {kv_type:?}, steps of {sizes:?} rows{kept} at {depth}");
                outcomes.push(Outcome { name, error, bound: 0.0 });
            }
        }
    }
    Ok(outcomes)
}

fn random_model(card: usize, steps: &Steps) -> Result<CudaModel, SelftestError> {
    let &Steps { name, layers, feed_forward, kv_type, .. } = steps;
    let shape = shape(name).expect("the table has known shapes");
    let experts = shape.experts.map(|experts| Experts { count: steps.experts, ..experts });
    let kinds = kinds(layers, shape.delta_net.is_some());
    let shape = match steps.smaller {
        Some(Smaller { embedding, value_heads }) => {
            let smaller = |delta| DeltaNetConfig { key_heads: 2, value_heads, ..delta };
            Config { embedding, heads: 4, kv_heads: 1, delta_net: shape.delta_net.map(smaller), ..shape }
        }
        None => shape,
    };
    let config = Config { layers, kinds, feed_forward, experts, vocab: VOCAB, ..shape };
    let kv_tokens = steps.depths.iter().max().unwrap_or(&0) + steps.rows;
    let (of_file, threads, times, placements) = (ConfigOptions::default(), 2, false, 1);
    let options = CudaOptions { card, kv_tokens, kv_type, config: of_file, threads, times, placements };
    Ok(CudaModel::random(config, options)?)
}

/// How rows are read: so many at a time, again and again; all of them kept, or of drafted ones only some, which are read again.
#[derive(Clone, Copy)]
struct Pieces {
    sizes: &'static [usize],
    rejects: bool,
}

/// Logits of some rows of a sequence.
fn read(
    model: &mut CudaModel,
    tokens: &[u32],
    rows: Range<usize>,
    pieces: Pieces,
    want: Want,
) -> Result<Vec<f32>, BackendError> {
    let blocks: Vec<u32> = (0..tokens.len().div_ceil(BLOCK) as u32).rev().collect();
    let states = model.info().states;
    let (mut all, mut logits, mut start) = (Vec::new(), Vec::new(), rows.start);
    for (i, piece) in pieces.sizes.iter().cycle().enumerate() {
        let end = (start + piece).min(rows.end);
        if start == end {
            break;
        }
        let most = states.map_or(0, |states| states.drafted_max).min(end - start - 1);
        let drafted = if want == Want::All { most } else { 0 };
        let state = states.map(|_| StateUse { slot: 0, drafted, saves: &[] });
        model.forward(&[Chunk { tokens: &tokens[start..end], start, blocks: &blocks, want, state }], &mut logits)?;
        let kept = if pieces.rejects { end - start - i % (drafted + 1) } else { end - start };
        all.extend_from_slice(&logits[..if want == Want::Nothing { 0 } else { kept * VOCAB }]);
        start += kept;
    }
    Ok(all)
}

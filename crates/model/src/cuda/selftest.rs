//! Whole steps on a card: a single row is one kernel from compute capability 9.0 on, several rows are many kernels, and a row must
//! have the same bits either way. That is what makes a draft's answer that of plain decoding.
//!
//! The many kernels have their oracle on the CPU (`cuda::selftest`), so this is the oracle of the one. Weights are random.

use super::{CudaModel, CudaOptions, shape};
use crate::backend::{BLOCK, Backend, BackendError, Chunk, Want};
use crate::config::{Config, ConfigOptions, Experts, LayerKind};
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
}

/// Depths at which attention has a row's positions in one part, in one or in two, and in twenty or so.
const DEPTHS: &[usize] = &[0, 250, 5000];

/// The real shapes.
const REAL: [Steps; 5] = [
    steps("qwen2.5-coder-0.5b", 24, 4864, KvType::F16),
    steps("qwen2.5-coder-1.5b", 4, 8960, KvType::F16),
    steps("qwen2.5-coder-1.5b", 4, 8960, KvType::Q8),
    steps("qwen2.5-coder-7b", 2, 18_944, KvType::F16),
    Steps { experts: 128, ..steps("qwen3-coder-30b-a3b", 2, 768, KvType::F16) },
];

/// Small ones, for what is a thousand times slower than a card.
const SMALL: [Steps; 3] = [
    Steps { depths: &[0, 252], rows: 6, ..steps("qwen2.5-coder-7b", 1, 4096, KvType::F16) },
    Steps { depths: &[0], rows: 6, ..steps("qwen2.5-coder-7b", 1, 4096, KvType::Q8) },
    Steps { depths: &[0], rows: 2, experts: 16, ..steps("qwen3-coder-30b-a3b", 1, 768, KvType::F16) },
];

const fn steps(name: &'static str, layers: usize, feed_forward: usize, kv_type: KvType) -> Steps {
    Steps { name, layers, feed_forward, experts: 0, kv_type, depths: DEPTHS, rows: 70 }
}

/// Steps of several rows against single ones; the error is the number of rows that differ in any bit.
pub fn selftest(card: usize, cases: Cases) -> Result<Vec<Outcome>, SelftestError> {
    let all = if cases == Cases::All { &REAL[..] } else { &SMALL };
    let mut outcomes = Vec::new();
    for steps in all {
        let mut model = random_model(card, steps)?;
        for &depth in steps.depths {
            let tokens: Vec<u32> = (0..depth + steps.rows).map(|i| ((i * 37 + 11) % VOCAB) as u32).collect();
            let longest = model.info().rows_max;
            read(&mut model, &tokens, 0..depth, &[longest], Want::Nothing)?;
            let compared = depth..tokens.len();
            let single = read(&mut model, &tokens, compared.clone(), &[1], Want::All)?;
            let sizes = [&[2][..], &[4], &[7, 1], &[32], &[60]];
            for pieces in sizes.into_iter().filter(|pieces| pieces[0] <= steps.rows.min(longest)) {
                let got = read(&mut model, &tokens, compared.clone(), pieces, Want::All)?;
                let rows = got.chunks_exact(VOCAB).zip(single.chunks_exact(VOCAB));
                let error = rows.filter(|(got, single)| got != single || got.iter().any(|x| x.is_nan())).count() as f32;
                let Steps { name, kv_type, .. } = steps;
                let name = format!("{name}, {kv_type:?}, steps of {pieces:?} rows at {depth}");
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
    let kinds = vec![LayerKind::Attention; layers];
    let config = Config { layers, kinds, feed_forward, experts, vocab: VOCAB, ..shape };
    let kv_tokens = steps.depths.iter().max().unwrap_or(&0) + steps.rows;
    let (of_file, threads, times, placements) = (ConfigOptions::default(), 2, false, 1);
    let options = CudaOptions { card, kv_tokens, kv_type, config: of_file, threads, times, placements };
    Ok(CudaModel::random(config, options)?)
}

/// Logits of some rows of a sequence, in steps of the given sizes, again and again.
fn read(
    model: &mut CudaModel,
    tokens: &[u32],
    rows: Range<usize>,
    pieces: &[usize],
    want: Want,
) -> Result<Vec<f32>, BackendError> {
    let blocks: Vec<u32> = (0..tokens.len().div_ceil(BLOCK) as u32).rev().collect();
    let (mut all, mut logits, mut start) = (Vec::new(), Vec::new(), rows.start);
    for piece in pieces.iter().cycle() {
        let end = (start + piece).min(rows.end);
        if start == end {
            break;
        }
        model.forward(
            &[Chunk { tokens: &tokens[start..end], start, blocks: &blocks, want, state: None }],
            &mut logits,
        )?;
        all.extend_from_slice(&logits);
        start = end;
    }
    Ok(all)
}

//! `flint bench agree`: whether a card says what the CPU says, on one real model and twenty real prompts.
//!
//! Both read the same prompt and then the CPU's own answer, token by token, so that every position is compared whatever
//! came before. Sums in another order differ in their last bits, and rounding activations to 8 bits makes a few hundredths
//! of a logit of that: where the CPU's best two are as near as that, the pick is the rounding's. Such near-ties are counted
//! and the widest is shown, because a wrong kernel shows as a wide one.

use anyhow::{Context, Result, anyhow, ensure};
use clap::Args;
use kernels::{Kernels, KvType};
use model::gguf::Gguf;
use model::{BLOCK, Backend, Chunk, ConfigOptions, CpuModel, CpuOptions, CudaModel, CudaOptions, Want};
use serde_json::json;
use text::{ChatRequest, ChatTemplate, Message, Special, Tokenizer};

use super::edit;
use super::serve::measure::{print_as, round};

/// Arguments of `flint bench agree`.
#[derive(Args)]
pub struct AgreeArgs {
    /// Model name or path to a GGUF file
    #[arg(short, long)]
    model: Option<String>,
    /// Which card
    #[arg(long, default_value_t = 0)]
    card: usize,
    /// Tokens of each answer
    #[arg(long, default_value_t = 64)]
    tokens: usize,
    /// Most rows of a step: up to 32 are computed as the CPU does, longer ones in half precision
    #[arg(long, default_value_t = 2048)]
    rows: usize,
    /// Print JSON lines
    #[arg(long)]
    json: bool,
}

/// The CPU's best two nearer than this are a near-tie, as in the comparison with llama.cpp (`model/tests/parity.rs`).
const NEAR: f32 = 0.05;
/// The widest gap at which another pick can still be rounding: twelve times a usual near-tie.
const WIDE: f32 = 0.6;
/// Room for a prompt and its answer.
const POSITIONS: usize = 4096;

/// A position where the two pick different tokens.
struct Parted {
    prompt: usize,
    position: usize,
    /// How much less likely the card's pick is, by the CPU's own logits.
    gap: f32,
}

/// Compares; an error when a difference is too wide for rounding.
pub fn run(args: &AgreeArgs) -> Result<()> {
    let name = args.model.clone().map_or_else(crate::models::default_name, Ok)?;
    let path = crate::models::ensure(&name, false)?;
    let gguf = Gguf::open(&path)?;
    let tokenizer = Tokenizer::from_gguf(&gguf)?;
    let template = ChatTemplate::new(tokenizer.vocabulary()).map_err(|error| anyhow!("no usable template: {error}"))?;
    let (config, kv_tokens, threads) = (ConfigOptions::default(), POSITIONS, crate::load::cores());
    let cpu = CpuOptions { threads, kv_tokens, kv_type: KvType::F16, config, kernels: Kernels::best()? };
    let mut cpu = CpuModel::load(&path, cpu)?;
    let card = CudaOptions { card: args.card, kv_tokens, kv_type: KvType::F16, config, threads, times: false };
    let mut card = CudaModel::load(&path, card)?;
    let (mut compared, mut equal, mut parted) = (0, 0, Vec::new());
    let mut squares = 0.0;
    let prompts = edit::twenty();
    for (prompt, text) in prompts.iter().enumerate() {
        let text = template.render(&ChatRequest::new(&[Message::user(text)]))?;
        let tokens = tokenizer.encode(&text, Special::Parse);
        ensure!(tokens.len() + args.tokens < POSITIONS, "prompt {prompt} is too long");
        let (mut ours, mut theirs) = (read(&mut cpu, &tokens, 0, args.rows)?, read(&mut card, &tokens, 0, args.rows)?);
        let before = parted.len();
        for i in 0..args.tokens {
            let (a, b) = (best(&ours)?, best(&theirs)?);
            compared += 1;
            squares += variance(&ours, &theirs);
            if a != b {
                let gap = ours[a as usize] - ours[b as usize];
                parted.push(Parted { prompt, position: i, gap });
            }
            if tokenizer.vocabulary().stops().contains(&a) {
                break;
            }
            let at = tokens.len() + i;
            (ours, theirs) = (read(&mut cpu, &[a], at, 1)?, read(&mut card, &[a], at, 1)?);
        }
        equal += usize::from(parted.len() == before);
    }
    let widest = parted.iter().map(|parted| parted.gap).fold(0.0, f32::max);
    let shown: Vec<_> = parted.iter().map(|p| json!([p.prompt, p.position, round(f64::from(p.gap))])).collect();
    let values = json!({
        "card": card.card().name, "prompts": prompts.len(), "prompts equal throughout": equal,
        "picks compared": compared, "picks that differ": parted.len(),
        "of those, near-ties under 0.05": parted.iter().filter(|parted| parted.gap < NEAR).count(),
        "widest gap": round(f64::from(widest)), "prompt, token and gap of each": shown,
        "differences of logits (standard deviation)": round((squares / compared as f64).sqrt()),
    });
    print_as(args.json, &format!("{name}: greedy picks of the card and of the CPU"), values);
    ensure!(widest < WIDE, "a pick differs where the CPU's best two are {widest:.2} apart: that is no rounding");
    Ok(())
}

/// Logits of the last of `tokens`, which stand at `start` and on.
fn read(model: &mut dyn Backend, tokens: &[u32], start: usize, rows_max: usize) -> Result<Vec<f32>> {
    let blocks: Vec<u32> = (0..(POSITIONS / BLOCK) as u32).collect();
    let (rows, mut logits) = (model.info().rows_max.min(rows_max.max(1)), Vec::new());
    for (i, piece) in tokens.chunks(rows).enumerate() {
        let chunk = Chunk { tokens: piece, start: start + i * rows, blocks: &blocks, want: Want::Last };
        model.forward(&[chunk], &mut logits)?;
    }
    Ok(logits)
}

/// How much the differences of two rows scatter. What is added to all entries of a row changes no pick.
fn variance(ours: &[f32], theirs: &[f32]) -> f64 {
    let differences = || ours.iter().zip(theirs).map(|(a, b)| f64::from(a - b));
    let mean = differences().sum::<f64>() / ours.len() as f64;
    differences().map(|difference| (difference - mean).powi(2)).sum::<f64>() / ours.len() as f64
}

fn best(row: &[f32]) -> Result<u32> {
    let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let place = row.iter().position(|&x| x == largest).context("the model produced logits that are not numbers")?;
    Ok(place as u32)
}

//! `flint bench agree`: whether a card says what the CPU says, on one real model and twenty real prompts.
//!
//! Both read the same prompt and then the CPU's own answer, token by token, so that every position is compared whatever
//! came before. Sums in another order differ in their last bits, and rounding activations to 8 bits makes tenths of a logit of
//! that. How much, a control says: the same CPU with its plain kernels, which add up in another order. A card may differ as much,
//! and where it picks another token is counted and shown, because a wrong kernel shows as a wide gap between the two.
//!
//! Of a model whose matrices are floats (`model/examples/halves.rs` writes one) nothing is rounded to 8 bits. What is left is the
//! maths, and the picks must be equal but for near-ties.

use anyhow::{Context, Result, anyhow, ensure};
use clap::Args;
use kernels::{Kernels, KvType};
use load::device::{self, DeviceChoice, Opened, device_choice};
use model::gguf::Gguf;
use model::{BLOCK, Backend, Chunk, ConfigOptions, CpuOptions, Want};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use text::{ChatRequest, ChatTemplate, Message, Special, Tokenizer};

use super::edit;
use super::serve::measure::{print_as, round};

/// Arguments of `flint bench agree`.
#[derive(Args)]
pub struct AgreeArgs {
    /// Model name or path to a GGUF file
    #[arg(short, long)]
    model: Option<String>,
    /// What to compare: cuda or cuda:N beside a control of three prompts, or cpu for the control alone, on all
    #[arg(long, default_value = "cuda", value_parser = device_choice)]
    device: DeviceChoice,
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
const NEAR: f64 = 0.05;
/// Most times the control's scatter that a gap may be wide. Both logits of a gap scatter, the widest of a thousand gaps is three times
/// what is usual, and some rows scatter more than others.
const WIDEST: f64 = 6.0;
/// Most times the control's scatter that the card's may be.
const SCATTER: f64 = 1.5;
/// So little scatter needs no control: nothing was rounded to 8 bits.
const LITTLE: f64 = 0.01;
/// Prompts of the control beside a card: plain kernels take half a second for a token of half a billion weights, on two cores.
const CONTROLS: usize = 3;
/// Room for a prompt and its answer.
const POSITIONS: usize = 4096;
const NEXT: &str = "do not trust its answers, and run `flint selftest --device cuda`";

/// Who is compared with the CPU.
struct Other {
    model: Opened,
    /// How many it answers.
    prompts: usize,
    compared: usize,
    parted: Vec<Parted>,
    /// Of the differences of logits, summed over positions.
    variance: f64,
}

/// A position where the two pick different tokens.
struct Parted {
    prompt: usize,
    position: usize,
    /// How much less likely the other's pick is, by the CPU's own logits.
    gap: f32,
}

/// Compares; an error when the card differs by more than rounding makes.
pub fn run(args: &AgreeArgs) -> Result<()> {
    ensure!(args.tokens > 0, "--tokens 0 compares nothing; give at least 1");
    let name = args.model.clone().map_or_else(load::fetch::default_name, Ok)?;
    let path = load::fetch::ensure(&name, false)?;
    let tokenizer = Tokenizer::from_gguf(&Gguf::open(&path)?)?;
    let template = ChatTemplate::new(tokenizer.vocabulary()).map_err(|error| anyhow!("no usable template: {error}"))?;
    let (config, kv_tokens, threads) = (ConfigOptions::default(), POSITIONS, load::cores());
    let load = |device, kernels| {
        device::open(&path, device, CpuOptions { threads, kv_tokens, kv_type: KvType::F16, config, kernels })
    };
    let (prompts, kernels) = (edit::twenty(), Kernels::best()?);
    let asked = load(args.device, kernels)?;
    let (card, mut cpu) = if asked.on_card { (Some(asked), load(DeviceChoice::Cpu, kernels)?) } else { (None, asked) };
    let controls = if card.is_some() { CONTROLS } else { prompts.len() };
    let control = Other::new(load(DeviceChoice::Cpu, Kernels::reference())?, controls);
    let card = card.map(|card| Other::new(card, prompts.len()));
    let mut others: Vec<Other> = card.into_iter().chain([control]).collect();
    let shown = boundary::print::stderr_is_terminal();
    for (prompt, text) in prompts.iter().enumerate() {
        if shown {
            errln!("prompt {} of {}", prompt + 1, prompts.len());
        }
        let text = template.render(&ChatRequest::new(&[Message::user(text)]))?;
        let tokens = tokenizer.encode(&text, Special::Parse);
        ensure!(tokens.len() + args.tokens < POSITIONS, "prompt {prompt} is too long");
        let answering = others.iter_mut().filter(|other| prompt < other.prompts).collect();
        follow(cpu.backend.as_mut(), answering, prompt, tokens, args, tokenizer.vocabulary().stops())?;
    }
    for other in &others {
        let figure = format!("{name}: greedy picks with {} and with {}", other.model.kernels, cpu.kernels);
        print_as(args.json, &figure, other.values());
    }
    if let [card, control] = &others[..] { judge(card, control) } else { Ok(()) }
}

/// All read a prompt and then the CPU's answer.
fn follow(
    cpu: &mut dyn Backend,
    mut others: Vec<&mut Other>,
    prompt: usize,
    mut tokens: Vec<u32>,
    args: &AgreeArgs,
    stops: &[u32],
) -> Result<()> {
    let mut start = 0;
    for position in 0..args.tokens {
        let ours = read(cpu, &tokens[start..], start, args.rows)?;
        let pick = best(&ours)?;
        for other in &mut others {
            let theirs = read(other.model.backend.as_mut(), &tokens[start..], start, args.rows)?;
            other.compare(&ours, &theirs, pick, prompt, position)?;
        }
        if stops.contains(&pick) {
            break;
        }
        start = tokens.len();
        tokens.push(pick);
    }
    Ok(())
}

impl Other {
    fn new(model: Opened, prompts: usize) -> Other {
        Other { model, prompts, compared: 0, parted: Vec::new(), variance: 0.0 }
    }

    fn compare(&mut self, ours: &[f32], theirs: &[f32], pick: u32, prompt: usize, position: usize) -> Result<()> {
        let other = best(theirs)?;
        self.compared += 1;
        self.variance += variance(ours, theirs);
        if other != pick {
            let gap = ours[pick as usize] - ours[other as usize];
            self.parted.push(Parted { prompt, position, gap });
        }
        Ok(())
    }

    fn widest(&self) -> f64 {
        self.parted.iter().map(|parted| f64::from(parted.gap)).fold(0.0, f64::max)
    }

    fn scatter(&self) -> f64 {
        (self.variance / self.compared as f64).sqrt()
    }

    fn values(&self) -> Value {
        let parted: BTreeSet<usize> = self.parted.iter().map(|parted| parted.prompt).collect();
        let near = self.parted.iter().filter(|parted| f64::from(parted.gap) < NEAR).count();
        let shown: Vec<_> =
            self.parted.iter().map(|p| json!([p.prompt, p.position, round(f64::from(p.gap))])).collect();
        json!({
            "prompts": self.prompts, "prompts equal throughout": self.prompts - parted.len(),
            "picks compared": self.compared, "picks that differ": self.parted.len(),
            "of those, near-ties under 0.05": near, "widest gap": round(self.widest()),
            "prompt, token and gap of each": shown,
            "differences of logits (standard deviation)": (self.scatter() * 1e6).round() / 1e6,
        })
    }
}

/// The control shows what the order of sums alone does to this model; the card may do that.
fn judge(card: &Other, control: &Other) -> Result<()> {
    let (scatter, usual) = (card.scatter(), control.scatter());
    let allowed = (SCATTER * usual).max(LITTLE);
    ensure!(
        scatter <= allowed,
        "logits of the card scatter by {scatter:.3} around the CPU's, and {allowed:.3} is allowed; {NEXT}"
    );
    let (widest, allowed) = (card.widest(), (WIDEST * usual).max(NEAR));
    ensure!(
        widest <= allowed,
        "a pick differs where the CPU's best two are {widest:.2} apart, and {allowed:.2} is allowed; {NEXT}"
    );
    Ok(())
}

/// Logits of the last of `tokens`, which stand at `start` and on.
fn read(model: &mut dyn Backend, tokens: &[u32], start: usize, rows_max: usize) -> Result<Vec<f32>> {
    let blocks: Vec<u32> = (0..(POSITIONS / BLOCK) as u32).collect();
    let (rows, mut logits) = (model.info().rows_max.min(rows_max.max(1)), Vec::new());
    for (i, piece) in tokens.chunks(rows).enumerate() {
        let chunk = Chunk { tokens: piece, start: start + i * rows, blocks: &blocks, want: Want::Last, state: None };
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

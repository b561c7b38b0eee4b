//! Greedy continuations of a real model on the CPU and on a card, side by side: where they part, and how near the tie was.
#![allow(clippy::unwrap_used)]

use kernels::{Kernels, KvType};
use model::{BLOCK, Backend, Chunk, ConfigOptions, CpuModel, CpuOptions, CudaModel, CudaOptions, Want};

const PROMPTS: usize = 20;
const LENGTH: usize = 64;

fn step(model: &mut dyn Backend, tokens: &[u32], start: usize, blocks: &[u32]) -> Vec<f32> {
    let mut logits = Vec::new();
    let rows_max = model.info().rows_max;
    for (i, piece) in tokens.chunks(rows_max).enumerate() {
        let chunk = Chunk { tokens: piece, start: start + i * rows_max, blocks, want: Want::Last };
        model.forward(&[chunk], &mut logits).unwrap();
    }
    logits
}

fn best(row: &[f32]) -> u32 {
    let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    row.iter().position(|&x| x == largest).unwrap() as u32
}

fn main() {
    let path = std::env::args().nth(1).unwrap();
    let path = std::path::Path::new(&path);
    let (config, kv_tokens, threads) = (ConfigOptions::default(), 4096, 16);
    let kernels = Kernels::best().unwrap();
    let mut cpu =
        CpuModel::load(path, CpuOptions { threads, kv_tokens, kv_type: KvType::F16, config, kernels }).unwrap();
    let mut card = CudaModel::load(path, CudaOptions { card: 0, kv_tokens, config, threads, times: false }).unwrap();
    let blocks: Vec<u32> = (0..(512 / BLOCK) as u32).collect();
    let (mut equal, mut near) = (0, 0);
    for prompt in 0..PROMPTS {
        // Tokens of the middle of a vocabulary are words; lengths from a few to a hundred take both kinds of steps.
        let length = 5 + prompt * 5;
        let tokens: Vec<u32> =
            (0..length).map(|i| 300 + (i as u32 * 7919 + prompt as u32 * 104_729) % 20_000).collect();
        let mut logits = step(&mut cpu, &tokens, 0, &blocks);
        let mut other = step(&mut card, &tokens, 0, &blocks);
        let mut parted = None;
        for position in length..length + LENGTH {
            let (a, b) = (best(&logits), best(&other));
            if a != b {
                // How far apart the CPU's own logits of the two tokens are: a near-tie is the rounding's to decide.
                parted = Some((position - length, logits[a as usize] - logits[b as usize]));
                break;
            }
            logits = step(&mut cpu, &[a], position, &blocks);
            other = step(&mut card, &[a], position, &blocks);
        }
        match parted {
            None => equal += 1,
            Some((at, gap)) => {
                near += usize::from(gap < 0.5);
                println!(
                    "prompt {prompt} ({length} tokens): parts at token {at}, where the CPU's best two are {gap:.3} apart"
                );
            }
        }
    }
    println!("{equal} of {PROMPTS} equal for {LENGTH} tokens; {near} parted at a near-tie (under 0.5)");
}

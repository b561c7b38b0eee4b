//! Flint's side of `bench/depth/alternate.py`: loads a model, reads DEPTH tokens once, and for every line on standard input measures the
//! bandwidth, decodes COUNT tokens there, and prints GB/s and the seconds they took.
//!
//! `lab depth MODEL.gguf DEPTH COUNT`

use kernels::{Kernels, KvType};
use model::{BLOCK, Backend, Chunk, ConfigOptions, CpuModel, CpuOptions, Want};
use std::path::Path;
use std::time::Instant;

pub fn run(arguments: &[String]) {
    let [path, depth, count] = arguments else { panic!("lab depth MODEL.gguf DEPTH COUNT") };
    let (depth, count): (usize, usize) = (depth.parse().unwrap(), count.parse().unwrap());
    let kv_tokens = (depth + count).next_multiple_of(BLOCK);
    let (config, kernels) = (ConfigOptions::default(), Kernels::best().unwrap());
    let options = CpuOptions { threads: 2, kv_tokens, kv_type: KvType::F16, config, kernels };
    let mut model = CpuModel::load(Path::new(path), options).unwrap();
    let blocks: Vec<u32> = (0..(kv_tokens / BLOCK) as u32).collect();
    let mut logits = Vec::new();
    let mut read = |tokens: &[u32], start: usize| {
        let chunk = Chunk { tokens, start, blocks: &blocks, want: Want::Last, state: None };
        model.forward(&[chunk], &mut logits).unwrap();
    };
    let prompt: Vec<u32> = (0..depth as u32).map(|i| 100 + i * 37 % 5000).collect();
    prompt.chunks(256).enumerate().for_each(|(i, part)| read(part, i * 256));
    println!("ready");
    for _ in std::io::stdin().lines() {
        let bandwidth = load::bandwidth::read_bandwidth(2);
        let begin = Instant::now();
        (0..count).for_each(|i| read(&[100 + i as u32], depth + i));
        println!("{bandwidth:.2} {:.6}", begin.elapsed().as_secs_f64());
    }
}

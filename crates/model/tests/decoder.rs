//! The decoder on tiny models of every architecture: fast kernels against the reference, and the promise of the
//! backend seam that a row's logits never depend on how the work was cut.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests too: a panic is how they fail.

use kernels::cases::normalised_error;
use kernels::{Format, Kernels, KvType, Precision};
use model::{BLOCK, Backend, Chunk, ConfigOptions, CpuModel, CpuOptions, Want};
use std::path::PathBuf;
use testkit::models::{CONTEXT, Tiny, VOCAB};

const ARCHITECTURES: [&str; 4] = ["llama", "qwen2", "qwen3", "qwen3moe"];

fn write(tiny: &Tiny, folder: &tempfile::TempDir) -> PathBuf {
    let path = folder.path().join("tiny.gguf");
    tiny.writer().write(&path).unwrap();
    path
}

fn options(kernels: &'static Kernels) -> CpuOptions {
    CpuOptions { threads: 2, kv_tokens: 4096, kv_type: KvType::F16, config: ConfigOptions::default(), kernels }
}

fn load(tiny: &Tiny, options: CpuOptions) -> CpuModel {
    let folder = tempfile::tempdir().unwrap();
    CpuModel::load(&write(tiny, &folder), options).unwrap()
}

fn tokens(count: usize) -> Vec<u32> {
    (0..count as u32).map(|i| (i * 37 + 11) % VOCAB as u32).collect()
}

/// Logits of all rows of a prompt, read in pieces of the given sizes.
fn read(model: &mut CpuModel, tokens: &[u32], pieces: &[usize]) -> Vec<f32> {
    let blocks: Vec<u32> = (0..tokens.len().div_ceil(BLOCK) as u32).rev().collect();
    let (mut all, mut logits, mut start) = (Vec::new(), Vec::new(), 0);
    for piece in pieces.iter().cycle() {
        let end = (start + piece).min(tokens.len());
        let chunk = Chunk { tokens: &tokens[start..end], start, blocks: &blocks, want: Want::All };
        model.forward(&[chunk], &mut logits).unwrap();
        all.extend_from_slice(&logits);
        start = end;
        if start == tokens.len() {
            return all;
        }
    }
    unreachable!("pieces repeat for ever")
}

#[test]
fn every_architecture_and_format_agrees_with_the_reference() {
    let tokens = tokens(40);
    let formats = Format::ALL.map(|format| ("llama", format)).into_iter();
    for (architecture, format) in formats.chain(ARCHITECTURES.map(|a| (a, Format::Q4_K))) {
        let tiny = Tiny { architecture, format, ..Tiny::default() };
        let expected = read(&mut load(&tiny, options(Kernels::reference())), &tokens, &[40]);
        for kernels in Kernels::available() {
            let got = read(&mut load(&tiny, options(kernels)), &tokens, &[40]);
            let error = normalised_error(&got, &expected);
            // Rounding activations to 8 bits turns a last-bit difference into a step of 1/127 of a block's largest value,
            // and from then on the rounding of the two runs is independent: about 0.4 % for each of seven quantisations.
            // A wrong weight or position gives an error of order one. Single products are held to 1e-5 in `kernels`.
            let bound = if format.precision() == Precision::Float { 1e-4 } else { 0.04 };
            assert!(error < bound, "{architecture} {} on {}: {error:e}", format.name(), kernels.name);
        }
    }
}

#[test]
fn cutting_a_prompt_changes_no_bit() {
    for architecture in ARCHITECTURES {
        let tiny = Tiny { architecture, format: Format::Q6_K, ..Tiny::default() };
        for kernels in Kernels::available() {
            let tokens = tokens(if kernels.name == "reference" { 40 } else { 640 });
            let mut model = load(&tiny, options(kernels));
            let whole = read(&mut model, &tokens, &[256]);
            for pieces in [&[1][..], &[2, 3, 7], &[33, 64], &[200, 9]] {
                assert!(whole == read(&mut model, &tokens, pieces), "{architecture} on {}, {pieces:?}", kernels.name);
            }
        }
    }
}

#[test]
fn sequences_together_equal_sequences_alone() {
    let tiny = Tiny { architecture: "qwen3moe", format: Format::Q5_0, ..Tiny::default() };
    let mut model = load(&tiny, options(Kernels::best().unwrap()));
    let prompts = [tokens(70), tokens(5), tokens(33).into_iter().rev().collect()];
    let alone: Vec<Vec<f32>> = prompts.iter().map(|prompt| read(&mut model, prompt, &[prompt.len()])).collect();
    let tables: [Vec<u32>; 3] = [vec![7, 3, 9], vec![1], vec![4, 0]];
    let chunk = |i: usize| Chunk { tokens: &prompts[i], start: 0, blocks: &tables[i], want: Want::Last };
    let mut logits = Vec::new();
    model.forward(&[chunk(0), chunk(1), chunk(2)], &mut logits).unwrap();
    for (together, alone) in logits.chunks_exact(VOCAB).zip(&alone) {
        assert!(together == &alone[alone.len() - VOCAB..]);
    }
}

#[test]
fn blocks_can_be_copied_saved_and_restored() {
    let tiny = Tiny { format: Format::Q8_0, ..Tiny::default() };
    let mut model = load(&tiny, options(Kernels::best().unwrap()));
    let tokens = tokens(20);
    let mut logits = Vec::new();
    let mut step = |model: &mut CpuModel, tokens: &[u32], start, block: u32| {
        let chunk = Chunk { tokens, start, blocks: &[block], want: Want::Last };
        model.forward(&[chunk], &mut logits).unwrap();
        logits.clone()
    };
    step(&mut model, &tokens[..19], 0, 5);
    let expected = step(&mut model, &tokens[19..], 19, 5);
    let mut bytes = Vec::new();
    model.export_block(5, &mut bytes).unwrap();
    assert_eq!(bytes.len(), model.info().block_bytes);
    model.copy_block(5, 6).unwrap();
    model.import_block(8, &bytes).unwrap();
    for block in [6, 8] {
        assert!(expected == step(&mut model, &tokens[19..], 19, block));
    }
    assert!(model.import_block(8, &bytes[1..]).is_err());
    assert!(model.copy_block(5, 1 << 20).is_err());
}

#[test]
fn bad_batches_are_refused() {
    let mut model = load(&Tiny::default(), options(Kernels::best().unwrap()));
    let many = vec![1; 300];
    let blocks: Vec<u32> = (0..20).collect();
    let chunk = |tokens, start, blocks| Chunk { tokens, start, blocks, want: Want::Last };
    for (bad, what) in [
        (chunk(&[][..], 0, &blocks[..]), "no tokens"),
        (chunk(&many, 0, &blocks), "too many rows"),
        (chunk(&[VOCAB as u32], 0, &blocks), "unknown token"),
        (chunk(&[1], 32, &blocks[..1]), "block missing"),
        (chunk(&[1], 0, &[100_000]), "no such block"),
        (chunk(&[1], CONTEXT, &blocks), "past the context"),
    ] {
        assert!(model.forward(&[bad], &mut Vec::new()).is_err(), "{what}");
    }
}

#[test]
fn eight_bit_keys_and_values_stay_close() {
    let tiny = Tiny { architecture: "qwen2", format: Format::F32, ..Tiny::default() };
    let kernels = Kernels::best().unwrap();
    let exact = read(&mut load(&tiny, options(kernels)), &tokens(100), &[64]);
    let small = read(&mut load(&tiny, CpuOptions { kv_type: KvType::Q8, ..options(kernels) }), &tokens(100), &[64]);
    let error = normalised_error(&small, &exact);
    assert!(error > 0.0 && error < 0.02, "{error:e}");
}

#[test]
fn yarn_stretches_the_context_and_leaves_the_start_alone() {
    let kernels = Kernels::best().unwrap();
    let plain = load(&Tiny::default(), options(kernels));
    let stretched = CpuOptions { config: ConfigOptions { yarn_factor: Some(4.0) }, ..options(kernels) };
    let mut stretched = load(&Tiny::default(), stretched);
    assert_eq!(stretched.info().context, 4 * plain.info().context);
    assert_ne!(stretched.info().fingerprint, plain.info().fingerprint);
    assert!(read(&mut stretched, &tokens(8), &[8]).iter().all(|x| x.is_finite()));
}

#[test]
fn tiny_models_equal_llama_cpp() {
    for line in include_str!("golden/tiny-logits.jsonl").lines() {
        let golden: serde_json::Value = serde_json::from_str(line).unwrap();
        let name = |key: &str| golden[key].as_str().unwrap();
        let architecture = ARCHITECTURES.into_iter().find(|a| *a == name("architecture")).unwrap();
        let scaling = [("linear", 4.0), ("yarn", 4.0)].into_iter().find(|(kind, _)| *kind == name("scaling"));
        let tiny = Tiny { architecture, scaling, format: Format::F32, ..Tiny::default() };
        let mut model = load(&tiny, options(Kernels::best().unwrap()));
        let logits = read(&mut model, &tokens(600), &[200]);
        let expected: Vec<f32> =
            golden["logits"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap() as f32).collect();
        let error = normalised_error(&logits[599 * VOCAB..], &expected);
        // Both engines keep keys and values in half precision and sum in another order: 3e-5 was seen.
        assert!(error < 1e-4, "{architecture} {}: {error:e}", name("scaling"));
    }
}

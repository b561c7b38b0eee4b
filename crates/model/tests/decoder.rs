//! The decoder on tiny models of every architecture: fast kernels against the reference, and the promise of the
//! backend seam that a row's logits never depend on how the work was cut.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests too: a panic is how they fail.

use kernels::cases::normalised_error;
use kernels::{Format, Kernels, KvType, Precision};
use model::gguf::{Array, Value};
use model::{BLOCK, Backend, Chunk, ConfigOptions, CpuModel, CpuOptions, StateSave, StateUse, Want};
use std::path::PathBuf;
use testkit::gguf::GgufWriter;
use testkit::models::{COMPARED_FORMATS, CONTEXT, Tiny, VOCAB, hybrids, mistral3};

const ARCHITECTURES: [&str; 8] =
    ["llama", "mistral3", "qwen2", "qwen3", "qwen3moe", "qwen35", "qwen35moe", "qwen3next"];

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

/// The use of a state slot by a chunk without drafts, where the model has recurrent state.
fn slot(model: &CpuModel, slot: u32) -> Option<StateUse<'static>> {
    model.info().states.map(|_| StateUse { slot, drafted: 0, saves: &[] })
}

/// Logits of all rows of a prompt, read in pieces of the given sizes.
fn read(model: &mut CpuModel, tokens: &[u32], pieces: &[usize]) -> Vec<f32> {
    let state = slot(model, 0);
    let blocks: Vec<u32> = (0..tokens.len().div_ceil(BLOCK) as u32).rev().collect();
    let (mut all, mut logits, mut start) = (Vec::new(), Vec::new(), 0);
    for piece in pieces.iter().cycle() {
        let end = (start + piece).min(tokens.len());
        let chunk = Chunk { tokens: &tokens[start..end], start, blocks: &blocks, want: Want::All, state };
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
    for architecture in ["qwen3moe", "qwen35moe", "qwen3next"] {
        let tiny = Tiny { architecture, format: Format::Q5_0, ..Tiny::default() };
        let mut model = load(&tiny, options(Kernels::best().unwrap()));
        let prompts = [tokens(70), tokens(5), tokens(33).into_iter().rev().collect()];
        let alone: Vec<Vec<f32>> = prompts.iter().map(|prompt| read(&mut model, prompt, &[prompt.len()])).collect();
        let tables: [Vec<u32>; 3] = [vec![7, 3, 9], vec![1], vec![4, 0]];
        let states = [3, 1, 2].map(|number| slot(&model, number));
        let chunk =
            |i: usize| Chunk { tokens: &prompts[i], start: 0, blocks: &tables[i], want: Want::Last, state: states[i] };
        let mut logits = Vec::new();
        model.forward(&[chunk(0), chunk(1), chunk(2)], &mut logits).unwrap();
        for (together, alone) in logits.chunks_exact(VOCAB).zip(&alone) {
            assert!(together == &alone[alone.len() - VOCAB..], "{architecture}");
        }
    }
}

#[test]
fn blocks_can_be_copied_saved_and_restored() {
    let tiny = Tiny { format: Format::Q8_0, ..Tiny::default() };
    let mut model = load(&tiny, options(Kernels::best().unwrap()));
    let tokens = tokens(20);
    let mut logits = Vec::new();
    let mut step = |model: &mut CpuModel, tokens: &[u32], start, block: u32| {
        let chunk = Chunk { tokens, start, blocks: &[block], want: Want::Last, state: None };
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

const RECURRENT: [&str; 3] = ["qwen35", "qwen35moe", "qwen3next"];

#[test]
fn drafts_rejected_at_every_position_change_no_bit() {
    for (architecture, kernels) in
        RECURRENT.into_iter().flat_map(|a| Kernels::available().into_iter().map(move |k| (a, k)))
    {
        let tiny = Tiny { architecture, format: Format::Q8_0, ..Tiny::default() };
        let mut model = load(&tiny, options(kernels));
        let tokens = tokens(60);
        let plain = read(&mut model, &tokens, &[1]);
        let blocks = [0, 1];
        let mut logits = Vec::new();
        let (mut at, mut turn) = (0, 0);
        while at < tokens.len() {
            // Drafts of every length; each is right up to every position in turn.
            let drafted = (turn % 7).min(tokens.len() - at - 1);
            let right = if drafted == 0 { 0 } else { turn / 7 % (drafted + 1) };
            let mut chunk_tokens = tokens[at..=at + drafted].to_vec();
            chunk_tokens[1 + right..].iter_mut().for_each(|token| *token = (*token + 1) % VOCAB as u32);
            let state = Some(StateUse { slot: 5, drafted, saves: &[] });
            let chunk = Chunk { tokens: &chunk_tokens, start: at, blocks: &blocks, want: Want::All, state };
            model.forward(&[chunk], &mut logits).unwrap();
            let (got, want) = (&logits[..(right + 1) * VOCAB], &plain[at * VOCAB..(at + right + 1) * VOCAB]);
            assert!(got == want, "{architecture} on {}: {right} of {drafted} at {at}", kernels.name);
            (at, turn) = (at + right + 1, turn + 1);
        }
    }
}

#[test]
fn states_can_be_saved_inside_a_step_copied_and_restored() {
    for architecture in RECURRENT {
        let tiny = Tiny { architecture, format: Format::Q4_K, ..Tiny::default() };
        let mut model = load(&tiny, options(Kernels::best().unwrap()));
        let tokens = tokens(90);
        let plain = read(&mut model, &tokens, &[90]);
        let (blocks, mut logits, mut bytes) = ([2, 1, 0], Vec::new(), Vec::new());
        let mut step = |model: &mut CpuModel, range: std::ops::Range<usize>, state: StateUse<'_>| {
            let (start, want) = (range.start, Want::All);
            let chunk = Chunk { tokens: &tokens[range], start, blocks: &blocks, want, state: Some(state) };
            model.forward(&[chunk], &mut logits).unwrap();
            logits.clone()
        };
        let of = |slot| StateUse { slot, drafted: 0, saves: &[] };
        let saves = [(1, 5), (2, 6), (3, 7), (32, 8), (50, 9)].map(|(after, slot)| StateSave { after, slot });
        step(&mut model, 0..60, StateUse { saves: &saves, drafted: 10, ..of(1) });
        for StateSave { after, slot } in saves {
            // In another order than they were computed: a save depends on nothing that came after it.
            model.copy_state(slot, 2, after).unwrap();
            assert!(step(&mut model, after..90, of(2)) == plain[after * VOCAB..], "{architecture} from {after}");
        }
        // The ten drafted rows are in the log of slot 1 still.
        assert!(model.export_state(1, 57, &mut bytes).is_err(), "a draft is no state");
        for position in [60, 57, 50] {
            model.copy_state(1, 3, position).unwrap();
            model.export_state(3, position, &mut bytes).unwrap();
            assert_eq!(bytes.len(), model.info().states.unwrap().bytes);
            model.import_state(4, position, &bytes).unwrap();
            for slot in [3, 4] {
                assert!(step(&mut model, position..90, of(slot)) == plain[position * VOCAB..], "{architecture}");
            }
        }
        model.copy_state(1, 1, 53).unwrap();
        for (from, to, position) in [(1, 2, 52), (1, 2, 54), (1, 9999, 53), (9999, 1, 53)] {
            assert!(model.copy_state(from, to, position).is_err(), "{from} to {to} at {position}");
        }
        assert!(step(&mut model, 53..90, of(1)) == plain[53 * VOCAB..], "{architecture}");
        assert!(model.import_state(4, 53, &bytes[1..]).is_err());
    }
}

#[test]
fn bad_files_of_hybrids_are_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bad.gguf");
    let writer = |architecture| Tiny { architecture, ..Tiny::default() }.writer();
    let refused = |writer: GgufWriter| {
        writer.write(&path).unwrap();
        let error = CpuModel::load(&path, options(Kernels::reference())).err();
        error.expect("a bad file does not load").to_string()
    };
    let count = |n: u32| Value::U32(n);
    for (key, value, reason) in [
        ("block_count", count(1 << 20), "range"),
        ("block_count", count(0), "range"),
        ("nextn_predict_layers", count(1000), "range"),
        ("full_attention_interval", count(0), "range"),
        ("attention.recurrent_layers", Value::Array(Array::Bool(vec![true; 3])), "flag for each layer"),
        ("attention.recurrent_layers", Value::Array(Array::F32(vec![1.0; 4])), "flag for each layer"),
        ("ssm.state_size", count(u32::MAX), "range"),
        ("ssm.state_size", count(24), "16 to 256"),
        ("ssm.group_count", count(0), "range"),
        ("ssm.group_count", count(3), "must divide"),
        ("ssm.time_step_rank", count(1 << 30), "range"),
        ("ssm.inner_size", count(128), "heads of"),
        ("ssm.conv_kernel", count(1), "2 to 8"),
        ("ssm.conv_kernel", count(9), "range"),
        ("rope.dimension_count", count(128), "range"),
        ("expert_count", count(1 << 20), "range"),
        ("expert_used_count", count(5), "range"),
        ("expert_shared_feed_forward_length", count(64), "as wide"),
    ] {
        let error = refused(writer("qwen35moe").set(&format!("qwen35moe.{key}"), value));
        assert!(error.contains(key) && error.contains(reason), "{key}: {error}");
    }
    let error = refused(writer("qwen35").set("qwen35.nextn_predict_layers", count(4)));
    assert!(error.contains("besides the blocks that draft"), "{error}");
    // Counts that are possible and not those of the tensors.
    for (key, value) in [("ssm.conv_kernel", 3), ("ssm.group_count", 8), ("attention.head_count", 8)] {
        let error = refused(writer("qwen35").set(&format!("qwen35.{key}"), count(value)));
        assert!(error.contains("has shape"), "{key}: {error}");
    }
    for name in ["attn_qkv.weight", "attn_gate.weight", "ssm_conv1d.weight", "ssm_alpha.weight", "ssm_beta.weight"]
        .into_iter()
        .chain(["ssm_dt.bias", "ssm_a", "ssm_norm.weight", "ssm_out.weight", "post_attention_norm.weight"])
    {
        let tensor = format!("blk.0.{name}");
        let error = refused(writer("qwen35").without_tensor(&tensor));
        assert!(error.contains(&format!("`{tensor}` is missing")), "{error}");
        let error = refused(writer("qwen35").reshaped(&tensor, &[4, 4]));
        assert!(error.contains(&tensor) && error.contains("has shape"), "{error}");
    }
    for name in ["ffn_down_exps.weight", "ffn_gate_shexp.weight", "ffn_down_shexp.weight"] {
        let error = refused(writer("qwen35moe").without_tensor(&format!("blk.0.{name}")));
        assert!(error.contains("is missing"), "{error}");
    }
    assert!(refused(writer("qwen3next").without_tensor("blk.1.ssm_ba.weight")).contains("is missing"));
    // Dimensions that no file of this size holds are refused by the header alone.
    let error = refused(writer("qwen35").reshaped("blk.0.attn_qkv.weight", &[256, 1 << 40]));
    assert!(error.contains("attn_qkv"), "{error}");
}

#[test]
fn blocks_that_draft_are_left_out() {
    let plain = Tiny { architecture: "qwen35moe", ..Tiny::default() };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("drafting.gguf");
    let writer = plain.writer().set("qwen35moe.block_count", Value::U32(5));
    writer.set("qwen35moe.nextn_predict_layers", Value::U32(1)).write(&path).unwrap();
    let mut drafting = CpuModel::load(&path, options(Kernels::best().unwrap())).unwrap();
    assert_eq!((drafting.config().layers, drafting.config().draft_blocks), (4, 1));
    let mut plain = load(&plain, options(Kernels::best().unwrap()));
    assert!(read(&mut drafting, &tokens(20), &[20]) == read(&mut plain, &tokens(20), &[20]));
}

#[test]
fn bad_uses_of_state_are_refused() {
    let mut plain = load(&Tiny::default(), options(Kernels::best().unwrap()));
    let tiny = Tiny { architecture: "qwen35", ..Tiny::default() };
    let mut model = load(&tiny, options(Kernels::best().unwrap()));
    let slots = model.info().states.unwrap().slots as u32;
    let of = |slot| Some(StateUse { slot, drafted: 0, saves: &[] });
    let chunk = |start, block: &'static [u32], state| Chunk {
        tokens: &[1, 2, 3],
        start,
        blocks: block,
        want: Want::Last,
        state,
    };
    let mut logits = Vec::new();
    assert!(plain.forward(&[chunk(0, &[0], of(0))], &mut logits).is_err(), "a slot without state");
    assert!(plain.copy_state(0, 1, 0).is_err());
    model.forward(&[chunk(0, &[0], of(0))], &mut logits).unwrap();
    let save = |after, slot| Box::leak(Box::new([StateSave { after, slot }]));
    for (state, start, what) in [
        (None, 0, "no slot"),
        (of(slots), 0, "no such slot"),
        (of(0), 2, "before what the slot holds"),
        (of(0), 4, "after it"),
        (of(1), 3, "another slot"),
        (Some(StateUse { slot: 0, drafted: 3, saves: &[] }), 3, "all drafted"),
        (Some(StateUse { slot: 0, drafted: 0, saves: save(4, 1) }), 3, "a save after the end"),
        (Some(StateUse { slot: 0, drafted: 2, saves: save(2, 1) }), 3, "a save of a drafted row"),
        (Some(StateUse { slot: 0, drafted: 0, saves: save(1, 0) }), 3, "a save onto itself"),
    ] {
        assert!(model.forward(&[chunk(start, &[0], state)], &mut logits).is_err(), "{what}");
    }
    let twice = [chunk(0, &[1], of(2)), chunk(0, &[2], of(2))];
    assert!(model.forward(&twice, &mut logits).is_err(), "a slot twice");
    model.forward(&[chunk(3, &[0], of(0))], &mut logits).unwrap();
}

#[test]
fn bad_batches_are_refused() {
    let mut model = load(&Tiny::default(), options(Kernels::best().unwrap()));
    let many = vec![1; 300];
    let blocks: Vec<u32> = (0..20).collect();
    let chunk = |tokens, start, blocks| Chunk { tokens, start, blocks, want: Want::Last, state: None };
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

/// Largest difference of two rows of logits, as a share of the largest of them.
fn share_of_largest(got: &[f32], expected: &[f32]) -> f32 {
    let largest = expected.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    got.iter().zip(expected).fold(0.0f32, |most, (a, b)| most.max((a - b).abs())) / largest
}

#[test]
fn tiny_families_and_formats_equal_llama_cpp_and_transformers() {
    let formats = COMPARED_FORMATS.map(|format| (format.name(), Tiny { format, ..Tiny::default() }));
    let hybrids: Vec<_> = hybrids().into_iter().chain(formats).chain([("mistral3-yarn", mistral3())]).collect();
    let oracles = [include_str!("golden/hybrid-logits.jsonl"), include_str!("golden/hybrid-transformers.jsonl")];
    for line in oracles.into_iter().flat_map(str::lines) {
        let golden: serde_json::Value = serde_json::from_str(line).unwrap();
        let name = golden["model"].as_str().unwrap().trim_start_matches("llama-");
        let (_, tiny) = hybrids.iter().find(|(other, _)| *other == name).unwrap();
        let is_float = tiny.format.precision() == Precision::Float;
        // Both round activations to 8 bits in the same way, until a difference in a last bit rounds the other way.
        let bound = if is_float { 1e-3 } else { 0.03 };
        let mut model = load(tiny, options(Kernels::best().unwrap()));
        let picks: Vec<u64> = golden["picks"].as_array().unwrap().iter().map(|x| x.as_u64().unwrap()).collect();
        let logits = read(&mut model, &tokens(picks.len()), &[23]);
        for (row, expected) in golden["logits"].as_object().unwrap() {
            let expected: Vec<f32> = expected.as_array().unwrap().iter().map(|x| x.as_f64().unwrap() as f32).collect();
            let error = share_of_largest(&logits[row.parse::<usize>().unwrap() * VOCAB..][..VOCAB], &expected);
            println!("{name} row {row}: {error:e}");
            assert!(error < bound, "{name} row {row}: {error:e}");
        }
        for (row, (logits, &pick)) in logits.chunks_exact(VOCAB).zip(&picks).enumerate() {
            let best = (0..VOCAB).fold(0, |best, i| if logits[i] > logits[best] { i } else { best });
            assert!(best as u64 == pick || !is_float, "{name} at {row}: {best}, not {pick}");
        }
    }
}

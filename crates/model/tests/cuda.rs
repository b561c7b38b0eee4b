//! The decoder on a card against the decoder on the CPU, and the promises of the backend seam, on tiny models of every
//! architecture and format. Without a card the emulated one takes its place, with the kernels as they are; what would take that one
//! too long it prints and leaves out.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests too: a panic is how they fail.

use ::cuda::selftest::Cases;
use kernels::cases::normalised_error;
use kernels::shortlist::{Ask, Shortlist};
use kernels::{Format, Kernels, KvType};
use model::{
    BLOCK, Backend, Chunk, ConfigOptions, CpuModel, CpuOptions, CudaModel, CudaOptions, StateSave, StateUse, Want,
};
use std::path::Path;
use std::process::Output;
use testkit::card;
use testkit::models::{Hybrid, Tiny, VOCAB};
use testkit::skip::{is_due, skipped};

/// Normalised error of all logits of a prompt. Rounding activations to 8 bits makes last-bit differences grow to about
/// 0.4 % for each of seven quantisations, on the CPU against itself as well; see `decoder.rs`. Long steps do not round
/// them, which is as far again.
const BOUND: f32 = 0.04;

const CASES: [(&str, Format); 10] = [
    ("qwen2", Format::Q4_K),
    ("qwen3", Format::Q4_K),
    ("llama", Format::Q6_K),
    ("llama", Format::Q4_1),
    ("llama", Format::Q4_0),
    ("llama", Format::Q5_0),
    ("llama", Format::Q5_1),
    ("llama", Format::Q8_0),
    ("llama", Format::Q4_K),
    ("llama", Format::Q5_K),
];

/// Error of a row that went through other experts: several times what rounding does to any row that did not.
const FAR: f32 = 0.1;

/// Matrices of floats: architecture, format, that of embeddings and output, and what short and long steps may be apart. The card keeps
/// 22 bits of what meets a half and 16 of what meets a brain float; long steps round to half precision.
const FLOATS: [(&str, Format, Option<Format>, [f32; 2]); 3] = [
    ("qwen2", Format::F16, None, [1e-4, 0.002]),
    ("llama", Format::BF16, None, [4e-4, 0.004]),
    ("qwen3", Format::Q4_K, Some(Format::F16), [BOUND, BOUND]),
];

/// What is asked of an older card besides: steps of one row, of few and of many, through experts.
const OLDER: &str = "experts_agree_with_the_cpu";

/// Wide enough for single rows to be one kernel, on a card with at most 192 multiprocessors.
const WIDE: usize = 768;

/// The other tests of this file on an emulated card, where there is no other.
#[test]
fn all_of_this_holds_on_an_emulated_card() {
    // An emulated card uses all cores by itself.
    let Some(output) = on_emulated_card(&["--test-threads", "1", "--nocapture"], [("EMULATED_CARD_RACES", "0")]) else {
        return;
    };
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{text}");
    assert!(output.status.success(), "on an emulated card: {text}\n{errors}");
    assert!(text.contains("qwen2 Q4_K in pieces of [1]"), "the emulated card was not found: {text}");
}

/// Threads of a block that touch the same shared memory are ordered, through a step of 32 rows, single tokens and attention that
/// many blocks share.
#[test]
fn an_emulated_card_finds_no_hazards() {
    let one = ["--exact", "blocks_can_be_copied_saved_and_restored"];
    let two = ["--exact", one[1], "keys_and_values_in_8_bits_agree_with_the_cpu"];
    let Some(output) = on_emulated_card(&two, [("EMULATED_CARD_RACES", "1")]) else { return };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // As if barriers ordered nothing: what is found then shows that it would be.
    let Some(output) = on_emulated_card(&one, [("EMULATED_CARD_RACES", "2")]) else { return };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && errors.contains("hazards in shared memory"), "{errors}");
}

/// Cards before compute capability 9.0 have no single kernel for a token and other products for prompts.
#[test]
fn an_emulated_card_of_8_0_agrees_with_the_cpu() {
    let tests = ["--test-threads", "1", "--nocapture", "--exact", "matrices_of_floats_agree_with_the_cpu", OLDER];
    let Some(output) = on_emulated_card(&tests, [("EMULATED_CARD_MAJOR", "8")]) else { return };
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains("in pieces of 600"), "{text}\n{errors}");
}

/// These tests in a process of their own that has an emulated card; nothing where there is a card already or can be none.
fn on_emulated_card(arguments: &[&str], settings: [(&str, &str); 1]) -> Option<Output> {
    if ::cuda::Device::count().is_ok() {
        skipped("there is a card, emulated or not");
        return None;
    }
    if !is_due("emulated-card") {
        return None;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("emulated-card");
    let mut child = card::emulated(&std::env::current_exe().unwrap(), &folder)?;
    Some(child.args(arguments).envs(settings).output().unwrap())
}

/// Whether the card is an emulated one, which takes a tenth of a second for a token of the smallest model.
fn is_emulated() -> bool {
    ::cuda::Device::open(0).is_ok_and(|device| device.facts().name == card::EMULATED)
}

/// All of them, or on an emulated card the first few.
fn decode<T: Clone>(all: &[T], decode: usize) -> Vec<T> {
    if is_emulated() {
        println!("skipped: {} of {} cases, which would take an emulated card too long", all.len() - decode, all.len());
    }
    all[..if is_emulated() { decode } else { all.len() }].to_vec()
}

/// Both models of a file, or nothing when there is no card.
fn load(tiny: &Tiny) -> Option<(CpuModel, CudaModel)> {
    load_with(tiny, KvType::F16, 1)
}

fn load_with(tiny: &Tiny, kv_type: KvType, placements: usize) -> Option<(CpuModel, CudaModel)> {
    if let Err(error) = ::cuda::Device::count().and_then(|_| ::cuda::nvrtc_version()) {
        skipped(&format!("there is no card: {error}"));
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    tiny.writer().write(&path).unwrap();
    let (config, kv_tokens) = (ConfigOptions::default(), 4096);
    let kernels = Kernels::best().unwrap();
    let cpu = CpuOptions { threads: 2, kv_tokens, kv_type, config, kernels };
    let cuda = CudaOptions { card: 0, kv_tokens, kv_type, config, threads: 2, times: false, placements };
    Some((CpuModel::load(&path, cpu).unwrap(), CudaModel::load(&path, cuda).unwrap()))
}

fn tokens(count: usize) -> Vec<u32> {
    (0..count as u32).map(|i| (i * 37 + 11) % VOCAB as u32).collect()
}

/// Logits of all rows of a prompt, read in pieces of the given sizes.
fn read(model: &mut dyn Backend, tokens: &[u32], pieces: &[usize]) -> Vec<f32> {
    read_from(model, tokens, 0, pieces)
}

/// The same of the rows from `start` on, after all before were read.
fn read_from(model: &mut dyn Backend, tokens: &[u32], mut start: usize, pieces: &[usize]) -> Vec<f32> {
    let blocks: Vec<u32> = (0..tokens.len().div_ceil(BLOCK) as u32).rev().collect();
    let (mut all, mut logits) = (Vec::new(), Vec::new());
    for piece in pieces.iter().cycle() {
        let end = (start + piece).min(tokens.len());
        let state = model.info().states.map(|_| StateUse { slot: 0, drafted: 0, saves: &[] });
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
fn every_architecture_and_format_agrees_with_the_cpu() {
    let prompt = tokens(100);
    for (architecture, format) in decode(&CASES, 4) {
        let Some((mut cpu, mut card)) = load(&Tiny { architecture, format, feed_forward: WIDE, ..Tiny::default() })
        else {
            return;
        };
        let expected = read(&mut cpu, &prompt, &[100]);
        for pieces in [&[1][..], &[5], &[32], &[100], &[64, 1]] {
            let error = normalised_error(&read(&mut card, &prompt, pieces), &expected);
            println!("{architecture} {} in pieces of {pieces:?}: {error:.4}", format.name());
            assert!(error < BOUND, "{architecture} {} in pieces of {pieces:?}: {error}", format.name());
        }
    }
}

#[test]
fn matrices_of_floats_agree_with_the_cpu() {
    let prompt = tokens(70);
    for (architecture, format, tables, [short, long]) in FLOATS {
        let Some((mut cpu, mut card)) = load(&Tiny { architecture, format, tables, ..Tiny::default() }) else { return };
        let expected = read(&mut cpu, &prompt, &[70]);
        let single = read(&mut card, &prompt, &[1]);
        for (pieces, bound) in [(1, short), (9, short), (32, short), (70, long)] {
            let got = if pieces == 1 { single.clone() } else { read(&mut card, &prompt, &[pieces]) };
            let error = normalised_error(&got, &expected);
            println!("{architecture} {} in pieces of {pieces}: {error:.6}", format.name());
            assert!(error < bound, "{architecture} {} in pieces of {pieces}: {error}", format.name());
            assert!(got == single || pieces == 70, "pieces of {pieces} changed a bit");
        }
    }
}

#[test]
fn keys_and_values_in_8_bits_agree_with_the_cpu() {
    let tiny = Tiny { architecture: "qwen3", format: Format::Q4_K, feed_forward: WIDE, ..Tiny::default() };
    let Some((mut cpu, mut card)) = load_with(&tiny, KvType::Q8, 1) else { return };
    // More than a block has at once on an emulated card, so that the row's own key and value are in a later pass too.
    let (prompt, from) = (tokens(600), 570);
    let expected = read(&mut cpu, &prompt, &[200]);
    let long = read(&mut card, &prompt, &[200]);
    let single = read_from(&mut card, &prompt, from, &[1]);
    for (what, got, from) in [("at once", &long, 0), ("one by one", &single, from)] {
        let error = normalised_error(got, &expected[from * VOCAB..]);
        println!("keys and values in 8 bits, {what}: {error:.4}");
        assert!(error < BOUND, "{what}: {error}");
    }
    for pieces in [2, 9, 30] {
        assert!(read_from(&mut card, &prompt, from, &[pieces]) == single, "pieces of {pieces} changed a bit");
    }
    let [kept, halves] = [card.info().block_bytes, 2 * 2 * 2 * BLOCK * 64 * 2];
    assert_eq!(kept, halves / 2 + halves / 32, "a scale for 64 elements");
}

#[test]
fn scaled_positions_agree_with_the_cpu() {
    for scaling in [("linear", 4.0), ("yarn", 4.0)] {
        let tiny = Tiny { format: Format::Q8_0, scaling: Some(scaling), ..Tiny::default() };
        let Some((mut cpu, mut card)) = load(&tiny) else { return };
        let prompt = tokens(600);
        let expected = read(&mut cpu, &prompt, &[200]);
        let error = normalised_error(&read(&mut card, &prompt, &[200]), &expected);
        assert!(error < BOUND, "{scaling:?}: {error}");
    }
}

#[test]
fn experts_agree_with_the_cpu() {
    let prompt = tokens(600);
    for format in decode(&[Format::Q4_K, Format::Q6_K, Format::Q5_0], 1) {
        let tiny = Tiny { architecture: "qwen3moe", format, ..Tiny::default() };
        let Some((mut cpu, mut card)) = load(&tiny) else { return };
        let expected = read(&mut cpu, &prompt, &[200]);
        for pieces in [1, 5, 32, 100, 600] {
            // One row after the other takes an emulated card too long.
            let rows = if pieces < 100 { 100 } else { prompt.len() };
            let got = read(&mut card, &prompt[..rows], &[pieces]);
            let (error, others) = error_but_for_others(&got, &expected[..rows * VOCAB]);
            println!("experts {} in pieces of {pieces}: {error:.4}, {others} rows went elsewhere", format.name());
            assert!(error < BOUND, "{} in pieces of {pieces}: {error}", format.name());
            // Steps of few rows round as the CPU does, so even a choice between nearly equal scores is the same.
            let allowed = if pieces < 100 { 0 } else { rows / 40 };
            assert!(others <= allowed, "{others} of {rows} rows went elsewhere in pieces of {pieces}");
        }
    }
}

/// A tiny model with recurrent states that a card can take.
fn hybrid(architecture: &'static str) -> Tiny {
    let hybrid = Hybrid { key_heads: 2, value_heads: 4, state: 128, ..Hybrid::default() };
    let feed_forward = if architecture == "qwen35" { WIDE } else { 512 };
    Tiny { architecture, format: Format::Q4_K, feed_forward, hybrid, ..Tiny::default() }
}

#[test]
fn layers_with_states_agree_with_the_cpu() {
    let prompt = tokens(100);
    for architecture in ["qwen35", "qwen35moe", "qwen3next"] {
        let Some((mut cpu, mut card)) = load(&hybrid(architecture)) else { return };
        let expected = read(&mut cpu, &prompt, &[100]);
        let single = read(&mut card, &prompt[..40], &[1]);
        for pieces in [&[1][..], &[5, 1], &[32], &[100]] {
            let rows = if pieces == [1] { 40 } else { prompt.len() };
            let got = if pieces == [1] { single.clone() } else { read(&mut card, &prompt, pieces) };
            let (error, others) = error_but_for_others(&got, &expected[..rows * VOCAB]);
            println!("{architecture} in pieces of {pieces:?}: {error:.4}, {others} rows went elsewhere");
            assert!(error < BOUND, "{architecture} in pieces of {pieces:?}: {error}");
            assert!(others <= rows / 20, "{others} of {rows} rows went elsewhere in pieces of {pieces:?}");
            assert!(pieces == [100] || got[..single.len()] == single, "pieces of {pieces:?} changed a bit");
        }
    }
}

#[test]
fn states_can_be_copied_saved_and_restored() {
    let Some((_, mut card)) = load(&hybrid("qwen35moe")) else { return };
    let prompt = tokens(60);
    let expected = read(&mut card, &prompt, &[20]);
    let blocks: Vec<u32> = (0..2).rev().collect();
    let step = |card: &mut CudaModel, range: std::ops::Range<usize>, state: StateUse<'_>| {
        let (mut logits, start) = (Vec::new(), range.start);
        let (tokens, state) = (&prompt[range.clone()], Some(state));
        card.forward(&[Chunk { tokens, start, blocks: &blocks, want: Want::All, state }], &mut logits).unwrap();
        assert!(logits == expected[range.start * VOCAB..range.end * VOCAB], "rows {range:?}");
    };
    let of = |slot, drafted| StateUse { slot, drafted, saves: &[] };
    // Saved after the seventh and the last certain row, with drafted rows behind that.
    let saves = [StateSave { after: 7, slot: 2 }, StateSave { after: 12, slot: 3 }];
    step(&mut card, 0..16, StateUse { slot: 1, drafted: 4, saves: &saves });
    // Three of four drafted rows are kept; then the state before them goes on.
    step(&mut card, 15..21, of(1, 0));
    step(&mut card, 12..17, of(3, 2));
    step(&mut card, 7..8, StateUse { slot: 2, drafted: 0, saves: &[StateSave { after: 1, slot: 4 }] });
    step(&mut card, 8..11, of(4, 0));
    // What was logged is applied by a copy; a copy is exported, and restored elsewhere.
    card.copy_state(3, 5, 16).unwrap();
    let mut bytes = Vec::new();
    assert!(card.export_state(3, 15, &mut bytes).is_err(), "drafted rows are not saved");
    card.export_state(5, 16, &mut bytes).unwrap();
    card.import_state(6, 16, &bytes).unwrap();
    step(&mut card, 16..40, of(6, 0));
    step(&mut card, 16..17, of(5, 0));
    step(&mut card, 17..18, of(3, 0));
    let wrong = Chunk { tokens: &prompt[..1], start: 9, blocks: &blocks, want: Want::All, state: Some(of(6, 0)) };
    assert!(card.forward(&[wrong], &mut Vec::new()).is_err(), "a slot that holds another position");
}

/// The error over all rows but those that are far off, and how many these are: where two experts' scores are nearly equal, rounding
/// decides which one a row visits, and that row says something else.
fn error_but_for_others(got: &[f32], expected: &[f32]) -> (f32, usize) {
    let rows = got.chunks_exact(VOCAB).zip(expected.chunks_exact(VOCAB));
    let (others, same): (Vec<_>, Vec<_>) = rows.partition(|(got, expected)| normalised_error(got, expected) > FAR);
    let (got, expected): (Vec<&[f32]>, Vec<&[f32]>) = same.into_iter().unzip();
    (normalised_error(&got.concat(), &expected.concat()), others.len())
}

#[test]
fn cutting_steps_through_experts_changes_no_bit() {
    let Some((_, mut card)) = load(&Tiny { architecture: "qwen3moe", format: Format::Q4_K, ..Tiny::default() }) else {
        return;
    };
    let prompt = tokens(70);
    let single = read(&mut card, &prompt, &[1]);
    for pieces in [&[2][..], &[8], &[9], &[31, 1], &[32]] {
        assert!(read(&mut card, &prompt, pieces) == single, "pieces of {pieces:?} changed a bit");
    }
    longer_steps(&mut card);
}

#[test]
fn cutting_steps_changes_no_bit_as_long_as_they_are_computed_the_same_way() {
    for feed_forward in decode(&[WIDE, 512], 1) {
        cutting_changes_no_bit(feed_forward);
    }
}

fn cutting_changes_no_bit(feed_forward: usize) {
    let tiny = Tiny { architecture: "qwen2", format: Format::Q4_K, feed_forward, ..Tiny::default() };
    let Some((_, mut card)) = load(&tiny) else { return };
    let prompt = tokens(100);
    let single = read(&mut card, &prompt, &[1]);
    // Up to 65 rows may be a draft and are computed like single ones.
    for pieces in [&[2][..], &[3], &[8], &[9], &[31, 1], &[32], &[33], &[65]] {
        assert!(read(&mut card, &prompt, pieces) == single, "pieces of {pieces:?} changed a bit");
    }
    longer_steps(&mut card);
}

/// The same within medium steps, and within the longest.
fn longer_steps(card: &mut CudaModel) {
    for (rows, pieces) in [(300, &[66, 100, 150][..]), (1040, &[520])] {
        let prompt = tokens(rows);
        let whole = read(card, &prompt, &[rows]);
        for &piece in pieces {
            let (last, got) = (rows % piece, read(card, &prompt, &[piece]));
            // A short rest is computed another way.
            let same = (rows - if last <= 65 { last } else { 0 }) * VOCAB;
            assert!(got[..same] == whole[..same], "pieces of {piece} of {rows} changed a bit");
        }
    }
}

#[test]
fn real_shapes_give_equal_bits_for_any_number_of_rows() {
    if let Err(error) = ::cuda::Device::count().and_then(|_| ::cuda::nvrtc_version()) {
        return skipped(&format!("there is no card: {error}"));
    }
    let cases = if is_emulated() { Cases::Small } else { Cases::All };
    if is_emulated() {
        println!("skipped: all but small shapes, which would take an emulated card too long");
    }
    for outcome in model::cuda::selftest(0, cases).unwrap() {
        assert!(outcome.passed(), "{}: {} rows differ", outcome.name, outcome.error);
    }
}

#[test]
fn sequences_together_give_what_they_give_alone() {
    let Some((_, mut card)) = load(&Tiny { architecture: "qwen2", format: Format::Q4_K, ..Tiny::default() }) else {
        return;
    };
    let prompt = tokens(70);
    let (first, second): (Vec<u32>, Vec<u32>) = (vec![9, 4, 7], vec![2, 11, 5]);
    let mut logits = Vec::new();
    let mut alone = Vec::new();
    for (blocks, length) in [(&first, 40), (&second, 61)] {
        let chunk = Chunk { tokens: &prompt[..length], start: 0, blocks, want: Want::Nothing, state: None };
        card.forward(&[chunk], &mut logits).unwrap();
        let chunk = Chunk { tokens: &prompt[length..length + 1], start: length, blocks, want: Want::Last, state: None };
        card.forward(&[chunk], &mut logits).unwrap();
        alone.extend_from_slice(&logits);
    }
    let batch = [
        Chunk { tokens: &prompt[40..41], start: 40, blocks: &first, want: Want::Last, state: None },
        Chunk { tokens: &prompt[61..62], start: 61, blocks: &second, want: Want::Last, state: None },
    ];
    card.forward(&batch, &mut logits).unwrap();
    assert!(logits == alone, "a row depends on its neighbour");
    // Beside a prompt that is read at once, and beside so many others that one step does not hold them.
    let long = tokens(100);
    let table: Vec<u32> = (40..44).collect();
    let reading = Chunk { tokens: &long, start: 0, blocks: &table, want: Want::Last, state: None };
    card.forward(&[batch[0], reading, batch[1]], &mut logits).unwrap();
    assert!(logits[..VOCAB] == alone[..VOCAB] && logits[2 * VOCAB..] == alone[VOCAB..], "a row depends on a prompt");
    let others: Vec<[u32; 1]> = (50..90).map(|block| [block]).collect();
    let crowd =
        others.iter().map(|blocks| Chunk { tokens: &prompt[..1], start: 0, blocks, want: Want::Last, state: None });
    let crowd: Vec<Chunk<'_>> = batch.into_iter().chain(crowd).collect();
    let mut picks = Vec::new();
    assert!(card.pick(&crowd, &mut picks).unwrap() && picks.len() == 42);
    card.forward(&crowd, &mut logits).unwrap();
    assert!(logits[..2 * VOCAB] == alone[..], "a row depends on a crowd");
    let best = |row: &[f32]| row.iter().position(|x| row.iter().all(|y| y <= x)).unwrap() as u32;
    assert_eq!(picks, logits.chunks_exact(VOCAB).map(best).collect::<Vec<_>>());
}

#[test]
fn picks_ahead_are_the_best_of_the_logits() {
    let tiny = Tiny { architecture: "qwen2", format: Format::Q4_K, feed_forward: WIDE, ..Tiny::default() };
    // In the best of three placements.
    let Some((_, mut card)) = load_with(&tiny, KvType::F16, 3) else { return };
    let blocks: Vec<u32> = (0..8).rev().collect();
    let best = |row: &[f32]| {
        let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        row.iter().position(|&x| x == largest).unwrap() as u32
    };
    let mut sequence = vec![5];
    let mut logits = Vec::new();
    for start in 0..100 {
        // The table grows as an engine's does: a block when it is needed.
        let blocks = &blocks[..start / BLOCK + 1];
        let chunk = Chunk { tokens: &sequence[start..], start, blocks, want: Want::Last, state: None };
        card.forward(&[chunk], &mut logits).unwrap();
        sequence.push(best(&logits));
    }
    let mut picked = vec![5];
    let mut picks = Vec::new();
    for start in 0..100 {
        let blocks = &blocks[..start / BLOCK + 1];
        let chunk = Chunk { tokens: &picked[start..], start, blocks, want: Want::Last, state: None };
        assert!(card.pick(&[chunk], &mut picks).unwrap());
        picked.push(picks[0]);
        if start % 13 == 5 {
            // Another sequence in between: what was computed ahead is not this.
            let other = Chunk { tokens: &[7, 8], start: 0, blocks: &[20], want: Want::All, state: None };
            assert!(card.pick(&[other], &mut picks).unwrap());
            assert_eq!(picks.len(), 2);
        }
    }
    assert_eq!(picked, sequence);
}

/// The end of a prompt, read in a short and in a long step, alone and beside a token of another sequence.
#[test]
fn picks_after_a_prompt_are_the_best_of_the_logits() {
    let Some((_, mut card)) = load(&Tiny { architecture: "qwen2", format: Format::Q4_K, ..Tiny::default() }) else {
        return;
    };
    let prompt = tokens(60);
    let best = |row: &[f32]| {
        let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        row.iter().position(|&x| x == largest).unwrap() as u32
    };
    let of = |tokens, want| Chunk { tokens, start: 0, blocks: &[1, 2], want, state: None };
    let other = Chunk { tokens: &[7], start: 0, blocks: &[3], want: Want::Last, state: None };
    let (short, long) = (of(&prompt[..21], Want::Last), of(&prompt, Want::Last));
    let (mut logits, mut picks) = (Vec::new(), Vec::new());
    for batch in [&[short][..], &[long], &[other, short], &[short, other]] {
        card.forward(batch, &mut logits).unwrap();
        assert!(card.pick(batch, &mut picks).unwrap());
        assert_eq!(picks, logits.chunks_exact(VOCAB).map(best).collect::<Vec<_>>());
    }
    assert!(!card.pick(&[of(&prompt, Want::Nothing)], &mut picks).unwrap(), "there is nothing to pick");
}

#[test]
fn shortlists_are_those_of_the_logits() {
    let Some((_, mut card)) = load(&Tiny { architecture: "qwen2", format: Format::Q4_K, ..Tiny::default() }) else {
        return;
    };
    let prompt = tokens(40);
    let ask = Ask { temperature: 0.7, floor: 0.0 };
    // Token 3 and every one after it is allowed, in the last row only.
    let mut mask = |row: usize, words: &mut [u32]| {
        words.fill(u32::MAX);
        words[0] = u32::MAX << 3;
        row == 2
    };
    let (mut logits, mut lists) = (Vec::new(), Vec::new());
    for (tokens, start) in [(&prompt[..1], 0), (&prompt[..3], 0), (&prompt[3..6], 3)] {
        let chunk = Chunk { tokens, start, blocks: &[1, 2], want: Want::All, state: None };
        card.forward(&[chunk], &mut logits).unwrap();
        assert!(card.shortlist(&[chunk], &vec![ask; tokens.len()], &mut mask, &mut lists).unwrap());
        for (row, (logits, list)) in logits.chunks_exact(VOCAB).zip(&lists).enumerate() {
            let mut words = vec![0; VOCAB.div_ceil(32)];
            let masked = mask(row, &mut words);
            let mut expected = Shortlist::default();
            expected.fill(logits, masked.then_some(&words), ask);
            assert_eq!(*list, expected);
            let part = card.part_of_row(row, 0..20).unwrap();
            let first = if masked { 3 } else { 0 };
            assert!(part[first..] == logits[first..20] && part[..first].iter().all(|x| *x == f32::NEG_INFINITY));
        }
    }
    let all = Chunk { tokens: &prompt, start: 0, blocks: &[1, 2], want: Want::Last, state: None };
    assert!(!card.shortlist(&[all], &[ask], &mut mask, &mut lists).unwrap(), "a prompt gives logits");
}

#[test]
fn blocks_can_be_copied_saved_and_restored() {
    let Some((_, mut card)) = load(&Tiny { format: Format::Q8_0, ..Tiny::default() }) else { return };
    let prompt = tokens(33);
    let mut logits = Vec::new();
    let mut last = |card: &mut CudaModel, block: u32| {
        let chunk = Chunk { tokens: &prompt[32..], start: 32, blocks: &[block, 6], want: Want::Last, state: None };
        card.forward(&[chunk], &mut logits).unwrap();
        logits.clone()
    };
    let whole = Chunk { tokens: &prompt[..32], start: 0, blocks: &[3], want: Want::Nothing, state: None };
    card.forward(&[whole], &mut Vec::new()).unwrap();
    let expected = last(&mut card, 3);
    card.copy_block(3, 4).unwrap();
    assert!(last(&mut card, 4) == expected, "a copied block is another");
    let mut bytes = Vec::new();
    card.export_block(3, &mut bytes).unwrap();
    assert_eq!(bytes.len(), card.info().block_bytes);
    card.import_block(5, &bytes).unwrap();
    assert!(last(&mut card, 5) == expected, "a restored block is another");
    assert!(card.import_block(5, &bytes[1..]).is_err() && card.copy_block(3, 9999).is_err());
}

#[test]
fn a_bad_batch_is_refused_and_the_next_one_runs() {
    let Some((_, mut card)) = load(&Tiny { format: Format::Q4_0, ..Tiny::default() }) else { return };
    let mut logits = Vec::new();
    for (tokens, start, blocks) in
        [(&[VOCAB as u32][..], 0, &[0][..]), (&[1], 32, &[0]), (&[1], 0, &[99_999]), (&[], 0, &[0])]
    {
        let chunk = Chunk { tokens, start, blocks, want: Want::Last, state: None };
        assert!(card.forward(&[chunk], &mut logits).is_err(), "{chunk:?}");
    }
    let chunk = Chunk { tokens: &[1], start: 0, blocks: &[0], want: Want::Last, state: None };
    card.forward(&[chunk], &mut logits).unwrap();
    assert_eq!(logits.len(), VOCAB);
}

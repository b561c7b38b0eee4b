//! Models with recurrent state: a sequence goes on only from a state that was kept, and nothing else changes.
//!
//! The toy's state is a checksum of all tokens before a position; every step compares it with the history in its blocks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use engine::{EngineHandle, EngineOptions, Miss, Request, SnapshotOptions};
use testkit::toy::{ToyBackend, ToyOptions};

use crate::exactness::{alone, check, requests};
use crate::support::*;

fn toy(slots: usize) -> ToyOptions {
    ToyOptions { states: Some((slots, 64)), ..ToyOptions::default() }
}

fn engine(slots: usize) -> EngineHandle {
    start(toy(slots), EngineOptions::default())
}

/// All slots are where they should be when nothing runs.
fn settled(stats: &engine::Stats) {
    let states = stats.states;
    assert_eq!(states.free + states.cached, states.slots, "{states:?}");
}

#[test]
fn together_equals_alone_with_any_number_of_slots() {
    for slots in [1, 2, 3, 8, 100] {
        let stats = check(toy(slots), EngineOptions::default(), |_, _| {});
        assert!(slots < 8 || stats.cached_tokens > 0, "{slots}: {stats:?}");
        settled(&stats);
    }
}

#[test]
fn small_steps_preemption_and_eviction_change_nothing() {
    let options = EngineOptions { step_rows_idle: 5, step_rows_busy: 3, running_max: 3, ..EngineOptions::default() };
    settled(&check(ToyOptions { rows_max: 11, ..toy(9) }, options, |_, _| {}));
    let options = EngineOptions { background_rows: 4, ..EngineOptions::default() };
    let stats = check(ToyOptions { blocks: 16, ..toy(12) }, options, |_, _| {});
    assert!(stats.preemptions > 0, "the test did not test anything");
    settled(&stats);
}

#[test]
fn drafted_equals_plain() {
    for (blocks, slots) in [(256, 40), (10, 5)] {
        let options = EngineOptions { background_rows: 4, ..EngineOptions::default() };
        let stats = check(ToyOptions { blocks, ..toy(slots) }, options, |request, want| {
            let prompt = request.prompt.len();
            request.drafter = Some(Box::new(Oracle { truth: want.to_vec(), prompt, dice: Dice(want.len() as u64) }));
        });
        let drafts = stats.drafts.total();
        assert!(drafts.accepted > 100 && drafts.tokens > drafts.accepted, "{stats:?}");
        settled(&stats);
    }
}

#[test]
fn ten_thousand_drafts_of_which_many_are_wrong_change_nothing() {
    let engine = engine(4);
    let mut drafts = 0;
    for seed in 0.. {
        let tokens = prompt(seed, 20);
        let truth = ToyBackend::greedy(&ToyOptions::default(), &tokens, 900);
        let drafter = Oracle { truth: truth.clone(), prompt: 20, dice: Dice(seed.into()) };
        let answer = ask(&engine, Request { drafter: Some(Box::new(drafter)), ..Request::new(tokens, 900) });
        assert_eq!(answer.ids(), truth);
        drafts += answer.finished().usage.drafts.total().tokens;
        if drafts > 10_000 {
            break;
        }
    }
}

#[test]
fn shortlists_pick_what_logits_pick() {
    let made = Arc::new(AtomicUsize::new(0));
    let engine = start(ToyOptions { shortlists: Some(made.clone()), ..toy(6) }, EngineOptions::default());
    for (request, want) in requests().into_iter().zip(&alone()) {
        assert_eq!(&ask(&engine, request).ids(), want);
    }
    assert!(made.load(Ordering::Relaxed) > 300);
}

#[test]
fn the_next_turn_reads_only_what_is_new() {
    let engine = engine(16);
    let first = ask(&engine, Request::new(prompt(1, 300), 20));
    assert_eq!(first.cached(), 0);
    let mut turn = prompt(1, 300);
    turn.extend(first.ids());
    turn.extend(prompt(9, 20));
    let computed = engine.stats().prompt_tokens;
    let second = ask(&engine, Request::new(turn.clone(), 5));
    // The answer's last token was picked and not fed: the state ends before it.
    assert_eq!((second.cached(), engine.stats().prompt_tokens - computed), (319, 21));
    assert_eq!(second.ids(), ToyBackend::greedy(&ToyOptions::default(), &turn, 5));
}

#[test]
fn a_template_that_forgets_thoughts_costs_the_answer_and_no_more() {
    let engine = engine(16);
    let asked = prompt(1, 810);
    let first = ask(&engine, Request::new(asked.clone(), 100));
    // The next prompt says the answer again without its first 40 tokens.
    let mut turn = asked.clone();
    turn.extend(&first.ids()[40..]);
    turn.extend(prompt(5, 30));
    let second = ask(&engine, Request::new(turn.clone(), 5));
    assert_eq!(second.cached(), 800, "the state at the end of the prompt, in whole blocks");
    assert!(matches!(second.started.as_ref().unwrap().miss, Some(Miss::NoState { position: 800, .. })));
    assert_eq!(second.ids(), ToyBackend::greedy(&ToyOptions::default(), &turn, 5));
}

#[test]
fn where_prompts_part_a_state_is_kept() {
    let engine = engine(16);
    let with = |seed| [prompt(1, 500), prompt(seed, 200)].concat();
    assert_eq!(ask(&engine, Request::new(with(2), 1)).cached(), 0);
    // Nobody knew that others would part there: the second pays for it, and no other.
    let second = ask(&engine, Request::new(with(3), 1));
    assert_eq!(second.cached(), 0);
    let miss = second.started.unwrap().miss.unwrap();
    assert!(matches!(miss, Miss::NoState { position: 0, cached: 500.. }), "{miss:?}");
    for seed in 4..8 {
        assert_eq!(ask(&engine, Request::new(with(seed), 1)).cached(), 480);
    }
}

#[test]
fn long_prompts_keep_states_on_the_way() {
    let engine = start(ToyOptions { context: 8192, ..toy(16) }, EngineOptions::default());
    let long = |seed: u32| [prompt(1, 5000), prompt(seed, 400)].concat();
    ask(&engine, Request::new(long(2), 1));
    assert_eq!(ask(&engine, Request::new(long(3), 1)).cached(), 4096);
    assert_eq!(ask(&engine, Request::new(long(4), 1)).cached(), 4992);
}

#[test]
fn candidates_read_their_prompt_once() {
    let engine = engine(16);
    let candidate = |seed| Request { sampling: sampled(1.0, seed), ..Request::new(prompt(4, 321), 10) };
    let streams: Vec<_> = (0..5).map(|seed| engine.submit(candidate(seed)).unwrap()).collect();
    let answers: Vec<_> = streams.into_iter().map(collect).collect();
    assert_eq!(answers.iter().map(|a| a.cached()).collect::<Vec<_>>(), [0, 320, 320, 320, 320]);
}

#[test]
fn of_many_states_those_that_save_most_stay() {
    let engine = engine(4);
    let long = prompt(1, 900);
    ask(&engine, Request::new(long.clone(), 1));
    for seed in 10..14 {
        ask(&engine, Request::new(prompt(seed, 70), 1));
    }
    assert_eq!(ask(&engine, Request::new(long, 1)).cached(), 896, "a state worth 896 tokens outlives those worth 64");
    settled(&engine.stats());
}

/// An engine that saves what it holds when it ends.
fn open(directory: &tempfile::TempDir, toy: ToyOptions) -> EngineHandle {
    let (directory, idle) = (directory.path().to_owned(), Duration::from_secs(3600));
    let snapshots = SnapshotOptions { directory, bytes_max: u64::MAX, idle, before_read: None };
    start(toy, EngineOptions { snapshots: Some(snapshots), ..EngineOptions::default() })
}

#[test]
fn a_restarted_engine_goes_on_from_the_last_state_on_disk() {
    let directory = tempfile::TempDir::new().unwrap();
    let first = open(&directory, toy(16));
    let answer = ask(&first, Request::new(prompt(1, 330), 30)).ids();
    first.shutdown();
    // Ten blocks of the prompt, one that the answer filled, and the state at the end of the prompt.
    assert_eq!(first.stats().snapshots.written, 11 + 1);
    let turn = [prompt(1, 330), answer, prompt(3, 40)].concat();
    for (slots, again) in [(16, false), (1, true), (16, true)] {
        let engine = open(&directory, toy(slots));
        let request = || Request::new(turn.clone(), 20);
        let started = ask(&engine, request()).started.unwrap();
        // What the first of these computed it saved in its turn.
        let want = if again { 384 } else { 320 };
        assert_eq!((started.cached_tokens, started.restored_tokens), (want, want), "with {slots} slots");
        assert_eq!(ask(&engine, request()).ids(), ToyBackend::greedy(&ToyOptions::default(), &turn, 20));
        settled(&engine.stats());
        engine.shutdown();
    }
}

#[test]
fn of_a_long_answer_a_restart_finds_most() {
    let directory = tempfile::TempDir::new().unwrap();
    let first = open(&directory, toy(4));
    let answer = ask(&first, Request::new(prompt(1, 100), 600)).ids();
    assert!(first.stats().states.cached <= 3, "the prompt's end, the answer's and one on the way");
    first.shutdown();
    let turn = [prompt(1, 100), answer, prompt(3, 40)].concat();
    let second = open(&directory, toy(4));
    let got = ask(&second, Request::new(turn.clone(), 20));
    let started = got.started.as_ref().unwrap();
    assert_eq!((started.cached_tokens, started.restored_tokens), (640, 640));
    assert_eq!(got.ids(), ToyBackend::greedy(&ToyOptions::default(), &turn, 20));
}

#[test]
fn a_chain_of_blocks_without_a_state_is_not_read() {
    let directory = tempfile::TempDir::new().unwrap();
    let first = open(&directory, toy(16));
    ask(&first, Request::new(prompt(1, 330), 1));
    first.shutdown();
    let folder = directory.path().join(format!("{:016x}", ToyOptions::default().fingerprint));
    let states = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let states: Vec<_> = states.filter(|path| path.extension().is_some_and(|e| e == "state")).collect();
    assert_eq!(states.len(), 1);
    // Damaged, it is removed, and all is computed.
    let mut bytes = std::fs::read(&states[0]).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&states[0], bytes).unwrap();
    let second = open(&directory, toy(16));
    let answer = ask(&second, Request::new(prompt(1, 340), 5));
    assert_eq!((answer.cached(), second.stats().snapshots.rejected), (0, 1));
    assert_eq!(answer.ids(), ToyBackend::greedy(&ToyOptions::default(), &prompt(1, 340), 5));
    std::fs::remove_file(&states[0]).unwrap_err();
    let third = open(&directory, toy(16));
    assert_eq!(ask(&third, Request::new(prompt(1, 340), 5)).started.unwrap().restored_tokens, 0);
}

#[test]
fn churn_through_memory_and_disk_changes_no_answer() {
    let directory = tempfile::TempDir::new().unwrap();
    let mut dice = Dice(11);
    for round in 0..6 {
        let toy = ToyOptions { blocks: 24, ..toy(6 + round) };
        let engine = open(&directory, toy);
        let asked: Vec<_> = (0..25)
            .map(|_| [prompt(dice.roll(3) as u32, 150), prompt(dice.roll(9) as u32, dice.roll(60))].concat())
            .collect();
        let streams: Vec<_> = asked.iter().map(|p| engine.submit(Request::new(p.clone(), 30)).unwrap()).collect();
        for (stream, prompt) in streams.into_iter().zip(&asked) {
            assert_eq!(collect(stream).ids(), ToyBackend::greedy(&ToyOptions::default(), prompt, 30));
        }
        assert!(round == 0 || engine.stats().snapshots.restored > 0, "{:?}", engine.stats().snapshots);
        settled(&engine.stats());
        engine.shutdown();
    }
}

//! What a request generates depends on its prompt, settings and seed alone.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use engine::{Drafter, Drafting, EngineOptions, FinishReason, Miss, NgramDrafter, Priority, Request, Sampling};
use testkit::toy::{ToyBackend, ToyOptions};

use crate::support::*;

/// Requests of many kinds; the same list every time.
pub fn requests() -> Vec<Request> {
    let mut dice = Dice(7);
    let mut all = Vec::new();
    for i in 0..24u32 {
        // Every third shares a long prefix with the others of its kind.
        let mut tokens = prompt(i % 3, 40 + dice.roll(60));
        tokens.extend(prompt(i, dice.roll(70)));
        let mut request = Request::new(tokens, 1 + dice.roll(60));
        request.sampling = match i % 4 {
            0 => Sampling::default(),
            1 => sampled(1.0, u64::from(i)),
            2 => Sampling { top_k: 9, top_p: 0.9, min_p: 0.05, ..sampled(0.7, 3) },
            _ => Sampling {
                repetition_penalty: 1.3,
                presence_penalty: 0.4,
                frequency_penalty: 0.3,
                logit_bias: vec![(5, 2.0), (9, -4.0)],
                ..sampled(0.9, u64::from(i))
            },
        };
        request.priority = Priority::ALL[usize::from(i % 5 == 4)];
        all.push(request);
    }
    all
}

/// Each request alone on a fresh engine: what all others are measured by.
pub fn alone() -> Vec<Vec<u32>> {
    let solo = |request| ask(&start(ToyOptions::default(), EngineOptions::default()), request).ids();
    requests().into_iter().map(solo).collect()
}

pub fn check(toy: ToyOptions, options: EngineOptions, change: impl Fn(&mut Request, &[u32])) -> engine::Stats {
    // The first step waits until all have been submitted, so that every run meets the same crowd.
    let (permit, gate) = mpsc::channel();
    let engine = start(ToyOptions { gate: Some(gate), ..toy }, options);
    let permit = permit;
    let expected = alone();
    let submit = |(mut request, want): (Request, &Vec<u32>)| {
        change(&mut request, want);
        engine.submit(request).unwrap()
    };
    let streams: Vec<_> = requests().into_iter().zip(&expected).map(submit).collect();
    drop(permit);
    for (index, (stream, want)) in streams.into_iter().zip(&expected).enumerate() {
        let answer = collect(stream);
        assert_eq!(answer.reason(), &FinishReason::Length, "request {index}");
        assert_eq!(&answer.ids(), want, "request {index}");
    }
    let stats = engine.stats();
    assert_eq!((stats.blocks.used, stats.running, stats.queued), (0, [0, 0], [0, 0]));
    stats
}

#[test]
fn greedy_is_the_definition() {
    let tokens = prompt(1, 77);
    let want = ToyBackend::greedy(&ToyOptions::default(), &tokens, 50);
    let engine = start(ToyOptions::default(), EngineOptions::default());
    assert_eq!(ask(&engine, Request::new(tokens, 50)).ids(), want);
}

#[test]
fn together_equals_alone() {
    let stats = check(ToyOptions::default(), EngineOptions::default(), |_, _| {});
    assert!(stats.cached_tokens > 0 && stats.preemptions == 0);
}

#[test]
fn small_steps_equal_large_ones() {
    let options = EngineOptions { step_rows_idle: 5, step_rows_busy: 3, running_max: 3, ..EngineOptions::default() };
    check(ToyOptions { rows_max: 11, ..ToyOptions::default() }, options, |_, _| {});
}

#[test]
fn preempted_and_evicted_equals_undisturbed() {
    // Room for about three sequences at a time.
    let toy = ToyOptions { blocks: 16, ..ToyOptions::default() };
    let options = EngineOptions { background_rows: 4, ..EngineOptions::default() };
    let stats = check(toy, options, |_, _| {});
    assert!(stats.preemptions > 0, "the test did not test anything");
    assert_eq!(stats.blocks.free + stats.blocks.cached, 16);
}

#[test]
fn drafted_equals_plain() {
    let stats = check(ToyOptions::default(), EngineOptions::default(), |request, want| {
        let prompt = request.prompt.len();
        request.drafter = Some(Box::new(Oracle { truth: want.to_vec(), prompt, dice: Dice(want.len() as u64) }));
    });
    assert!(stats.drafts.total().accepted > 100, "{stats:?}");
    assert!(stats.drafts.total().tokens > stats.drafts.total().accepted);
}

#[test]
fn drafted_equals_plain_when_blocks_run_out() {
    let toy = ToyOptions { blocks: 10, rows_max: 24, ..ToyOptions::default() };
    let options = EngineOptions { background_rows: 4, ..EngineOptions::default() };
    let stats = check(toy, options, |request, want| {
        let prompt = request.prompt.len();
        request.drafter = Some(Box::new(Oracle { truth: want.to_vec(), prompt, dice: Dice(1) }));
    });
    assert!(stats.preemptions > 0 && stats.drafts.total().accepted > 0);
}

#[test]
fn shortlists_pick_what_logits_pick() {
    let made = Arc::new(AtomicUsize::new(0));
    let engine =
        start(ToyOptions { shortlists: Some(made.clone()), ..ToyOptions::default() }, EngineOptions::default());
    let (mut sampled, expected) = (0, alone());
    for (mut request, want) in requests().into_iter().zip(&expected) {
        sampled +=
            usize::from(request.sampling.temperature > 0.0 && request.sampling.logit_bias.is_empty()) * want.len();
        let (prompt, dice) = (request.prompt.len(), Dice(want.len() as u64));
        request.drafter = Some(Box::new(Oracle { truth: want.clone(), prompt, dice }));
        assert_eq!(&ask(&engine, request).ids(), want);
    }
    assert!(sampled > 300 && made.load(Ordering::Relaxed) >= sampled, "{made:?} lists for {sampled} tokens");
}

#[test]
fn penalties_count_what_was_generated() {
    // Two tokens of memory would soon go round in circles; a heavy penalty allows every token once.
    let toy = || ToyOptions { memory: 2, ..ToyOptions::default() };
    let sampling = Sampling { presence_penalty: 100.0, ..Sampling::default() };
    let request = || Request { sampling: sampling.clone(), ..Request::new(prompt(1, 10), 128) };
    let plain = ask(&start(toy(), EngineOptions::default()), request()).ids();
    let distinct: std::collections::HashSet<u32> = plain.iter().copied().collect();
    assert_eq!(distinct.len(), 128);
    let drafter = Box::new(Oracle { truth: plain.clone(), prompt: 10, dice: Dice(5) });
    let drafted = ask(&start(toy(), EngineOptions::default()), Request { drafter: Some(drafter), ..request() });
    assert_eq!(drafted.ids(), plain);
    assert!(drafted.finished().usage.drafts.total().accepted > 20);
}

#[test]
fn ngrams_save_steps_where_text_repeats() {
    let toy = || ToyOptions { memory: 2, vocab: 32, ..ToyOptions::default() };
    let request = || Request { drafting: Drafting::OFF, ..Request::new(vec![1, 2, 3], 400) };
    let plain = start(toy(), EngineOptions::default());
    let drafted = start(toy(), EngineOptions::default());
    let want = ask(&plain, request());
    let drafter: Option<Box<dyn Drafter>> = Some(Box::new(NgramDrafter::new()));
    let got = ask(&drafted, Request { drafter, ..request() });
    assert_eq!(got.ids(), want.ids());
    assert!(drafted.stats().steps * 4 < plain.stats().steps);
    let count = got.finished().usage.drafts.total();
    assert!(count.accepted > 300 && count.tokens >= count.accepted);
}

#[test]
fn a_prompt_sent_again_is_read_from_the_cache() {
    let engine = start(ToyOptions::default(), EngineOptions::default());
    let first = ask(&engine, Request::new(prompt(1, 300), 20));
    assert_eq!(first.cached(), 0);
    assert_eq!(first.started.as_ref().unwrap().miss, Some(Miss::Uncached { position: 0 }));

    // The next turn: prompt, output and 20 new tokens. All but the last picked token is in the KV.
    let mut turn = prompt(1, 300);
    turn.extend(first.ids());
    turn.extend(prompt(9, 20));
    let computed = engine.stats().prompt_tokens;
    let second = ask(&engine, Request::new(turn.clone(), 5));
    assert_eq!(second.cached(), 319);
    assert_eq!(second.ids(), ToyBackend::greedy(&ToyOptions::default(), &turn, 5));
    assert_eq!(engine.stats().prompt_tokens - computed, 21);

    turn[100] = 121;
    let miss = ask(&engine, Request::new(turn, 5)).started.unwrap();
    assert_eq!(miss.cached_tokens, 100);
    assert!(matches!(miss.miss, Some(Miss::Different { position: 100, wanted: 121, .. })));
}

#[test]
fn candidates_read_their_prompt_once() {
    let engine = start(ToyOptions::default(), EngineOptions::default());
    let candidate = |seed| Request { sampling: sampled(1.0, seed), ..Request::new(prompt(4, 321), 10) };
    let streams: Vec<_> = (0..5).map(|seed| engine.submit(candidate(seed)).unwrap()).collect();
    let answers: Vec<_> = streams.into_iter().map(collect).collect();
    assert_eq!(answers.iter().map(|a| a.cached()).collect::<Vec<_>>(), [0, 320, 320, 320, 320]);
    assert_ne!(answers[0].ids(), answers[1].ids());
}

#[test]
fn an_empty_output_fills_the_cache() {
    let engine = start(ToyOptions::default(), EngineOptions::default());
    let warm = ask(&engine, Request::new(prompt(1, 200), 0));
    assert_eq!((warm.reason(), warm.ids().len()), (&FinishReason::Length, 0));
    assert_eq!(ask(&engine, Request::new(prompt(1, 200), 4)).cached(), 199);
}

#[test]
fn eviction_keeps_what_was_used_last() {
    let engine = start(ToyOptions { blocks: 16, ..ToyOptions::default() }, EngineOptions::default());
    for seed in 0..20 {
        let tokens = prompt(seed, 150);
        let want = ToyBackend::greedy(&ToyOptions::default(), &tokens, 10);
        assert_eq!(ask(&engine, Request::new(tokens, 10)).ids(), want);
        let again = ask(&engine, Request::new(prompt(seed, 150), 10));
        assert_eq!((again.cached(), again.ids()), (149, want));
    }
    assert_eq!(ask(&engine, Request::new(prompt(0, 150), 10)).cached(), 0);
}

//! Every limit and what it answers, and what a thousand careless callers leave behind.

use std::sync::mpsc;

use engine::{EngineOptions, ErrorKind, Event, FinishReason, NgramDrafter, Priority, Request, Sampling, SubmitError};
use testkit::toy::{ToyBackend, ToyOptions};

use crate::support::*;

#[test]
fn a_full_queue_answers_at_once() {
    let (permit, gate) = mpsc::channel();
    let toy = ToyOptions { gate: Some(gate), ..ToyOptions::default() };
    let engine = start(toy, EngineOptions { running_max: 1, queue_max: 2, ..EngineOptions::default() });
    let permit = permit;
    let running = engine.submit(Request::new(vec![1], 3)).unwrap();
    assert!(matches!(running.recv(), Some(Event::Started(_))));
    // The engine now waits inside a step, and these wait for it.
    let waiting = [(); 2].map(|()| engine.submit(Request::new(vec![2], 3)).unwrap());
    let refused = engine.submit(Request::new(vec![3], 3)).unwrap_err();
    assert_eq!(refused, SubmitError::Overloaded { priority: Priority::Interactive, limit: 2 });
    assert_eq!(refused.kind(), ErrorKind::Overloaded);
    // The other priority class has its own limit.
    let background = engine.submit(Request { priority: Priority::Background, ..Request::new(vec![3], 3) }).unwrap();
    assert_eq!(engine.stats().queued, [2, 1]);
    drop(permit);
    for stream in waiting.into_iter().chain([background]) {
        assert_eq!(collect(stream).ids().len(), 3);
    }
    assert_eq!(engine.stats().queued, [0, 0]);
}

#[test]
fn a_slow_reader_gets_larger_events_and_then_the_end() {
    let engine = start(ToyOptions::default(), EngineOptions { stream_tokens_max: 50, ..EngineOptions::default() });
    let slow = engine.submit(Request::new(prompt(1, 10), 500)).unwrap();
    let other = ask(&engine, Request::new(prompt(2, 10), 40));
    assert_eq!(other.ids().len(), 40);
    // The slow one is only read once it is over.
    while engine.stats().running != [0, 0] {
        ask(&engine, Request::new(prompt(3, 3), 1));
    }
    let answer = collect(slow);
    assert_eq!(answer.reason(), &FinishReason::SlowReader);
    assert_eq!(answer.events, [50]);
    assert_eq!(answer.ids(), ToyBackend::greedy(&ToyOptions::default(), &prompt(1, 10), 50));
    assert_eq!(engine.stats().blocks.used, 0);
}

#[test]
fn context_ends_a_sequence_and_refuses_a_longer_prompt() {
    let check = |toy: ToyOptions, limit: usize| {
        let engine = start(toy, EngineOptions::default());
        assert_eq!(engine.tokens_max(), limit);
        let answer = ask(&engine, Request::new(prompt(1, 60), 5000));
        assert_eq!((answer.reason(), answer.ids().len()), (&FinishReason::ContextFull, limit - 60));
        let longest = ask(&engine, Request::new(prompt(1, limit - 1), 5000));
        assert_eq!((longest.reason(), longest.ids().len()), (&FinishReason::ContextFull, 1));
        let refused = engine.submit(Request::new(prompt(1, limit), 1)).unwrap_err();
        assert_eq!(refused, SubmitError::TooLong { tokens: limit, limit: limit - 1 });
        assert_eq!(engine.stats().blocks.used, 0);
    };
    check(ToyOptions { context: 100, ..ToyOptions::default() }, 100);
    check(ToyOptions { blocks: 4, ..ToyOptions::default() }, 128);
}

#[test]
fn bad_requests_are_refused_with_what_is_wrong() {
    let engine = start(ToyOptions::default(), EngineOptions::default());
    let check = |request: Request, text: &str| {
        let error = engine.submit(request).unwrap_err();
        assert_eq!((error.to_string().as_str(), error.kind()), (text, ErrorKind::BadRequest));
    };
    let base = || Request::new(vec![1], 1);
    let with = |sampling| Request { sampling, ..base() };
    check(Request::new(vec![], 1), "empty prompt");
    check(Request::new(vec![128], 1), "token 128 is outside the vocabulary of 128");
    check(
        with(Sampling { logit_bias: vec![(500, 1.0)], ..Sampling::default() }),
        "token 500 is outside the vocabulary of 128",
    );
    check(with(Sampling { temperature: f32::NAN, ..Sampling::default() }), "temperature must be 0 to 100");
    check(with(Sampling { top_p: 0.0, ..Sampling::default() }), "top_p must be above 0, up to 1");
    check(with(Sampling { logprobs: Some(65), ..Sampling::default() }), "65 logprobs, at most 64 allowed");
    check(Request { stop_strings: vec![vec![]], ..base() }, "stop string must be not empty");
    check(Request { stop_strings: vec![b"x".to_vec()], ..base() }, "stop string must be off: no token bytes");
    check(Request { stop_strings: vec![vec![0; 513]], ..base() }, "513 bytes of a stop string, at most 512 allowed");
}

#[test]
fn a_thousand_careless_requests_leave_nothing_behind() {
    let mut dice = Dice(2024);
    let toy = ToyOptions { blocks: 40, rows_max: 100, memory: 1, vocab: 128, ..ToyOptions::default() };
    let options =
        EngineOptions { running_max: 12, background_rows: 2, stream_tokens_max: 64, ..EngineOptions::default() };
    let engine = start(toy, options);
    let mut open = Vec::new();
    for i in 0..1000u32 {
        let mut tokens = prompt(dice.roll(6) as u32, dice.roll(200));
        tokens.push(i % 100);
        let mut request = Request::new(tokens, dice.roll(60));
        request.priority = Priority::ALL[dice.roll(2)];
        request.sampling = sampled(dice.roll(2) as f32, u64::from(i));
        if dice.roll(3) == 0 {
            request.drafter = Some(Box::new(NgramDrafter::new()));
        }
        match engine.submit(request) {
            Ok(stream) => open.push(stream),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Overloaded),
        }
        while open.len() > 30 + dice.roll(20) {
            let stream = open.swap_remove(dice.roll(open.len()));
            match dice.roll(4) {
                0 => drop(stream),
                1 => {
                    stream.cancel();
                    settle(stream);
                }
                2 => {
                    stream.recv();
                    engine.cancel(stream.id());
                    settle(stream);
                }
                _ => settle(stream),
            }
        }
    }
    open.into_iter().for_each(settle);
    while engine.stats().running != [0, 0] || engine.stats().queued != [0, 0] || engine.stats().preempted != [0, 0] {
        ask(&engine, Request::new(vec![1], 1));
    }
    let stats = engine.stats();
    assert_eq!(stats.blocks.used, 0, "{stats:?}");
    assert_eq!(stats.blocks.cached + stats.blocks.free, 40);
    assert!(stats.preemptions > 0 && stats.drafts.total().accepted > 0 && stats.cached_tokens > 0, "{stats:?}");
}

/// Reads to the end, which must not be an error: the toy reports every misuse of blocks as one.
fn settle(stream: engine::Stream) {
    for event in stream {
        if let Event::Finished(finished) = event {
            assert!(!matches!(finished.reason, FinishReason::Error { .. }), "{finished:?}");
        }
    }
}

//! How sequences begin and end: stops, cancels, priority classes, failures, shutdown.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};

use engine::{EngineOptions, ErrorKind, Event, FinishReason, Priority, Request, Sampling, SubmitError, TokenBytes};
use model::Want;
use testkit::toy::{StepLog, ToyBackend, ToyOptions};

use crate::support::*;

/// A card begins no step ahead there.
#[test]
fn a_backend_is_told_with_which_token_a_sequence_ends() {
    let wants = Arc::new(Mutex::new(Vec::new()));
    let toy = ToyOptions { wants: Some(Arc::clone(&wants)), ..ToyOptions::default() };
    let engine = start(toy, EngineOptions::default());
    ask(&engine, Request::new(prompt(1, 10), 3));
    assert_eq!(*wants.lock().unwrap(), [Want::Last, Want::Last, Want::Final]);
    ask(&engine, Request::new(prompt(2, 10), 1));
    assert_eq!(wants.lock().unwrap()[3..], [Want::Final]);
}

/// Token `t` stands for the bytes `<t>`.
fn spelled() -> EngineOptions {
    let bytes: TokenBytes = (0..128).map(|token| format!("<{token}>")).collect();
    EngineOptions { token_bytes: Arc::new(bytes), ..EngineOptions::default() }
}

fn text(ids: &[u32]) -> String {
    ids.iter().map(|id| format!("<{id}>")).collect()
}

#[test]
fn stop_strings_end_the_output_before_them() {
    let engine = start(ToyOptions::default(), spelled());
    let tokens = prompt(2, 10);
    let output = ToyBackend::greedy(&ToyOptions::default(), &tokens, 40);
    // Cut anywhere: in the middle of tokens, and across several of them.
    for (from, length) in [(0, 3), (1, 9), (17, 4), (18, 1), (31, 12)] {
        let stop = text(&output)[from..from + length].to_owned();
        for draft in [false, true] {
            let mut request = Request::new(tokens.clone(), 40);
            request.stop_strings = vec![b"never".to_vec(), stop.clone().into_bytes()];
            if draft {
                let oracle = Oracle { truth: output.clone(), prompt: 10, dice: Dice(from as u64) };
                request.drafter = Some(Box::new(oracle));
            }
            let answer = ask(&engine, request);
            let got = text(&answer.ids()) + &String::from_utf8(answer.finished().tail.clone()).unwrap();
            let end = text(&output).find(&stop).unwrap();
            assert_eq!(got, text(&output)[..end], "stop {stop:?}");
            assert_eq!(answer.reason(), &FinishReason::Stop);
        }
    }
}

#[test]
fn what_was_held_for_a_stop_that_did_not_come_is_published() {
    let engine = start(ToyOptions::default(), spelled());
    let output = ToyBackend::greedy(&ToyOptions::default(), &prompt(2, 10), 6);
    let request =
        Request { stop_strings: vec![(text(&output) + "more").into_bytes()], ..Request::new(prompt(2, 10), 6) };
    let answer = ask(&engine, request);
    assert_eq!((answer.ids(), answer.reason()), (output, &FinishReason::Length));
}

#[test]
fn stop_tokens_are_named_and_not_published() {
    let engine = start(ToyOptions::default(), EngineOptions::default());
    let output = ToyBackend::greedy(&ToyOptions::default(), &prompt(2, 10), 20);
    let at = output.iter().position(|id| *id == output[12]).unwrap();
    let request = Request { stop_tokens: vec![output[12]], ..Request::new(prompt(2, 10), 20) };
    let answer = ask(&engine, request);
    assert_eq!(answer.ids(), output[..at]);
    assert_eq!(answer.reason(), &FinishReason::StopToken(output[12]));
    assert_eq!(answer.finished().usage.generated, at + 1);
}

#[test]
fn logprobs_come_with_every_token() {
    let engine = start(ToyOptions::default(), EngineOptions::default());
    let sampling = Sampling { logprobs: Some(3), ..Sampling::default() };
    let answer = ask(&engine, Request { sampling, ..Request::new(prompt(2, 10), 5) });
    for token in &answer.tokens {
        assert_eq!(token.top.len(), 3);
        assert_eq!(token.top[0], (token.id, token.logprob.unwrap()));
    }
}

#[test]
fn a_seed_chosen_by_the_engine_can_be_used_again() {
    let engine = start(ToyOptions::default(), EngineOptions::default());
    let request = |seed| {
        let sampling = Sampling { temperature: 1.5, seed, ..Sampling::default() };
        Request { sampling, ..Request::new(prompt(2, 10), 20) }
    };
    let first = ask(&engine, request(None));
    assert_ne!(first.ids(), ask(&engine, request(None)).ids());
    let seed = first.started.as_ref().unwrap().seed;
    assert_eq!(first.ids(), ask(&engine, request(Some(seed))).ids());
}

/// An engine that makes `steps` steps and then waits, inside the next one, for the sender to be dropped.
fn halting(steps: usize) -> (engine::EngineHandle, mpsc::Sender<()>) {
    let (permit, gate) = mpsc::channel();
    (0..steps).for_each(|_| permit.send(()).unwrap());
    let toy = ToyOptions { gate: Some(gate), ..ToyOptions::default() };
    (start(toy, EngineOptions::default()), permit)
}

#[test]
fn cancelled_sequences_end_and_what_they_did_stays() {
    for by_handle in [false, true] {
        let (engine, permit) = halting(30);
        let stream = engine.submit(Request::new(prompt(3, 40), 900)).unwrap();
        assert!(matches!(stream.recv(), Some(Event::Started(_))));
        match by_handle {
            true => engine.cancel(stream.id()),
            false => stream.cancel(),
        }
        drop(permit);
        let (mut ids, mut end) = (Vec::new(), None);
        for event in stream {
            match event {
                Event::Tokens(tokens) => ids.extend(tokens.iter().map(|token| token.id)),
                Event::Finished(finished) => end = Some(finished),
                Event::Started(_) => panic!("started twice"),
            }
        }
        let end = end.unwrap();
        assert_eq!((end.reason, end.usage.generated), (FinishReason::Cancelled, ids.len()));
        assert!((1..=31).contains(&ids.len()));
        assert_eq!(engine.stats().blocks.used, 0);
        // Steering: the same tokens and something new; only what is new is computed.
        let mut steered = prompt(3, 40);
        steered.extend(&ids);
        let kept = steered.len() - 1;
        steered.extend([1, 2, 3]);
        assert_eq!(ask(&engine, Request::new(steered, 1)).cached(), kept);
    }
}

#[test]
fn dropping_the_stream_cancels() {
    let (engine, permit) = halting(3);
    let stream = engine.submit(Request::new(prompt(3, 40), 900)).unwrap();
    assert!(matches!(stream.recv(), Some(Event::Started(_))));
    drop(stream);
    drop(permit);
    // Each request takes at least one step, so the dropped one is gone after the first.
    ask(&engine, Request::new(prompt(5, 3), 1));
    ask(&engine, Request::new(prompt(5, 3), 1));
    let stats = engine.stats();
    assert_eq!((stats.running, stats.blocks.used), ([0, 0], 0));
    assert!(stats.generated_tokens <= 6);
}

#[test]
fn interactive_goes_first() {
    let (permit, gate) = mpsc::channel();
    let log = StepLog::default();
    let toy = ToyOptions { gate: Some(gate), log: Some(Arc::clone(&log)), ..ToyOptions::default() };
    let engine = start(toy, EngineOptions { running_max: 2, ..EngineOptions::default() });
    let permit = permit;
    let background = |seed| Request { priority: Priority::Background, ..Request::new(prompt(seed, 20), 6) };
    // The engine waits inside the step of a first request until all three are there.
    let first = engine.submit(Request::new(vec![1], 1)).unwrap();
    assert!(matches!(first.recv(), Some(Event::Started(_))));
    let slow: Vec<_> = (0..3).map(|seed| engine.submit(background(seed)).unwrap()).collect();
    permit.send(()).unwrap();
    permit.send(()).unwrap();
    assert!(matches!(slow[0].recv(), Some(Event::Started(_))));
    assert!(matches!(slow[0].recv(), Some(Event::Tokens(_))));
    // Both slots are taken by background work in the middle of a step; now someone is waiting.
    let urgent = engine.submit(Request::new(prompt(9, 50), 4)).unwrap();
    drop(permit);
    let answer = collect(urgent);
    assert_eq!(answer.ids(), ToyBackend::greedy(&ToyOptions::default(), &prompt(9, 50), 4));
    for (seed, stream) in slow.into_iter().enumerate() {
        let rest = collect_rest(stream);
        let all = ToyBackend::greedy(&ToyOptions::default(), &prompt(seed as u32, 20), 6);
        assert!(all.ends_with(&rest));
    }
    // From the step of the 50-token prompt on, it has four steps to itself.
    let log = log.lock().unwrap();
    let first = log.iter().position(|step| step.contains(&(0, 50))).unwrap();
    assert!(log[1] == [(0, 20); 2] && first <= 3, "{log:?}");
    assert!(log[first..first + 4].iter().all(|step| step.len() == 1), "{log:?}");
    // Then the two that had begun go on, before the third begins.
    assert!(log[first + 4].len() == 2 && log[first + 4].iter().all(|&(at, _)| at > 0), "{log:?}");
}

fn collect_rest(stream: engine::Stream) -> Vec<u32> {
    stream
        .flat_map(|event| match event {
            Event::Tokens(tokens) => tokens,
            _ => Vec::new(),
        })
        .map(|token| token.id)
        .collect()
}

#[test]
fn a_long_prompt_does_not_stall_a_decoding_sequence() {
    let (permit, gate) = mpsc::channel();
    let log = StepLog::default();
    let toy = ToyOptions { gate: Some(gate), log: Some(Arc::clone(&log)), ..ToyOptions::default() };
    let engine = start(toy, EngineOptions::default());
    let permit = permit;
    let short = engine.submit(Request::new(prompt(1, 10), 60)).unwrap();
    permit.send(()).unwrap();
    assert!(matches!(short.recv(), Some(Event::Started(_))));
    assert!(matches!(short.recv(), Some(Event::Tokens(_))));
    let long = engine.submit(Request::new(prompt(2, 1000), 2)).unwrap();
    drop(permit);
    assert_eq!(collect(long).ids().len(), 2);
    drop(short);
    let log = log.lock().unwrap();
    let reading = log.iter().filter(|step| step.iter().any(|&(_, rows)| rows > 1)).skip(1);
    for step in reading {
        let rows: usize = step.iter().map(|&(_, rows)| rows).sum();
        assert!(rows <= 64 && step.iter().any(|&(_, rows)| rows == 1), "{step:?}");
    }
}

#[test]
fn broken_rows_and_steps_end_only_their_own_sequences() {
    let toy = || ToyOptions { nan_token: Some(125), fail_token: Some(126), ..ToyOptions::default() };
    let engine = start(toy(), EngineOptions::default());
    let bystander = engine.submit(Request::new(prompt(1, 40), 100)).unwrap();
    let broken = ask(&engine, Request::new(vec![1, 2, 125], 5));
    assert!(matches!(broken.reason(), FinishReason::Error { kind: ErrorKind::Device, .. }));
    // A failed step takes down whoever was in it, here possibly the bystander, and nobody later.
    let failed = ask(&engine, Request::new(vec![1, 2, 126], 5));
    let FinishReason::Error { kind: ErrorKind::Device, text } = failed.reason() else { panic!() };
    assert!(text.contains("told to fail"));
    collect(bystander);
    // What a failed step should have computed is not in the cache.
    let doomed = [prompt(7, 40), vec![126]].concat();
    assert!(matches!(ask(&engine, Request::new(doomed, 5)).reason(), FinishReason::Error { .. }));
    let next = ask(&engine, Request::new(prompt(7, 40), 5));
    assert_eq!(next.ids(), ToyBackend::greedy(&toy(), &prompt(7, 40), 5));
    let after = ask(&engine, Request::new(prompt(1, 40), 10));
    assert_eq!(after.ids(), ToyBackend::greedy(&toy(), &prompt(1, 40), 10));
    assert_eq!(engine.stats().blocks.used, 0);
}

#[test]
fn a_panic_in_the_backend_ends_every_stream() {
    let toy = ToyOptions { panic_token: Some(125), ..ToyOptions::default() };
    let engine = start(toy, EngineOptions { running_max: 1, ..EngineOptions::default() });
    let doomed = engine.submit(Request::new(vec![125], 5)).unwrap();
    let queued = engine.submit(Request::new(vec![1], 5));
    assert!(matches!(collect(doomed).reason(), FinishReason::Error { kind: ErrorKind::Internal, .. }));
    if let Ok(queued) = queued {
        assert!(matches!(collect(queued).reason(), FinishReason::Error { kind: ErrorKind::Internal, .. }));
    }
    engine.shutdown();
    assert_eq!(engine.submit(Request::new(vec![1], 5)).unwrap_err(), SubmitError::Closed);
}

#[test]
fn shutdown_and_the_last_handle_end_every_stream() {
    for explicit in [true, false] {
        let options = EngineOptions { running_max: 1, ..EngineOptions::default() };
        let engine = start(ToyOptions { context: 100_000, blocks: 4000, ..ToyOptions::default() }, options);
        let running = engine.submit(Request::new(prompt(1, 40), 90_000)).unwrap();
        let queued = engine.submit(Request::new(prompt(2, 40), 90_000)).unwrap();
        assert!(matches!(running.recv(), Some(Event::Started(_))));
        let other = engine.clone();
        drop(engine);
        if explicit {
            other.shutdown();
            assert_eq!(other.submit(Request::new(vec![1], 1)).unwrap_err(), SubmitError::Closed);
            let stats = other.stats();
            assert_eq!((stats.blocks.used, stats.running, stats.queued), (0, [0, 0], [0, 0]));
        }
        drop(other);
        for stream in [running, queued] {
            let end = std::iter::from_fn(|| stream.recv()).last();
            let Some(Event::Finished(finished)) = end else { panic!("{end:?}") };
            assert_eq!(finished.reason, FinishReason::Shutdown);
        }
    }
}

#[test]
fn a_waker_is_called_for_every_event() {
    let engine = start(ToyOptions::default(), EngineOptions::default());
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&calls);
    let on_ready = move || drop(counter.fetch_add(1, Ordering::SeqCst).to_string());
    let request = Request { on_ready: Some(Box::new(on_ready)), ..Request::new(prompt(1, 5), 7) };
    ask(&engine, request);
    engine.shutdown();
    // The start, six tokens, and the end, which brings the seventh.
    assert_eq!(calls.load(Ordering::SeqCst), 8);
}

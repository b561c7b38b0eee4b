//! Constraints hold however tokens come about, and what breaks with a request's own code stays with that request.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use engine::{
    Constraint, DraftKind, Drafter, EngineOptions, ErrorKind, Event, FinishReason, Priority, Request, Sampling,
};
use testkit::toy::{ToyBackend, ToyOptions};

use crate::support::*;

const VOCAB: u32 = 128;

/// After token `t` comes a token `x` with `(x + t) % 3 == 0`; but one divisible by 5 is followed by `t + 1`, `t + 2`,
/// `t + 3`, and then by anything.
#[derive(Clone, Debug, Default)]
struct Rule {
    last: u32,
    /// What must come, last first.
    script: Vec<u32>,
    anything: bool,
    mask: Vec<u32>,
    /// Also names tokens as forced that are not.
    lies: bool,
    heard: Arc<Mutex<Vec<u32>>>,
}

impl Rule {
    fn allows(&self, token: u32) -> bool {
        match self.script.last() {
            Some(&next) => token == next,
            None => self.anything || (token + self.last).is_multiple_of(3),
        }
    }
}

impl Constraint for Rule {
    fn allowed(&mut self) -> Result<Option<&[u32]>, String> {
        if self.anything {
            return Ok(None);
        }
        let word = |word: u32| (0..32).fold(0, |bits, bit| bits | u32::from(self.allows(word * 32 + bit)) << bit);
        self.mask = (0..VOCAB / 32).map(word).collect();
        Ok(Some(&self.mask))
    }

    fn accept(&mut self, token: u32) -> Result<(), String> {
        if !self.allows(token) {
            return Err(format!("{token} after {}", self.last));
        }
        self.heard.lock().unwrap().push(token);
        match self.script.pop() {
            Some(_) => self.anything = self.script.is_empty(),
            None => {
                self.anything = false;
                if token.is_multiple_of(5) {
                    self.script = (1..4).rev().map(|i| (token + i) % VOCAB).collect();
                }
            }
        }
        self.last = token;
        Ok(())
    }

    fn forced(&mut self, max: usize, out: &mut Vec<u32>) {
        out.extend(self.script.iter().rev().take(max));
        if self.lies {
            out.extend([3, 3, VOCAB + 7]);
        }
    }
}

/// Greedy continuation under the rule, by the definition.
fn by_definition(toy: &ToyOptions, prompt: &[u32], count: usize) -> Vec<u32> {
    let (mut rule, mut tokens) = (Rule::default(), prompt.to_vec());
    for _ in 0..count {
        let mut row = Vec::new();
        ToyBackend::logits(toy, &tokens, &mut row);
        let allowed = (0..VOCAB).filter(|&token| rule.allows(token));
        let best = allowed.reduce(|a, b| if row[b as usize] > row[a as usize] { b } else { a }).unwrap();
        rule.accept(best).unwrap();
        tokens.push(best);
    }
    tokens.split_off(prompt.len())
}

fn samplings() -> [Sampling; 4] {
    [
        Sampling::default(),
        sampled(1.5, 3),
        Sampling { top_k: 4, top_p: 0.9, ..sampled(0.8, 4) },
        Sampling { presence_penalty: 0.7, repetition_penalty: 1.2, logit_bias: vec![(5, 4.0)], ..sampled(1.0, 5) },
    ]
}

/// Drafts as an oracle but keeps quiet half the time, so that the constraint's forced tokens get their turn. It must
/// hear of its own proposals only.
struct Shy {
    oracle: Oracle,
    proposed: usize,
}

impl Drafter for Shy {
    fn propose(&mut self, tokens: &[u32], max: usize, out: &mut Vec<u32>) {
        if self.oracle.dice.roll(2) == 0 {
            self.oracle.propose(tokens, max, out);
        }
        self.proposed = out.len();
    }

    fn observe(&mut self, proposed: usize, accepted: usize) {
        assert!(proposed > 0 && proposed <= self.proposed && accepted <= proposed);
    }
}

fn constrained(sampling: &Sampling, rule: Rule) -> Request {
    let constraint: Option<Box<dyn Constraint>> = Some(Box::new(rule));
    Request { sampling: sampling.clone(), constraint, ..Request::new(prompt(3, 50), 80) }
}

/// No row of a draft is ever granted, so tokens come one by one.
fn plain() -> EngineOptions {
    EngineOptions { draft_max: 0, ..EngineOptions::default() }
}

#[test]
fn masks_made_while_a_step_runs_hold_too() {
    let made = Arc::new(AtomicUsize::new(0));
    let toy = ToyOptions { shortlists: Some(made.clone()), ..ToyOptions::default() };
    let engine = start(toy, EngineOptions { draft_max: 0, ..EngineOptions::default() });
    for seed in 0..6 {
        let tokens = prompt(seed, 50);
        let want = by_definition(&ToyOptions::default(), &tokens, 60);
        let rule = Rule::default();
        let heard = rule.heard.clone();
        let request = Request { constraint: Some(Box::new(rule)), ..Request::new(tokens, 60) };
        assert_eq!(ask(&engine, request).ids(), want);
        assert_eq!(*heard.lock().unwrap(), want);
    }
    assert_eq!(made.load(Ordering::Relaxed), 6 * 60);
}

#[test]
fn greedy_within_a_constraint_is_the_definition() {
    let want = by_definition(&ToyOptions::default(), &prompt(3, 50), 80);
    for options in [plain(), EngineOptions::default()] {
        let answer = ask(&start(ToyOptions::default(), options), constrained(&Sampling::default(), Rule::default()));
        assert_eq!(answer.ids(), want);
    }
}

#[test]
fn drafted_equals_plain_under_a_constraint() {
    for (index, sampling) in samplings().iter().enumerate() {
        let slow = start(ToyOptions::default(), plain());
        let want = ask(&slow, constrained(sampling, Rule::default()));
        assert_eq!(want.finished().usage.drafts.total().tokens, 0);
        let mut check = Rule::default();
        assert!(want.ids().into_iter().all(|token| check.accept(token).is_ok()), "the constraint holds");

        let fast = start(ToyOptions::default(), EngineOptions::default());
        let forced = ask(&fast, constrained(sampling, Rule::default()));
        assert_eq!(forced.ids(), want.ids(), "forced tokens, sampling {index}");
        let count = forced.finished().usage.drafts.of(DraftKind::Grammar);
        assert!(count.tokens > 0 && count.tokens == count.accepted, "{count:?}");
        assert!(fast.stats().steps < slow.stats().steps);

        let lying = ask(&fast, constrained(sampling, Rule { lies: true, ..Rule::default() }));
        assert_eq!(lying.ids(), want.ids(), "wrongly forced tokens, sampling {index}");
        let count = lying.finished().usage.drafts.of(DraftKind::Grammar);
        assert!(count.accepted < count.tokens);

        let oracle = Oracle { truth: want.ids(), prompt: 50, dice: Dice(index as u64) };
        let drafter: Option<Box<dyn Drafter>> = Some(Box::new(Shy { oracle, proposed: 0 }));
        let drafted = ask(&fast, Request { drafter, ..constrained(sampling, Rule::default()) });
        assert_eq!(drafted.ids(), want.ids(), "drafted tokens, sampling {index}");
    }
}

#[test]
fn a_batch_of_constrained_and_free_sequences_equals_each_alone() {
    let requests = || {
        let free = |i: u32| Request { sampling: sampled(0.9, 1), ..Request::new(prompt(i, 45), 60) };
        let priority = |i: u32| Priority::ALL[i as usize % 2];
        let bound = move |i: u32| Request {
            priority: priority(i),
            ..constrained(&samplings()[i as usize % 4], Rule::default())
        };
        (0..12).map(move |i| if i % 3 == 0 { free(i) } else { bound(i) })
    };
    let solo = |request| ask(&start(ToyOptions::default(), plain()), request).ids();
    let want: Vec<Vec<u32>> = requests().map(solo).collect();
    // Few enough blocks that sequences are preempted in between.
    let (permit, gate) = mpsc::channel();
    let toy = ToyOptions { blocks: 14, gate: Some(gate), ..ToyOptions::default() };
    let engine = start(toy, EngineOptions { background_rows: 8, ..EngineOptions::default() });
    let permit = permit;
    let streams: Vec<_> = requests().map(|request| engine.submit(request).unwrap()).collect();
    drop(permit);
    for (stream, want) in streams.into_iter().zip(want) {
        assert_eq!(collect(stream).ids(), want);
    }
    assert!(engine.stats().preemptions > 0 && engine.stats().drafts.total().accepted > 0);
}

#[test]
fn the_constraint_hears_every_token_once_and_stop_tokens_too() {
    let output = by_definition(&ToyOptions::default(), &prompt(3, 50), 80);
    let stop = output[20];
    let first = output.iter().position(|&token| token == stop).unwrap();
    for options in [plain(), EngineOptions::default()] {
        let rule = Rule::default();
        let heard = Arc::clone(&rule.heard);
        let request = Request { stop_tokens: vec![stop], ..constrained(&Sampling::default(), rule) };
        let answer = ask(&start(ToyOptions::default(), options), request);
        assert_eq!(answer.reason(), &FinishReason::StopToken(stop));
        assert_eq!(*heard.lock().unwrap(), output[..=first]);
    }
}

/// Breaks in one way when the given number of tokens has been accepted.
struct Broken {
    how: &'static str,
    left: usize,
}

impl Constraint for Broken {
    fn allowed(&mut self) -> Result<Option<&[u32]>, String> {
        match self.how {
            _ if self.left > 0 => Ok(None),
            "allows nothing" => Ok(Some(&[0; 4])),
            "short mask" => Ok(Some(&[1])),
            "allowed fails" => Err("no state".into()),
            "allowed panics" => panic!("told to"),
            _ => Ok(None),
        }
    }

    fn accept(&mut self, _token: u32) -> Result<(), String> {
        let now = self.left == 0;
        self.left = self.left.saturating_sub(1);
        match self.how {
            "accept fails" if now => Err("bad token".into()),
            "accept panics" if now => panic!("told to"),
            _ => Ok(()),
        }
    }

    fn forced(&mut self, _max: usize, _out: &mut Vec<u32>) {
        assert!(self.how != "forced panics" || self.left > 0, "told to");
    }
}

struct BadDrafter(&'static str);

impl Drafter for BadDrafter {
    fn propose(&mut self, _tokens: &[u32], _max: usize, out: &mut Vec<u32>) {
        out.push(1);
        assert!(self.0 != "propose", "told to");
    }

    fn observe(&mut self, _proposed: usize, _accepted: usize) {
        panic!("told to");
    }
}

#[test]
fn what_breaks_ends_its_own_sequence_only() {
    let (permit, gate) = mpsc::channel();
    let engine = start(ToyOptions { gate: Some(gate), ..ToyOptions::default() }, EngineOptions::default());
    let permit = permit;
    let bystander = engine.submit(Request::new(prompt(8, 40), 60)).unwrap();
    let base = || Request::new(prompt(3, 40), 30);
    let broken = |how, left| Request { constraint: Some(Box::new(Broken { how, left })), ..base() };
    let drafter = |how| Request { drafter: Some(Box::new(BadDrafter(how))), ..base() };
    let waker = || Request { on_ready: Some(Box::new(|| panic!("told to"))), ..base() };
    let cases = [
        (broken("allows nothing", 4), ErrorKind::Constraint, "the constraint allows no token"),
        (broken("short mask", 4), ErrorKind::Constraint, "has 32 bits for a vocabulary of 128"),
        (broken("allowed fails", 0), ErrorKind::Constraint, "the constraint failed: no state"),
        (broken("accept fails", 4), ErrorKind::Constraint, "the constraint failed: bad token"),
        (broken("allowed panics", 4), ErrorKind::Internal, "the constraint of this request panicked: told to"),
        (broken("accept panics", 4), ErrorKind::Internal, "the constraint of this request panicked: told to"),
        (broken("forced panics", 4), ErrorKind::Internal, "the constraint of this request panicked: told to"),
        (drafter("propose"), ErrorKind::Internal, "the drafter of this request panicked: told to"),
        (drafter("observe"), ErrorKind::Internal, "the drafter of this request panicked: told to"),
        (waker(), ErrorKind::Internal, "the on_ready of this request panicked: told to"),
    ];
    let streams = cases.map(|(request, kind, text)| (engine.submit(request).unwrap(), kind, text));
    drop(permit);
    let output = ToyBackend::greedy(&ToyOptions::default(), &prompt(3, 40), 30);
    for (stream, want, part) in streams {
        let answer = collect(stream);
        let FinishReason::Error { kind, text } = answer.reason() else { panic!("{:?}", answer.reason()) };
        assert!(*kind == want && text.contains(part), "{kind:?}: {text}");
        // What was said before is right, and nothing that was refused is said.
        assert!(output.starts_with(&answer.ids()) && answer.ids().len() <= 5, "{part}");
    }
    assert_eq!(collect(bystander).ids(), ToyBackend::greedy(&ToyOptions::default(), &prompt(8, 40), 60));
    assert_eq!(engine.stats().blocks.used, 0);
    assert_eq!(ask(&engine, base()).ids(), output);
}

#[test]
fn a_waiting_request_knows_its_place() {
    let (permit, gate) = mpsc::channel();
    let toy = ToyOptions { gate: Some(gate), ..ToyOptions::default() };
    let engine = start(toy, EngineOptions { running_max: 1, ..EngineOptions::default() });
    let permit = permit;
    let running = engine.submit(Request::new(vec![1], 3)).unwrap();
    assert!(matches!(running.recv(), Some(Event::Started(_))));
    let submit = |priority| engine.submit(Request { priority, ..Request::new(vec![2], 3) }).unwrap();
    let priorities = [
        Priority::Background,
        Priority::Interactive,
        Priority::Background,
        Priority::Interactive,
        Priority::Interactive,
    ];
    let waiting = priorities.map(submit);
    let places = || waiting.each_ref().map(|stream| engine.place(stream.id()));
    assert_eq!(engine.place(running.id()), None);
    assert_eq!(places(), [Some(3), Some(0), Some(4), Some(1), Some(2)]);
    // The engine learns of this with its next step, and then the last one is next.
    waiting[1].cancel();
    waiting[3].cancel();
    drop(permit);
    assert_eq!(waiting.map(|stream| settled(&engine, stream)), [None; 5]);
}

/// The place of a request that has ended.
fn settled(engine: &engine::EngineHandle, stream: engine::Stream) -> Option<usize> {
    let id = stream.id();
    collect(stream);
    engine.place(id)
}

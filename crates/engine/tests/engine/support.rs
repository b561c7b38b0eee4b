//! Shared by all tests of the engine: running requests to their end and comparing them with the definition.

use engine::{
    Drafter, Engine, EngineHandle, EngineOptions, Event, FinishReason, Finished, Request, Sampling, Started, Stream,
    TokenOut,
};
use testkit::toy::{ToyBackend, ToyOptions};

/// Everything one stream said.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    pub started: Option<Started>,
    pub tokens: Vec<TokenOut>,
    pub finished: Option<Finished>,
    /// Sizes of the `Tokens` events.
    pub events: Vec<usize>,
}

impl Answer {
    pub fn ids(&self) -> Vec<u32> {
        self.tokens.iter().map(|token| token.id).collect()
    }

    pub fn reason(&self) -> &FinishReason {
        &self.finished().reason
    }

    pub fn finished(&self) -> &Finished {
        self.finished.as_ref().expect("every stream finishes")
    }

    pub fn cached(&self) -> usize {
        self.started.as_ref().expect("it started").cached_tokens
    }
}

pub fn start(toy: ToyOptions, options: EngineOptions) -> EngineHandle {
    Engine::start(Box::new(ToyBackend::new(toy)), options).unwrap()
}

/// Reads a stream to its end.
pub fn collect(stream: Stream) -> Answer {
    let mut answer = Answer::default();
    for event in stream {
        match event {
            Event::Started(started) => assert!(answer.started.replace(started).is_none()),
            Event::Tokens(tokens) => {
                assert!(!tokens.is_empty() && answer.started.is_some());
                answer.events.push(tokens.len());
                answer.tokens.extend(tokens);
            }
            Event::Finished(finished) => assert!(answer.finished.replace(*finished).is_none()),
        }
    }
    answer.finished();
    answer
}

pub fn ask(engine: &EngineHandle, request: Request) -> Answer {
    collect(engine.submit(request).unwrap())
}

/// A prompt of `count` tokens that differs from the first token on for each `seed`.
pub fn prompt(seed: u32, count: usize) -> Vec<u32> {
    (0..count as u32).map(|i| (seed.wrapping_mul(31) + i * i + i * 7) % 120).collect()
}

pub fn sampled(temperature: f32, seed: u64) -> Sampling {
    Sampling { temperature, seed: Some(seed), ..Sampling::default() }
}

/// A small deterministic source of test choices.
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % sides
    }
}

/// Proposes the true continuation with some tokens spoilt, so that every length of acceptance occurs.
pub struct Oracle {
    pub truth: Vec<u32>,
    pub prompt: usize,
    pub dice: Dice,
}

impl Drafter for Oracle {
    fn propose(&mut self, tokens: &[u32], max: usize, out: &mut Vec<u32>) {
        let rest = self.truth.get(tokens.len() - self.prompt..).unwrap_or(&[]);
        let count = self.dice.roll(max + 1);
        out.extend(rest.iter().take(count).map(|&id| if self.dice.roll(5) == 0 { (id + 1) % 128 } else { id }));
    }

    fn observe(&mut self, proposed: usize, accepted: usize) {
        assert!(proposed > 0 && accepted <= proposed);
    }
}

//! One answer, timed, and the comparison of ways to get it.

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, anyhow, bail, ensure};
use engine::{DraftCounts, DraftKind, Drafting, Event, FinishReason, Prediction, Request, Stream};
use load::Loaded;
use serde_json::{Map, Value, json};
use text::{ChatRequest, Message, Special};

use super::cases::Case;
use crate::report::median;

/// How an answer is drafted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Not at all.
    Plain,
    /// From prompt and output.
    Ngram,
    /// From the right prediction.
    Prediction,
    /// As the server does it: a prediction if there is one, prompt and output, no draft model.
    Usual,
    /// By the draft model alone.
    Model,
    /// As the server does it, with this prediction.
    Bad(&'static str),
    /// From this prediction and nothing else, so that nothing makes up for what it costs.
    BadAlone(&'static str),
}

impl Method {
    pub fn name(self) -> &'static str {
        match self {
            Method::Plain => "plain",
            Method::Ngram => "ngram",
            Method::Prediction => "prediction",
            Method::Usual => "usual",
            Method::Model => "draft model",
            Method::Bad(name) | Method::BadAlone(name) => name,
        }
    }

    /// The text to predict in this way.
    pub fn prediction(self, case: &Case) -> Option<&str> {
        let named = |name: &str| case.predictions.iter().find(|(other, _)| *other == name);
        match self {
            Method::Prediction | Method::Usual => case.predictions.first().map(|(_, text)| text.as_str()),
            Method::Bad(name) | Method::BadAlone(name) => named(name).map(|(_, text)| text.as_str()),
            Method::Plain | Method::Ngram | Method::Model => None,
        }
    }
}

/// An answer and what it took.
pub struct Outcome {
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// From the text of the prediction to the end of the answer.
    pub seconds: f64,
    /// What was drafted.
    pub drafts: DraftCounts,
    /// Whether the model ended it.
    pub whole: bool,
}

/// A model to measure with.
pub struct Bench {
    pub loaded: Loaded,
    pub drafts_with_model: bool,
}

impl Bench {
    /// Tokens of a question.
    pub fn prompt(&self, text: &str) -> Result<Vec<u32>> {
        let template = self.loaded.template.as_ref().map_err(|error| anyhow!("no usable chat template: {error}"))?;
        let text = template.render(&ChatRequest::new(&[Message::user(text)]))?;
        Ok(self.loaded.tokenizer.encode(&text, Special::Parse))
    }

    /// A request for an answer, drafted in this way.
    pub fn request(&self, prompt: &[u32], tokens: usize, way: Method, prediction: Option<&str>) -> Request {
        let encode = |text: &str| self.loaded.tokenizer.encode(text, Special::Plain);
        // The same bound as the server's: what comes after could not be said anyway.
        let prediction = prediction.map(|text| encode(&text[..text.floor_char_boundary(256 << 10)]));
        let drafting = Drafting {
            prediction: prediction.map(|tokens| Arc::new(Prediction::new(tokens))),
            ngram: matches!(way, Method::Ngram | Method::Usual | Method::Bad(_)),
            model: way == Method::Model,
            always: false,
        };
        let stop_tokens = self.loaded.tokenizer.vocabulary().stops().to_vec();
        Request { drafting, stop_tokens, ..Request::new(prompt.to_vec(), tokens) }
    }

    /// Has the model answer once.
    pub fn answer(&self, prompt: &[u32], tokens: usize, way: Method, prediction: Option<&str>) -> Result<Outcome> {
        let begun = Instant::now();
        let request = self.request(prompt, tokens, way, prediction);
        collect(self.loaded.engine.submit(request)?, begun)
    }

    /// Answers a case plainly and in the given ways, round by round, and prints what came of it.
    pub fn compare(&self, case: &Case, ways: &[Method], rounds: usize, json: bool) -> Result<()> {
        let prompt = self.prompt(&case.prompt)?;
        // Reads the prompt once, so that only answering is timed.
        self.answer(&prompt, 1, Method::Plain, None)?;
        let all: Vec<Method> = [&[Method::Plain], ways].concat();
        let mut outcomes: Vec<Vec<Outcome>> = all.iter().map(|_| Vec::new()).collect();
        for round in 0..rounds {
            // Another order each time, so that none of them always follows the same one.
            for index in (0..all.len()).map(|place| (place + round) % all.len()) {
                let way = all[index];
                outcomes[index].push(self.answer(&prompt, case.tokens, way, way.prediction(case))?);
            }
            for (way, of_way) in all.iter().zip(&outcomes) {
                let same = of_way[round].tokens == outcomes[0][round].tokens;
                ensure!(same, "the answer with {} is not the plain one", way.name());
            }
            errln!("{}: round {} of {rounds} done", case.name, round + 1);
        }
        let (plain, others) = (&outcomes[0], &outcomes[1..]);
        let rates: Vec<f64> = plain.iter().map(rate).collect();
        let mut values = Map::new();
        values.insert("prompt_tokens".to_owned(), json!(prompt.len()));
        values.insert("answer_tokens".to_owned(), json!(plain[0].tokens.len()));
        values.insert("answer_ended_itself".to_owned(), json!(plain[0].whole));
        values.insert("plain".to_owned(), json!({"tokens_per_s": rounded(&rates), "median": round(median(&rates))}));
        for (way, outcomes) in ways.iter().zip(others) {
            values.insert(way.name().to_owned(), figures(plain, outcomes));
        }
        self.print(&case.name, values, json);
        Ok(())
    }

    /// Prints one result with where it came from.
    pub fn print(&self, figure: &str, values: Map<String, Value>, json: bool) {
        if json {
            let command: Vec<String> = std::env::args().skip(1).collect();
            let facts = &self.loaded.facts;
            let unix_time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
            let provenance = json!({"command": format!("flint {}", command.join(" ")), "model": facts.name,
                "cpu": load::machine::cpu_name(), "threads": facts.threads, "kernels": facts.kernels,
                "bytes_per_token": facts.bytes_per_token, "unix_time": unix_time,
                "commit": crate::report::commit()});
            outln!("{}", json!({"figure": figure, "values": values, "provenance": provenance}));
            return;
        }
        outln!("{figure}");
        for (name, value) in &values {
            outln!("    {name:<30} {value}");
        }
    }
}

/// Reads an answer to its end.
pub fn collect(stream: Stream, begun: Instant) -> Result<Outcome> {
    let mut tokens = Vec::new();
    for event in stream {
        match event {
            Event::Started(_) => {}
            Event::Tokens(more) => tokens.extend(more.iter().map(|token| token.id)),
            Event::Finished(finished) => {
                let whole = matches!(finished.reason, FinishReason::StopToken(_));
                ensure!(whole || finished.reason == FinishReason::Length, "it ended with {:?}", finished.reason);
                let seconds = begun.elapsed().as_secs_f64();
                return Ok(Outcome { tokens, seconds, drafts: finished.usage.drafts, whole });
            }
        }
    }
    bail!("the engine ended without an answer")
}

/// What was drafted, by who did.
pub fn drafts(counts: &DraftCounts) -> Value {
    let drafted = DraftKind::ALL.into_iter().filter(|&kind| counts.of(kind).tokens > 0);
    let line = |kind: DraftKind| {
        let count = counts.of(kind);
        let line = json!({"drafts": count.drafts, "drafted": count.tokens, "accepted": count.accepted});
        (kind.name().to_owned(), line)
    };
    Value::Object(drafted.map(line).collect())
}

/// What one way came to, next to the plain answers of the same rounds.
fn figures(plain: &[Outcome], outcomes: &[Outcome]) -> Value {
    let rates: Vec<f64> = outcomes.iter().map(rate).collect();
    let gains: Vec<f64> = plain.iter().zip(outcomes).map(|(plain, way)| plain.seconds / way.seconds).collect();
    let last = outcomes.last().map(|outcome| outcome.drafts).unwrap_or_default();
    json!({"tokens_per_s": rounded(&rates), "median": round(median(&rates)), "times_plain": rounded(&gains),
        "median_times_plain": round(median(&gains)), "all_rounds_times_plain": round(sum(plain) / sum(outcomes)),
        "drafts": drafts(&last)})
}

fn sum(outcomes: &[Outcome]) -> f64 {
    outcomes.iter().map(|outcome| outcome.seconds).sum()
}

fn rate(outcome: &Outcome) -> f64 {
    outcome.tokens.len() as f64 / outcome.seconds
}

pub fn round(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}

fn rounded(numbers: &[f64]) -> Vec<f64> {
    numbers.iter().map(|&number| round(number)).collect()
}

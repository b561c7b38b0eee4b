//! The same model behind the engine: several sequences together, and a prompt that comes again.

use super::figures::Bench;
use super::report::{Provenance, median};
use anyhow::{Result, bail};
use engine::{Drafting, Engine, EngineHandle, EngineOptions, Event, FinishReason, Finished, Request, Sampling};
use serde_json::json;
use std::time::Instant;

const GENERATED: usize = 64;
const NEW_TOKENS: usize = 20;

/// Measures `sequences` at a time, then the reuse of a prompt of `reuse` tokens (0: not).
pub fn run(
    bench: Bench,
    sequences: &[usize],
    reuse: usize,
    rounds: usize,
    provenance: &Provenance,
    json: bool,
) -> Result<()> {
    let prompt = bench.tokens(reuse.max(64) + NEW_TOKENS);
    let engine = Engine::start(bench.model, EngineOptions::default())?;
    let mut first_rate = None;
    for &count in sequences {
        let rates =
            (0..rounds).map(|_| together(&engine, count, &prompt, &Sampling::default())).collect::<Result<Vec<_>>>()?;
        let rate = median(&rates);
        let alone = *first_rate.get_or_insert(rate);
        if json {
            let line = json!({"figure": format!("{count} sequences"), "tokens_per_s": rates, "median": rate,
                "of_first": rate / alone, "provenance": provenance.json()});
            outln!("{line}");
        } else {
            outln!("{count:2} sequences    {rate:7.1} tok/s, x{:.2} of the first", rate / alone);
        }
    }
    let sampled = |temperature, top_p| Sampling { temperature, top_p, seed: Some(1), ..Sampling::default() };
    for sampling in [sampled(0.8, 0.95), sampled(1.0, 1.0)] {
        let name = format!("1 sequence, temperature {}, top-p {}", sampling.temperature, sampling.top_p);
        let rates = (0..rounds).map(|_| together(&engine, 1, &prompt, &sampling)).collect::<Result<Vec<_>>>()?;
        let rate = median(&rates);
        if json {
            outln!(
                "{}",
                json!({"figure": name, "tokens_per_s": rates, "median": rate, "provenance": provenance.json()})
            );
        } else {
            outln!("{name}    {rate:7.1} tok/s");
        }
    }
    if reuse > 0 {
        let (cold, warm) = again(&engine, &prompt[..reuse], &prompt[reuse..])?;
        let share = warm.timings.first_token.as_secs_f64() / cold.timings.first_token.as_secs_f64();
        let (cold_s, warm_s) = (cold.timings.first_token.as_secs_f64(), warm.timings.first_token.as_secs_f64());
        if json {
            let line = json!({"figure": format!("prompt {reuse} again"), "cold_first_token_s": cold_s,
                "warm_first_token_s": warm_s, "cached_tokens": warm.usage.cached, "share": share,
                "provenance": provenance.json()});
            outln!("{line}");
        } else {
            let cached = warm.usage.cached;
            outln!(
                "prompt {reuse} again with {NEW_TOKENS} more: first token {:.0} ms instead of {:.0} ms ({:.1} %), {cached} cached",
                warm_s * 1e3,
                cold_s * 1e3,
                share * 1e2
            );
        }
    }
    Ok(())
}

/// Tokens per second of `count` sequences, from the first token of the last to start until the first to end.
fn together(engine: &EngineHandle, count: usize, prompt: &[u32], sampling: &Sampling) -> Result<f64> {
    let streams = (0..count)
        .map(|i| {
            let mut own = prompt[..32].to_vec();
            own[0] = i as u32 + 10;
            let (drafting, sampling) = (Drafting::OFF, sampling.clone());
            Ok(engine.submit(Request { drafting, sampling, ..Request::new(own, GENERATED) })?)
        })
        .collect::<Result<Vec<_>>>()?;
    let mut started: Option<Instant> = None;
    let mut tokens = 0;
    for stream in streams {
        for event in stream {
            match event {
                Event::Started(_) => {}
                Event::Tokens(more) => {
                    started.get_or_insert_with(Instant::now);
                    tokens += more.len();
                }
                Event::Finished(finished) => check(&finished)?,
            }
        }
    }
    let Some(started) = started else { bail!("no tokens came") };
    // The first token of the first stream only starts the clock.
    Ok((tokens - count) as f64 / started.elapsed().as_secs_f64())
}

/// First-token times of a prompt, and of the same prompt with new tokens at its end.
fn again(engine: &EngineHandle, prompt: &[u32], more: &[u32]) -> Result<(Finished, Finished)> {
    let cold = finish(engine, prompt.to_vec())?;
    let warm = finish(engine, [prompt, more].concat())?;
    Ok((cold, warm))
}

fn finish(engine: &EngineHandle, prompt: Vec<u32>) -> Result<Finished> {
    for event in engine.submit(Request::new(prompt, 1))? {
        if let Event::Finished(finished) = event {
            check(&finished)?;
            return Ok(*finished);
        }
    }
    bail!("the engine ended without an answer")
}

fn check(finished: &Finished) -> Result<()> {
    match &finished.reason {
        FinishReason::Length => Ok(()),
        other => bail!("a sequence ended with {other:?}"),
    }
}

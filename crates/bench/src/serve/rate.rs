//! The engine's own rate against what arrives through the real server: the same tokens, taking turns in one process each.
//!
//! Both are timed from the request to the last token, with the prompt already read, so what the server adds at the
//! beginning counts too. Then cancelling, in steps of this model.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use engine::{Event, FinishReason, Request};
use load::Loaded;
use serde_json::{Value, json};
use text::{ChatRequest, Message, Special};

use super::ServeBenchArgs;
use super::child::Served;
use super::measure::{Times, print, round};
use super::session::{model, runtime};
use super::wire::{Socket, is_end};
use crate::report::median;

/// Tokens of an answer, and how often it is asked for.
const TOKENS: usize = 256;
const ROUNDS: usize = 7;
/// Answers that are cancelled.
const CANCELS: usize = 20;
const ASK: &str = "Tell a story about an old lighthouse keeper and the last ship of the year, in at least 600 words.";

/// Measures both.
pub fn run(args: &ServeBenchArgs) -> Result<()> {
    let (model, runtime) = (model(args)?, runtime()?);
    let loaded = load::load(&args.load_options(&model)?)?;
    let state = tempfile::tempdir()?;
    let served = Served::start(&model, args, state.path())?;
    let (mut own, mut through, mut drafted) = (Vec::new(), Vec::new(), 0);
    runtime.block_on(async {
        let mut socket = Socket::open(served.port).await?;
        for round in 0..=ROUNDS {
            let (tokens, seconds, drafts) = from_engine(&loaded)?;
            let (text, time) = from_server(&mut socket, &model).await?;
            let expected = String::from_utf8_lossy(&loaded.tokenizer.decode(&tokens)).into_owned();
            // Random weights say control tokens and halves of characters, which the server leaves out of the text.
            let same = args.shape.is_some() || text == expected;
            ensure!(same, "the server said {text:?}, the engine {expected:?}");
            // The first round reads the prompt.
            if round > 0 {
                own.push(TOKENS as f64 / seconds);
                through.push(TOKENS as f64 / time.as_secs_f64());
                drafted = drafts;
            }
        }
        Ok::<_, anyhow::Error>(())
    })?;
    drop(loaded);
    let values = json!({"engine_tokens_per_s": rounded(&own), "websocket_tokens_per_s": rounded(&through),
        "engine_median": round(median(&own)), "websocket_median": round(median(&through)),
        "share": round(median(&through) / median(&own)), "drafted_tokens": drafted, "tokens": TOKENS});
    print(args, &format!("{}: the engine's rate through a WebSocket", args.name(&model)), values);
    let step = 1.0 / median(&own);
    let (times, tokens) = runtime.block_on(cancelled(&served, &model))?;
    let values = json!({"cancel to last event": times.json(), "a step_ms": round(step * 1e3),
        "median in steps": round(times.at(0.5) / 1e3 / step),
        "most tokens after the last seen before the cancel": tokens});
    print(args, &format!("{}: cancelling", args.name(&model)), values);
    Ok(())
}

fn from_engine(loaded: &Loaded) -> Result<(Vec<u32>, f64, u64)> {
    let template = loaded.template.as_ref().map_err(|error| anyhow!("no usable chat template: {error}"))?;
    let prompt = template.render(&ChatRequest::new(&[Message::user(ASK)]))?;
    let prompt = loaded.tokenizer.encode(&prompt, Special::Parse);
    let stop_tokens = loaded.tokenizer.vocabulary().stops().to_vec();
    let begun = Instant::now();
    let mut tokens = Vec::new();
    for event in loaded.engine.submit(Request { stop_tokens, ..Request::new(prompt, TOKENS) })? {
        match event {
            Event::Started(_) => {}
            Event::Tokens(more) => tokens.extend(more.iter().map(|token| token.id)),
            Event::Finished(finished) => {
                ensure!(finished.reason == FinishReason::Length, "it ended early: {:?}", finished.reason);
                return Ok((tokens, begun.elapsed().as_secs_f64(), finished.usage.drafts.total().tokens));
            }
        }
    }
    Err(anyhow!("the engine ended without an answer"))
}

fn create(model: &str) -> Value {
    json!({"type": "response.create", "model": model, "input": ASK, "store": false, "temperature": 0,
        "max_output_tokens": TOKENS})
}

async fn from_server(socket: &mut Socket, model: &str) -> Result<(String, Duration)> {
    let begun = Instant::now();
    socket.send(&create(model)).await?;
    let (mut text, mut last) = (String::new(), begun);
    loop {
        let event = socket.event().await?;
        if event["type"] == "response.output_text.delta" {
            last = Instant::now();
            text.push_str(event["delta"].as_str().context("a delta without text")?);
        } else if is_end(&event) {
            let count = &event["response"]["usage"]["output_tokens"];
            ensure!(*count == TOKENS, "{count} tokens came instead of {TOKENS}: {event}");
            return Ok((text, last - begun));
        }
    }
}

/// From a cancel to the end of the response; and the tokens that were generated beyond those seen when it was sent.
async fn cancelled(served: &Served, model: &str) -> Result<(Times, u64)> {
    let mut socket = Socket::open(served.port).await?;
    let (mut times, mut most) = (Vec::new(), 0);
    for round in 0..CANCELS {
        socket.send(&create(model)).await?;
        let (mut id, mut deltas, mut sent, mut after) = (Value::Null, 0, None, 0);
        loop {
            let event = socket.event().await?;
            match event["type"].as_str().unwrap_or_default() {
                "response.created" => id = event["response"]["id"].clone(),
                "response.output_text.delta" => {
                    deltas += 1;
                    after += u64::from(sent.is_some());
                    if deltas == 10 + round {
                        socket.send(&json!({"type": "response.cancel", "response_id": id})).await?;
                        sent = Some(Instant::now());
                    }
                }
                _ if is_end(&event) => break,
                _ => {}
            }
        }
        times.push(sent.context("the answer ended before it was cancelled")?.elapsed());
        most = most.max(after);
    }
    Ok((Times::new(times), most))
}

fn rounded(numbers: &[f64]) -> Vec<f64> {
    numbers.iter().map(|&number| round(number)).collect()
}

//! Sessions on a real model: what warming up saves, that a turn costs only its new text, and how fast steering is.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::ServeBenchArgs;
use super::child::Served;
use super::measure::{Times, print, round};
use super::wire::{Socket, is_end};

/// Lengths of the history at which a turn is measured, in tokens, more or less.
const HISTORIES: [usize; 3] = [500, 1_000, 2_000];

/// From the end of a warming up to the question.
const PAUSE: Duration = Duration::from_millis(300);

/// Cold and warmed first tokens, then a turn at several depths.
pub fn run(args: &ServeBenchArgs) -> Result<()> {
    let (model, runtime) = (model(args)?, runtime()?);
    let state = tempfile::tempdir()?;
    let served = Served::start(&model, args, state.path())?;
    for (index, &tokens) in HISTORIES.iter().enumerate() {
        let values = runtime.block_on(async {
            let mut socket = Socket::open(served.port).await?;
            let ask = request(&model, &story(tokens, 2 * index), Value::Null, "Go on.");
            let (cold, read) = socket.first_token(&ask).await?;
            let warm_text = story(tokens, 2 * index + 1);
            let warm_up = json!({"type": "response.create", "generate": false, "model": model, "store": false,
                "instructions": warm_text, "input": []});
            socket.send(&warm_up).await?;
            let id = socket.end().await?["id"].clone();
            // A card is asked to read and answers before it has; nobody types a question in no time.
            tokio::time::sleep(PAUSE).await;
            let mut next = request(&model, &warm_text, id, "Go on.");
            let (warm, warmed) = socket.first_token(&next).await?;
            next["previous_response_id"] = warmed["id"].clone();
            next["input"] = json!("And what happened after that, in one sentence?");
            let (turn, response) = socket.first_token(&next).await?;
            let cached = &response["usage"]["input_tokens_details"]["cached_tokens"];
            ensure!(cached.as_u64() >= warmed["usage"]["input_tokens"].as_u64(), "the turn was read again");
            Ok::<_, anyhow::Error>(json!({
                "prompt_tokens": read["usage"]["input_tokens"],
                "cold_ms": round(cold.as_secs_f64() * 1e3),
                "warmed_ms": round(warm.as_secs_f64() * 1e3),
                "warmed_share": round(warm.as_secs_f64() / cold.as_secs_f64()),
                "next_turn_ms": round(turn.as_secs_f64() * 1e3),
                // What the engine took of it, by its own clock.
                "next_turn_engine_ms": response["flint"]["timings"]["first_token_ms"],
                "next_turn_new_tokens": response["usage"]["input_tokens"].as_u64().unwrap_or(0)
                    - cached.as_u64().unwrap_or(0),
            }))
        })?;
        print(args, &format!("first token of {model}, history of about {tokens} tokens"), values);
    }
    Ok(())
}

/// A hundred answers redirected at random places.
pub fn steer(args: &ServeBenchArgs) -> Result<()> {
    let (model, runtime) = (model(args)?, runtime()?);
    let state = tempfile::tempdir()?;
    let served = Served::start(&model, args, state.path())?;
    let (mut times, mut floors) = (Vec::new(), Vec::new());
    runtime.block_on(async {
        let mut socket = Socket::open(served.port).await?;
        for round in 0..args.steers {
            let one = steer_once(&mut socket, &model, round).await?;
            times.push(one.time);
            floors.push(one.floor);
        }
        Ok::<_, anyhow::Error>(())
    })?;
    let values = json!({
        "steer to first token of the successor": Times::new(times).json(),
        "a decode step and the prefill of the steer": Times::new(floors).json(),
    });
    print(args, &format!("steering {model}"), values);
    Ok(())
}

struct Steered {
    time: Duration,
    /// One decode step, plus what the engine spent on reading the steer.
    floor: Duration,
}

async fn steer_once(socket: &mut Socket, model: &str, round: usize) -> Result<Steered> {
    let ask = format!("Write a Python class Ledger{round} with ten methods and a docstring for each of them.");
    let create =
        json!({"type": "response.create", "model": model, "input": ask, "store": false, "max_output_tokens": 200});
    socket.send(&create).await?;
    let after = 5 + (round * 7) % 23;
    let (mut id, mut deltas, mut sent) = (String::new(), 0, None);
    let (mut before, mut seen): (Option<Value>, String) = (None, String::new());
    loop {
        let event = socket.event().await?;
        match event["type"].as_str().unwrap_or_default() {
            "response.created" => id = event["response"]["id"].as_str().unwrap_or_default().to_owned(),
            "response.output_text.delta" => {
                if let (Some(sent), Some(_)) = (sent, &before) {
                    let time = Instant::duration_since(&Instant::now(), sent);
                    let response = socket.end().await?;
                    return check_steer(&before.unwrap_or_default(), &response, &seen, time);
                }
                seen.push_str(event["delta"].as_str().unwrap_or_default());
                deltas += 1;
                if deltas == after {
                    let text = format!("Stop. Answer only with the number {round}, nothing else.");
                    socket.send(&json!({"type": "response.steer", "previous_response_id": id, "input": text})).await?;
                    sent = Some(Instant::now());
                }
            }
            _ if is_end(&event) => {
                ensure!(event["response"]["incomplete_details"]["reason"] == "steered", "not steered: {event}");
                before = Some(event["response"].clone());
            }
            _ => {}
        }
    }
}

/// Nothing that was generated is lost, and nothing is read again.
fn check_steer(before: &Value, after: &Value, seen: &str, time: Duration) -> Result<Steered> {
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let kept = before["output"][0]["content"][0]["text"].as_str().unwrap_or_default();
    ensure!(kept == seen, "text was lost: {seen:?} became {kept:?}");
    ensure!(after["previous_response_id"] == before["id"], "the successor follows another response");
    let whole = number(&before["usage"]["total_tokens"]);
    let cached = number(&after["usage"]["input_tokens_details"]["cached_tokens"]);
    // The last token was picked but not yet read when the answer was stopped.
    ensure!(cached + 1 >= whole, "{cached} of {whole} tokens were cached");
    let timings = |response: &Value, name: &str| response["flint"]["timings"][name].as_f64().unwrap_or(0.0);
    let step = 1e3 / timings(before, "decode_rate").max(1e-3);
    let floor = Duration::from_secs_f64((step + timings(after, "prefill_ms")) / 1e3);
    Ok(Steered { time, floor })
}

fn request(model: &str, instructions: &str, previous: Value, ask: &str) -> Value {
    json!({"type": "response.create", "model": model, "instructions": instructions, "previous_response_id": previous,
        "input": ask, "store": false, "max_output_tokens": 16})
}

/// About `tokens` tokens of text that no other `seed` begins with.
pub fn story(tokens: usize, seed: usize) -> String {
    let mut text = format!("Log {seed} of the lighthouse, kept by its {seed}th keeper.\n");
    let mut line = 0;
    // About eighteen tokens a line.
    while line * 18 < tokens {
        text.push_str(&format!(
            "Night {line}: wind from the west, {} ships passed, the lamp was trimmed twice.\n",
            line * 7 % 13
        ));
        line += 1;
    }
    text
}

/// The model of the real parts.
pub fn model(args: &ServeBenchArgs) -> Result<String> {
    let name = args.model.clone().map_or_else(load::fetch::default_name, Ok)?;
    load::fetch::ensure(&name, false)?;
    Ok(name)
}

/// The client's side.
pub fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

//! Many connections: torn down at random, idle beside streaming, and interactive work above a saturated engine.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::ServeBenchArgs;
use super::child::Served;
use super::measure::{Times, print, round};
use super::session::runtime;
use super::wire::{Socket, is_end};

/// Sockets that only stay open.
const IDLE: usize = 256;

/// Sockets that stream at the same time.
const STREAMING: usize = 64;

/// Tokens of each of those streams.
const TOKENS: usize = 64;

/// Interactive requests measured over background work.
const INTERACTIVE: usize = 20;

/// Connections open at the same time while they are torn down.
const AT_ONCE: usize = 100;

/// Runs both parts on one server.
pub fn run(args: &ServeBenchArgs) -> Result<()> {
    load::fetch::ensure(&args.small, false)?;
    let (runtime, state) = (runtime()?, tempfile::tempdir()?);
    let served = Served::start(&args.small, args, state.path())?;
    runtime.block_on(torn(args, &served))?;
    runtime.block_on(beside(args, &served))
}

/// Connections that are used and dropped in the middle leave nothing behind.
async fn torn(args: &ServeBenchArgs, served: &Served) -> Result<()> {
    // The first crowd fills the KV cache and the pools, which stay; the others must cost nothing.
    crowd(served, &args.small, args.connections).await?;
    let mut resident = vec![served.resident_bytes()?];
    for _ in 0..3 {
        crowd(served, &args.small, args.connections).await?;
        resident.push(served.resident_bytes()?);
    }
    let growth = *resident.last().unwrap_or(&0) as f64 / resident[0].max(1) as f64 - 1.0;
    let megabytes: Vec<u64> = resident.iter().map(|bytes| bytes >> 20).collect();
    let values = json!({"connections": 4 * args.connections,
        "resident_mb after each crowd": megabytes, "growth from the first to the last": round(growth)});
    print(args, "connections torn down at random", values);
    Ok(())
}

async fn crowd(served: &Served, model: &str, connections: usize) -> Result<()> {
    let mut tasks = JoinSet::new();
    for index in 0..connections {
        while tasks.len() >= AT_ONCE {
            tasks.join_next().await.transpose()?.transpose()?;
        }
        let (port, model) = (served.port, model.to_owned());
        tasks.spawn(async move {
            let mut socket = Socket::open(port).await?;
            let create = json!({"type": "response.create", "model": model, "store": false,
                "input": format!("Count from {index} upwards."), "max_output_tokens": 64});
            if index % 11 != 0 {
                socket.send(&create).await?;
                for _ in 0..index % 17 {
                    if is_end(&socket.event().await?) {
                        break;
                    }
                }
            }
            Ok::<_, anyhow::Error>(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    quiet(served).await
}

/// Waits until no sequence runs or waits.
async fn quiet(served: &Served) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let busy = served.metric("vllm:num_requests_running", "").await?
            + served.metric("vllm:num_requests_waiting", "").await?;
        if busy == 0.0 {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("{busy} sequences still run after everybody has left");
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Idle and streaming sockets, then interactive requests over background work.
async fn beside(args: &ServeBenchArgs, served: &Served) -> Result<()> {
    let mut idle = Vec::new();
    for _ in 0..IDLE {
        idle.push(Socket::open(served.port).await?);
    }
    let alone = interactive(served, &args.small, 1000).await?;
    let expected = stream(served.port, request(&args.small, "priority", 0)).await?;
    let mut tasks = JoinSet::new();
    let begun = Instant::now();
    for _ in 0..STREAMING {
        tasks.spawn(stream(served.port, request(&args.small, "flex", 0)));
    }
    while served.metric("flint_lane_running", "background").await? < STREAMING as f64 / 2.0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let crowded = interactive(served, &args.small, 2000).await?;
    let saturated = served.metric("flint_lane_running", "background").await? > 0.0;
    let mut count = 0;
    while let Some(done) = tasks.join_next().await {
        let text = done??;
        ensure!(text == expected, "a stream beside others differs: {text:?} instead of {expected:?}");
        count += 1;
    }
    let rate = (count * TOKENS) as f64 / begun.elapsed().as_secs_f64();
    drop(idle);
    quiet(served).await?;
    let values = json!({"idle sockets": IDLE, "streams": count, "streams with every token in order": count,
        "tokens_per_s together": round(rate), "interactive first token alone": alone.json(),
        "interactive first token over background work": crowded.json(),
        "ratio of medians": round(crowded.at(0.5) / alone.at(0.5)), "background still ran at the end": saturated});
    print(args, "256 idle and 64 streaming sockets", values);
    Ok(())
}

fn request(model: &str, tier: &str, number: usize) -> Value {
    let ask = format!(
        "Question {number}. A harbour has three cranes, five quays and a lighthouse. Each crane unloads a ship in two \
         hours and each quay holds one ship. Explain step by step how the harbour master should plan the day when \
         nine ships arrive in the morning and four more at noon, and say what could go wrong."
    );
    json!({"type": "response.create", "model": model, "store": false, "service_tier": tier, "input": ask,
        "max_output_tokens": TOKENS})
}

async fn stream(port: u16, request: Value) -> Result<String> {
    let mut socket = Socket::open(port).await?;
    socket.send(&request).await?;
    let (mut text, mut number) = (String::new(), 0);
    loop {
        let event = socket.event().await?;
        ensure!(event["sequence_number"] == number, "event {number} is {event}");
        number += 1;
        if event["type"] == "response.output_text.delta" {
            text.push_str(event["delta"].as_str().unwrap_or_default());
        } else if is_end(&event) {
            return Ok(text);
        }
    }
}

/// First tokens of new prompts, one after the other.
async fn interactive(served: &Served, model: &str, base: usize) -> Result<Times> {
    let mut socket = Socket::open(served.port).await?;
    let mut times = Vec::new();
    for index in 0..INTERACTIVE {
        let mut request = request(model, "priority", base + index);
        request["max_output_tokens"] = json!(2);
        times.push(socket.first_token(&request).await?.0);
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    Ok(Times::new(times))
}

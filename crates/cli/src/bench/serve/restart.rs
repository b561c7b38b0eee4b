//! A crash in the middle of a session: what was stored is whole, and the next turn does not read it again.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use serde_json::{Value, json};

use super::ServeBenchArgs;
use super::child::Served;
use super::measure::{print, round};
use super::session::{model, runtime, story};
use super::wire::{Socket, is_end};

/// A long session, a kill -9 while another answer streams, a restart, the next turn.
pub fn run(args: &ServeBenchArgs) -> Result<()> {
    let (model, runtime, state) = (model(args)?, runtime()?, tempfile::tempdir()?);
    let served = Served::start(&model, state.path())?;
    let instructions = story(args.history, 7);
    let create = |previous: Value, ask: &str| {
        json!({"type": "response.create", "model": model, "instructions": instructions, "input": ask,
            "previous_response_id": previous, "max_output_tokens": 24})
    };
    let (cold, first) = runtime.block_on(async {
        let mut socket = Socket::open(served.port).await?;
        let (time, response) = turn(&mut socket, &create(Value::Null, "What was the wind on night 3?")).await?;
        saved(&served, response["usage"]["input_tokens"].as_u64().unwrap_or(0)).await?;
        // Another stored answer is in the middle of its stream when the power goes.
        let mut long = create(response["id"].clone(), "Tell me everything about night 5.");
        long["max_output_tokens"] = json!(400);
        socket.send(&long).await?;
        while socket.event().await?["type"] != "response.output_text.delta" {}
        Ok::<_, anyhow::Error>((time, response))
    })?;
    served.kill()?;
    let torn = tear(state.path())?;
    let begun = Instant::now();
    let served = Served::start(&model, state.path())?;
    let start = begun.elapsed();
    let (warm, second, rejected) = runtime.block_on(async {
        let mut socket = Socket::open(served.port).await?;
        let (time, response) = turn(&mut socket, &create(first["id"].clone(), "And on night 4?")).await?;
        Ok::<_, anyhow::Error>((time, response, served.metric("flint_snapshot_rejected_total", "").await?))
    })?;
    ensure!(second["previous_response_id"] == first["id"], "the session did not go on");
    ensure!(rejected == 0.0 || torn, "saved blocks were rejected: {rejected}");
    let restored = second["flint"]["timings"]["restored_tokens"].clone();
    let values = json!({
        "prompt_tokens": second["usage"]["input_tokens"],
        "cold_first_token_ms": round(cold.as_secs_f64() * 1e3),
        "first_token_after_restart_ms": round(warm.as_secs_f64() * 1e3),
        "share": round(warm.as_secs_f64() / cold.as_secs_f64()),
        "restored_tokens": restored,
        "torn files planted and ignored": torn,
        "server start_ms": round(start.as_secs_f64() * 1e3),
    });
    print(args, &format!("{model}: kill -9 and the next turn"), values);
    Ok(())
}

async fn turn(socket: &mut Socket, request: &Value) -> Result<(Duration, Value)> {
    let begun = Instant::now();
    socket.send(request).await?;
    let mut first = None;
    loop {
        let mut event = socket.event().await?;
        if event["type"] == "response.output_text.delta" {
            first.get_or_insert_with(|| begun.elapsed());
        } else if is_end(&event) {
            return Ok((first.unwrap_or_else(|| begun.elapsed()), event["response"].take()));
        }
    }
}

/// Waits until the blocks of `tokens` tokens are on disk.
async fn saved(served: &Served, tokens: u64) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(60);
    while served.metric("flint_snapshot_blocks", "").await? * 32.0 + 32.0 < tokens as f64 {
        if Instant::now() > deadline {
            bail!("the session was not written to disk");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Leaves a half-written file among the saved blocks, as a crash during a write would.
fn tear(state: &std::path::Path) -> Result<bool> {
    for model in std::fs::read_dir(state.join("kv"))? {
        let folder = model?.path();
        if !folder.is_dir() {
            continue;
        }
        let Some(file) = std::fs::read_dir(&folder)?.flatten().map(|entry| entry.path()).find(|path| path.is_file())
        else {
            continue;
        };
        let bytes = std::fs::read(&file)?;
        let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let torn: String = name.chars().map(|c| if c == '0' { '1' } else { c }).collect();
        if torn != name {
            std::fs::write(folder.join(torn), &bytes[..bytes.len() / 2])?;
            return Ok(true);
        }
    }
    Ok(false)
}

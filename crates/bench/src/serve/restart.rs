//! A crash in the middle of a session: what was stored is whole, and the next turn does not read it again.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::ServeBenchArgs;
use super::child::Served;
use super::measure::{print, round};
use super::session::{model, runtime, story};
use super::wire::Socket;

/// A long session, a kill -9 while another answer streams, a restart, the next turn.
pub fn run(args: &ServeBenchArgs) -> Result<()> {
    let (model, runtime, state) = (model(args)?, runtime()?, tempfile::tempdir()?);
    let served = Served::start(&model, args, state.path())?;
    let instructions = story(args.history, 7);
    let create = |previous: Value, ask: &str| {
        json!({"type": "response.create", "model": model, "instructions": instructions, "input": ask,
            "previous_response_id": previous, "max_output_tokens": 24})
    };
    let (cold, first) = runtime.block_on(async {
        let mut socket = Socket::open(served.port).await?;
        let (time, response) = socket.first_token(&create(Value::Null, "What was the wind on night 3?")).await?;
        saved(&served, response["usage"]["input_tokens"].as_u64().unwrap_or(0)).await?;
        // Another stored answer is in the middle of its stream when the power goes.
        let mut long = create(response["id"].clone(), "Tell me everything about night 5.");
        long["max_output_tokens"] = json!(400);
        socket.send(&long).await?;
        while socket.event().await?["type"] != "response.output_text.delta" {}
        Ok::<_, anyhow::Error>((time, response))
    })?;
    served.kill()?;
    tear(state.path())?;
    let begun = Instant::now();
    let served = Served::start(&model, args, state.path())?;
    let start = begun.elapsed();
    let (warm, second, rejected) = runtime.block_on(async {
        let mut socket = Socket::open(served.port).await?;
        let (time, response) = socket.first_token(&create(first["id"].clone(), "And on night 4?")).await?;
        Ok::<_, anyhow::Error>((time, response, served.metric("flint_snapshot_rejected_total", "").await?))
    })?;
    ensure!(second["previous_response_id"] == first["id"], "the session did not go on");
    ensure!(rejected == 1.0, "one block was torn, {rejected} were rejected");
    let restored = second["flint"]["timings"]["restored_tokens"].clone();
    let values = json!({
        "prompt_tokens": second["usage"]["input_tokens"],
        "cold_first_token_ms": round(cold.as_secs_f64() * 1e3),
        "first_token_after_restart_ms": round(warm.as_secs_f64() * 1e3),
        "share": round(warm.as_secs_f64() / cold.as_secs_f64()),
        "restored_tokens": restored,
        "torn blocks rejected": rejected,
        "server start_ms": round(start.as_secs_f64() * 1e3),
    });
    print(args, &format!("{model}: kill -9 and the next turn"), values);
    Ok(())
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

/// Cuts the last block of the session in half, as a crash of the machine during a write would.
fn tear(state: &Path) -> Result<()> {
    let folders = std::fs::read_dir(state.join("kv"))?.flatten().map(|entry| entry.path());
    let files = folders.filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten().map(|file| file.path());
    // Names end in the block's depth: `KEY-DEPTH.kv`.
    let depth = |file: &PathBuf| file.file_stem()?.to_str()?.rsplit('-').next()?.parse::<u32>().ok();
    let last = files.filter(|file| depth(file).is_some()).max_by_key(depth).context("nothing was saved")?;
    let bytes = std::fs::read(&last)?;
    Ok(std::fs::write(&last, &bytes[..bytes.len() / 2])?)
}

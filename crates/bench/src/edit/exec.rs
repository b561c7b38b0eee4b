//! The edits through the whole partner: `flint exec` rewrites a file in a folder, once with drafts and once without.
//!
//! Two private servers stay warm, one of which says one token at a time (`FLINT_DRAFTS=false`), and they take turns on the
//! same task. Both must leave the same file, with the change in it. What is compared is what the server says about its
//! decoding; the seconds are the process's own, with reading the prompt.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::cases::{FileEdit, file_edits};
use crate::apart::{Apart, bounded_run};
use crate::report::median;

/// How long one edit may take.
const PATIENCE: Duration = Duration::from_secs(480);

/// One run of `flint exec`.
struct Edited {
    file: String,
    seconds: f64,
    usage: Value,
}

/// Measures and prints.
pub fn run(model: &str, rounds: usize, json: bool) -> Result<()> {
    let place = tempfile::tempdir()?;
    let server = |name: &str, no_drafts| -> Result<Apart> {
        let apart = Apart::new(&place.path().join(name), &[("FLINT_NO_DRAFTS", no_drafts)]);
        apart.warm_up(model)?;
        Ok(apart)
    };
    let (plain, drafted) = (server("plain", "true")?, server("drafted", "false")?);
    for edit in file_edits() {
        let mut runs = Vec::new();
        for round in 0..rounds.max(1) {
            let folder = place.path().join(format!("{}-{round}", edit.name));
            // Who goes first changes, because the second finds a machine that is warm or throttled.
            let (first, second) = if round % 2 == 0 { (&plain, &drafted) } else { (&drafted, &plain) };
            let first = ask(first, &folder.join("first"), model, &edit)?;
            let second = ask(second, &folder.join("second"), model, &edit)?;
            let (plain, drafted) = if round % 2 == 0 { (first, second) } else { (second, first) };
            ensure!(plain.file == drafted.file, "{}: the drafted file is not the plain one", edit.name);
            ensure!(
                plain.file.contains(edit.expected),
                "{}: the change is not in the file: {}",
                edit.name,
                plain.usage
            );
            runs.push((plain, drafted));
        }
        print(model, &edit, &runs, json);
    }
    Ok(())
}

/// Lets the partner make the edit in a folder of its own.
fn ask(apart: &Apart, folder: &Path, model: &str, edit: &FileEdit) -> Result<Edited> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join(edit.name), edit.file)?;
    let mut command = apart.flint(folder)?;
    command.args(["exec", "--json", "--ephemeral", "-m", model]);
    command.arg(format!("{} Change nothing else. Write the whole file @{}.", edit.change, edit.name));
    let ran = bounded_run(command, PATIENCE)?;
    let mut events = ran.output.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let usage = events.find(|event| event["type"] == "turn.completed").map(|event| event["usage"].clone());
    let (Some(0), Some(usage)) = (ran.exit_code, usage) else {
        bail!("{}: flint exec did not make the edit: {}", edit.name, ran.output.trim_end());
    };
    let file = fs::read_to_string(folder.join(edit.name)).context("the file that was edited")?;
    Ok(Edited { file, seconds: ran.seconds, usage })
}

fn print(model: &str, edit: &FileEdit, runs: &[(Edited, Edited)], as_json: bool) {
    let rates = |edited: fn(&(Edited, Edited)) -> &Edited| -> Vec<f64> {
        runs.iter().filter_map(|run| edited(run).usage["decode_rate"].as_f64()).map(|rate| round(rate, 10.0)).collect()
    };
    let seconds = |edited: fn(&(Edited, Edited)) -> &Edited| -> Vec<f64> {
        runs.iter().map(|run| round(edited(run).seconds, 10.0)).collect()
    };
    let (plain, drafted) = (rates(|run| &run.0), rates(|run| &run.1));
    let times: Vec<f64> = plain.iter().zip(&drafted).map(|(plain, drafted)| drafted / plain).collect();
    let lines = edit.file.lines().count();
    let usage = runs.last().map_or(Value::Null, |run| run.1.usage.clone());
    if as_json {
        let line = json!({
            "at": SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            "case": format!("flint exec, {}, {lines} lines, whole file", edit.name), "model": model,
            "output tokens": usage["output_tokens"], "accepted prediction tokens": usage["accepted_prediction_tokens"],
            "plain tokens/s": plain, "drafted tokens/s": drafted,
            "times": times.iter().map(|times| round(*times, 100.0)).collect::<Vec<_>>(),
            "plain seconds": seconds(|run| &run.0), "drafted seconds": seconds(|run| &run.1), "same file": true});
        outln!("{line}");
        return;
    }
    outln!("{}, {lines} lines, {} tokens, the same file both times", edit.name, usage["output_tokens"]);
    outln!("  plain    {plain:?} tokens/s, {:?} s in all", seconds(|run| &run.0));
    outln!("  drafted  {drafted:?} tokens/s, {:?} s in all: x{:.2}", seconds(|run| &run.1), median(&times));
}

fn round(value: f64, steps: f64) -> f64 {
    (value * steps).round() / steps
}

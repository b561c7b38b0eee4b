//! `flint bench screen`: does the screen keep up with a model that says thousands of tokens a second?
//!
//! The real screen runs in a real pseudo-terminal as a process of its own, with a partner that follows a script. It is
//! watched from outside, as a person would: when frames arrive (each ends with the mark of a synchronised update), how long
//! a key takes until its letter is on the screen, and what share of a core the process uses. Only the time that drawing
//! takes is told by the process itself.

mod script;
mod terminal;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use serde_json::json;

use super::serve::measure::{Times, print_as, round};
use terminal::Watched;

/// Time between two keys: 9 a second, a fast typist, and no multiple of the time between frames.
const KEY_EVERY: Duration = Duration::from_millis(111);
/// The first moments, in which a process starts and a screen fills.
const WARM_UP: Duration = Duration::from_millis(500);
/// How long a key may take before it counts as lost.
const KEY_LOST: Duration = Duration::from_secs(5);

/// Arguments of `flint bench screen`.
#[derive(Args, Clone)]
pub struct ScreenBenchArgs {
    /// Parts to run
    #[arg(value_enum, value_delimiter = ',', default_value = "text,edit,history")]
    parts: Vec<Part>,
    /// Tokens per second
    #[arg(long, default_value_t = 5_000)]
    rate: u32,
    /// Seconds each part is watched
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Columns and rows of the terminal
    #[arg(long, default_value = "120x40", value_parser = size)]
    size: (u16, u16),
    /// Print JSON lines
    #[arg(long)]
    json: bool,
    /// Be the process that is watched, and write what drawing took to this file
    #[arg(long, hide = true)]
    inside: Option<std::path::PathBuf>,
}

/// What is streamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// An answer in words.
    Text,
    /// A change of one file that grows to thousands of lines.
    Edit,
    /// An answer in words after 1,500 turns.
    History,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Part::Text => "text",
            Part::Edit => "edit",
            Part::History => "history",
        }
    }
}

fn size(text: &str) -> Result<(u16, u16), String> {
    let parsed = text.split_once('x').and_then(|(width, height)| Some((width.parse().ok()?, height.parse().ok()?)));
    parsed.filter(|&(width, height)| width >= 20 && height >= 5).ok_or_else(|| "a size is such as 80x24".to_owned())
}

/// Runs the parts that were asked for.
pub fn run(args: ScreenBenchArgs) -> Result<()> {
    if let Some(report) = &args.inside {
        let part = args.parts.first().copied().unwrap_or(Part::Text);
        return script::run(part, args.rate, report);
    }
    args.parts.iter().try_for_each(|&part| watch(part, &args))
}

fn watch(part: Part, args: &ScreenBenchArgs) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let report = folder.path().join("frames");
    let rate = args.rate.to_string();
    let inside = ["bench", "screen", part.name(), "--rate", &rate, "--inside"];
    let mut watched = Watched::start(&inside, &report, args.size)?;
    std::thread::sleep(WARM_UP);
    let (cpu_before, began) = (watched.cpu()?, Instant::now());
    let mut echoes = Vec::new();
    let mut letters = ('α'..='ω').filter(|&letter| letter != 'ς').cycle();
    let mut written = 0;
    while began.elapsed().as_secs_f64() < args.seconds {
        let next = Instant::now() + KEY_EVERY;
        // A full line is taken back, so that the composer stays one row high.
        if written == 12 {
            watched.write(b"\x15")?;
            written = 0;
        } else {
            let letter = letters.next().context("a cycle has no end")?;
            echoes.push(watched.echo(letter, KEY_LOST)?);
            written += 1;
        }
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    let wall = began.elapsed();
    let cpu = watched.cpu()? - cpu_before;
    let frames = watched.frames_since(began);
    watched.write(b"\x15\x04")?;
    watched.wait(KEY_LOST)?;
    let told = std::fs::read_to_string(&report).context("the screen wrote no report")?;
    let told: serde_json::Value = serde_json::from_str(&told)?;
    ensure!(frames.len() > 2, "the screen drew nothing");
    let gaps = Times::new(frames.windows(2).map(|pair| pair[1] - pair[0]).collect());
    let core_share = cpu.as_secs_f64() / wall.as_secs_f64();
    let tokens = told["tokens"].as_f64().unwrap_or(0.0) / told["seconds"].as_f64().unwrap_or(f64::INFINITY);
    // A change is told about 30 times a second, so its frames cannot come faster than that.
    let gap = if part == Part::Edit { "frame_to_frame" } else { "frame_to_frame (limit 33)" };
    let values = json!({
        "tokens_per_s": round(tokens),
        "core_share (limit 0.5)": round(core_share),
        "frames_per_s": round(frames.len() as f64 / wall.as_secs_f64()),
        "frame_draw_max_ms (limit 33)": told["longest_ms"],
        "frame_draw_mean_ms": told["mean_ms"],
        gap: gaps.json(),
        "key_to_echo (limit 20)": Times::new(echoes).json(),
        "size": format!("{}x{}", args.size.0, args.size.1),
    });
    print_as(args.json, &format!("screen {}", part.name()), values);
    Ok(())
}

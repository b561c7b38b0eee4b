//! `flint bench serve`: what the server adds to the engine, and how it behaves around a real model.
//!
//! Two parts need no model, only its vocabulary: an engine that answers at once shows the cost of a turn (`turn`) and of a
//! streamed token (`stream`). The others run the real binary on a real model: `session`, `steer`, `crowd`, `restart`.
//! Every part checks its answers and fails when one is wrong; the numbers are for people to judge.

mod child;
mod crowd;
mod instant;
pub mod measure;
mod overhead;
mod restart;
mod session;
mod wire;

use anyhow::Result;
use clap::{Args, ValueEnum};

/// Arguments of `flint bench serve`.
#[derive(Args, Clone)]
pub struct ServeBenchArgs {
    /// Parts to run
    #[arg(value_enum, value_delimiter = ',', default_value = "turn,stream,session,steer,crowd,restart")]
    parts: Vec<Part>,
    /// Model of the parts `session`, `steer` and `restart` [default: the catalogue's default]
    #[arg(short, long)]
    model: Option<String>,
    /// Model of `crowd`, and whose vocabulary `turn` and `stream` use
    #[arg(long, default_value = "smollm2-135m")]
    small: String,
    /// Turns measured by `turn`
    #[arg(long, default_value_t = 300)]
    turns: usize,
    /// Tokens streamed by `stream`
    #[arg(long, default_value_t = 20_000)]
    tokens: usize,
    /// Tokens per second that `stream` produces
    #[arg(long, default_value_t = 5_000)]
    rate: u32,
    /// Steers measured by `steer`
    #[arg(long, default_value_t = 100)]
    steers: usize,
    /// Connections opened and torn down by `crowd`
    #[arg(long, default_value_t = 1_000)]
    connections: usize,
    /// Tokens of the session that `restart` interrupts
    #[arg(long, default_value_t = 6_000)]
    history: usize,
    /// Print JSON lines
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    Turn,
    Stream,
    Session,
    Steer,
    Crowd,
    Restart,
}

/// Runs the parts that were asked for.
pub fn run(args: ServeBenchArgs) -> Result<()> {
    for part in &args.parts {
        match part {
            Part::Turn => overhead::turn(&args)?,
            Part::Stream => overhead::stream(&args)?,
            Part::Session => session::run(&args)?,
            Part::Steer => session::steer(&args)?,
            Part::Crowd => crowd::run(&args)?,
            Part::Restart => restart::run(&args)?,
        }
    }
    Ok(())
}

//! `flint bench serve`: what the server adds to the engine, and how it behaves around a real model.
//!
//! Two parts need no model, only its vocabulary: an engine that answers at once shows the cost of a turn (`turn`) and of a
//! streamed token (`stream`). The others run the real binary on a real model: `session`, `steer`, `crowd`, `restart`, and `rate`,
//! which compares with the engine alone. Where a card is and no weights are, `--shape` makes some.
//! Every part checks its answers and fails when one is wrong; the numbers are for people to judge.

mod child;
mod crowd;
mod instant;
pub mod measure;
mod overhead;
mod rate;
mod restart;
mod session;
mod wire;

use anyhow::Result;
use clap::{Args, Parser, ValueEnum};
use load::ModelOptions;

/// Arguments of `flint bench serve`.
#[derive(Args, Clone)]
pub struct ServeBenchArgs {
    /// Parts to run
    #[arg(value_enum, value_delimiter = ',', default_value = "turn,stream,session,steer,crowd,restart")]
    parts: Vec<Part>,
    /// Model of the parts `session`, `steer`, `restart` and `rate` [default: the catalogue's default]
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
    /// Where those models compute: cpu, cuda, cuda:N, or auto for a card if there is one that can
    #[arg(long, default_value = "auto", env = "FLINT_DEVICE")]
    device: String,
    /// Random weights of this shape, made on the card; --model then only gives the vocabulary
    #[arg(long, value_name = "NAME", requires = "random_weights")]
    shape: Option<String>,
    /// Says that the weights of --shape are random
    #[arg(long, requires = "shape")]
    random_weights: bool,
    /// Decode plainly
    #[arg(long)]
    no_drafts: bool,
    /// Print JSON lines
    #[arg(long)]
    json: bool,
}

impl ServeBenchArgs {
    /// What the measured server and a model in this process are both told.
    fn device_arguments(&self) -> Vec<&str> {
        let mut arguments = vec!["--device", &self.device];
        if let Some(shape) = &self.shape {
            arguments.extend(["--shape", shape, "--random-weights"]);
        }
        arguments.extend(self.no_drafts.then_some("--no-drafts"));
        arguments
    }

    /// The same model for this process.
    fn load_options(&self, model: &str) -> Result<ModelOptions> {
        let arguments = ["load", "--offline", "--model", model].into_iter().chain(self.device_arguments());
        Ok(Options::try_parse_from(arguments)?.load)
    }

    /// The model's name in reports.
    fn name(&self, model: &str) -> String {
        self.shape.as_ref().map_or_else(|| model.to_owned(), |shape| format!("{shape} (random weights)"))
    }
}

/// [`ModelOptions`] by themselves.
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    load: ModelOptions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    Turn,
    Stream,
    Session,
    Steer,
    Crowd,
    Restart,
    Rate,
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
            Part::Rate => rate::run(&args)?,
        }
    }
    Ok(())
}

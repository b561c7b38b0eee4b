//! `flint bench`: how fast this machine runs a model, what share of its memory speed that is, and how peers compare.
//!
//! Figures are taken in rounds. In each round every figure is measured right after the machine's read bandwidth, and
//! right before each peer measures the same thing on the same file, because the speed of a shared machine changes from
//! minute to minute. What is printed is the median over the rounds, with the spread.
#![cfg_attr(not(test), deny(clippy::disallowed_macros))]
#![cfg_attr(test, allow(clippy::disallowed_macros))]
#![allow(clippy::disallowed_methods, reason = "files that the benchmarks wrote themselves or the user named")]

#[macro_use]
extern crate boundary;

mod agree;
mod apart;
mod edit;
mod figures;
mod fix;
mod intent;
mod partner;
mod peer;
mod questions;
mod report;
mod screen;
mod serve;
mod serving;

use anyhow::Context;
use clap::{Args, Subcommand};
use figures::{Bench, Figure, What as Loaded};
use load::device::{DeviceChoice, device_choice};
use peer::Peer;
use report::{Provenance, Row};

/// Arguments of `flint bench`.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct BenchArgs {
    #[command(subcommand)]
    what: Option<What>,
    /// Model name or path to a GGUF file
    #[arg(short, long)]
    model: Option<String>,
    /// Where to compute: cpu, cuda, cuda:N, or auto for a card if there is one that can
    #[arg(long, default_value = "auto", value_parser = device_choice, env = "FLINT_DEVICE")]
    device: DeviceChoice,
    /// A model of this shape instead of a file; the weights are random and made on the card
    #[arg(long, value_name = "NAME", requires = "random_weights", conflicts_with_all = ["model", "peer"])]
    shape: Option<String>,
    /// Says that the weights of --shape are random
    #[arg(long, requires = "shape")]
    random_weights: bool,
    /// Prompt lengths
    #[arg(long, value_delimiter = ',', default_value = "512")]
    prompt: Vec<usize>,
    /// Depths at which single tokens are decoded
    #[arg(long, value_delimiter = ',', default_value = "0")]
    depth: Vec<usize>,
    /// Rows verified in one step
    #[arg(long, value_delimiter = ',', default_value = "2,4,8,16")]
    rows: Vec<usize>,
    /// Sequences decoded together, through the engine
    #[arg(long, value_delimiter = ',', default_value = "1,4")]
    sequences: Vec<usize>,
    /// Length of the prompt that is sent again with 20 new tokens, through the engine; 0 leaves this out
    #[arg(long, default_value_t = 0)]
    reuse: usize,
    /// Threads; all cores unless given
    #[arg(short, long)]
    threads: Option<usize>,
    /// Rounds
    #[arg(short, long, default_value_t = 3)]
    rounds: usize,
    /// Store keys and values in 8 bits
    #[arg(long)]
    kv_q8: bool,
    /// A llama-bench binary to alternate with, as NAME=PATH or "NAME=PATH ARGUMENTS"; may be given several times
    #[arg(long)]
    peer: Vec<String>,
    /// Print JSON lines
    #[arg(long)]
    json: bool,
    /// Time the case table of the kernels instead of a model
    #[arg(long)]
    kernels: bool,
    /// Never fetch a model
    #[arg(long)]
    offline: bool,
}

#[derive(Subcommand)]
enum What {
    /// What the server adds: turns, streams, sessions, steering, crowds and restarts
    Serve(serve::ServeBenchArgs),
    /// How many broken functions the partner repairs
    Fix(fix::FixArgs),
    /// Whether the partner does what messages ask for, and nothing else
    Intent(Box<intent::IntentArgs>),
    /// Whether the partner knows where things are
    Questions(questions::QuestionsArgs),
    /// What the partner adds to a model that answers at once
    Partner(partner::PartnerBenchArgs),
    /// Whether the screen keeps up: frames, keys and CPU under a stream of thousands of tokens a second
    Screen(screen::ScreenBenchArgs),
    /// Whether a card says what the CPU says
    Agree(agree::AgreeArgs),
    /// What drafting gains: files that are rewritten, and text that nobody knows before
    Edit(Box<edit::EditBenchArgs>),
}

/// Runs the benchmark. `version` is that of the program, with the commit it was built from.
pub fn run(args: BenchArgs, version: &'static str) -> anyhow::Result<()> {
    report::set_version(version);
    match args.what {
        Some(What::Serve(args)) => return serve::run(args),
        Some(What::Fix(args)) => return fix::run(args),
        Some(What::Intent(args)) => return intent::run(&args),
        Some(What::Questions(args)) => return questions::run(&args),
        Some(What::Partner(args)) => return partner::run(args),
        Some(What::Screen(args)) => return screen::run(args),
        Some(What::Edit(args)) => return edit::run(&args),
        Some(What::Agree(args)) => return agree::run(&args),
        None => {}
    }
    let threads = args.threads.map_or_else(|| std::thread::available_parallelism().map(usize::from), Ok)?;
    if args.kernels {
        return figures::kernels(threads, args.json);
    }
    let deepest = args.depth.iter().copied().max().unwrap_or(0);
    let room = deepest.max(args.reuse) + 4096;
    let load = |what| Bench::load(what, args.device, threads, args.kv_q8, room);
    let (mut bench, provenance, peers) = match &args.shape {
        Some(shape) => {
            let bench = load(Loaded::Shape(shape))?;
            let provenance = Provenance::new(&format!("{shape} (random weights)"), None, &bench)?;
            (bench, provenance, Vec::new())
        }
        None => {
            let name = args.model.clone().map_or_else(load::fetch::default_name, Ok)?;
            let path = load::fetch::ensure(&name, args.offline)?;
            let peers = args.peer.iter().map(|spec| Peer::parse(spec, &path, threads));
            let peers = peers.collect::<anyhow::Result<Vec<_>>>()?;
            let bench = load(Loaded::File(&path))?;
            let provenance = Provenance::new(&name, Some(&path), &bench)?;
            (bench, provenance, peers)
        }
    };
    if !args.json {
        outln!("{provenance}");
    }
    let mut figures: Vec<Figure> = args.prompt.iter().map(|&tokens| Figure::Prompt { tokens }).collect();
    figures.extend(args.depth.iter().map(|&depth| Figure::Decode { depth }));
    figures.extend(args.rows.iter().map(|&rows| Figure::Step { rows }));
    bench.fill(deepest).context("the prompt before the deepest figure")?;
    let mut rows: Vec<Row> = figures.iter().map(|&figure| Row::new(figure, &peers)).collect();
    for _ in 0..args.rounds {
        for row in &mut rows {
            if !bench.on_card {
                row.bandwidth.push(load::bandwidth::read_bandwidth(threads));
            }
            row.ours.push(bench.measure(row.figure)?);
            for (peer, values) in peers.iter().zip(&mut row.peers) {
                values.extend(peer.measure(row.figure)?);
            }
        }
    }
    report::print(&rows, &peers, &provenance, args.json);
    serving::run(bench, &args.sequences, args.reuse, args.rounds, &provenance, args.json)
}

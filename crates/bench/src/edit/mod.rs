//! `flint bench edit`: what drafting gains where text is known, and what it costs where it is not.
//!
//! Every case is answered plainly and with each drafter in turn, round after round in one process, because the speed of a
//! shared machine changes from minute to minute: what is compared are neighbours. Every answer must be the plain one,
//! token for token, or the benchmark fails. `--check N` compares answers to N mixed prompts and measures nothing.
//!
//! `--partner` asks for the same edits through `flint exec` (`exec.rs`).
//!
//! A difference of two percent is less than such a machine changes within a minute. `--paired` finds it: plain and
//! drafted decoding of one answer take turns every few tokens (`turns.rs`), and what is reported is an interval.

mod cases;
mod check;
mod exec;
mod measure;
mod paired;
mod replay;
mod statistics;
mod turns;

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use engine::EngineOptions;
use load::{Loaded, ModelOptions, Parts};
use std::path::Path;
use text::ChatTemplate;

use cases::Case;
use measure::{Bench, Method};
use replay::{Recorded, Recording, Replayed};

/// Arguments of `flint bench edit`.
#[derive(Args)]
pub struct EditBenchArgs {
    #[command(flatten)]
    model: ModelOptions,
    /// Cases to run
    #[arg(long, value_enum, value_delimiter = ',', default_value = "edit,prose,fresh,bad")]
    cases: Vec<Part>,
    /// Ways to draft that are measured, by the names of the report, such as `ngram,prediction` [default: all]
    #[arg(long, value_delimiter = ',')]
    ways: Vec<String>,
    /// Rounds
    #[arg(short, long, default_value_t = 3)]
    rounds: usize,
    /// Most tokens of an answer that is not a whole file
    #[arg(long, default_value_t = 256)]
    tokens: usize,
    /// A file of JSON lines with a `prompt` each, such as HumanEval: fresh code is asked for with these
    #[arg(long, value_name = "FILE")]
    prompts: Option<std::path::PathBuf>,
    /// How many of them are used
    #[arg(long, default_value_t = 4)]
    prompts_max: usize,
    /// Let plain and drafted decoding take turns of this many tokens, and report the ratio with its 95 % interval
    #[arg(long, value_name = "TOKENS", num_args = 0..=1, default_missing_value = "12", conflicts_with = "check")]
    paired: Option<std::num::NonZeroUsize>,
    /// Write the answers to the edits to this file
    #[arg(long, value_name = "FILE", conflicts_with = "replay")]
    record: Option<std::path::PathBuf>,
    /// Compute every step, but say what this file recorded, for models without real weights
    #[arg(long, value_name = "FILE", conflicts_with_all = ["paired", "check"])]
    replay: Option<std::path::PathBuf>,
    /// Only compare the answers to this many mixed prompts, with every drafter
    #[arg(long, value_name = "N")]
    check: Option<usize>,
    /// Ask for the edits through `flint exec`, on a server that drafts and on one that does not
    #[arg(long, conflicts_with_all = ["check", "paired"])]
    partner: bool,
    /// Print JSON lines
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// A file of 294 lines with one function changed: with the old file as prediction, and without
    Edit,
    /// Text that repeats nothing
    Prose,
    /// New functions
    Fresh,
    /// Predictions that are wrong, huge or binary
    Bad,
}

/// Runs the benchmark.
pub fn run(args: &EditBenchArgs) -> Result<()> {
    check_ways(args)?;
    if args.partner {
        let model = args.model.model.clone().map_or_else(load::fetch::default_name, Ok)?;
        return exec::run(&model, args.rounds, args.json);
    }
    if let Some(slice) = args.paired {
        return paired::run(args, slice.get());
    }
    let bench = Bench { loaded: load(args)?, drafts_with_model: args.model.load.draft_model.is_some() };
    if let Some(file) = &args.record {
        return record(&bench, file);
    }
    if let Some(count) = args.check {
        return check::run(&bench, count, args.tokens, args.json);
    }
    for part in &args.cases {
        for case in part.cases(args)? {
            let ways = part.ways(&case, args);
            bench.compare(&case, &ways, args.rounds, args.json).with_context(|| case.name.clone())?;
        }
    }
    Ok(())
}

fn load(args: &EditBenchArgs) -> Result<Loaded> {
    let Some(file) = &args.replay else { return load::load(&args.model) };
    let recording = Recording::read(file)?;
    let Parts { backend, draft_model, tokenizer, mut facts } = load::load_parts(&args.model)?;
    facts.name = format!("{}, answers replayed from {}", facts.name, recording.model);
    let end = tokenizer.vocabulary().stops().first().context("the vocabulary has no token that ends an answer")?;
    let backend = Box::new(Replayed::new(backend, &recording, *end));
    let engine = load::start_engine(backend, draft_model, &tokenizer, EngineOptions::default())?;
    let template = ChatTemplate::new(tokenizer.vocabulary());
    Ok(Loaded { engine, tokenizer, template, facts })
}

fn record(bench: &Bench, file: &Path) -> Result<()> {
    let mut recording = Recording { model: bench.loaded.facts.name.clone(), ..Recording::default() };
    for case in cases::edits() {
        let prompt = bench.prompt(&case.prompt)?;
        let answer = bench.answer(&prompt, case.tokens, Method::Usual, Method::Usual.prediction(&case))?.tokens;
        errln!("{}: {} tokens", case.name, answer.len());
        recording.answers.insert(case.name, Recorded { prompt, answer });
    }
    recording.write(file)
}

/// Twenty prompts of all kinds, half of them short.
pub fn twenty() -> Vec<String> {
    let short = cases::prose(0).into_iter().chain(cases::own_fresh(0)).map(|case| case.prompt);
    short.chain((0..10).map(check::prompt)).collect()
}

/// A name that no case knows would silently measure nothing.
fn check_ways(args: &EditBenchArgs) -> Result<()> {
    let mut known = Vec::new();
    for part in &args.cases {
        for case in part.cases(args)? {
            known.extend(part.all_ways(&case, args).into_iter().map(Method::name));
        }
    }
    known.sort_unstable();
    known.dedup();
    for name in &args.ways {
        ensure!(known.contains(&name.as_str()), "these cases have no drafter {name:?}; they have {}", known.join(", "));
    }
    Ok(())
}

impl Part {
    fn cases(self, args: &EditBenchArgs) -> Result<Vec<Case>> {
        match self {
            Part::Edit => Ok(cases::edits()),
            Part::Prose => Ok(cases::prose(args.tokens)),
            Part::Fresh => cases::fresh(args.tokens, args.prompts.as_deref(), args.prompts_max),
            Part::Bad => Ok(cases::bad(args.tokens)),
        }
    }

    fn ways(self, case: &Case, args: &EditBenchArgs) -> Vec<Method> {
        let mut ways = self.all_ways(case, args);
        ways.retain(|way| args.ways.is_empty() || args.ways.iter().any(|name| name == way.name()));
        ways
    }

    fn all_ways(self, case: &Case, args: &EditBenchArgs) -> Vec<Method> {
        let mut ways = match self {
            Part::Edit => vec![Method::Ngram, Method::Prediction, Method::Usual],
            Part::Prose | Part::Fresh => vec![Method::Usual],
            Part::Bad => case.predictions.iter().map(|(name, _)| Method::Bad(name)).collect(),
        };
        if args.model.load.draft_model.is_some() && self != Part::Bad {
            ways.push(Method::Model);
        }
        ways
    }
}

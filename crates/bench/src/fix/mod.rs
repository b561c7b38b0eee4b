//! `flint bench fix`: how many broken functions the partner repairs, by running the real binary on real folders.
//!
//! A task of the set becomes a folder with the broken module and its test file, as a person would have it. `flint exec` (or
//! `flint try`) is told that the tests fail, and what it leaves behind is judged by the original test file in a fresh
//! folder, in the sandbox. The reference solution never comes near the folder or the prompt. One line of JSON per task
//! goes to the results file, and a run that is started again goes on where it ended.

mod grade;
mod tasks;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::num::NonZeroUsize;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::apart::{Apart, bounded_run};
use grade::Grader;
use tasks::Task;

/// Arguments of `flint bench fix`.
#[derive(Args)]
pub struct FixArgs {
    /// The set: JSON lines, gzipped, in the form of HumanEvalPack
    #[arg(long)]
    set: PathBuf,
    /// The language of the set; by its name unless given
    #[arg(long)]
    lang: Option<Language>,
    /// Use `flint try` with this many candidates and the tests as check, instead of `flint exec`
    #[arg(long = "try", value_name = "N")]
    candidates: Option<usize>,
    /// Give the tests to `flint exec` as its check, so that the model reads what they say before it answers
    #[arg(long, conflicts_with = "candidates")]
    check: bool,
    /// With --check: more answers that may be asked for when the tests fail after the first
    #[arg(long, value_name = "N", default_value_t = 1, requires = "check")]
    repairs: u8,
    /// At most this many tasks
    #[arg(long)]
    limit: Option<usize>,
    /// Tasks worked on at the same time; they share passes over the weights, so all are done sooner and each takes longer
    #[arg(short, long, default_value = "1")]
    jobs: NonZeroUsize,
    /// Begin at this task, from 0
    #[arg(long, default_value_t = 0)]
    skip: usize,
    /// The model
    #[arg(short, long, default_value = "qwen2.5-coder-1.5b")]
    model: String,
    /// Where results go, one line each; tasks that are in it already are not run again
    #[arg(short, long)]
    out: Option<PathBuf>,
    /// Keep the docstring, which says in words what the function should do
    #[arg(long)]
    docstring: bool,
    /// Seconds one task may take
    #[arg(long, default_value_t = 300)]
    timeout: u64,
    /// Run no model: see whether each test fails on the broken module and passes on the reference solution
    #[arg(long)]
    validate: bool,
    /// More settings for the partner, as `flint exec -c` takes them
    #[arg(short = 'c', value_name = "KEY=VALUE")]
    config: Vec<String>,
    /// Print only the results
    #[arg(long)]
    json: bool,
}

/// What a set is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Language {
    /// `functions.py`, run with python3
    Python,
    /// A crate, run with cargo
    Rust,
}

/// Runs the set.
pub fn run(args: FixArgs) -> Result<()> {
    let language = match args.lang {
        Some(language) => language,
        None => Language::of(&args.set)?,
    };
    let tasks = tasks::read(&args.set, language, args.docstring)?;
    let place = tempfile::tempdir()?;
    let grader = Grader::new(language, &place.path().join("grade"))?;
    let chosen = tasks.iter().skip(args.skip).take(args.limit.unwrap_or(usize::MAX));
    if args.validate {
        return validate(&grader, chosen);
    }
    let partner = Partner::new(&args, language, place.path())?;
    let results = Mutex::new(Results::open(&args)?);
    let (grader, chosen) = (Mutex::new(grader), Mutex::new(chosen));
    let next = || loop {
        let task = lock(&chosen).next()?;
        if !lock(&results).has(&task.id) {
            return Some(task);
        }
    };
    let work = &|worker: usize| -> Result<()> {
        while let Some(task) = next() {
            let line = partner.repair(task, worker, &grader)?;
            if !args.json {
                outln!("{}", shown(&line));
            }
            lock(&results).add(&task.id, line)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..args.jobs.get()).map(|worker| scope.spawn(move || work(worker))).collect();
        let ended = workers.into_iter().map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)));
        ended.collect::<Result<Vec<()>>>()
    })?;
    outln!("{}", lock(&results).summary(&args, language));
    Ok(())
}

/// What a worker that panicked left is not worse for it: lines are added whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Language {
    fn of(set: &Path) -> Result<Self> {
        let name = set.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        let known = [("python", Self::Python), ("rust", Self::Rust)];
        let found = known.into_iter().find(|(word, _)| name.contains(word)).map(|(_, language)| language);
        found.context("the name of the set does not say its language; give --lang python or --lang rust")
    }
}

/// Sees whether the set can be judged on this machine at all.
fn validate<'a>(grader: &Grader, tasks: impl Iterator<Item = &'a Task>) -> Result<()> {
    let (mut good, mut bad) = (0, Vec::new());
    for task in tasks {
        let broken = grader.passes(task, &task.module)?;
        let reference = grader.passes(task, &task.reference())?;
        if !broken.passed && reference.passed {
            good += 1;
        } else {
            bad.push(json!({"task": task.id, "broken passes": broken.passed, "reference passes": reference.passed,
                "output": reference.output}));
        }
    }
    for line in &bad {
        outln!("{line}");
    }
    outln!("{good} tasks can be judged, {} cannot", bad.len());
    Ok(())
}

/// Repairs tasks with the real binary.
struct Partner<'a> {
    args: &'a FixArgs,
    language: Language,
    place: &'a Path,
    apart: Apart,
}

impl<'a> Partner<'a> {
    fn new(args: &'a FixArgs, language: Language, place: &'a Path) -> Result<Self> {
        let apart = Apart::new(place, &[]);
        apart.warm_up(&args.model)?;
        Ok(Self { args, language, place, apart })
    }

    /// Lets the partner repair one task, and judges what it left.
    fn repair(&self, task: &Task, worker: usize, grader: &Mutex<Grader>) -> Result<Value> {
        let folder = self.place.join(format!("work-{worker}"));
        let _ = fs::remove_dir_all(&folder);
        task.write(&folder, &task.module, lock(grader).lock())?;
        let mut command = self.apart.flint(&folder)?;
        // Crates of the set are built once for all tasks of a worker.
        command.env("CARGO_TARGET_DIR", self.place.join(format!("build-{worker}")));
        match self.args.candidates {
            None => command.args(["exec", "--json"]),
            Some(count) => command.args(["try", "--json", "--apply", "-n", &count.to_string()]),
        };
        if self.args.check || self.args.candidates.is_some() {
            command.args(["--check", self.language.check()]);
        }
        if self.args.check {
            command.args(["--repairs", &self.args.repairs.to_string()]);
        }
        command.args(["--ephemeral", "-m", &self.args.model]);
        for setting in &self.args.config {
            command.args(["-c", setting]);
        }
        command.arg(self.language.prompt());
        let ran = bounded_run(command, Duration::from_secs(self.args.timeout))?;
        let module = fs::read_to_string(folder.join(self.language.module())).unwrap_or_default();
        let changed = module != task.module;
        let graded = lock(grader).passes(task, &module)?;
        let outcome = match (changed, ran.exit_code) {
            (true, _) => "applied",
            (false, Some(0)) if wrote_the_same(&ran.output) => "unchanged",
            (false, Some(0)) if !said_why(&ran.output) => "silent",
            (false, _) => "reported",
        };
        Ok(
            json!({"task": task.id, "passed": graded.passed, "outcome": outcome, "exit_code": ran.exit_code, "answers": answers(&ran.output),
            "seconds": (ran.seconds * 1e3).round() / 1e3, "bug": task.bug,
            "why": if graded.passed { String::new() } else { graded.output },
            "said": if changed { Vec::new() } else { last_lines(&ran.output) }}),
        )
    }
}

/// What `flint exec --json` printed, as far as it is JSON.
fn events(output: &str) -> impl Iterator<Item = Value> {
    output.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok())
}

/// How many answers were asked for. What passed with one passed at once.
fn answers(output: &str) -> usize {
    events(output).filter(|event| event["type"] == "turn.started").count()
}

/// Whether the person was told that nothing was changed.
fn said_why(output: &str) -> bool {
    events(output).any(|event| {
        let failed = |item: &Value| item["status"] == "failed" || item["type"] == "error";
        event["type"] == "turn.failed" || event["type"] == "error" || failed(&event["item"])
    })
}

/// Whether the answer was applied and is what was there before.
fn wrote_the_same(output: &str) -> bool {
    let mut items = events(output).map(|event| event["item"].clone());
    items.any(|item| item["type"] == "file_change" && item["status"] == "completed")
}

fn last_lines(output: &str) -> Vec<&str> {
    let lines: Vec<&str> = output.lines().collect();
    lines[lines.len().saturating_sub(4)..].to_vec()
}

/// Results so far, in memory and in a file.
struct Results {
    lines: BTreeMap<String, Value>,
    file: Option<fs::File>,
}

impl Results {
    fn open(args: &FixArgs) -> Result<Self> {
        let mut lines = BTreeMap::new();
        let Some(path) = &args.out else { return Ok(Self { lines, file: None }) };
        // A last line that was torn by a crash is run again.
        let text = fs::read_to_string(path).unwrap_or_default();
        for line in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            if let Some(task) = line["task"].as_str() {
                lines.insert(task.to_owned(), line.clone());
            }
        }
        let mut file = fs::File::options().create(true).append(true).open(path)?;
        if !text.is_empty() && !text.ends_with('\n') {
            file.write_all(b"\n")?;
        }
        Ok(Self { lines, file: Some(file) })
    }

    fn has(&self, task: &str) -> bool {
        self.lines.contains_key(task)
    }

    fn add(&mut self, task: &str, line: Value) -> Result<()> {
        if let Some(file) = &mut self.file {
            writeln!(file, "{line}")?;
        }
        self.lines.insert(task.to_owned(), line);
        Ok(())
    }

    fn summary(&self, args: &FixArgs, language: Language) -> Value {
        let count = |test: &dyn Fn(&Value) -> bool| self.lines.values().filter(|line| test(line)).count();
        let total = self.lines.len();
        let passed = count(&|line| line["passed"] == true);
        let mut seconds: Vec<f64> = self.lines.values().filter_map(|line| line["seconds"].as_f64()).collect();
        seconds.sort_by(f64::total_cmp);
        let mean = seconds.iter().sum::<f64>() / seconds.len().max(1) as f64;
        let several = args.candidates.is_some() || (args.check && args.repairs > 0);
        let share = 100.0 * passed as f64 / total.max(1) as f64;
        json!({"set": args.set.file_name().unwrap_or_default().to_string_lossy(), "language": format!("{language:?}"),
            "model": args.model, "try": args.candidates, "check": args.check, "repairs": args.check.then_some(args.repairs), "jobs": args.jobs, "docstring": args.docstring, "tasks": total, "passed": passed,
            // Whatever may answer again is no longer one answer.
            (if several { "passed %" } else { "pass@1 %" }): (share * 10.0).round() / 10.0,
            "passed with one answer": args.check.then(|| count(&|line| line["passed"] == true && line["answers"] == 1)),
            "applied": count(&|line| line["outcome"] == "applied"),
            "unchanged": count(&|line| line["outcome"] == "unchanged"),
            "reported": count(&|line| line["outcome"] == "reported"),
            "neither": count(&|line| line["outcome"] == "silent"),
            "over the time limit": count(&|line| line["exit_code"].is_null()),
            "seconds mean": (mean * 1e3).round() / 1e3, "seconds p50": seconds.get(seconds.len() / 2),
            "seconds max": seconds.last(),
            "cpu": load::machine::cpu_name(), "cores": load::cores()})
    }
}

fn shown(line: &Value) -> String {
    let passed = if line["passed"] == true { "passed" } else { "failed" };
    format!(
        "{:<12} {passed} {:<8} {:6.1} s",
        line["task"].as_str().unwrap_or("?"),
        line["outcome"].as_str().unwrap_or("?"),
        line["seconds"].as_f64().unwrap_or(0.0)
    )
}

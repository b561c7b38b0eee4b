//! `try N`: several candidates for one task, each tried in a copy of the workspace, the smallest that passes offered.
//!
//! Fresh answers beat long chains of repair, above all for small models, and they are cheap: all candidates are written on
//! one prompt, so they share its cache and every pass over the weights. The first is the answer that a plain turn would
//! give; the others depart from it where the model was least sure (`pair::doubt`), or are sampled where the server cannot
//! do that. What passes the checks and changes least is offered, and nothing is written to the workspace before it is
//! chosen.

mod again;
mod checks;
mod evidence;
mod scratch;
mod turn;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use api::responses::Usage;
use tokio::sync::{Mutex, OnceCell, Semaphore, mpsc};
use tokio::task::JoinSet;
use workspace::edit::Written as NewFile;

pub use again::{Refused, again, take_back};
pub use checks::{Checker, Verdict};
pub use evidence::keep as keep_evidence;
pub use scratch::{Scratch, ScratchError};
pub use turn::{LastTry, attempt, choose};

use crate::{CandidateRow, CandidateState, Event};

/// Candidates of one try; more is an error of the caller.
pub const COUNT_MAX: usize = 32;

/// Up to this number candidates depart from the first; of the later ones every other is sampled. Of 60 handmade bugs four
/// departures find 47, two of them and two samples about 42, and with the sixth departure there is no more to find.
const DEPART_FIRST: usize = 5;

/// How a candidate comes about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// The answer that a plain turn would give.
    First,
    /// The same, up to a place where the model was not sure, and another token there.
    Depart,
    /// Sampled from its beginning.
    Sample,
}

/// How the next tokens of a candidate are picked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Where it begins.
    pub strategy: Strategy,
    /// 0 is the most likely token always.
    pub temperature: f64,
    /// The likeliest tokens that together have this probability.
    pub top_p: f64,
    /// Makes a candidate repeatable.
    pub seed: u64,
}

impl Sampling {
    /// Of the candidate with this number, from 1. `first` is the temperature of a plain turn.
    pub fn of(candidate: usize, first: f64) -> Self {
        let seed = candidate as u64;
        if candidate == 1 {
            return Self { strategy: Strategy::First, temperature: first, top_p: 1.0, seed };
        }
        let strategy =
            if candidate > DEPART_FIRST && candidate.is_multiple_of(2) { Strategy::Sample } else { Strategy::Depart };
        // 0.8 keeps code that compiles most of the time and differs enough to be worth a second look.
        Self { strategy, temperature: first.max(0.8), top_p: 0.95, seed }
    }

    /// Of another answer for the same candidate, because the one it got changes nothing.
    pub fn anew(self) -> Self {
        let temperature = self.temperature.max(crate::pair::FRESH_TEMPERATURE);
        let strategy = if self.strategy == Strategy::First { Strategy::Sample } else { self.strategy };
        Self { strategy, temperature, seed: self.seed + COUNT_MAX as u64, ..self }
    }

    /// The same, because another candidate has that answer already. A model that is sure of a wrong idea gives it up only
    /// when it is made less sure.
    pub fn apart(self) -> Self {
        Self { temperature: (self.temperature + 0.2).min(1.2), ..self }.anew()
    }
}

/// What a model wrote for a candidate.
#[derive(Clone, Debug)]
pub struct Written {
    /// The whole answer.
    pub answer: String,
    /// What it changes, or why it cannot be applied.
    pub files: Result<Vec<NewFile>, String>,
    /// What it cost.
    pub usage: Usage,
}

/// Who writes candidates.
pub trait Author: Send + Sync + 'static {
    /// Asks the model until it has an answer that no other candidate of the try has, or has asked often enough. An error
    /// is one of the model's server.
    fn write(&self, sampling: Sampling, taken: &Taken) -> impl Future<Output = Result<Written, String>> + Send;
}

/// What the candidates of a try make of the files. Five answers of which four are one and the same are two.
#[derive(Debug, Default)]
pub struct Taken(std::sync::Mutex<HashSet<Outcome>>);

/// What files become: path and text of each.
type Outcome = Vec<(PathBuf, Option<String>)>;

impl Taken {
    /// Whether nobody has this answer yet; from now on somebody has.
    pub fn take(&self, files: &[NewFile]) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(outcome(files))
    }
}

fn outcome(files: &[NewFile]) -> Outcome {
    let mut outcome: Outcome = files.iter().map(|file| (file.path.clone(), file.new.clone())).collect();
    outcome.sort();
    outcome
}

/// A candidate after its checks.
#[derive(Clone, Debug)]
pub struct Tried {
    /// For the table.
    pub row: CandidateRow,
    /// What the model wrote.
    pub answer: String,
    /// What it changes, formatted where the project is.
    pub files: Vec<NewFile>,
    /// The change, with file headers.
    pub diff: String,
    /// What the checks printed.
    pub output: String,
    /// What it cost.
    pub usage: Usage,
}

/// The smallest candidate that passed, and of equals the first.
pub fn best(tried: &[Tried]) -> Option<&Tried> {
    let passed = tried.iter().filter(|tried| tried.row.state == CandidateState::Passed);
    passed.min_by_key(|tried| (tried.row.lines.0 + tried.row.lines.1, tried.row.candidate))
}

/// One try.
pub struct Trial {
    /// The workspace, which is only read.
    pub workspace: PathBuf,
    /// An empty folder for the copies, outside the workspace.
    pub place: PathBuf,
    /// How many candidates.
    pub count: usize,
    /// Temperature of the first.
    pub temperature: f64,
    /// What each must pass.
    pub checker: Checker,
    /// Copies that are checked at the same time.
    pub checks_at_once: usize,
}

/// By what the files would be.
type Verdicts = Mutex<HashMap<Outcome, Arc<OnceCell<Verdict>>>>;

/// What the candidates of a try share.
struct Shared<A> {
    trial: Trial,
    author: A,
    permits: Semaphore,
    taken: Taken,
    /// Equal answers are checked once.
    verdicts: Verdicts,
    rows: Mutex<Vec<CandidateRow>>,
    events: mpsc::Sender<Event>,
}

impl Trial {
    /// Writes and checks all candidates; `events` hears whenever one changes. Dropping the future ends everything.
    pub async fn run<A: Author>(self, author: A, events: mpsc::Sender<Event>) -> Vec<Tried> {
        let count = self.count.clamp(1, COUNT_MAX);
        let row = |candidate| CandidateRow { candidate, state: CandidateState::Writing, lines: (0, 0), ms: 0 };
        let rows: Vec<CandidateRow> = (1..=count).map(row).collect();
        let permits = Semaphore::new(self.checks_at_once.max(1));
        let _ = events.send(Event::Candidates { rows: rows.clone(), best: None }).await;
        let shared = Arc::new(Shared {
            trial: self,
            author,
            permits,
            taken: Taken::default(),
            verdicts: Verdicts::default(),
            rows: Mutex::new(rows),
            events,
        });
        let mut tasks = JoinSet::new();
        for candidate in 1..=count {
            let shared = Arc::clone(&shared);
            tasks.spawn(async move { shared.one(candidate).await });
        }
        let mut tried = Vec::with_capacity(count);
        while let Some(done) = tasks.join_next().await {
            tried.extend(done.ok());
        }
        tried.sort_by_key(|tried| tried.row.candidate);
        tried
    }
}

impl<A: Author> Shared<A> {
    async fn one(&self, candidate: usize) -> Tried {
        let begun = Instant::now();
        let sampling = Sampling::of(candidate, self.trial.temperature);
        let Written { answer, files, usage } = match self.author.write(sampling, &self.taken).await {
            Ok(written) => written,
            Err(why) => Written { answer: String::new(), files: Err(why), usage: Usage::default() },
        };
        let mut tried = Tried {
            row: CandidateRow { candidate, state: CandidateState::Checking, lines: (0, 0), ms: 0 },
            answer,
            files: Vec::new(),
            diff: String::new(),
            output: String::new(),
            usage,
        };
        match files {
            Err(why) => tried.row.state = CandidateState::NotApplied { why },
            Ok(files) if files.iter().all(|file| file.old == file.new) => {
                let why = "the answer changes nothing".to_owned();
                tried.row.state = CandidateState::NotApplied { why };
            }
            Ok(files) => {
                tried.row.lines = lines(&files);
                self.show(tried.row.clone()).await;
                let verdict = self.verdict(candidate, files).await;
                tried.row.lines = lines(&verdict.files);
                tried.row.state = verdict.state;
                tried.diff = diff_of(&verdict.files);
                tried.files = verdict.files;
                tried.output = verdict.output;
            }
        }
        tried.row.ms = begun.elapsed().as_millis() as u64;
        self.show(tried.row.clone()).await;
        tried
    }

    /// Checks the files, or waits for whoever checks the same ones.
    async fn verdict(&self, candidate: usize, files: Vec<NewFile>) -> Verdict {
        let cell = Arc::clone(self.verdicts.lock().await.entry(outcome(&files)).or_default());
        let verdict = cell.get_or_init(|| async {
            // The semaphore lives as long as we do and is never closed.
            let _permit = self.permits.acquire().await;
            let (workspace, root) = (self.trial.workspace.clone(), self.trial.place.join(candidate.to_string()));
            let copied = tokio::task::spawn_blocking(move || Scratch::copy(&workspace, root)).await;
            match copied {
                Ok(Ok(scratch)) => {
                    let verdict = self.trial.checker.check(scratch.root(), files).await;
                    // Removing a copy can take a while.
                    let _ = tokio::task::spawn_blocking(move || drop(scratch)).await;
                    verdict
                }
                Ok(Err(error)) => Verdict::not_checked(files, error.to_string()),
                Err(error) => Verdict::not_checked(files, format!("copying the workspace broke: {error}")),
            }
        });
        verdict.await.clone()
    }

    async fn show(&self, row: CandidateRow) {
        let rows = {
            let mut rows = self.rows.lock().await;
            let index = row.candidate - 1;
            rows[index] = row;
            rows.clone()
        };
        let _ = self.events.send(Event::Candidates { rows, best: None }).await;
    }
}

fn lines(files: &[NewFile]) -> (usize, usize) {
    files.iter().map(NewFile::lines).fold((0, 0), |sum, lines| (sum.0 + lines.0, sum.1 + lines.1))
}

fn diff_of(files: &[NewFile]) -> String {
    files.iter().map(NewFile::diff).collect()
}

/// Puts files into a folder.
fn put(root: &Path, files: &[NewFile]) -> std::io::Result<()> {
    for file in files {
        let path = root.join(&file.path);
        match &file.new {
            None => std::fs::remove_file(&path)?,
            Some(text) => {
                if let Some(parent) = path.parent() {
                    std::fs::create_dir_all(parent)?;
                }
                std::fs::write(&path, text)?;
            }
        }
    }
    Ok(())
}

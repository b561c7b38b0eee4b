//! `/try` and the choice after it, as turns of the partner.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sandbox::Mode;
use workspace::diff;
use workspace::edit::{Batch, Change, ChangeKind, Written};
use workspace::journal::Journal;

use super::{COUNT_MAX, Checker, Trial, Tried, best, keep_evidence};
use crate::pair::{Question, Task};
use crate::tools::Commands;
use crate::turn_context::{During, TurnContext};
use crate::{ApprovalAsk, CandidateState, Decision, Event, Outcome, Prompt};

/// Seconds each check of a candidate may take.
const CHECK_TIMEOUT: Duration = Duration::from_secs(300);

/// A try, kept for the choice.
pub struct LastTry {
    /// What the model was asked.
    message: String,
    tried: Vec<Tried>,
}

/// Makes and checks `count` candidates; 0 takes the configuration's.
pub async fn attempt(ctx: &mut TurnContext, count: usize, check: Option<String>, prompt: &Prompt) -> Outcome {
    let count = if count == 0 { ctx.config().candidates.count } else { count };
    if count > COUNT_MAX {
        return Outcome::Failed { why: format!("{count} candidates are too many; {COUNT_MAX} is the limit") };
    }
    let key = if ctx.config().candidates.check.is_some() { "try.check" } else { "check" };
    let configured = ctx.config().candidates.check.clone().or_else(|| ctx.config().check.clone());
    let by_user = check.is_some() || (configured.is_some() && !ctx.options.config.is_projects(key));
    let folder = ctx.options.state.join("tries");
    let place = folder.join(format!("work-{}", std::process::id()));
    let trial = Trial {
        workspace: ctx.root(),
        place: place.clone(),
        count,
        temperature: ctx.config().temperature.unwrap_or(0.0),
        checker: Checker {
            commands: commands(ctx, by_user),
            command: check.or(configured),
            timeout: CHECK_TIMEOUT,
            build: folder.join("build"),
            hooks: folder.join("python"),
        },
        checks_at_once: 2,
    };
    let mut prompt = prompt.clone();
    if Task::of(&prompt.text).repair {
        match unless_stopped(ctx, trial.checker.failing(&trial.workspace, place.join("before"))).await {
            Some(failing) => prompt.failing = failing,
            None => return Outcome::Stopped,
        }
    }
    let question = match Question::new(ctx, &prompt).await {
        Ok(question) => Arc::new(question),
        Err(why) => return Outcome::Failed { why },
    };
    let after_ms = ctx.elapsed_ms();
    ctx.emit(Event::Requested { after_ms }).await;
    let events = ctx.events();
    let message = question.message();
    let tried = unless_stopped(ctx, trial.run(question, events)).await;
    let _ = std::fs::remove_dir_all(&place);
    let Some(tried) = tried else { return Outcome::Stopped };
    for tried in &tried {
        ctx.spend(&tried.usage);
    }
    let chosen = best(&tried).map(|tried| tried.row.candidate);
    let rows = tried.iter().map(|tried| tried.row.clone()).collect();
    ctx.emit(Event::Candidates { rows, best: chosen }).await;
    let outcome = match chosen {
        Some(_) => Outcome::Done,
        None => nothing_passed(ctx, &folder, &message, &tried).await,
    };
    ctx.last_try = Some(LastTry { message, tried });
    outcome
}

/// Waits for `work`. What the person says meanwhile waits for its end; none when they stopped it.
pub(super) async fn unless_stopped<T>(ctx: &mut TurnContext, work: impl Future<Output = T>) -> Option<T> {
    let mut work = std::pin::pin!(work);
    loop {
        match ctx.during(&mut work).await {
            During::Done(value) => return Some(value),
            During::Stop => return None,
            During::Steer(prompt, _) => ctx.queue(prompt).await,
            During::Decide { .. } => {}
        }
    }
}

async fn nothing_passed(ctx: &TurnContext, folder: &std::path::Path, message: &str, tried: &[Tried]) -> Outcome {
    let unreached = tried.iter().all(|tried| tried.answer.is_empty());
    if let (true, Some(CandidateState::NotApplied { why })) = (unreached, tried.first().map(|tried| &tried.row.state)) {
        return Outcome::Failed { why: why.clone() };
    }
    let evidence = if ctx.options.ephemeral { None } else { keep_evidence(folder, message, tried).ok() };
    let kept = evidence.map(|path| format!("; what each did is in {}", path.display())).unwrap_or_default();
    Outcome::Failed { why: format!("none of {} candidates passed{kept}", tried.len()) }
}

/// Checks run in copies, so the workspace itself is not writable for them. Full access is for a check that the user set
/// themselves: what a project names, or what is run because a project has such files, stays in the sandbox.
fn commands(ctx: &TurnContext, by_user: bool) -> Commands {
    let config = ctx.config();
    let protect = ctx.options.config.files.clone();
    let mode = match config.sandbox_mode {
        Mode::DangerFullAccess if !by_user => Mode::WorkspaceWrite,
        mode => mode,
    };
    Commands::new(mode, config.sandbox_workspace_write.clone(), protect)
}

/// Writes a candidate of the last try into the workspace.
pub async fn choose(ctx: &mut TurnContext, candidate: usize) -> Outcome {
    let failed = |why: &str| Outcome::Failed { why: why.to_owned() };
    let Some(last) = ctx.last_try.take() else { return failed("there was no try; begin with /try") };
    let Some(tried) = last.tried.iter().find(|tried| tried.row.candidate == candidate) else {
        let why = format!("there is no candidate {candidate}; there are {}", last.tried.len());
        ctx.last_try = Some(last);
        return Outcome::Failed { why };
    };
    let outcome = write(ctx, &tried.files).await;
    if outcome == Outcome::Done {
        // The conversation goes on as if this had been the only answer.
        ctx.say(&last.message).await;
        let item = ctx.conversation.push_assistant(&tried.answer);
        ctx.history.item(&item);
    } else {
        ctx.last_try = Some(last);
    }
    outcome
}

pub(super) async fn write(ctx: &mut TurnContext, files: &[Written]) -> Outcome {
    if files.is_empty() {
        return Outcome::Failed { why: "this candidate changes nothing that could be applied".to_owned() };
    }
    let mut edits = Vec::new();
    for file in files {
        let edit = ctx.next_edit();
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let diff = diff::unified(&text(&file.old), &text(&file.new)).into();
        ctx.emit(Event::EditStarted { edit, path: file.path.clone() }).await;
        ctx.emit(Event::EditGrew { edit, diff, lines: file.lines() }).await;
        edits.push(edit);
    }
    let written = match permitted(ctx, &edits, files).await {
        Ok(()) => apply(&ctx.history.journal(), files),
        Err(why) => Err(why),
    };
    for (edit, file) in edits.into_iter().zip(files) {
        let path = file.path.clone();
        let event = match &written {
            Ok(_) => Event::EditApplied { edit, path, lines: file.lines() },
            Err(why) => Event::EditFailed { edit, path, why: why.clone() },
        };
        ctx.emit(event).await;
    }
    match written {
        Ok(written) => {
            ctx.history.edited(&written);
            ctx.written = written;
            Outcome::Done
        }
        Err(why) => Outcome::Failed { why },
    }
}

async fn permitted(ctx: &mut TurnContext, edits: &[u64], files: &[Written]) -> Result<(), String> {
    let policy = ctx.sandbox_policy();
    let Some(why) = files.iter().find_map(|file| policy.may_write(&ctx.root().join(&file.path)).err()) else {
        return Ok(());
    };
    if ctx.config().approval_policy == crate::approval::Policy::Never {
        return Err(why);
    }
    let paths: Vec<PathBuf> = files.iter().map(|file| file.path.clone()).collect();
    match ctx.ask(ApprovalAsk::Edits { edits: edits.to_vec(), paths }, why).await {
        Decision::Yes | Decision::Always => Ok(()),
        Decision::No | Decision::Stop => Err("not written, as you decided".to_owned()),
    }
}

/// Writes the files, unless the workspace is no longer what they were made for.
pub(super) fn apply(journal: &Journal, files: &[Written]) -> Result<Vec<Written>, String> {
    let change = |file: &Written| {
        let kind = match &file.new {
            Some(text) => ChangeKind::WholeFile { text: text.clone() },
            None => ChangeKind::Delete,
        };
        Change { path: file.path.clone(), kind }
    };
    let changes: Vec<Change> = files.iter().map(change).collect();
    let batch = Batch::resolve(journal.root(), &changes).map_err(|error| error.to_string())?;
    let now = batch.files();
    let same = |file: &Written| now.iter().any(|now| now.path == file.path && now.old == file.old);
    if let Some(file) = files.iter().find(|file| file.old != file.new && !same(file)) {
        return Err(format!("{} changed meanwhile; try again", file.path.display()));
    }
    batch.write(|step| journal.edit(step)).map_err(|error| error.to_string())
}

//! The partner: one task that takes commands, works through turns, and tells what happens.

use std::path::PathBuf;
use std::time::Instant;

use serde_json::Value;
use tokio::sync::mpsc;

use crate::candidates::Refused;
use crate::command::{Command, Prompt, Style};
use crate::commit::{self, Pending, When};
use crate::config::{Loaded, Persistence, Sources};
use crate::event::{Event, Outcome, TurnUsage};
use crate::failing::Failing;
use crate::history::History;
use crate::intent::Intent;
use crate::local::ServerSpec;
use crate::models::KnownModel;
use crate::turn_context::{TurnContext, word};
use crate::{candidates, check, compact, idle_commands, init, intent, pair, shell, tool_loop};

/// Commands that may wait while the partner is busy with one; the sender waits after that.
const COMMANDS_MAX: usize = 64;

/// Events that may wait for a slow reader; the partner waits after that.
const EVENTS_MAX: usize = 1024;

/// What a partner is made from.
#[derive(Clone, Debug)]
pub struct PartnerOptions {
    /// The folder it works in.
    pub root: PathBuf,
    /// Where sessions, checkpoints and the private server live.
    pub state: PathBuf,
    /// The configuration.
    pub config: Loaded,
    /// Where it came from, to read it again when the profile changes.
    pub sources: Sources,
    /// How the private server is started.
    pub server: ServerSpec,
    /// The model when none is configured.
    pub default_model: String,
    /// Known models and the style each works in.
    pub known_models: Vec<(String, Style)>,
    /// The models that can be asked for by name, as they are now.
    pub models: fn() -> Vec<KnownModel>,
    /// What the operator says before everything else, such as the text of AGENTS.md files.
    pub instructions: String,
    /// Where that came from.
    pub instruction_files: Vec<PathBuf>,
    /// Keep nothing on disk.
    pub ephemeral: bool,
    /// The session to go on with.
    pub resume: Option<String>,
    /// Answers must be JSON of this schema.
    pub output_schema: Option<Value>,
    /// Run the configured check after changes. Whoever runs it themselves says no.
    pub checks: bool,
}

impl PartnerOptions {
    /// The sandbox and how it is enforced, for people.
    pub fn sandbox_words(&self) -> String {
        word(&self.config.config.sandbox_mode)
    }
}

/// A running partner. Dropping it ends the running turn and then the partner.
#[derive(Clone, Debug)]
pub struct Partner {
    commands: mpsc::Sender<Command>,
}

impl Partner {
    /// Starts a partner on the current tokio runtime. Its first event may come before the first command.
    pub fn start(options: PartnerOptions) -> (Self, mpsc::Receiver<Event>) {
        let (commands, inbox) = mpsc::channel(COMMANDS_MAX);
        let (events, outbox) = mpsc::channel(EVENTS_MAX);
        tokio::spawn(run(options, events, inbox));
        (Self { commands }, outbox)
    }

    /// Tells the partner. False when it has ended.
    pub async fn send(&self, command: Command) -> bool {
        self.commands.send(command).await.is_ok()
    }

    /// The line to the partner, for a screen that keeps it.
    pub fn commands(&self) -> mpsc::Sender<Command> {
        self.commands.clone()
    }
}

async fn run(mut options: PartnerOptions, events: mpsc::Sender<Event>, inbox: mpsc::Receiver<Command>) {
    let model = options.config.config.model.clone().unwrap_or_else(|| options.default_model.clone());
    options.ephemeral |= options.config.config.history.persistence != Persistence::SaveAll;
    let history = History::begin_session(&options.state, &options.root, &model, options.ephemeral);
    let resume = options.resume.clone();
    let mut ctx = TurnContext::new(options, events, inbox, history);
    for warning in ctx.options.config.warnings.clone() {
        ctx.notice(warning).await;
    }
    if let Some(session) = resume {
        idle_commands::resume(&mut ctx, &session).await;
    }
    while !ctx.closing {
        for trouble in ctx.history.troubles() {
            ctx.trouble(trouble).await;
        }
        let Some(command) = ctx.next_command().await else { break };
        ctx.begun = Instant::now();
        obey(&mut ctx, command).await;
    }
    ctx.history.close();
    ctx.emit(Event::Closed).await;
}

/// Does what a person says while no turn runs.
async fn obey(ctx: &mut TurnContext, command: Command) {
    match command {
        Command::Ask(prompt) | Command::Steer(prompt) | Command::Queue(prompt) => {
            ctx.refused = Refused::default();
            if let Some(failing) = turn(ctx, &prompt).await {
                mend(ctx, prompt, failing).await;
            }
        }
        Command::Repair { prompt, failing } => drop(repair(ctx, prompt, failing).await),
        Command::Overrule => overrule(ctx).await,
        Command::DecideIntent(prompt) => {
            if let Err(why) = intent::of(ctx, &prompt).await {
                ctx.trouble(why).await;
            }
        }
        Command::Try { count, check, prompt } => {
            begin(ctx, &prompt.text).await;
            let outcome = candidates::attempt(ctx, count, check, &prompt).await;
            end(ctx, outcome).await;
        }
        Command::Choose { candidate } => {
            begin(ctx, &format!("candidate {candidate}")).await;
            ctx.history.ready().await;
            let outcome = candidates::choose(ctx, candidate).await;
            let done = outcome == Outcome::Done;
            end(ctx, outcome).await;
            if done {
                commit_turn(ctx).await;
            }
        }
        Command::Shell { line } => {
            begin(ctx, &format!("!{line}")).await;
            let outcome = shell::run(ctx, &line).await;
            end(ctx, outcome).await;
        }
        Command::Init => {
            begin(ctx, "/init").await;
            let outcome = init::run(ctx).await;
            end(ctx, outcome).await;
        }
        Command::Commit { message } => commit::run(ctx, &message).await,
        Command::Shutdown => ctx.closing = true,
        // Nothing is under way that these could be about.
        Command::Stop | Command::Decide { .. } => {}
        other => idle_commands::run(ctx, other).await,
    }
}

/// What a check that fails says, where it says anything.
type CheckFails = Option<Option<Failing>>;

/// One turn from what was asked to its end. What it changed is checked within it, where the screen wants that.
async fn turn(ctx: &mut TurnContext, prompt: &Prompt) -> CheckFails {
    begin(ctx, &prompt.text).await;
    compact::when_full(ctx).await;
    let prompt = &Prompt { pinned: ctx.pinned.clone(), ..prompt.clone() };
    let outcome = match intent::settle(ctx, prompt).await {
        Ok(Some((intent, prompt))) => match ctx.style() {
            Style::Pair => pair::turn(ctx, &prompt, intent).await,
            Style::Agent => tool_loop::turn(ctx, &prompt, intent).await,
        },
        Ok(None) => Outcome::Stopped,
        Err(why) => Outcome::Failed { why },
    };
    checked(ctx, outcome).await
}

/// Checks what the turn changed, and ends it.
async fn checked(ctx: &mut TurnContext, outcome: Outcome) -> CheckFails {
    let fails = match outcome {
        Outcome::Done => check::after_turn(ctx).await,
        _ => None,
    };
    let passed = outcome == Outcome::Done && fails.is_none();
    end(ctx, outcome).await;
    if passed {
        commit_turn(ctx).await;
    }
    fails
}

/// Commits what the turn changed, where that is configured. Whoever runs checks of their own commits after them.
async fn commit_turn(ctx: &mut TurnContext) {
    if ctx.options.checks && ctx.config().commit == When::Turn && !ctx.written.is_empty() {
        commit::run(ctx, "").await;
    }
}

/// One more answer, because the check fails after the first.
async fn mend(ctx: &mut TurnContext, prompt: Prompt, failing: Option<Failing>) {
    ctx.notice("Flint asks the model for another answer").await;
    if repair(ctx, Prompt { failing: failing.clone(), ..prompt }, failing).await.is_some() {
        ctx.notice("Flint keeps the last answer; /undo takes it back.").await;
    }
}

/// The last message once more, as a change when it was answered and as a question when it was taken for a change.
async fn overrule(ctx: &mut TurnContext) {
    let Some((prompt, taken_for)) = ctx.asked.take() else {
        return ctx.notice("There is no message yet to take another way.").await;
    };
    if let Err(why) = candidates::take_back(ctx).await {
        return ctx.trouble(why).await;
    }
    taken_back(ctx);
    ctx.refused = Refused::default();
    let other = if taken_for == Intent::Change { Intent::Question } else { Intent::Change };
    turn(ctx, &Prompt { intent: Some(other), ..prompt }).await;
}

/// Another answer, because a check did not like the last.
async fn repair(ctx: &mut TurnContext, prompt: Prompt, failing: Option<Failing>) -> CheckFails {
    if ctx.style() == Style::Agent {
        return turn(ctx, &Prompt { failing, intent: Some(Intent::Change), ..prompt }).await;
    }
    // Before the turn, so that its checkpoint and its diff begin where the task began.
    let taken = candidates::take_back(ctx).await;
    if taken.is_ok() {
        taken_back(ctx);
    }
    begin(ctx, &prompt.text).await;
    let outcome = match taken {
        Ok(()) => candidates::again(ctx, &prompt).await,
        Err(why) => Outcome::Failed { why },
    };
    checked(ctx, outcome).await
}

/// What the last turn wrote is not in the files any more.
fn taken_back(ctx: &mut TurnContext) {
    let turn = ctx.turn;
    ctx.uncommitted.retain(|pending| pending.turn != turn);
}

async fn begin(ctx: &mut TurnContext, text: &str) {
    ctx.turn += 1;
    ctx.written.clear();
    ctx.usage = TurnUsage::default();
    ctx.history.begin(ctx.turn, text);
    ctx.emit(Event::TurnStarted { turn: ctx.turn, text: text.to_owned() }).await;
}

async fn end(ctx: &mut TurnContext, outcome: Outcome) {
    ctx.give_back_early().await;
    ctx.usage.total_ms = ctx.elapsed_ms();
    ctx.status.last = ctx.usage.clone();
    let usage = ctx.usage.clone();
    let word = match &outcome {
        Outcome::Done => "done".to_owned(),
        Outcome::Stopped => "stopped".to_owned(),
        Outcome::Asked { .. } => "asked".to_owned(),
        Outcome::Failed { why } => format!("failed: {why}"),
    };
    ctx.history.end(&word, serde_json::to_value(&usage).unwrap_or_default()).await;
    if !ctx.written.is_empty() {
        let asked = ctx.history.turn_lines().pop().map(|turn| turn.text).unwrap_or_default();
        ctx.uncommitted.push(Pending { turn: ctx.turn, asked, written: ctx.written.clone() });
    }
    ctx.emit(Event::TurnEnded { turn: ctx.turn, outcome, usage }).await;
}

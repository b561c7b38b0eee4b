//! The partner: one task that takes commands, works through turns, and tells what happens.

use std::path::PathBuf;
use std::time::Instant;

use serde_json::Value;
use tokio::sync::mpsc;

use crate::candidates::Refused;
use crate::command::{Command, Prompt, Style};
use crate::commit::{self, Pending, When};
use crate::config::{Loaded, Persistence, Sources};
use crate::desk::{Desk, word};
use crate::event::{Event, Outcome, TurnUsage};
use crate::failing::Failing;
use crate::history::History;
use crate::intent::Intent;
use crate::local::ServerHow;
use crate::models::KnownModel;
use crate::{candidates, check, compact, errands, init, intent, pair, shell, tool_loop};

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
    pub server: ServerHow,
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
    let mut desk = Desk::new(options, events, inbox, history);
    for warning in desk.options.config.warnings.clone() {
        desk.notice(warning).await;
    }
    if let Some(session) = resume {
        errands::resume(&mut desk, &session).await;
    }
    while !desk.closing {
        for trouble in desk.history.troubles() {
            desk.trouble(trouble).await;
        }
        let Some(command) = desk.next_command().await else { break };
        desk.begun = Instant::now();
        obey(&mut desk, command).await;
    }
    desk.history.close();
    desk.emit(Event::Closed).await;
}

/// Does what a person says while no turn runs.
async fn obey(desk: &mut Desk, command: Command) {
    match command {
        Command::Ask(prompt) | Command::Steer(prompt) | Command::Queue(prompt) => {
            desk.refused = Refused::default();
            if let Some(failing) = turn(desk, &prompt).await {
                mend(desk, prompt, failing).await;
            }
        }
        Command::Repair { prompt, failing } => drop(repair(desk, prompt, failing).await),
        Command::Overrule => overrule(desk).await,
        Command::DecideIntent(prompt) => {
            if let Err(why) = intent::of(desk, &prompt).await {
                desk.trouble(why).await;
            }
        }
        Command::Try { count, check, prompt } => {
            begin(desk, &prompt.text).await;
            let outcome = candidates::attempt(desk, count, check, &prompt).await;
            end(desk, outcome).await;
        }
        Command::Choose { candidate } => {
            begin(desk, &format!("candidate {candidate}")).await;
            desk.history.ready().await;
            let outcome = candidates::choose(desk, candidate).await;
            let done = outcome == Outcome::Done;
            end(desk, outcome).await;
            if done {
                commit_turn(desk).await;
            }
        }
        Command::Shell { line } => {
            begin(desk, &format!("!{line}")).await;
            let outcome = shell::run(desk, &line).await;
            end(desk, outcome).await;
        }
        Command::Init => {
            begin(desk, "/init").await;
            let outcome = init::run(desk).await;
            end(desk, outcome).await;
        }
        Command::Commit { message } => commit::run(desk, &message).await,
        Command::Shutdown => desk.closing = true,
        // Nothing is under way that these could be about.
        Command::Stop | Command::Decide { .. } => {}
        errand => errands::run(desk, errand).await,
    }
}

/// What a check that fails says, where it says anything.
type CheckFails = Option<Option<Failing>>;

/// One turn from what was asked to its end. What it changed is checked within it, where the screen wants that.
async fn turn(desk: &mut Desk, prompt: &Prompt) -> CheckFails {
    begin(desk, &prompt.text).await;
    compact::when_full(desk).await;
    let prompt = &Prompt { pinned: desk.pinned.clone(), ..prompt.clone() };
    let outcome = match intent::settle(desk, prompt).await {
        Ok(Some(intent)) => match desk.style() {
            Style::Pair => pair::turn(desk, prompt, intent).await,
            Style::Agent => tool_loop::turn(desk, prompt, intent).await,
        },
        Ok(None) => Outcome::Stopped,
        Err(why) => Outcome::Failed { why },
    };
    checked(desk, outcome).await
}

/// Checks what the turn changed, and ends it.
async fn checked(desk: &mut Desk, outcome: Outcome) -> CheckFails {
    let fails = match outcome {
        Outcome::Done => check::after_turn(desk).await,
        _ => None,
    };
    let passed = outcome == Outcome::Done && fails.is_none();
    end(desk, outcome).await;
    if passed {
        commit_turn(desk).await;
    }
    fails
}

/// Commits what the turn changed, where that is configured. Whoever runs checks of their own commits after them.
async fn commit_turn(desk: &mut Desk) {
    if desk.options.checks && desk.config().commit == When::Turn && !desk.written.is_empty() {
        commit::run(desk, "").await;
    }
}

/// One more answer, because the check fails after the first.
async fn mend(desk: &mut Desk, prompt: Prompt, failing: Option<Failing>) {
    desk.notice("Flint asks the model for another answer").await;
    if repair(desk, Prompt { failing: failing.clone(), ..prompt }, failing).await.is_some() {
        desk.notice("Flint keeps the last answer; /undo takes it back.").await;
    }
}

/// The last message once more, as a change when it was answered and as a question when it was taken for a change.
async fn overrule(desk: &mut Desk) {
    let Some((prompt, taken_for)) = desk.asked.take() else {
        return desk.notice("There is no message yet to take another way.").await;
    };
    if let Err(why) = candidates::take_back(desk).await {
        return desk.trouble(why).await;
    }
    taken_back(desk);
    desk.refused = Refused::default();
    let other = if taken_for == Intent::Change { Intent::Question } else { Intent::Change };
    turn(desk, &Prompt { intent: Some(other), ..prompt }).await;
}

/// Another answer, because a check did not like the last.
async fn repair(desk: &mut Desk, prompt: Prompt, failing: Option<Failing>) -> CheckFails {
    if desk.style() == Style::Agent {
        return turn(desk, &Prompt { failing, intent: Some(Intent::Change), ..prompt }).await;
    }
    // Before the turn, so that its checkpoint and its diff begin where the task began.
    let taken = candidates::take_back(desk).await;
    if taken.is_ok() {
        taken_back(desk);
    }
    begin(desk, &prompt.text).await;
    let outcome = match taken {
        Ok(()) => candidates::again(desk, &prompt).await,
        Err(why) => Outcome::Failed { why },
    };
    checked(desk, outcome).await
}

/// What the last turn wrote is not in the files any more.
fn taken_back(desk: &mut Desk) {
    let turn = desk.turn;
    desk.uncommitted.retain(|pending| pending.turn != turn);
}

async fn begin(desk: &mut Desk, text: &str) {
    desk.turn += 1;
    desk.written.clear();
    desk.usage = TurnUsage::default();
    desk.history.begin(desk.turn, text);
    desk.emit(Event::TurnStarted { turn: desk.turn, text: text.to_owned() }).await;
}

async fn end(desk: &mut Desk, outcome: Outcome) {
    desk.give_back_early().await;
    desk.usage.total_ms = desk.elapsed_ms();
    desk.status.last = desk.usage.clone();
    let usage = desk.usage.clone();
    let word = match &outcome {
        Outcome::Done => "done".to_owned(),
        Outcome::Stopped => "stopped".to_owned(),
        Outcome::Failed { why } => format!("failed: {why}"),
    };
    desk.history.end(&word, serde_json::to_value(&usage).unwrap_or_default()).await;
    if !desk.written.is_empty() {
        let asked = desk.history.turn_lines().pop().map(|turn| turn.text).unwrap_or_default();
        desk.uncommitted.push(Pending { turn: desk.turn, asked, written: desk.written.clone() });
    }
    desk.emit(Event::TurnEnded { turn: desk.turn, outcome, usage }).await;
}

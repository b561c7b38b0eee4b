//! The partner: one task that takes commands, works through turns, and tells what happens.

use std::path::PathBuf;
use std::time::Instant;

use serde_json::Value;
use tokio::sync::mpsc;

use crate::command::{Command, Prompt, Style};
use crate::config::{Loaded, Sources};
use crate::desk::{Desk, word};
use crate::event::{Event, Outcome, TurnUsage};
use crate::history::History;
use crate::local::ServerHow;
use crate::pair;

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

async fn run(options: PartnerOptions, events: mpsc::Sender<Event>, inbox: mpsc::Receiver<Command>) {
    let mut desk = Desk::new(options, events, inbox, History::ephemeral());
    for warning in desk.options.config.warnings.clone() {
        desk.notice(warning).await;
    }
    while !desk.closing {
        let Some(command) = desk.next_command().await else { break };
        desk.begun = Instant::now();
        obey(&mut desk, command).await;
    }
    desk.emit(Event::Closed).await;
}

/// Does what a person says while no turn runs.
async fn obey(desk: &mut Desk, command: Command) {
    match command {
        Command::Ask(prompt) | Command::Steer(prompt) | Command::Queue(prompt) => turn(desk, &prompt).await,
        Command::Shutdown => desk.closing = true,
        Command::Status => desk.emit_status().await,
        Command::Turns => {
            let turns = desk.history.turn_lines();
            desk.emit(Event::Turns(turns)).await;
        }
        Command::Diff => {
            let text = desk.history.diff();
            desk.emit(Event::Diff { text }).await;
        }
        Command::Model { name } => model(desk, &name).await,
        Command::SetStyle(style) => desk.options.config.config.style = Some(style),
        // Nothing is under way that these could be about.
        Command::Stop | Command::Decide { .. } => {}
        other => desk.trouble(format!("{other:?} is not done yet")).await,
    }
}

/// One turn from what was asked to its end.
async fn turn(desk: &mut Desk, prompt: &Prompt) {
    desk.turn += 1;
    desk.usage = TurnUsage::default();
    let turn = desk.turn;
    desk.history.begin(turn, &prompt.text);
    desk.emit(Event::TurnStarted { turn, text: prompt.text.clone() }).await;
    let outcome = match desk.style() {
        Style::Pair => pair::turn(desk, prompt).await,
        Style::Agent => Outcome::Failed { why: "the agent style is not there yet; use style = \"pair\"".to_owned() },
    };
    desk.usage.total_ms = desk.elapsed_ms();
    desk.status.last = desk.usage.clone();
    let usage = desk.usage.clone();
    desk.emit(Event::TurnEnded { turn, outcome, usage }).await;
}

async fn model(desk: &mut Desk, name: &str) {
    if name.is_empty() {
        let names: Vec<&str> = desk.options.known_models.iter().map(|(name, _)| name.as_str()).collect();
        let text = format!("{} is in use; there are {}", desk.model(), names.join(", "));
        return desk.notice(text).await;
    }
    desk.options.config.config.model = Some(name.to_owned());
    desk.disconnect();
    desk.emit_status().await;
}

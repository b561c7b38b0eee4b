//! The tools of the agent style: what a model may do with the workspace, and what it gets to read afterwards.
//!
//! [`Tools::call`] runs one call and never fails: whatever goes wrong becomes a text the model can act on. Tools that only
//! look run in this process and beside each other; those that change something run alone, in the order they were asked for.

mod asks;
mod bound;
mod change;
pub(crate) mod command;
mod look;
mod path;
mod schema;
pub(crate) mod shell;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use serde_json::Value;
use tokio::sync::{mpsc, watch};
use workspace::edit::Written;
use workspace::journal::Journal;

pub use asks::Asks;
pub use bound::{OUTPUT_BYTES_MAX, line as bounded_line, middle as bounded};
pub use command::{Commands, Ran};
pub use schema::{INPUT_BYTES_MAX, PatchTool};
pub use shell::ShellRules;

use schema::Request;

use crate::{Event, Intent};

/// What the tools work on and through.
pub struct ToolsOptions {
    /// The workspace.
    pub root: PathBuf,
    /// Where they say what they do.
    pub events: mpsc::Sender<Event>,
    /// How patches are taken.
    pub patch: PatchTool,
    /// How commands run and which need permission.
    pub shell: ShellRules,
    /// Who is asked for permission.
    pub asks: Arc<Asks>,
    /// Numbers of edits in the session, shared with whoever else makes edits.
    pub edit_numbers: Arc<AtomicU64>,
    /// Keeps the way back before anything is changed or started.
    pub journal: Arc<Journal>,
}

/// The tools of one session.
pub struct Tools {
    options: ToolsOptions,
    call_numbers: AtomicU64,
    /// Files written since somebody asked.
    written: Mutex<Vec<Written>>,
}

/// One call of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall {
    /// What its result must name.
    pub call_id: String,
    /// The tool.
    pub name: String,
    /// Arguments in JSON, or free text.
    pub input: String,
    /// Whether the input is free text.
    pub custom: bool,
}

/// What came of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolResult {
    /// For the model.
    pub output: String,
    /// Whether it did what it should.
    pub ok: bool,
    /// Of a command.
    pub exit_code: Option<i32>,
    /// The person wants the turn to end.
    pub ends_turn: bool,
}

impl ToolResult {
    fn of(result: Result<String, String>) -> Self {
        match result {
            Ok(output) => Self { output, ok: true, ..Self::default() },
            Err(why) => Self { output: format!("error: {why}"), ..Self::default() },
        }
    }
}

/// Whether running calls should end early.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interrupt {
    /// No.
    #[default]
    None,
    /// The person redirected the turn: end what can safely end.
    Steered,
    /// The person stopped the turn: end everything.
    Stopped,
}

impl Tools {
    /// The tools of a new session.
    pub fn new(options: ToolsOptions) -> Self {
        Self { options, call_numbers: AtomicU64::new(1), written: Mutex::default() }
    }

    /// What a request's `tools` says.
    pub fn specs(&self) -> Vec<Value> {
        schema::specs(self.options.patch)
    }

    /// Another policy of approval from now on.
    pub fn set_policy(&self, policy: crate::approval::Policy) {
        self.options.shell.set_policy(policy);
    }

    /// What the message that is worked on asks for; see [`ShellRules::set_intent`].
    pub fn set_intent(&self, intent: Intent) {
        self.options.shell.set_intent(intent);
    }

    /// The files that edits have written since the last time.
    pub fn take_written(&self) -> Vec<Written> {
        std::mem::take(&mut self.written.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Open questions to the person.
    pub fn asks(&self) -> &Asks {
        &self.options.asks
    }

    /// Whether a call changes nothing.
    pub fn only_looks(call: &ToolCall) -> bool {
        // A call that cannot be read is answered at once, which changes nothing either.
        Request::read(&call.name, &call.input, call.custom).map_or(true, |request| request.only_looks())
    }

    /// Runs one call to its end, or to `interrupt`.
    pub async fn call(self: &Arc<Self>, call: ToolCall, interrupt: watch::Receiver<Interrupt>) -> ToolResult {
        let number = self.call_numbers.fetch_add(1, Ordering::Relaxed);
        let begun = Instant::now();
        let request = Request::read(&call.name, &call.input, call.custom);
        let title = request.as_ref().map_or_else(Clone::clone, Request::title);
        self.say(Event::ToolStarted { call: number, tool: call.name, title }).await;
        let result = match request {
            Ok(request) => self.run(number, request, interrupt).await,
            Err(why) => ToolResult::of(Err(why)),
        };
        let ms = begun.elapsed().as_secs_f64() * 1e3;
        let ended = Event::ToolEnded { call: number, exit_code: result.exit_code, ok: result.ok, ms };
        self.say(ended).await;
        ToolResult { output: bounded(&result.output, OUTPUT_BYTES_MAX), ..result }
    }

    async fn run(self: &Arc<Self>, number: u64, request: Request, interrupt: watch::Receiver<Interrupt>) -> ToolResult {
        match request {
            Request::Shell { command, timeout_s } => self.shell(number, command, timeout_s, interrupt).await,
            Request::Plan { steps } => {
                self.say(Event::Plan(steps)).await;
                ToolResult::of(Ok("noted\n".to_owned()))
            }
            Request::Edit { path, old, new } => self.edit(path, old, new).await,
            Request::Patch { input } => self.patch(input).await,
            Request::Read { path, start, lines } => {
                self.blocking(move |tools| look::read(&tools.options.root, &path, start, lines)).await
            }
            Request::Search { pattern, path } => {
                self.blocking(move |tools| look::search(&tools.options.root, &pattern, &path)).await
            }
            Request::List { path } => self.blocking(move |tools| look::list(&tools.options.root, &path)).await,
        }
    }

    /// Disks are waited for on a thread that may wait.
    async fn blocking(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Result<String, String> + Send + 'static,
    ) -> ToolResult {
        let tools = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || work(&tools)).await;
        ToolResult::of(done.unwrap_or_else(|error| Err(format!("the tool failed: {error}; try another way"))))
    }

    /// Nobody listening is no reason to stop.
    async fn say(&self, event: Event) {
        let _ = self.options.events.send(event).await;
    }
}

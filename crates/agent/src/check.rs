//! The command that must succeed after a change. It runs after changes only, so a question cannot fail because of it; where
//! something is to be repaired it runs before as well, and the model reads what it says.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use sandbox::{CommandSpec, Ended, Mode, Output, Policy, Sandbox};

use crate::event::Event;
use crate::failing::{Failing, talkative_python};
use crate::partner::PartnerOptions;
use crate::turn_context::{During, TurnContext};

/// Calls of tools have small numbers; the check of a turn has this one and the turn's.
const CALL: u64 = 1 << 32;

/// How long a check may take; a build and its tests take less.
const TIMEOUT: Duration = Duration::from_secs(1800);

/// How long it may take before the edits, when it only has to say what is wrong.
const BEFORE_TIMEOUT: Duration = Duration::from_secs(60);

/// Bytes of what it says that are kept for the model, which is shown far less.
const SAID_BYTES_MAX: usize = 1 << 20;

/// The command.
#[derive(Clone, Debug)]
pub struct Check {
    /// The shell line.
    pub command: String,
    /// It was typed, not configured.
    typed: bool,
    root: PathBuf,
    policy: Policy,
    /// Where the partner keeps its own.
    state: PathBuf,
}

/// How it went after the edits.
#[derive(Debug)]
pub enum After {
    /// It succeeded.
    Passed,
    /// With what it said, where it said anything.
    Failed(Option<Failing>),
}

impl Check {
    /// The one that was typed, or the configuration's.
    pub fn new(typed: Option<&str>, options: &PartnerOptions) -> Option<Self> {
        let command = typed.map(str::to_owned).or_else(|| options.config.config.check.clone())?;
        let root = options.root.clone();
        let mut policy = options.config.sandbox_policy(&root);
        if typed.is_none() && policy.mode == Mode::DangerFullAccess && options.config.is_projects("check") {
            // Full access is for what its user says. What a project says stays in the sandbox.
            let detail = &options.config.config.sandbox_workspace_write;
            policy = Policy::new(Mode::WorkspaceWrite, detail, &root, &options.config.protected);
        }
        Some(Self { command, typed: typed.is_some(), root, policy, state: options.state.clone() })
    }

    /// What it says before the edits, for the model; none when it succeeds or takes too long.
    pub async fn failing(&self) -> Result<Option<Failing>, String> {
        let mut said = Vec::new();
        let python = talkative_python(&self.state.join("tries").join("python")).map_err(|error| error.to_string())?;
        let ended = self.run(BEFORE_TIMEOUT, Some(python), |bytes| keep(&mut said, bytes)).await?;
        Ok(self.said(&said).filter(|_| !ended.ok() && !ended.timed_out))
    }

    /// Whether it succeeds now. `heard` gets what it says, as it comes.
    pub async fn after(&self, mut heard: impl FnMut(&[u8])) -> Result<After, String> {
        let mut said = Vec::new();
        let ran = self.run(TIMEOUT, None, |bytes| {
            keep(&mut said, bytes);
            heard(bytes);
        });
        if ran.await?.ok() {
            return Ok(After::Passed);
        }
        Ok(After::Failed(self.said(&said)))
    }

    fn said(&self, said: &[u8]) -> Option<Failing> {
        let said = String::from_utf8_lossy(said);
        (!said.trim().is_empty()).then(|| Failing::new(&self.command, &said, &self.root))
    }

    /// Runs it in the sandbox. Where there is none, only a command that was typed is run without.
    async fn run(
        &self,
        timeout: Duration,
        variable: Option<(String, String)>,
        mut heard: impl FnMut(&[u8]),
    ) -> Result<Ended, String> {
        let sandbox = Sandbox::detect();
        let unconfined = Policy::unconfined();
        let command = &self.command;
        let policy = match sandbox.holds(&self.policy) || self.policy.mode == Mode::DangerFullAccess {
            true => &self.policy,
            false if self.typed => &unconfined,
            false => {
                return Err(format!(
                    "`{command}` comes from the configuration and no sandbox holds it here; run it by hand"
                ));
            }
        };
        let mut spec = CommandSpec::shell(command, &self.root);
        spec.timeout = Some(timeout);
        // Python takes a file for unchanged that has the same size and was written in the same second, which an answer and
        // its repair can be.
        spec.env.push(("PYTHONDONTWRITEBYTECODE".to_owned(), "1".to_owned()));
        spec.env.extend(variable);
        let mut running = sandbox.spawn(&spec, policy).map_err(|error| error.to_string())?;
        while let Some(output) = running.next().await {
            let (Output::Stdout(bytes) | Output::Stderr(bytes)) = output;
            heard(&bytes);
        }
        running.end().await.map_err(|error| error.to_string())
    }
}

/// Runs the configured check after a turn that changed files, on the screen. Some when it fails, with what it says.
pub async fn after_turn(ctx: &mut TurnContext) -> Option<Option<Failing>> {
    if !ctx.options.checks || ctx.written.is_empty() {
        return None;
    }
    let check = Check::new(None, &ctx.options)?;
    let call = CALL + u64::from(ctx.turn);
    ctx.emit(Event::ToolStarted { call, tool: "check".to_owned(), title: check.command.clone() }).await;
    let (events, begun) = (ctx.events(), Instant::now());
    let work = check.after(|bytes| {
        // What the screen is too slow for stands in the result all the same.
        let delta = String::from_utf8_lossy(bytes).into_owned();
        let _ = events.try_send(Event::ToolOutput { call, delta });
    });
    let mut work = std::pin::pin!(work);
    let after = loop {
        match ctx.during(&mut work).await {
            During::Done(after) => break Some(after),
            During::Stop => break None,
            During::Steer(prompt, _) => ctx.queue(prompt).await,
            During::Decide { .. } => {}
        }
    };
    let ok = matches!(after, Some(Ok(After::Passed)));
    let ms = begun.elapsed().as_micros() as f64 / 1000.0;
    ctx.emit(Event::ToolEnded { call, exit_code: None, ok, ms }).await;
    match after {
        Some(Ok(After::Failed(failing))) => {
            ctx.notice("the check failed").await;
            Some(failing)
        }
        Some(Err(why)) => {
            ctx.trouble(why).await;
            None
        }
        Some(Ok(After::Passed)) | None => None,
    }
}

/// What the configured check says before a repair, on the screen.
pub async fn before_turn(ctx: &mut TurnContext) -> Option<Failing> {
    let check = Check::new(None, &ctx.options).filter(|_| ctx.options.checks)?;
    let mut work = std::pin::pin!(check.failing());
    loop {
        match ctx.during(&mut work).await {
            During::Done(failing) => return failing.ok().flatten(),
            During::Stop => return None,
            During::Steer(prompt, at) => ctx.steer_early(prompt, at).await,
            During::Decide { .. } => {}
        }
    }
}

fn keep(said: &mut Vec<u8>, bytes: &[u8]) {
    said.extend_from_slice(&bytes[..bytes.len().min(SAID_BYTES_MAX.saturating_sub(said.len()))]);
}

//! `flint exec`: one task without a screen, for scripts and pipelines.
//!
//! What the model says and the diff go to standard output, everything else to standard error; with `--json` standard
//! output has one event per line, in the names the Codex CLI uses. The exit code says how it went: see [`Code`].

mod lines;
mod report;

use std::io::{IsTerminal, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use agent::failing::talkative_python;
use agent::sandbox::{CommandSpec, Ended, Mode, Output, Policy, Sandbox};
use agent::{Command, Decision, Event, Failing, Outcome, Partner, Prompt};
use anyhow::{Context, bail};
use clap::Args;
use tokio::sync::mpsc::Receiver;

use crate::partner::PartnerArgs;
use lines::Lines;
use report::Report;

/// Most bytes of a prompt from standard input; no model's context holds more.
const PROMPT_BYTES_MAX: u64 = 4 << 20;

/// How long a check may take; a build and its tests take less.
const CHECK_TIMEOUT: Duration = Duration::from_secs(1800);

/// How long it may take before the edits, when it only has to say what is wrong, and the bytes of that which are kept.
const BEFORE_TIMEOUT: Duration = Duration::from_secs(60);
const SAID_BYTES_MAX: usize = 1 << 20;

/// Arguments of `flint exec`.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 done, 1 the turn failed, 2 wrong arguments, 3 the edits did not apply (no file \
                        was changed), 4 the check failed, 130 interrupted.")]
pub struct ExecArgs {
    /// The task, in which @path mentions a file [default: standard input]
    prompt: Option<String>,
    #[command(flatten)]
    partner: PartnerArgs,
    /// Print events as JSON lines
    #[arg(long)]
    json: bool,
    /// File with a JSON schema that the answer must follow
    #[arg(long, value_name = "FILE")]
    output_schema: Option<PathBuf>,
    /// Write the model's last message to this file
    #[arg(short, long = "output-last-message", value_name = "FILE")]
    output: Option<PathBuf>,
    /// Shell command that must succeed after the edits [default: `check` of the configuration]. When something is to be
    /// repaired it is run before as well, and the model reads what it says
    #[arg(long, value_name = "CMD")]
    check: Option<String>,
}

/// How it went, as exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Code {
    Done = 0,
    Failed = 1,
    NotApplied = 3,
    CheckFailed = 4,
    Interrupted = 130,
}

/// Whoever follows the events of a run.
trait Follow {
    fn event(&mut self, event: &Event) -> anyhow::Result<()>;
}

/// Runs the command.
pub fn run(args: ExecArgs) -> anyhow::Result<ExitCode> {
    let mut options = args.partner.options()?;
    let prompt = prompt(&args)?;
    if let Some(path) = &args.output_schema {
        let text = std::fs::read_to_string(path).with_context(|| format!("the schema {}", path.display()))?;
        options.output_schema =
            Some(serde_json::from_str(&text).with_context(|| format!("{} is no JSON", path.display()))?);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let code = runtime.block_on(execute(args, options, prompt))?;
    Ok(ExitCode::from(code as u8))
}

async fn execute(args: ExecArgs, options: agent::PartnerOptions, mut prompt: Prompt) -> anyhow::Result<Code> {
    let check = Check::new(&args, &options);
    if let Some(check) = check.as_ref().filter(|_| agent::pair::Task::of(&prompt.text).repair) {
        prompt.failing = check.failing().await?;
    }
    let mut follow: Box<dyn Follow> = match args.json {
        true => Box::new(Lines::default()),
        false => Box::new(Report::new()),
    };
    let (partner, mut events) = Partner::start(options);
    partner.send(Command::Status).await;
    partner.send(Command::Ask(prompt)).await;
    let stop = partner.clone();
    let interrupt = tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            stop.send(Command::Stop).await;
        }
        // Whoever presses it twice does not want to wait.
        if tokio::signal::ctrl_c().await.is_ok() {
            std::process::exit(Code::Interrupted as i32);
        }
    });
    let mut ran = Ran::default();
    ran.follow(&partner, &mut events, follow.as_mut()).await?;
    interrupt.abort();
    partner.send(Command::Diff).await;
    partner.send(Command::Shutdown).await;
    while let Some(event) = events.recv().await {
        follow.event(&event)?;
    }
    if let Some(path) = &args.output {
        std::fs::write(path, &ran.text)
            .with_context(|| format!("the message could not be written to {}", path.display()))?;
    }
    let mut code = ran.code();
    if let Some(check) = check.filter(|_| code == Code::Done) {
        eprintln!("check: {}", check.command);
        if !check.succeeds().await? {
            eprintln!("the check failed; the edits stay, `git diff` shows them");
            code = Code::CheckFailed;
        }
    }
    Ok(code)
}

/// The command that must succeed after the edits.
struct Check {
    command: String,
    /// It was typed, not configured.
    typed: bool,
    root: PathBuf,
    policy: Policy,
    /// Where the partner keeps its own.
    state: PathBuf,
}

impl Check {
    fn new(args: &ExecArgs, options: &agent::PartnerOptions) -> Option<Self> {
        let command = args.check.clone().or_else(|| options.config.config.check.clone())?;
        let root = options.root.clone();
        let policy = options.config.sandbox_policy(&root);
        Some(Self { command, typed: args.check.is_some(), root, policy, state: options.state.clone() })
    }

    /// What it says before the edits, for the model; none when it succeeds or takes too long.
    async fn failing(&self) -> anyhow::Result<Option<Failing>> {
        let mut said = Vec::new();
        let python = talkative_python(&self.state.join("tries").join("python"))?;
        let ended = self.run(BEFORE_TIMEOUT, Some(python), |bytes| {
            said.extend_from_slice(&bytes[..bytes.len().min(SAID_BYTES_MAX.saturating_sub(said.len()))]);
            Ok(())
        });
        let ended = ended.await?;
        let said = String::from_utf8_lossy(&said);
        let failed = !ended.ok() && !ended.timed_out && !said.trim().is_empty();
        Ok(failed.then(|| Failing::new(&self.command, &said, &self.root)))
    }

    async fn succeeds(&self) -> anyhow::Result<bool> {
        Ok(self.run(CHECK_TIMEOUT, None, |bytes| std::io::stderr().write_all(bytes)).await?.ok())
    }

    /// Runs it in the sandbox. Where there is none, only a command that was typed is run without.
    async fn run(
        &self,
        timeout: Duration,
        variable: Option<(String, String)>,
        mut heard: impl FnMut(&[u8]) -> std::io::Result<()>,
    ) -> anyhow::Result<Ended> {
        let sandbox = Sandbox::detect();
        let unconfined = Policy::unconfined();
        let command = &self.command;
        let policy = match sandbox.holds(&self.policy) || self.policy.mode == Mode::DangerFullAccess {
            true => &self.policy,
            false if self.typed => &unconfined,
            false => bail!("`{command}` comes from the configuration and no sandbox holds it here; give it by --check"),
        };
        let mut spec = CommandSpec::shell(command, &self.root);
        spec.timeout = Some(timeout);
        spec.env.extend(variable);
        let mut running = sandbox.spawn(&spec, policy)?;
        while let Some(output) = running.next().await {
            let (Output::Stdout(bytes) | Output::Stderr(bytes)) = output;
            heard(&bytes)?;
        }
        Ok(running.end().await?)
    }
}

/// What became of the turn.
#[derive(Default)]
struct Ran {
    text: String,
    edit_failed: bool,
    outcome: Option<Outcome>,
}

impl Ran {
    /// Reads events until the turn has ended.
    ///
    /// Nobody is there to approve anything, so what needs approval is refused: a pipeline should not wait for ever.
    async fn follow(
        &mut self,
        partner: &Partner,
        events: &mut Receiver<Event>,
        follow: &mut dyn Follow,
    ) -> anyhow::Result<()> {
        while let Some(event) = events.recv().await {
            follow.event(&event)?;
            match event {
                Event::ApprovalAsked(asked) => {
                    partner.send(Command::Decide { ask: asked.ask, decision: Decision::No }).await;
                }
                Event::Text { delta } => self.text.push_str(&delta),
                Event::EditFailed { .. } => self.edit_failed = true,
                Event::EditApplied { .. } => self.edit_failed = false,
                Event::TurnEnded { outcome, .. } => {
                    self.outcome = Some(outcome);
                    return Ok(());
                }
                _ => {}
            }
        }
        bail!("the partner ended without a word; this is a mistake in Flint")
    }

    fn code(&self) -> Code {
        match &self.outcome {
            Some(Outcome::Done) if self.edit_failed => Code::NotApplied,
            Some(Outcome::Done) => Code::Done,
            Some(Outcome::Stopped) => Code::Interrupted,
            Some(Outcome::Failed { .. }) if self.edit_failed => Code::NotApplied,
            _ => Code::Failed,
        }
    }
}

fn prompt(args: &ExecArgs) -> anyhow::Result<Prompt> {
    let text = match args.prompt.as_deref() {
        Some("-") | None => {
            let stdin = std::io::stdin();
            if stdin.is_terminal() {
                bail!("say what to do: flint exec \"fix the bug in @src/cart.py\"");
            }
            let mut text = String::new();
            stdin.take(PROMPT_BYTES_MAX).read_to_string(&mut text).context("the prompt on standard input")?;
            text
        }
        Some(text) => text.to_owned(),
    };
    if text.trim().is_empty() {
        bail!("the prompt is empty");
    }
    Ok(Prompt { text, ..Prompt::default() })
}

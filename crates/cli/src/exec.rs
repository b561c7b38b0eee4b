//! `flint exec`: one task without a screen, for scripts and pipelines.
//!
//! What the model says and the diff go to standard output, everything else to standard error; with `--json` standard
//! output has one event per line, in the names the Codex CLI uses. The exit code says how it went: see [`Code`].

mod check;
mod lines;
mod report;

use std::io::{IsTerminal, Read};
use std::path::PathBuf;
use std::process::ExitCode;

use agent::{Command, Decision, Event, Outcome, Partner, Prompt};
use anyhow::{Context, bail};
use clap::Args;
use tokio::sync::mpsc::Receiver;

use crate::partner::PartnerArgs;
use check::{After, Check};
use lines::Lines;
use report::Report;

/// Most bytes of a prompt from standard input; no model's context holds more.
pub const PROMPT_BYTES_MAX: u64 = 4 << 20;

/// How long work that was stopped may take to end.
const CLOSING: std::time::Duration = std::time::Duration::from_secs(1);

/// Most bytes of a schema.
const SCHEMA_BYTES_MAX: u64 = 4 << 20;

/// Arguments of `flint exec`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 done, 1 the turn failed, 2 wrong arguments, 3 the edits did not apply (no file was \
                        changed), 4 the check failed (the edits of the last answer stay), 130 interrupted."
)]
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
    /// How many more answers to ask for when the check fails. A fast model's answer is taken back before the next one; a
    /// model that works with tools is told what fails and goes on
    #[arg(long, value_name = "N", default_value_t = 1)]
    repairs: u8,
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
    // What was asked is checked before a model may have to be fetched for it.
    let (prompt, schema) = (prompt(&args)?, schema(&args)?);
    let options = agent::PartnerOptions { output_schema: schema, ..args.partner.options()? };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let code = runtime.block_on(execute(args, options, prompt));
    // A search that was stopped may still be reading; nobody waits for it.
    runtime.shutdown_timeout(CLOSING);
    let code = code?;
    Ok(ExitCode::from(code as u8))
}

async fn execute(args: ExecArgs, options: agent::PartnerOptions, mut prompt: Prompt) -> anyhow::Result<Code> {
    let check = Check::new(args.check.as_deref(), &options);
    if let Some(check) = check.as_ref().filter(|_| agent::pair::Task::of(&prompt.text).repair) {
        prompt.failing = check.failing().await?;
    }
    let mut follow: Box<dyn Follow> = match args.json {
        true => Box::new(Lines::default()),
        false => Box::new(Report::new()),
    };
    let (partner, mut events) = Partner::start(options);
    partner.send(Command::Status).await;
    let mut command = Command::Ask(prompt.clone());
    let mut repairs = args.repairs;
    let code = loop {
        let ran = turn(&partner, command, &mut events, follow.as_mut()).await?;
        if let Some(path) = &args.output {
            std::fs::write(path, &ran.text)
                .with_context(|| format!("the message could not be written to {}", path.display()))?;
        }
        let Some(check) = check.as_ref().filter(|_| ran.code() == Code::Done) else { break ran.code() };
        errln!("check: {}", check.command);
        let failing = match check.after().await? {
            After::Passed => break Code::Done,
            After::Interrupted => break Code::Interrupted,
            After::Failed(failing) => failing,
        };
        if repairs == 0 {
            errln!("the check failed; the edits stay, `git diff` shows them");
            break Code::CheckFailed;
        }
        repairs -= 1;
        errln!("the check failed; another answer is asked for");
        command = Command::Repair { prompt: prompt.clone(), failing };
    };
    partner.send(Command::Shutdown).await;
    while let Some(event) = events.recv().await {
        follow.event(&event)?;
    }
    Ok(code)
}

/// One turn from what is asked to the diff of what it changed.
async fn turn(
    partner: &Partner,
    command: Command,
    events: &mut Receiver<Event>,
    follow: &mut dyn Follow,
) -> anyhow::Result<Ran> {
    partner.send(command).await;
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
    ran.follow(partner, events, follow).await?;
    interrupt.abort();
    partner.send(Command::Diff).await;
    while let Some(event) = events.recv().await {
        follow.event(&event)?;
        if matches!(event, Event::Diff { .. } | Event::Trouble { .. }) {
            break;
        }
    }
    Ok(ran)
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

/// What is piped in, which must fit.
pub fn piped() -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::io::stdin().take(PROMPT_BYTES_MAX + 1).read_to_end(&mut bytes).context("the prompt on standard input")?;
    if bytes.len() as u64 > PROMPT_BYTES_MAX {
        bail!("standard input has more than {} MiB, the most a prompt may have; pipe in less", PROMPT_BYTES_MAX >> 20);
    }
    Ok(bytes)
}

fn schema(args: &ExecArgs) -> anyhow::Result<Option<serde_json::Value>> {
    let Some(path) = &args.output_schema else { return Ok(None) };
    let bytes = boundary::file::read(path, SCHEMA_BYTES_MAX).context("the schema")?;
    serde_json::from_slice(&bytes).map(Some).with_context(|| format!("{} is not valid JSON", path.display()))
}

fn prompt(args: &ExecArgs) -> anyhow::Result<Prompt> {
    let text = match args.prompt.as_deref() {
        Some("-") | None => {
            let stdin = std::io::stdin();
            if stdin.is_terminal() {
                bail!("say what to do: flint exec \"fix the bug in @src/cart.py\"");
            }
            String::from_utf8(piped()?).context("the prompt on standard input")?
        }
        Some(text) => text.to_owned(),
    };
    if text.trim().is_empty() {
        bail!("the prompt is empty");
    }
    Ok(Prompt { text, ..Prompt::default() })
}

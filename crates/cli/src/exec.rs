//! `flint exec`: one task without a screen, for scripts and pipelines.
//!
//! What the model says and the diff go to standard output, everything else to standard error; with `--json` standard
//! output has one event per line, in the names the Codex CLI uses. The exit code says how it went: see [`Code`].

mod lines;
mod report;
mod schema;

use std::io::{IsTerminal, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use agent::check::{After, Check};
use agent::{ApprovalAsk, Command, Decision, Event, Intent, Outcome, Partner, Prompt};
use anyhow::{Context, bail};
use clap::Args;
use tokio::sync::mpsc::Receiver;

use crate::partner::PartnerArgs;
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
    after_help = "Exit codes: 0 done, 1 the turn failed, 2 wrong arguments or an empty prompt, 3 a change was asked for \
                        and no file was changed, 4 the check failed (the edits of the last answer stay), 5 it was not \
                        clear what should change: no file did, and Flint asked about it or only answered, 130 \
                        interrupted."
)]
pub struct ExecArgs {
    /// The task, in which @path mentions a file. What is piped in follows it, or is the task where there is none
    prompt: Option<String>,
    #[command(flatten)]
    pub partner: PartnerArgs,
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
    /// What the task asks for: `change` changes files, `answer` changes none, `auto` lets it be decided [default: `intent`
    /// of the configuration]
    #[arg(long, value_name = "WHAT", value_parser = ["auto", "answer", "change"])]
    intent: Option<String>,
    /// Only decide what the task asks for, and print that
    #[arg(long, conflicts_with_all = ["check", "output_schema", "output", "intent"])]
    decide: bool,
}

/// How it went, as exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Code {
    Done = 0,
    Failed = 1,
    NotApplied = 3,
    CheckFailed = 4,
    Unclear = 5,
    Interrupted = 130,
}

/// Whoever follows the events of a run.
trait Follow {
    fn event(&mut self, event: &Event) -> anyhow::Result<()>;
}

/// Arguments that cannot be worked with.
pub const WRONG: u8 = 2;

/// Runs the command.
pub fn run(mut args: ExecArgs) -> anyhow::Result<ExitCode> {
    args.partner.settings.extend(args.intent.iter().map(|intent| format!("intent={intent:?}")));
    // What was asked is checked before a model may have to be fetched for it.
    let checked = prompt(&args).and_then(|prompt| Ok((prompt, schema(&args)?)));
    let checked = checked.and_then(|checked| args.partner.check().map(|()| checked));
    let (prompt, schema) = match checked {
        Ok(checked) => checked,
        Err(error) => {
            errln!("error: {error:#}");
            return Ok(ExitCode::from(WRONG));
        }
    };
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
    if args.decide {
        return decide(options, prompt, args.json).await;
    }
    if let Some(check) = check.as_ref().filter(|_| agent::pair::Task::of(&prompt.text).repair) {
        prompt.failing = check.failing().await.map_err(anyhow::Error::msg)?;
    }
    let mut follow: Box<dyn Follow> = match args.json {
        true => Box::new(Lines::default()),
        false => Box::new(Report::new()),
    };
    let commits = options.config.config.commit == agent::commit::When::Turn;
    let (partner, mut events) = Partner::start(options);
    partner.send(Command::Status).await;
    let mut command = Command::Ask(prompt.clone());
    let (mut repairs, mut with_tools) = (args.repairs, false);
    let code = loop {
        let mut ran = turn(&partner, command, &mut events, follow.as_mut()).await?;
        with_tools |= ran.with_tools;
        ran.with_tools = with_tools;
        if let Some(path) = &args.output {
            std::fs::write(path, &ran.text)
                .with_context(|| format!("the message could not be written to {}", path.display()))?;
        }
        if ran.unclear && ran.code() == Code::Unclear {
            errln!("it is not clear whether files should change, so none did; say --intent change or --intent answer");
        }
        let Some(check) = check.as_ref().filter(|_| ran.wants_check()) else { break ran.code() };
        errln!("check: {}", check.command);
        let mut stderr = boundary::print::stderr();
        let after = check.after(|bytes| drop(stderr.write_all(bytes)));
        let after = tokio::select! {
            after = after => after.map_err(anyhow::Error::msg)?,
            Ok(()) = tokio::signal::ctrl_c() => break Code::Interrupted,
        };
        let failing = match after {
            After::Passed => break Code::Done,
            After::Failed(failing) => failing,
        };
        if repairs == 0 {
            errln!("the check failed; the edits stay, `git diff` shows them");
            break Code::CheckFailed;
        }
        repairs -= 1;
        errln!("the check failed; Flint asks the model for another answer");
        command = Command::Repair { prompt: prompt.clone(), failing };
    };
    if code == Code::Done && commits {
        partner.send(Command::Commit { message: String::new() }).await;
    }
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
        match event {
            // Commands of the model change files as well.
            Event::Diff { text } => {
                ran.applied |= !text.is_empty();
                break;
            }
            Event::Trouble { .. } => break,
            _ => {}
        }
    }
    Ok(ran)
}

/// Decides what the task asks for, and prints that.
async fn decide(options: agent::PartnerOptions, prompt: Prompt, json: bool) -> anyhow::Result<Code> {
    let (partner, mut events) = Partner::start(options);
    partner.send(Command::DecideIntent(prompt)).await;
    while let Some(event) = events.recv().await {
        match event {
            Event::Intent(decided) => {
                match json {
                    true => boundary::print::json_line(&lines::decided(&decided))?,
                    false => outln!("{}", decided.words()),
                }
                return Ok(Code::Done);
            }
            Event::Trouble { text } => {
                errln!("{text}");
                break;
            }
            Event::Notice { text } => errln!("{text}"),
            _ => {}
        }
    }
    Ok(Code::Failed)
}

/// What became of the turn.
#[derive(Default)]
struct Ran {
    text: String,
    /// What was asked for, as far as it was decided.
    intent: Option<Intent>,
    /// It could not be told, and nobody was there to ask.
    unclear: bool,
    /// A file was changed.
    applied: bool,
    /// The model works with tools, so it is told what a check says whether it changed something or not.
    with_tools: bool,
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
                Event::Status(status) => self.with_tools = status.style == "agent",
                Event::Intent(decided) => self.intent = Some(decided.intent),
                Event::ApprovalAsked(asked) => {
                    self.unclear |= asked.what == ApprovalAsk::Change;
                    partner.send(Command::Decide { ask: asked.ask, decision: Decision::No }).await;
                }
                Event::Text { delta } => self.text.push_str(&delta),
                Event::EditFailed { .. } => self.edit_failed = true,
                Event::EditApplied { lines, .. } => {
                    self.edit_failed = false;
                    self.applied |= lines != (0, 0);
                }
                Event::TurnEnded { outcome, .. } => {
                    self.outcome = Some(outcome);
                    return Ok(());
                }
                _ => {}
            }
        }
        bail!("the partner ended without a result; this is a bug in Flint")
    }

    /// A check is about changes: an answer cannot break it.
    fn wants_check(&self) -> bool {
        let tried = self.with_tools && self.intent == Some(Intent::Change);
        self.outcome == Some(Outcome::Done) && !self.edit_failed && !self.unclear && (self.applied || tried)
    }

    fn code(&self) -> Code {
        match &self.outcome {
            Some(Outcome::Asked { .. }) => Code::Unclear,
            Some(Outcome::Done) if self.edit_failed => Code::NotApplied,
            Some(Outcome::Done) if self.unclear => Code::Unclear,
            Some(Outcome::Done) if self.intent == Some(Intent::Change) && !self.applied => Code::NotApplied,
            Some(Outcome::Done) => Code::Done,
            Some(Outcome::Stopped) => Code::Interrupted,
            Some(Outcome::Failed { .. }) if self.edit_failed => Code::NotApplied,
            // The model answered, and nothing of the answer could be placed.
            Some(Outcome::Failed { .. })
                if self.intent == Some(Intent::Change) && !self.applied && !self.text.trim().is_empty() =>
            {
                Code::NotApplied
            }
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
    let schema: serde_json::Value =
        serde_json::from_slice(&bytes).with_context(|| format!("{} is not valid JSON", path.display()))?;
    schema::check(&schema).map_err(|why| anyhow::anyhow!("{} is not a JSON schema: {why}", path.display()))?;
    Ok(Some(schema))
}

/// The task: what was typed, and what was piped in after it.
fn prompt(args: &ExecArgs) -> anyhow::Result<Prompt> {
    let typed = args.prompt.as_deref().filter(|text| *text != "-");
    let text = match typed {
        Some(typed) if !is_piped() => typed.to_owned(),
        None if std::io::stdin().is_terminal() => bail!("say what to do: flint exec \"fix the bug in @src/cart.py\""),
        _ => {
            let piped = String::from_utf8(piped()?).context("the prompt on standard input")?;
            match typed {
                Some(typed) if piped.trim().is_empty() => typed.to_owned(),
                Some(typed) => format!("{typed}\n\n{}", piped.trim_end()),
                None => piped,
            }
        }
    };
    if text.trim().is_empty() {
        bail!("the prompt is empty");
    }
    Ok(Prompt { text, ..Prompt::default() })
}

/// Whether somebody wrote to standard input: a pipe or a file. What else it is, as under a service, may never end.
fn is_piped() -> bool {
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileTypeExt;
    let Ok(stdin) = std::io::stdin().as_fd().try_clone_to_owned() else { return false };
    let facts = std::fs::File::from(stdin).metadata();
    facts.is_ok_and(|facts| facts.file_type().is_fifo() || facts.is_file())
}

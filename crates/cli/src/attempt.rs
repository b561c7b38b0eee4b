//! `flint try`: several candidates for one task, checked, and the smallest that passes offered.
//!
//! The table and the diff go to standard output, everything else to standard error; with `--json` standard output has one
//! event per line, in the words of `flint exec`. The exit codes are those of `flint exec`.

use std::io::{BufRead, IsTerminal};
use std::process::ExitCode;

use agent::{CandidateRow, CandidateState, Command, Event, Outcome, Partner, Prompt};
use anyhow::bail;
use clap::Args;
use serde_json::{Value, json};
use tokio::sync::mpsc::Receiver;

use crate::partner::PartnerArgs;

/// Arguments of `flint try`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 a candidate passed (and was applied, if wanted), 1 the try could not be made, 2 wrong \
                        arguments, 3 the candidate did not apply, 4 no candidate passed, 130 interrupted."
)]
pub struct TryArgs {
    /// The task, in which @path mentions a file
    prompt: String,
    #[command(flatten)]
    pub partner: PartnerArgs,
    /// How many candidates [default: try.count of the configuration]
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=32))]
    count: Option<u16>,
    /// Shell command that must succeed [default: try.check or check of the configuration]
    #[arg(long, value_name = "CMD")]
    check: Option<String>,
    /// Apply the best candidate without asking
    #[arg(long)]
    apply: bool,
    /// Print events as JSON lines
    #[arg(long)]
    json: bool,
}

const DONE: u8 = 0;
const FAILED: u8 = 1;
const NOT_APPLIED: u8 = 3;
const NONE_PASSED: u8 = 4;
const INTERRUPTED: u8 = 130;

/// Runs the command.
pub fn run(args: TryArgs) -> anyhow::Result<ExitCode> {
    let prompt = if args.prompt.trim().is_empty() { Err(anyhow::anyhow!("the prompt is empty")) } else { Ok(()) };
    if let Err(error) = prompt.and_then(|()| args.partner.check()) {
        errln!("error: {error:#}");
        return Ok(ExitCode::from(crate::exec::WRONG));
    }
    let options = args.partner.options()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let code = runtime.block_on(async {
        let (partner, mut events) = Partner::start(options);
        let stop = partner.clone();
        let interrupt = tokio::spawn(async move {
            if tokio::signal::ctrl_c().await.is_ok() {
                stop.send(Command::Stop).await;
            }
        });
        let code = attempt(&args, &partner, &mut events).await;
        interrupt.abort();
        partner.send(Command::Shutdown).await;
        while events.recv().await.is_some() {}
        code
    })?;
    Ok(ExitCode::from(code))
}

async fn attempt(args: &TryArgs, partner: &Partner, events: &mut Receiver<Event>) -> anyhow::Result<u8> {
    let prompt = Prompt::from(args.prompt.as_str());
    let count = args.count.map_or(0, usize::from);
    partner.send(Command::Try { count, check: args.check.clone(), prompt }).await;
    let mut shown = Shown { json: args.json, rows: Vec::new(), best: None };
    match shown.follow(events).await? {
        Outcome::Done | Outcome::Asked { .. } => {}
        Outcome::Stopped => return Ok(INTERRUPTED),
        Outcome::Failed { why } => {
            shown.failed(&why)?;
            let reached = shown.rows.iter().any(|row| matches!(row.state, CandidateState::Failed { .. }));
            return Ok(if reached { NONE_PASSED } else { FAILED });
        }
    }
    let Some(best) = shown.best else { bail!("the try ended without a result; this is a bug in Flint") };
    if !args.apply && !asked(args, best)? {
        return Ok(DONE);
    }
    partner.send(Command::Choose { candidate: best }).await;
    match shown.follow(events).await? {
        Outcome::Done | Outcome::Asked { .. } => {}
        Outcome::Stopped => return Ok(INTERRUPTED),
        Outcome::Failed { why } => {
            shown.failed(&why)?;
            return Ok(NOT_APPLIED);
        }
    }
    partner.send(Command::Diff).await;
    while let Some(event) = events.recv().await {
        if let Event::Diff { text } = event {
            if args.json {
                shown.line(json!({"type": "diff", "text": text}))?
            } else {
                out!("{text}")
            }
            break;
        }
    }
    Ok(DONE)
}

/// Asks on a terminal; elsewhere nothing is applied that was not asked for.
fn asked(args: &TryArgs, best: usize) -> anyhow::Result<bool> {
    if args.json || !std::io::stdin().is_terminal() {
        if !args.json {
            errln!("nothing was written; add --apply to apply candidate {best}");
        }
        return Ok(false);
    }
    err!("apply candidate {best}? [y/N] ");
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// What the person has seen.
struct Shown {
    json: bool,
    rows: Vec<CandidateRow>,
    best: Option<usize>,
}

impl Shown {
    /// Shows events until the turn has ended.
    async fn follow(&mut self, events: &mut Receiver<Event>) -> anyhow::Result<Outcome> {
        while let Some(event) = events.recv().await {
            match event {
                Event::Candidates { rows, best } => self.candidates(rows, best)?,
                Event::Notice { text } | Event::Trouble { text } => self.note(&text)?,
                Event::EditApplied { path, lines, .. } if self.json => {
                    let change = json!({"path": path, "kind": "update", "added": lines.0, "removed": lines.1});
                    let item = json!({"type": "file_change", "changes": [change], "status": "completed"});
                    self.line(json!({"type": "item.completed", "item": item}))?;
                }
                Event::EditFailed { path, why, .. } => {
                    self.note(&format!("{} was not changed: {why}", path.display()))?
                }
                Event::TurnEnded { outcome, usage, .. } => {
                    if self.json && outcome == Outcome::Done {
                        self.line(json!({"type": "turn.completed", "usage": usage}))?;
                    }
                    return Ok(outcome);
                }
                _ => {}
            }
        }
        bail!("the partner ended without a result; this is a bug in Flint")
    }

    fn candidates(&mut self, rows: Vec<CandidateRow>, best: Option<usize>) -> anyhow::Result<()> {
        let is_done = |row: &CandidateRow| !matches!(row.state, CandidateState::Writing | CandidateState::Checking);
        let all_done = rows.iter().all(is_done);
        let was_done = !self.rows.is_empty() && self.rows.iter().all(is_done);
        self.rows = rows;
        self.best = best.or(self.best);
        if self.json {
            return self.line(json!({"type": "candidates", "rows": self.rows, "best": best}));
        }
        if all_done && (was_done || self.best.is_some()) {
            out!("{}", table(&self.rows, self.best));
        }
        Ok(())
    }

    fn failed(&self, why: &str) -> anyhow::Result<()> {
        match self.json {
            true => self.line(json!({"type": "turn.failed", "error": {"message": why}})),
            false => self.note(&format!("failed: {why}")),
        }
    }

    fn note(&self, text: &str) -> anyhow::Result<()> {
        if self.json {
            return self.line(json!({"type": "error", "message": text, "severity": "notice"}));
        }
        errln!("{text}");
        Ok(())
    }

    fn line(&self, value: Value) -> anyhow::Result<()> {
        Ok(boundary::print::json_line(&value)?)
    }
}

/// The outcome of every candidate, for a person.
fn table(rows: &[CandidateRow], best: Option<usize>) -> String {
    let mut text = String::from("   candidate   lines     seconds  outcome\n");
    for row in rows {
        let mark = if best == Some(row.candidate) { '*' } else { ' ' };
        let lines = format!("+{} -{}", row.lines.0, row.lines.1);
        let outcome = match &row.state {
            CandidateState::Writing => "writing".to_owned(),
            CandidateState::Checking => "checking".to_owned(),
            CandidateState::Passed => "passed".to_owned(),
            CandidateState::Failed { check, output } => {
                let last = output.lines().rev().find(|line| !line.trim().is_empty() && !line.starts_with('['));
                format!("{check} failed: {}", last.unwrap_or_default().trim())
            }
            CandidateState::NotApplied { why } => format!("not applied: {why}"),
        };
        let outcome: String = outcome.chars().take(100).collect();
        text += &format!("{mark} {:>10}   {lines:<9} {:>7.1}  {outcome}\n", row.candidate, row.ms as f64 / 1e3);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_says_what_became_of_each() {
        let row = |candidate, state| CandidateRow { candidate, state, lines: (2, 1), ms: 1500 };
        let failed = CandidateState::Failed {
            check: "check".to_owned(),
            output: "Traceback\nAssertionError\n[exit code 1]".to_owned(),
        };
        let table = table(&[row(1, failed), row(2, CandidateState::Passed)], Some(2));
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[1], "           1   +2 -1         1.5  check failed: AssertionError");
        assert_eq!(lines[2], "*          2   +2 -1         1.5  passed");
    }
}

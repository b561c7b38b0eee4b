//! The partner in lines: for screen readers, for terminals that can do no more, and for pipes.
//!
//! Nothing is drawn twice and nothing moves. Text comes in whole lines, a change is told once, when it is whole, and every
//! question says what can be answered. A line steers while the model talks; `/queue` and `/stop` stand for Tab and Esc.

use std::collections::{HashMap, VecDeque};
use std::io::{self, BufRead, Read, Write};
use std::sync::Arc;

use agent::{Approval, ApprovalAsk, Command, Decision, Event, FileRead, Outcome};
use boundary::terminal::{clean, reveal};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::app::{self, card};
use crate::composer::History;
use crate::conversation::{outcome, shown};
use crate::screen::CLOSING;
use crate::slash::{self, Slash};
use crate::theme::Theme;
use crate::{Error, Options};

/// Bytes of one line of the person.
const LINE_BYTES_MAX: u64 = 4 << 20;
/// Lines of the person that may wait.
const LINES_WAITING_MAX: usize = 64;

/// Runs the partner in lines until the person leaves or the input ends.
pub async fn run(
    commands: mpsc::Sender<Command>,
    mut events: mpsc::Receiver<Event>,
    options: Options,
) -> Result<(), Error> {
    let mut lines = read_lines();
    let mut plain = Plain::new(boundary::print::stdout(), History::open(options.history.clone()).0);
    plain.say(&format!("Flint in {}. Ask for a change; /help lists commands.", options.folder.display()))?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut next: Option<Command> = options.ask.as_deref().and_then(|text| plain.line(text).ok().flatten());
    loop {
        if let Some(command) = next.take() {
            let leaving = command == Command::Shutdown;
            if commands.send(command).await.is_err() || leaving {
                break;
            }
        }
        tokio::select! {
            biased;
            _ = terminate.recv() => next = Some(Command::Shutdown),
            _ = interrupt.recv() => next = Some(if plain.running { Command::Stop } else { Command::Shutdown }),
            line = lines.recv() => next = match line {
                Some(line) => plain.line(&line)?,
                None if plain.running => {
                    // What was asked is finished before the end of the input ends us.
                    wait_for_end(&mut events, &mut plain).await?;
                    Some(Command::Shutdown)
                }
                None => Some(Command::Shutdown),
            },
            event = events.recv() => match event {
                Some(Event::Closed) | None => break,
                Some(event) => plain.event(event)?,
            },
        }
    }
    // What was asked for before the end is still told.
    let rest = async {
        while let Some(event) = events.recv().await {
            if matches!(event, Event::Closed) {
                break;
            }
            plain.event(event)?;
        }
        Ok::<(), io::Error>(())
    };
    if let Ok(told) = tokio::time::timeout(CLOSING, rest).await {
        told?;
    }
    options.say_goodbye(&plain.session, plain.turns);
    Ok(())
}

async fn wait_for_end(
    events: &mut mpsc::Receiver<Event>,
    plain: &mut Plain<boundary::print::Stream>,
) -> io::Result<()> {
    while plain.running
        && let Some(event) = events.recv().await
    {
        plain.event(event)?;
    }
    Ok(())
}

/// Reading a terminal blocks, so it has a thread of its own, which ends with the process.
fn read_lines() -> mpsc::Receiver<String> {
    let (tell, lines) = mpsc::channel(LINES_WAITING_MAX);
    std::thread::spawn(move || {
        loop {
            // A line without end is cut, not waited for.
            let mut line = Vec::new();
            match io::stdin().lock().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
                Ok(1..) => {}
                _ => break,
            }
            if tell.blocking_send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                break;
            }
        }
    });
    lines
}

struct Plain<W> {
    out: W,
    theme: Theme,
    history: History,
    /// Text of a line that has not ended.
    open: String,
    diffs: HashMap<u64, Arc<str>>,
    approvals: VecDeque<Approval>,
    status_wanted: bool,
    running: bool,
    session: String,
    turns: usize,
    /// Commands whose output is told as it comes.
    told: Vec<u64>,
    /// Answers of the last turn, and its changes.
    answer: String,
    changes: String,
}

impl<W: Write> Plain<W> {
    fn new(out: W, history: History) -> Plain<W> {
        Plain {
            out,
            theme: Theme::new(false),
            history,
            open: String::new(),
            diffs: HashMap::new(),
            approvals: VecDeque::new(),
            status_wanted: false,
            running: false,
            session: String::new(),
            turns: 0,
            told: Vec::new(),
            answer: String::new(),
            changes: String::new(),
        }
    }

    /// A line of the person.
    fn line(&mut self, line: &str) -> io::Result<Option<Command>> {
        let line = line.trim();
        if let Some(approval) = self.approvals.front() {
            let decision = match line {
                "y" | "yes" => Some(Decision::Yes),
                "a" | "always" => Some(Decision::Always),
                "n" | "no" => Some(Decision::No),
                "s" | "stop" => Some(Decision::Stop),
                _ => None,
            };
            if let Some(decision) = decision {
                let ask = approval.ask;
                self.approvals.pop_front();
                return Ok(Some(Command::Decide { ask, decision }));
            }
        }
        if line.is_empty() {
            return Ok(None);
        }
        let _ = self.history.add(line);
        match slash::parse(line) {
            Some(Ok(slash)) => self.obey(slash),
            Some(Err(why)) => self.say(&format!("error: {why}")).map(|()| None),
            None if self.running => Ok(Some(Command::Steer(slash::prompt(line)))),
            None => {
                self.running = true;
                Ok(Some(Command::Ask(slash::prompt(line))))
            }
        }
    }

    fn obey(&mut self, slash: Slash) -> io::Result<Option<Command>> {
        Ok(match slash {
            Slash::Tell(command @ (Command::Shell { .. } | Command::Init)) if !self.running => {
                self.running = true;
                Some(command)
            }
            Slash::Tell(command) => Some(command),
            Slash::Status => {
                self.status_wanted = true;
                Some(Command::Status)
            }
            Slash::Rewind(None) => Some(Command::Turns),
            Slash::Rewind(Some(turn)) => Some(Command::PreviewRewind { turn }),
            Slash::RewindTo(turn, what) => Some(Command::Rewind { turn, what }),
            Slash::Sessions(query) => Some(Command::Sessions { query }),
            Slash::Copy { diff } => {
                let text = match diff || self.answer.trim().is_empty() {
                    true if self.changes.is_empty() => "there is neither an answer nor a change to copy yet".to_owned(),
                    true => self.changes.clone(),
                    false => self.answer.clone(),
                };
                self.say(&text)?;
                None
            }
            Slash::Help => {
                let help = app::help();
                self.say(&help)?;
                None
            }
            Slash::Quit => Some(Command::Shutdown),
        })
    }

    /// Prints whole lines, without what could steer a terminal.
    fn say(&mut self, text: &str) -> io::Result<()> {
        self.flush_open()?;
        self.print(text)
    }

    fn print(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.out, "{}", clean(text).trim_end_matches('\n'))?;
        self.out.flush()
    }

    /// Adds to the open line, and prints what of it is whole.
    fn grow(&mut self, delta: &str) -> io::Result<()> {
        self.open.push_str(delta);
        match self.open.rfind('\n') {
            Some(end) => {
                let rest = self.open.split_off(end + 1);
                let lines = std::mem::replace(&mut self.open, rest);
                self.print(&lines)
            }
            None => Ok(()),
        }
    }

    fn flush_open(&mut self) -> io::Result<()> {
        let open = std::mem::take(&mut self.open);
        if open.is_empty() { Ok(()) } else { self.print(&open) }
    }

    fn event(&mut self, event: Event) -> io::Result<()> {
        match event {
            Event::TurnStarted { turn, .. } => {
                self.running = true;
                self.turns += 1;
                self.answer.clear();
                self.changes.clear();
                self.say(&format!("turn {turn}"))
            }
            Event::Text { delta } => {
                self.answer.push_str(&delta);
                self.grow(&delta)
            }
            Event::ToolOutput { call, delta } if self.told.contains(&call) => self.grow(&delta),
            Event::TurnEnded { outcome, usage, .. } => {
                self.running = false;
                self.approvals.clear();
                self.diffs.clear();
                self.told.clear();
                let seconds = usage.total_ms / 1000.0;
                let rate = usage.decode_rate.map(|rate| format!(", {rate:.0} tokens per second")).unwrap_or_default();
                self.say(&match outcome {
                    Outcome::Done => format!("done in {seconds:.1} seconds{rate}"),
                    Outcome::Asked { .. } => {
                        format!("no file was changed; Flint asks, after {seconds:.1} seconds{rate}")
                    }
                    Outcome::Stopped => format!("stopped after {seconds:.1} seconds; what is above was kept"),
                    Outcome::Failed { why } => format!("error: {why}"),
                })
            }
            Event::EditGrew { edit, diff, .. } => {
                self.diffs.insert(edit, diff);
                Ok(())
            }
            Event::EditApplied { edit, path, lines: (added, removed) } => {
                let diff = self.diffs.remove(&edit).unwrap_or_default();
                self.changes.push_str(&diff);
                let name = shown(&path);
                self.say(&format!("changed {name}, {added} lines added, {removed} removed\n{diff}"))
            }
            Event::EditFailed { path, why, .. } => self.say(&format!("not changed {}: {why}", shown(&path))),
            Event::ApprovalAsked(approval) => self.ask(approval),
            event => self.other(event),
        }
    }

    fn ask(&mut self, approval: Approval) -> io::Result<()> {
        let text = match &approval.what {
            ApprovalAsk::Command { command, prefix } => {
                let (command, prefix, why) = (reveal(command), reveal(prefix), reveal(&approval.why));
                format!("run `{command}`? {why}\nanswer y for yes, a for always `{prefix}`, n for no, s to stop")
            }
            ApprovalAsk::Edits { edits, paths } => {
                let diffs: Vec<&str> =
                    edits.iter().filter_map(|edit| self.diffs.get(edit)).map(|diff| &**diff).collect();
                let named: Vec<String> = paths.iter().map(|path| reveal(&shown(path))).collect();
                let (diffs, named) = (diffs.concat(), named.join(", "));
                format!("{diffs}write {named}? {}\nanswer y for yes, n for no, s to stop", approval.why)
            }
            ApprovalAsk::Change => {
                format!("Change files for this? {}\nanswer y to change, n for an answer only, s to stop", approval.why)
            }
        };
        self.approvals.push_back(approval);
        self.say(&text)
    }

    fn other(&mut self, event: Event) -> io::Result<()> {
        let text = match event {
            Event::ToolStarted { call, tool, title } => {
                if tool == agent::OWN_COMMAND || tool == "check" {
                    self.told.push(call);
                }
                format!("{tool}: {title}")
            }
            Event::Intent(decided) => format!("{}; /overrule takes it otherwise", decided.words()),
            Event::FilesRead(files) => FileRead::line(&files),
            Event::Cleared => "the conversation is empty now; files, turns and /undo stay".to_owned(),
            Event::ToolEnded { ok, exit_code, ms, .. } => match (ok, exit_code) {
                (true, _) => format!("done in {ms:.0} milliseconds"),
                (false, Some(code)) => format!("failed with exit code {code}"),
                (false, None) => "failed".to_owned(),
            },
            Event::Plan(steps) => {
                let line =
                    |step: &agent::PlanStep| format!("{}: {}", if step.done { "done" } else { "to do" }, step.text);
                steps.iter().map(line).collect::<Vec<_>>().join("\n")
            }
            Event::ApprovalSettled { ask } => {
                self.approvals.retain(|approval| approval.ask != ask);
                return Ok(());
            }
            Event::SteerAccepted { after_ms } => format!("steer accepted after {after_ms:.0} milliseconds"),
            Event::SteerApplied { after_ms } => format!("steer applied after {after_ms:.0} milliseconds"),
            Event::SteerFailed { text, why } => format!("not steered: {why}; you wrote: {text}"),
            Event::Queued { text, waiting } => format!("asks next ({waiting} waiting): {text}"),
            Event::Candidates { rows, best } => match self.candidates(&rows, best) {
                Some(text) => text,
                None => return Ok(()),
            },
            Event::Restored { what, paths, .. } => format!("{what}: {}", app::files_named(&paths)),
            event => return self.answer(event),
        };
        self.say(&text)
    }

    /// The table is told once, when all are done.
    fn candidates(&self, rows: &[agent::CandidateRow], best: Option<usize>) -> Option<String> {
        use agent::CandidateState::{Checking, Writing};
        if rows.iter().any(|row| matches!(row.state, Writing | Checking)) {
            return None;
        }
        let line = |row: &agent::CandidateRow| {
            let (added, removed) = row.lines;
            let told = outcome(&row.state, &self.theme).0;
            format!("candidate {}: {told}, {added} lines added, {removed} removed", row.candidate)
        };
        let mut lines: Vec<String> = rows.iter().map(line).collect();
        lines.push(match best {
            Some(best) => format!("candidate {best} is the smallest that passes; /choose {best} applies it"),
            None => "none passes".to_owned(),
        });
        Some(lines.join("\n"))
    }

    fn answer(&mut self, event: Event) -> io::Result<()> {
        let text = match event {
            Event::Turns(turns) if turns.is_empty() => "there is no turn to go back to yet".to_owned(),
            Event::Turns(turns) => {
                let line = |line: &agent::TurnLine| format!("turn {}: {} ({} files)", line.turn, line.text, line.files);
                let lines: Vec<String> = turns.iter().map(line).collect();
                format!("{}\n/rewind and a turn says what going back would change", lines.join("\n"))
            }
            Event::RewindPreview(preview) => {
                let line = |(path, (added, removed)): &(std::path::PathBuf, (usize, usize))| {
                    format!("{}: {added} lines added, {removed} removed\n", shown(path))
                };
                let files: String = preview.files.iter().map(line).collect();
                let (turn, lost) = (preview.turn, preview.turns_lost);
                format!("{files}{lost} turns would be forgotten\nsay /rewind {turn} files, conversation or both")
            }
            Event::Diff { text } if text.is_empty() => "this session changed no file".to_owned(),
            Event::Diff { text } => text,
            Event::Compacted { kept, tokens: (before, after) } => {
                format!("compacted from {before} to {after} tokens; kept:\n{kept}")
            }
            Event::Sessions(rows) if rows.is_empty() => "no session was found".to_owned(),
            Event::Sessions(rows) => {
                let line = |row: &agent::SessionLine| {
                    format!("{}: {} ({} turns, {})", row.session, row.title, row.turns, app::ago(row.at, app::now()))
                };
                let lines: Vec<String> = rows.iter().map(line).collect();
                format!("{}\nsay /resume and the beginning of an id", lines.join("\n"))
            }
            Event::SessionOpened { session, turns } => {
                let mut told = format!("session {session}, {} turns", turns.len());
                for turn in &turns {
                    told += &format!("\nyou asked: {}\n{}", turn.asked, turn.answered);
                    for (path, (added, removed), diff) in &turn.edits {
                        told += &format!("changed {}, {added} lines added, {removed} removed\n{diff}", shown(path));
                    }
                }
                self.session = session;
                self.turns = turns.len();
                told
            }
            Event::Status(status) => {
                self.session.clone_from(&status.session);
                if !std::mem::take(&mut self.status_wanted) {
                    return Ok(());
                }
                card(&status)
            }
            Event::Notice { text } => text,
            Event::Trouble { text } => format!("error: {text}"),
            _ => return Ok(()),
        };
        self.say(&text)
    }
}

#[cfg(test)]
mod tests;

//! A run for people: what the model says and the diff on standard output, the rest on standard error.

use std::io::Write;

use agent::{Event, FileRead, Outcome, TurnUsage};
use boundary::print::Stream;
use boundary::terminal::clean_line;

use super::Follow;

/// A run for people.
pub struct Report {
    colour: bool,
    /// The last prose did not end its line.
    open_line: bool,
    stdout: Stream,
    /// Kept, because the output of tools comes in pieces.
    stderr: Stream,
}

impl Report {
    /// Colours only where a person looks and did not object.
    pub fn new() -> Self {
        let objects = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            colour: boundary::print::stdout_is_terminal() && !objects,
            open_line: false,
            stdout: boundary::print::stdout(),
            stderr: boundary::print::stderr(),
        }
    }

    fn say(&mut self, text: &str) -> std::io::Result<()> {
        self.open_line = !text.ends_with('\n') && !text.is_empty();
        self.stdout.write_all(text.as_bytes())?;
        self.stdout.flush()
    }

    fn note(&mut self, text: &str) -> std::io::Result<()> {
        if std::mem::take(&mut self.open_line) {
            writeln!(self.stdout)?;
        }
        writeln!(self.stderr, "{text}")
    }

    fn diff(&mut self, text: &str) -> std::io::Result<()> {
        if !self.colour {
            return self.say(text);
        }
        for line in text.lines() {
            let colour = match line.as_bytes().first() {
                _ if line.starts_with("+++") || line.starts_with("---") => 1,
                Some(b'+') => 32,
                Some(b'-') => 31,
                Some(b'@') => 36,
                _ => 0,
            };
            self.stdout.styled(colour, line)?;
            writeln!(self.stdout)?;
        }
        self.stdout.flush()
    }
}

impl Follow for Report {
    fn event(&mut self, event: &Event) -> anyhow::Result<()> {
        match event {
            Event::Intent(decided) => self.note(&decided.words())?,
            Event::FilesRead(files) => self.note(&FileRead::line(files))?,
            Event::Text { delta } => self.say(delta)?,
            Event::EditApplied { path, lines: (0, 0), .. } => {
                self.note(&format!("{}: the answer is what the file says already", path.display()))?;
            }
            Event::EditApplied { path, lines: (added, removed), .. } => {
                self.note(&format!("{}: +{added} -{removed}", path.display()))?;
            }
            Event::EditFailed { path, why, .. } => self.note(&format!("{} was not changed: {why}", path.display()))?,
            Event::ToolStarted { tool, title, .. } => self.note(&format!("{}: {}", clean_line(tool), title))?,
            Event::ToolOutput { delta, .. } => self.stderr.write_all(delta.as_bytes())?,
            Event::ApprovalAsked(asked) => self.note(&format!("not approved: {}", asked.why))?,
            Event::Notice { text } | Event::Trouble { text } => self.note(text)?,
            Event::Compacted { tokens: (before, after), .. } => {
                self.note(&format!("the conversation was made shorter: {before} to {after} tokens"))?;
            }
            Event::TurnEnded { outcome, usage, .. } => {
                if let Outcome::Failed { why } = outcome {
                    self.note(&format!("failed: {why}"))?;
                }
                self.note(&cost(usage))?;
            }
            Event::Diff { text } => self.diff(text)?,
            _ => {}
        }
        Ok(())
    }
}

/// What a turn cost, in a line.
fn cost(usage: &TurnUsage) -> String {
    let mut parts = vec![format!("{} tokens read ({} cached)", usage.input_tokens, usage.cached_tokens)];
    let rate = usage.decode_rate.map(|rate| format!(" at {rate:.0}/s")).unwrap_or_default();
    parts.push(format!("{} written{rate}", usage.output_tokens));
    if usage.accepted_prediction_tokens > 0 {
        parts.push(format!("{} of them predicted", usage.accepted_prediction_tokens));
    }
    if let Some(first) = usage.first_token_ms {
        parts.push(format!("first after {:.2} s", first / 1000.0));
    }
    parts.push(format!("{:.2} s in all", usage.total_ms / 1000.0));
    parts.join(", ")
}

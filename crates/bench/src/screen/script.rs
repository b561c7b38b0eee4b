//! The partner that follows a script: so many tokens a second, for as long as it is watched.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use agent::{Command, Event, Outcome, Status, TurnUsage};
use anyhow::Result;
use serde_json::json;
use tokio::sync::mpsc;

use super::Part;

/// Events on their way, as the real partner has it.
const EVENTS_MAX: usize = 1024;
/// Turns before the stream of [`Part::History`].
const HISTORY_TURNS: u32 = 1_500;
/// Tokens of a line of code.
const TOKENS_PER_LINE: usize = 10;
/// What the model says, one token after another.
const TOKENS: &[&str] = &[
    "The ", "func", "tion ", "`read", "_all`", " now ", "returns", " what ", "it ", "could ", "read", ", ", "and ",
    "the ", "rest ", "is ", "left ", "to ", "the ", "caller", ".\n", "```", "rust", "\n", "    let", " count", " =",
    " file", ".read", "(&mut", " buffer", ")?;", "\n", "```", "\n",
];

/// Runs the screen on this process's terminal.
pub fn run(part: Part, rate: u32, report: &Path) -> Result<()> {
    let frames = Arc::new(Mutex::new(tui::Frames::default()));
    let (tell, commands) = mpsc::channel(64);
    let (events, heard) = mpsc::channel(EVENTS_MAX);
    let options = tui::Options { color: true, frames: Some(Arc::clone(&frames)), ..tui::Options::default() };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let (tokens, seconds) = runtime.block_on(async {
        let partner = tokio::spawn(partner(part, rate, commands, events));
        tui::run(tell, heard, options).await?;
        anyhow::Ok(partner.await?)
    })?;
    let frames = *frames.lock().unwrap_or_else(PoisonError::into_inner);
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let told = json!({
        "tokens": tokens,
        "seconds": seconds,
        "longest_ms": super::round(ms(frames.longest)),
        "mean_ms": super::round(ms(frames.total) / frames.count.max(1) as f64),
    });
    Ok(std::fs::write(report, told.to_string())?)
}

/// Talks until it is told to end. Gives tokens said and seconds taken.
async fn partner(
    part: Part,
    rate: u32,
    mut commands: mpsc::Receiver<Command>,
    events: mpsc::Sender<Event>,
) -> (usize, f64) {
    let mut script = Script { part, said: 0, diff: String::new() };
    let mut next = script.beginning();
    let mut clock = tokio::time::interval(Duration::from_millis(1));
    let began = Instant::now();
    loop {
        for event in next.drain(..) {
            // When the screen does not keep up the model waits here, and the tokens per second that are reported say so.
            if events.send(event).await.is_err() {
                return (script.said, began.elapsed().as_secs_f64());
            }
        }
        tokio::select! {
            command = commands.recv() => match command {
                Some(Command::Status) => next.push(Event::Status(Box::new(status()))),
                Some(Command::Shutdown) | None => {
                    let _ = events.send(Event::Closed).await;
                    return (script.said, began.elapsed().as_secs_f64());
                }
                Some(_) => {}
            },
            _ = clock.tick() => {
                let due = (began.elapsed().as_secs_f64() * f64::from(rate)) as usize;
                next = script.say(due);
            }
        }
    }
}

struct Script {
    part: Part,
    said: usize,
    diff: String,
}

impl Script {
    fn beginning(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for turn in 1..=if self.part == Part::History { HISTORY_TURNS } else { 0 } {
            events.push(Event::TurnStarted { turn, text: format!("question {turn}") });
            events.push(Event::Text { delta: TOKENS.concat() });
            events.push(Event::TurnEnded { turn, outcome: Outcome::Done, usage: TurnUsage::default() });
        }
        events.push(Event::TurnStarted { turn: HISTORY_TURNS + 1, text: "say more than can be read".to_owned() });
        if self.part == Part::Edit {
            events.push(Event::EditStarted { edit: 1, path: "src/large.rs".into() });
        }
        events
    }

    /// What is said until so many tokens have been said.
    fn say(&mut self, due: usize) -> Vec<Event> {
        let new = self.said..due.max(self.said);
        match self.part {
            Part::Text | Part::History => {
                self.said = new.end;
                new.map(|token| Event::Text { delta: TOKENS[token % TOKENS.len()].to_owned() }).collect()
            }
            Part::Edit => self.grow(new),
        }
    }

    /// The partner tells a change about 30 times a second, the whole of it each time.
    fn grow(&mut self, new: std::ops::Range<usize>) -> Vec<Event> {
        let lines = new.end / TOKENS_PER_LINE;
        let told = self.said / TOKENS_PER_LINE;
        if new.len() < TOKENS_PER_LINE * 16 {
            return Vec::new();
        }
        self.said = new.end;
        for line in told..lines {
            self.diff
                .push_str(&format!("+    let line_{line} = compute(line_{}, &mut buffer)?;\n", line.saturating_sub(1)));
        }
        let diff = format!("@@ -1,1 +1,{lines} @@\n{}", self.diff);
        vec![Event::EditGrew { edit: 1, diff: diff.into(), lines: (lines, 0) }]
    }
}

fn status() -> Status {
    let last = TurnUsage { decode_rate: Some(5_000.0), first_token_ms: Some(20.0), ..TurnUsage::default() };
    Status { model: "script".to_owned(), context: 32_768, last, ..Status::default() }
}

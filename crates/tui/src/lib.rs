//! The screen of the partner: draws `agent`'s events and turns keys into its commands.
//!
//! [`run`] is the whole outside. Inside, `app` is the state (keys and events in, effects out, no terminal), `conversation` and
//! `flow` lay text out once and never again, `composer` is where the person writes, `screen` is the loop with the pacing,
//! and `plain` is the same partner in lines only, for screen readers and pipes. It knows nothing of models, files or
//! permission; those are `agent`'s.
#![cfg_attr(not(test), deny(clippy::disallowed_macros, clippy::disallowed_methods))]
#![cfg_attr(test, allow(clippy::disallowed_macros, clippy::disallowed_methods))]

mod app;
mod clipboard;
mod complete;
mod composer;
mod conversation;
mod flow;
mod highlight;
mod inline;
mod markdown;
mod plain;
mod screen;
mod slash;
mod terminal;
mod theme;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent::{Command, Event};
use tokio::sync::mpsc;

/// How the screen begins.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The workspace, for file names.
    pub folder: PathBuf,
    /// Lines only: no alternate screen, no cursor movement, nothing drawn twice.
    pub plain: bool,
    /// Where on the terminal it draws.
    pub surface: Surface,
    /// Whether colours may be used; see [`color_wanted`].
    pub color: bool,
    /// Where earlier prompts are kept; nowhere when `None`.
    pub history: Option<PathBuf>,
    /// A prompt to begin with.
    pub ask: Option<String>,
    /// What goes on with a session, such as `flint resume`; its id is put behind it.
    pub resume: Option<String>,
    /// Where the times of frames are noted, for measuring.
    pub frames: Option<Arc<Mutex<Frames>>>,
}

/// Where the screen draws.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Surface {
    /// On the terminal's second screen, which is gone when the person leaves.
    #[default]
    Alternate,
    /// On the first screen, all of it; the last picture stays.
    Main,
    /// Below what the terminal shows; what is finished goes into its scrollback.
    Inline,
}

/// What drawing cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Frames {
    /// Frames drawn.
    pub count: usize,
    /// Time spent on all of them.
    pub total: Duration,
    /// The longest one, from taking the events to the last byte.
    pub longest: Duration,
}

impl Frames {
    fn add(&mut self, time: Duration) {
        self.count += 1;
        self.total += time;
        self.longest = self.longest.max(time);
    }
}

/// Why the screen ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The terminal does not do what is needed.
    #[error("the terminal: {0}; `flint --plain` needs only lines, `flint exec` needs no terminal")]
    Terminal(#[from] std::io::Error),
}

/// Runs the partner's screen until the person leaves: commands go out, events come in.
pub async fn run(
    commands: mpsc::Sender<Command>,
    events: mpsc::Receiver<Event>,
    options: Options,
) -> Result<(), Error> {
    if options.plain {
        plain::run(commands, events, options).await
    } else {
        screen::run(commands, events, options).await
    }
}

/// Whether colours are wanted: not with `NO_COLOR` set to anything, nor on a terminal that calls itself dumb.
pub fn color_wanted() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) && !terminal_is_dumb()
}

/// Whether the terminal can do nothing but lines.
pub fn terminal_is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

impl Options {
    /// The last words, on the person's own screen, which the picture has left by now.
    fn say_goodbye(&self, session: &str, turns: usize) {
        if let Some(command) = self.resume.as_ref().filter(|_| turns > 0 && !session.is_empty()) {
            boundary::outln!("Go on with this session: {command} {session}");
        }
    }
}

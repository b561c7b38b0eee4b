//! The loop of the screen: one `select!` over a closed list of happenings, in order of urgency.
//!
//! Pacing. A key is drawn at once. What the model says is drawn [`FRAME`] after the frame before, and until then its events
//! stay in their channel: at 5,000 tokens a second the loop wakes 60 times a second, not 5,000 times, takes everything
//! that is there and draws once. The channel must hold what comes in one frame; 1,024 events are plenty.

use std::io;
use std::time::{Duration, Instant};

use agent::{Command, Event};
use crossterm::event::{Event as Input, EventStream};
use futures_util::StreamExt;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::text::Line;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::sleep_until;

use crate::app::{App, Effect};
use crate::composer::History;
use crate::terminal::{Picture, Screen};
use crate::{Error, Options, Surface, clipboard, complete};

/// Time between two frames of a stream.
const FRAME: Duration = Duration::from_millis(16);
/// Time between two frames when keys come faster than anybody types, as when a paste is not announced.
const KEY_FRAME: Duration = Duration::from_millis(4);
/// Time between two frames when only a clock changes.
const TICK: Duration = Duration::from_millis(100);
/// Events taken for one frame; more wait for the next.
const EVENTS_PER_FRAME: usize = 8_192;
/// How long the partner may take to close.
pub const CLOSING: Duration = Duration::from_secs(3);

/// Everything that can happen.
enum Happening {
    /// The system asks us to go.
    Ended,
    /// The person did something.
    Input(Input),
    /// The list of files is there.
    Files(Vec<String>),
    /// Events of the partner are in the batch.
    Partner,
    /// The partner is gone.
    PartnerGone,
    /// It is time to draw.
    Frame,
}

/// The screen at a moment.
struct Now<'a> {
    app: &'a mut App,
    now: Instant,
}

impl Picture for Now<'_> {
    fn finished(&mut self, width: usize) -> Vec<Line<'static>> {
        self.app.finished(width)
    }

    fn height(&mut self, width: usize, rows_max: usize) -> usize {
        self.app.height(width, rows_max)
    }

    fn draw(&mut self, area: Rect, buffer: &mut Buffer) -> Option<Position> {
        self.app.draw(area, buffer, self.now)
    }
}

/// Everything the loop owns.
struct Loop {
    app: App,
    screen: Screen,
    commands: mpsc::Sender<Command>,
    events: mpsc::Receiver<Event>,
    partner_is_there: bool,
    batch: Vec<Event>,
    files: (mpsc::Sender<Vec<String>>, mpsc::Receiver<Vec<String>>),
    options: Options,
    last_frame: Instant,
    /// When to draw; `None` when nothing has changed.
    due: Option<Instant>,
    leaving: bool,
}

/// Runs the screen until the person leaves.
pub async fn run(
    commands: mpsc::Sender<Command>,
    events: mpsc::Receiver<Event>,
    options: Options,
) -> Result<(), Error> {
    let (history, trouble) = History::open(options.history.clone());
    let mut app = App::new(options.color, history, &options.folder);
    if let Some(error) = trouble {
        app.notice(format!("earlier prompts could not be read: {error}"));
    }
    if options.surface == Surface::Inline {
        app.finish_lines();
    }
    if let Some(text) = &options.ask {
        app.begin_with(text, Instant::now());
    }
    let mut state = Loop {
        app,
        screen: Screen::enter(options.surface)?,
        commands,
        events,
        partner_is_there: true,
        batch: Vec::new(),
        files: mpsc::channel(1),
        options,
        last_frame: Instant::now(),
        due: Some(Instant::now()),
        leaving: false,
    };
    let result = state.turn_around().await;
    if state.options.surface == Surface::Inline {
        // Nobody finishes what is open; it is the last that stays.
        state.app.end();
        let _ = state.frame();
    }
    let Loop { app, screen, options, mut events, .. } = state;
    drop(screen);
    if result.is_ok() {
        let _ = tokio::time::timeout(CLOSING, closed(&mut events)).await;
        options.say_goodbye(app.session(), app.turn_count());
    }
    result
}

async fn closed(events: &mut mpsc::Receiver<Event>) {
    while let Some(event) = events.recv().await {
        if matches!(event, Event::Closed) {
            return;
        }
    }
}

impl Loop {
    async fn turn_around(&mut self) -> Result<(), Error> {
        let mut keys = EventStream::new();
        let mut ends = (signal(SignalKind::terminate())?, signal(SignalKind::hangup())?);
        while !self.leaving {
            self.perform()?;
            match self.next(&mut keys, &mut ends).await? {
                Happening::Ended => self.leave(),
                Happening::Input(input) => {
                    self.app.input(input, Instant::now());
                    self.draw_by(self.last_frame + KEY_FRAME);
                }
                Happening::Files(files) => {
                    self.app.set_files(files);
                    self.draw_by(self.last_frame + FRAME);
                }
                Happening::Partner => {
                    self.take_batch();
                    self.draw_by(self.last_frame + FRAME);
                }
                Happening::PartnerGone => {
                    self.partner_is_there = false;
                    self.app.partner_gone();
                    self.draw_by(self.last_frame + FRAME);
                }
                Happening::Frame => self.frame()?,
            }
        }
        Ok(())
    }

    async fn next(&mut self, keys: &mut EventStream, ends: &mut (Signal, Signal)) -> io::Result<Happening> {
        let tick = self.app.is_ticking().then(|| self.last_frame + TICK);
        let frame = self.due.or(tick);
        let listening = self.partner_is_there && self.due.is_none();
        let happening = tokio::select! {
            biased;
            _ = ends.0.recv() => Happening::Ended,
            _ = ends.1.recv() => Happening::Ended,
            input = keys.next() => match input {
                Some(input) => Happening::Input(input?),
                None => Happening::Ended,
            },
            Some(files) = self.files.1.recv() => Happening::Files(files),
            count = self.events.recv_many(&mut self.batch, EVENTS_PER_FRAME), if listening => match count {
                0 => Happening::PartnerGone,
                _ => Happening::Partner,
            },
            () = sleep_until(frame.unwrap_or_else(Instant::now).into()), if frame.is_some() => Happening::Frame,
        };
        Ok(happening)
    }

    fn draw_by(&mut self, wanted: Instant) {
        let wanted = wanted.max(Instant::now());
        self.due = Some(self.due.map_or(wanted, |due| due.min(wanted)));
    }

    fn take_batch(&mut self) {
        let now = Instant::now();
        self.batch.drain(..).for_each(|event| self.app.event(event, now));
    }

    /// Takes whatever has come since, then draws.
    fn frame(&mut self) -> io::Result<()> {
        let began = Instant::now();
        while self.batch.len() < EVENTS_PER_FRAME
            && let Ok(event) = self.events.try_recv()
        {
            self.batch.push(event);
        }
        self.take_batch();
        self.app.tick(began);
        self.screen.draw(&mut Now { app: &mut self.app, now: began })?;
        self.last_frame = Instant::now();
        self.due = None;
        if let Some(frames) = &self.options.frames {
            frames.lock().unwrap_or_else(std::sync::PoisonError::into_inner).add(self.last_frame - began);
        }
        Ok(())
    }

    fn perform(&mut self) -> Result<(), Error> {
        for effect in self.app.take_effects() {
            match effect {
                Effect::Send(command) => self.tell(command),
                Effect::Copy(text) => match clipboard::copy(&text) {
                    Ok(sequence) => {
                        self.screen.send(&sequence)?;
                        self.app.notice(format!("{} bytes copied", text.len()));
                    }
                    Err(why) => self.app.trouble(why),
                },
                Effect::ListFiles => {
                    let (folder, tell) = (self.options.folder.clone(), self.files.0.clone());
                    tokio::task::spawn_blocking(move || tell.blocking_send(complete::files(&folder)));
                }
                Effect::Suspend => self.screen.suspend()?,
                Effect::Redraw => self.screen.forget()?,
                Effect::Leave => self.leave(),
            }
        }
        Ok(())
    }

    /// The partner takes commands as fast as people give them. Where it does not, waiting would freeze the screen.
    fn tell(&mut self, command: Command) {
        let why = match self.commands.try_send(command) {
            Ok(()) => return,
            Err(mpsc::error::TrySendError::Full(_)) => "the partner is busy and did not take the command; try again",
            Err(mpsc::error::TrySendError::Closed(_)) => "the partner has ended; leave with Ctrl-D and start again",
        };
        self.app.trouble(why);
        self.draw_by(Instant::now());
    }

    fn leave(&mut self) {
        self.leaving = true;
        let _ = self.commands.try_send(Command::Shutdown);
    }
}

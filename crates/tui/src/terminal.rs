//! The terminal: entering it, leaving it in order whatever happens, and one frame at a time.
#![allow(clippy::disallowed_methods, reason = "what a frame shows was cleaned when its buffer was filled")]

use std::borrow::Cow;
use std::io::{self, BufWriter, Stdout, Write, stdout};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use boundary::terminal::clean_line;
use crossterm::cursor::{MoveTo, Show};
use crossterm::event::{
    DisableBracketedPaste, EnableBracketedPaste, KeyboardEnhancementFlags, PopKeyboardEnhancementFlags,
    PushKeyboardEnhancementFlags,
};
use crossterm::style::Print;
use crossterm::terminal::{
    BeginSynchronizedUpdate, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode,
    enable_raw_mode,
};
use crossterm::{execute, queue};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::text::Line;

use crate::Surface;
use crate::inline::Inline;

/// A whole frame goes out in one write, so that a terminal never shows half of one.
const FRAME_BYTES: usize = 64 * 1024;
/// The wheel would else press Up and Down on the alternate screen, and those walk through earlier prompts. The mouse itself
/// is left to the terminal, so that selecting works as everywhere.
const WHEEL_IS_NOT_ARROWS: &str = "\x1b[?1007l";

/// What our frames go through.
type Out = BufWriter<Stdout>;

/// The terminal while it is ours.
pub struct Screen {
    drawn: Drawn,
    surface: Surface,
}

/// How it is drawn on.
enum Drawn {
    /// All of it.
    Whole(Terminal<CrosstermBackend<Out>>),
    /// Its last rows.
    Inline(Inline<Out>),
}

/// What a frame shows, and the lines that are finished and leave it.
pub trait Picture {
    /// Lines that will not change any more.
    fn finished(&mut self, width: usize) -> Vec<Line<'static>>;
    /// Rows that the rest wants, at most so many.
    fn height(&mut self, width: usize, rows_max: usize) -> usize;
    /// Draws, and says where the cursor is.
    fn draw(&mut self, area: Rect, buffer: &mut Buffer) -> Option<Position>;
}

impl Screen {
    /// Takes the terminal. It is given back when this is dropped, and before the message of a panic is printed.
    pub fn enter(surface: Surface) -> io::Result<Screen> {
        static RESTORE_ON_PANIC: Once = Once::new();
        RESTORE_ON_PANIC.call_once(|| {
            let told = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                give_back();
                told(panic);
            }));
        });
        take(surface)?;
        let out = BufWriter::with_capacity(FRAME_BYTES, stdout());
        let drawn = match surface {
            Surface::Inline => Drawn::Inline(Inline::new(out, first_row()?, size()?)),
            _ => {
                let mut terminal = Terminal::new(CrosstermBackend::new(out))?;
                if surface == Surface::Main {
                    terminal.clear()?;
                }
                Drawn::Whole(terminal)
            }
        };
        Ok(Screen { drawn, surface })
    }

    /// Draws one frame; terminals that know synchronised updates show it at once.
    pub fn draw(&mut self, picture: &mut impl Picture) -> io::Result<()> {
        queue!(self.out(), BeginSynchronizedUpdate)?;
        match &mut self.drawn {
            Drawn::Whole(terminal) => {
                terminal.draw(|frame| {
                    let area = frame.area();
                    if let Some(cursor) = picture.draw(area, frame.buffer_mut()) {
                        frame.set_cursor_position(cursor);
                    }
                    clean(frame.buffer_mut());
                })?;
            }
            Drawn::Inline(inline) => {
                let (columns, rows) = size()?;
                inline.resize((columns, rows))?;
                let width = usize::from(columns);
                inline.insert(&picture.finished(width))?;
                let height = picture.height(width, usize::from(rows)) as u16;
                inline.draw(height, |area, buffer| picture.draw(area, buffer))?;
            }
        }
        execute!(self.out(), EndSynchronizedUpdate)
    }

    fn out(&mut self) -> &mut CrosstermBackend<Out> {
        match &mut self.drawn {
            Drawn::Whole(terminal) => terminal.backend_mut(),
            Drawn::Inline(inline) => inline.out(),
        }
    }

    /// Sends a sequence that draws nothing.
    pub fn send(&mut self, sequence: &str) -> io::Result<()> {
        execute!(self.out(), Print(sequence))
    }

    /// Forgets what is on the screen, so that the next frame draws all of it.
    pub fn forget(&mut self) -> io::Result<()> {
        match &mut self.drawn {
            Drawn::Whole(terminal) => terminal.clear(),
            Drawn::Inline(inline) => inline.forget(),
        }
    }

    /// Gives the terminal back to the shell until the person returns.
    #[cfg(unix)]
    pub fn suspend(&mut self) -> io::Result<()> {
        self.leave();
        rustix::process::kill_current_process_group(rustix::process::Signal::TSTP)?;
        take(self.surface)?;
        if let Drawn::Inline(inline) = &mut self.drawn {
            // Whatever ran meanwhile has moved on.
            let out = BufWriter::with_capacity(FRAME_BYTES, stdout());
            *inline = Inline::new(out, first_row()?, size()?);
        }
        self.forget()
    }
}

/// The size of the terminal, never nothing.
fn size() -> io::Result<(u16, u16)> {
    let (columns, rows) = crossterm::terminal::size()?;
    Ok((columns.max(1), rows.max(1)))
}

/// The row that is free for us: the cursor's, or the one below where something stands before it. A terminal that does not say
/// where its cursor is gets a new line at its end.
fn first_row() -> io::Result<u16> {
    let (_, rows) = size()?;
    match crossterm::cursor::position() {
        Ok((0, row)) => Ok(row),
        Ok((_, row)) => {
            execute!(stdout(), Print("\r\n"))?;
            Ok((row + 1).min(rows - 1))
        }
        Err(_) => {
            execute!(stdout(), MoveTo(0, rows - 1), Print("\r\n"))?;
            Ok(rows - 1)
        }
    }
}

/// Whoever drew a cell, no terminal is given what it would obey or what reorders its neighbours.
pub fn clean(buffer: &mut Buffer) {
    for cell in &mut buffer.content {
        if let Cow::Owned(clean) = clean_line(cell.symbol()) {
            // A cell has one width: of several characters that are shown, the first stays.
            let mut shown = clean.chars().filter(|&c| c != char::REPLACEMENT_CHARACTER);
            cell.set_char(shown.next().unwrap_or(char::REPLACEMENT_CHARACTER));
        }
    }
}

impl Screen {
    /// Errors are of no use here: whoever calls this is leaving.
    fn leave(&mut self) {
        match &mut self.drawn {
            Drawn::Whole(terminal) => drop(Write::flush(terminal.backend_mut())),
            Drawn::Inline(inline) => drop(inline.leave()),
        }
        give_back();
        if self.surface == Surface::Main
            && let Ok((_, rows)) = size()
        {
            // Whoever prints next begins below the picture.
            let _ = execute!(stdout(), MoveTo(0, rows - 1), Print("\r\n"));
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Whether the terminal shows its second screen, which must be left; leaving it twice would move the cursor.
static ALTERNATE: AtomicBool = AtomicBool::new(false);

fn take(surface: Surface) -> io::Result<()> {
    enable_raw_mode()?;
    // Asked for without a question: a terminal that does not know it ignores it, and waiting for an answer costs time.
    let keys = PushKeyboardEnhancementFlags(KeyboardEnhancementFlags::DISAMBIGUATE_ESCAPE_CODES);
    if surface == Surface::Alternate {
        execute!(stdout(), EnterAlternateScreen)?;
        ALTERNATE.store(true, Ordering::Relaxed);
    }
    execute!(stdout(), EnableBracketedPaste, keys, Print(WHEEL_IS_NOT_ARROWS))
}

/// Errors are of no use here: whoever calls this is leaving.
fn give_back() {
    let _ = execute!(stdout(), EndSynchronizedUpdate, PopKeyboardEnhancementFlags, DisableBracketedPaste);
    if ALTERNATE.swap(false, Ordering::Relaxed) {
        let _ = execute!(stdout(), LeaveAlternateScreen);
    }
    let _ = execute!(stdout(), Show);
    let _ = disable_raw_mode();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cell_holds_what_a_terminal_obeys() {
        let mut buffer = Buffer::with_lines(["abcdef"]);
        let symbols = ["\x1b[2J", "\u{202e}", "x\u{e0041}", "\u{9b}", "\u{1f469}\u{200d}\u{1f680}", "e\u{301}"];
        for (cell, symbol) in buffer.content.iter_mut().zip(symbols) {
            cell.set_symbol(symbol);
        }
        clean(&mut buffer);
        let shown: Vec<&str> = buffer.content.iter().map(|cell| cell.symbol()).collect();
        assert_eq!(shown, ["\u{241b}", "\u{fffd}", "x", "\u{fffd}", "\u{1f469}\u{200d}\u{1f680}", "e\u{301}"]);
    }
}

//! The terminal: entering it, leaving it in order whatever happens, and one frame at a time.
#![allow(clippy::disallowed_methods, reason = "what a frame shows was cleaned when its buffer was filled")]

use std::borrow::Cow;
use std::io::{self, BufWriter, Stdout, Write, stdout};
use std::sync::Once;

use boundary::terminal::clean_line;
use crossterm::cursor::Show;
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
use ratatui::backend::CrosstermBackend;
use ratatui::buffer::Buffer;
use ratatui::{Frame, Terminal};

/// A whole frame goes out in one write, so that a terminal never shows half of one.
const FRAME_BYTES: usize = 64 * 1024;
/// The wheel would else press Up and Down on the alternate screen, and those walk through earlier prompts. The mouse itself
/// is left to the terminal, so that selecting works as everywhere.
const WHEEL_IS_NOT_ARROWS: &str = "\x1b[?1007l";

/// The terminal while it is ours.
pub struct Screen {
    terminal: Terminal<CrosstermBackend<BufWriter<Stdout>>>,
    main_screen: bool,
}

impl Screen {
    /// Takes the terminal. It is given back when this is dropped, and before the message of a panic is printed.
    pub fn enter(main_screen: bool) -> io::Result<Screen> {
        static RESTORE_ON_PANIC: Once = Once::new();
        RESTORE_ON_PANIC.call_once(|| {
            let told = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                give_back();
                told(panic);
            }));
        });
        take(main_screen)?;
        let backend = CrosstermBackend::new(BufWriter::with_capacity(FRAME_BYTES, stdout()));
        let mut terminal = Terminal::new(backend)?;
        if main_screen {
            terminal.clear()?;
        }
        Ok(Screen { terminal, main_screen })
    }

    /// Draws one frame; terminals that know synchronised updates show it at once.
    pub fn draw(&mut self, picture: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        queue!(self.terminal.backend_mut(), BeginSynchronizedUpdate)?;
        self.terminal.draw(|frame| {
            picture(frame);
            clean(frame.buffer_mut());
        })?;
        execute!(self.terminal.backend_mut(), EndSynchronizedUpdate)
    }

    /// Sends a sequence that draws nothing.
    pub fn send(&mut self, sequence: &str) -> io::Result<()> {
        execute!(self.terminal.backend_mut(), Print(sequence))
    }

    /// Forgets what is on the screen, so that the next frame draws all of it.
    pub fn forget(&mut self) -> io::Result<()> {
        self.terminal.clear()
    }

    /// Gives the terminal back to the shell until the person returns.
    #[cfg(unix)]
    pub fn suspend(&mut self) -> io::Result<()> {
        give_back();
        rustix::process::kill_current_process_group(rustix::process::Signal::TSTP)?;
        take(self.main_screen)?;
        self.forget()
    }
}

/// Whoever drew a cell, no terminal is given what it would obey or what reorders its neighbours.
fn clean(buffer: &mut Buffer) {
    for cell in &mut buffer.content {
        if let Cow::Owned(clean) = clean_line(cell.symbol()) {
            // A cell has one width: of several characters that are shown, the first stays.
            let mut shown = clean.chars().filter(|&c| c != char::REPLACEMENT_CHARACTER);
            cell.set_char(shown.next().unwrap_or(char::REPLACEMENT_CHARACTER));
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.terminal.backend_mut().flush();
        give_back();
    }
}

fn take(main_screen: bool) -> io::Result<()> {
    enable_raw_mode()?;
    // Asked for without a question: a terminal that does not know it ignores it, and waiting for an answer costs time.
    let keys = PushKeyboardEnhancementFlags(KeyboardEnhancementFlags::DISAMBIGUATE_ESCAPE_CODES);
    if !main_screen {
        execute!(stdout(), EnterAlternateScreen)?;
    }
    execute!(stdout(), EnableBracketedPaste, keys, Print(WHEEL_IS_NOT_ARROWS))
}

/// Errors are of no use here: whoever calls this is leaving.
fn give_back() {
    let _ = execute!(
        stdout(),
        EndSynchronizedUpdate,
        PopKeyboardEnhancementFlags,
        DisableBracketedPaste,
        LeaveAlternateScreen,
        Show
    );
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

//! The terminal: entering it, leaving it in order whatever happens, and one frame at a time.

use std::io::{self, BufWriter, Stdout, Write, stdout};
use std::sync::Once;

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
use ratatui::{Frame, Terminal};

/// A whole frame goes out in one write, so that a terminal never shows half of one.
const FRAME_BYTES: usize = 64 * 1024;
/// Clicks and the wheel, without the movements that crossterm's own command would ask for as well.
const MOUSE_ON: &str = "\x1b[?1000h\x1b[?1006h";
const MOUSE_OFF: &str = "\x1b[?1006l\x1b[?1000l";
/// The wheel would else press Up and Down on the alternate screen, and those walk through earlier prompts.
const WHEEL_IS_NOT_ARROWS: &str = "\x1b[?1007l";

/// The terminal while it is ours.
pub struct Screen {
    terminal: Terminal<CrosstermBackend<BufWriter<Stdout>>>,
    mouse: bool,
}

impl Screen {
    /// Takes the terminal. It is given back when this is dropped, and before the message of a panic is printed.
    pub fn enter(mouse: bool) -> io::Result<Screen> {
        static RESTORE_ON_PANIC: Once = Once::new();
        RESTORE_ON_PANIC.call_once(|| {
            let told = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                give_back();
                told(panic);
            }));
        });
        take(mouse)?;
        let backend = CrosstermBackend::new(BufWriter::with_capacity(FRAME_BYTES, stdout()));
        Ok(Screen { terminal: Terminal::new(backend)?, mouse })
    }

    /// Draws one frame; terminals that know synchronised updates show it at once.
    pub fn draw(&mut self, picture: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        queue!(self.terminal.backend_mut(), BeginSynchronizedUpdate)?;
        self.terminal.draw(picture)?;
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
        take(self.mouse)?;
        self.forget()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.terminal.backend_mut().flush();
        give_back();
    }
}

fn take(mouse: bool) -> io::Result<()> {
    enable_raw_mode()?;
    // Asked for without a question: a terminal that does not know it ignores it, and waiting for an answer costs time.
    let keys = PushKeyboardEnhancementFlags(KeyboardEnhancementFlags::DISAMBIGUATE_ESCAPE_CODES);
    let wheel = if mouse { MOUSE_ON } else { WHEEL_IS_NOT_ARROWS };
    execute!(stdout(), EnterAlternateScreen, EnableBracketedPaste, keys, Print(wheel))
}

/// Errors are of no use here: whoever calls this is leaving.
fn give_back() {
    let _ = execute!(
        stdout(),
        EndSynchronizedUpdate,
        Print(MOUSE_OFF),
        PopKeyboardEnhancementFlags,
        DisableBracketedPaste,
        LeaveAlternateScreen,
        Show
    );
    let _ = disable_raw_mode();
}

//! Drawing below what the terminal shows already, so that its scrollback keeps the conversation.
//!
//! The last rows of the screen are ours and drawn again; what is finished is written above them once and is the terminal's
//! from then on. Invariant: rows `top..top + height` are ours, `top + height <= rows`, and what stands above is never
//! written to again.
#![allow(clippy::disallowed_methods, reason = "what a frame shows was cleaned when its buffer was filled")]

use std::io::{self, Write};

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::queue;
use crossterm::style::Print;
use crossterm::terminal::{Clear, ClearType};
use ratatui::backend::{Backend, CrosstermBackend};
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::text::Line;

/// Where the rows are that we draw.
pub struct Inline<W: Write> {
    backend: CrosstermBackend<W>,
    /// What our rows show.
    shown: Buffer,
    top: u16,
    size: (u16, u16),
}

impl<W: Write> Inline<W> {
    /// Begins in the row `top` of a screen of a size.
    pub fn new(out: W, top: u16, size: (u16, u16)) -> Self {
        let top = top.min(size.1.saturating_sub(1));
        Self { backend: CrosstermBackend::new(out), shown: Buffer::empty(Rect::default()), top, size }
    }

    /// Where everything goes.
    pub fn out(&mut self) -> &mut CrosstermBackend<W> {
        &mut self.backend
    }

    /// The screen has this size now. What was ours may stand elsewhere, so it is drawn again from where it began.
    pub fn resize(&mut self, size: (u16, u16)) -> io::Result<()> {
        if size != self.size {
            self.size = size;
            self.top = self.top.min(size.1.saturating_sub(1));
            self.forget()?;
        }
        Ok(())
    }

    /// Takes our rows off the screen.
    pub fn forget(&mut self) -> io::Result<()> {
        self.shown = Buffer::empty(Rect::default());
        queue!(self.backend, MoveTo(0, self.top), Clear(ClearType::FromCursorDown))
    }

    /// Writes finished lines above our rows, from where the terminal scrolls them away.
    pub fn insert(&mut self, lines: &[Line<'static>]) -> io::Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        self.forget()?;
        let (columns, rows) = self.size;
        for part in lines.chunks(usize::from(rows.max(1))) {
            let count = part.len() as u16;
            self.make_room(count)?;
            let area = Rect::new(0, self.top, columns, count);
            let mut buffer = Buffer::empty(area);
            for (line, y) in part.iter().zip(self.top..) {
                buffer.set_line(0, y, line, columns);
            }
            crate::terminal::clean(&mut buffer);
            self.backend.draw(Buffer::empty(area).diff(&buffer).into_iter())?;
            self.top += count;
            if self.top == rows {
                self.scroll(1)?;
            }
        }
        Ok(())
    }

    /// Draws our rows, as many as wanted.
    pub fn draw(&mut self, height: u16, picture: impl FnOnce(Rect, &mut Buffer) -> Option<Position>) -> io::Result<()> {
        let (columns, rows) = self.size;
        let height = height.clamp(1, rows.max(1));
        let top = self.top;
        if self.shown.area.height != height || top + height > rows {
            self.forget()?;
            self.make_room(height)?;
        }
        let area = Rect::new(0, self.top, columns, height);
        let mut buffer = Buffer::empty(area);
        let cursor = picture(area, &mut buffer);
        crate::terminal::clean(&mut buffer);
        if self.shown.area != area {
            self.shown = Buffer::empty(area);
        }
        queue!(self.backend, Hide)?;
        let updates = self.shown.diff(&buffer);
        self.backend.draw(updates.into_iter())?;
        if let Some(Position { x, y }) = cursor {
            queue!(self.backend, MoveTo(x, y), Show)?;
        }
        self.shown = buffer;
        Ok(())
    }

    /// Leaves the cursor where our rows began, with nothing below it.
    pub fn leave(&mut self) -> io::Result<()> {
        self.forget()?;
        queue!(self.backend, Show)?;
        Write::flush(&mut self.backend)
    }

    /// Scrolls until so many rows are below `top`. At most as many rows as the screen has can be.
    fn make_room(&mut self, height: u16) -> io::Result<()> {
        let missing = (self.top + height).saturating_sub(self.size.1).min(self.top);
        self.scroll(missing)
    }

    /// Everything goes up; what leaves at the top is in the scrollback.
    fn scroll(&mut self, rows: u16) -> io::Result<()> {
        if rows > 0 {
            queue!(self.backend, MoveTo(0, self.size.1.saturating_sub(1)))?;
            for _ in 0..rows {
                queue!(self.backend, Print("\n"))?;
            }
            self.top -= rows.min(self.top);
        }
        Ok(())
    }
}

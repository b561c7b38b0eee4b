//! Everything said and done so far, and the part of it that is on the screen.
//!
//! A frame looks only at blocks that it shows: at the end of the conversation it walks up from the last one until the
//! screen is full. So a frame costs the same after ten turns and after ten thousand.

mod block;
mod diff;
mod table;
mod words;

use std::collections::VecDeque;

pub use block::{Block, Edit, EditState, Tool, Voice, Words, shown};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
pub use table::{Candidates, outcome};

use crate::theme::Theme;

/// Blocks kept. Older ones leave the screen; the session's file has them.
const BLOCKS_MAX: usize = 2_000;
/// Bytes of an answer in one block; more goes into the next, so that another width never lays out more than this at once.
const WORDS_BYTES_MAX: usize = 256 * 1024;

/// A block's number, which stays its own when older blocks leave.
pub type BlockId = usize;

/// The conversation.
#[derive(Debug, Default)]
pub struct Conversation {
    blocks: VecDeque<Block>,
    /// Blocks that left.
    gone: usize,
    /// The first block that is drawn; those before it are in the terminal's scrollback.
    first: BlockId,
    view: View,
    /// Size of the last frame, which scrolling is relative to.
    size: (usize, usize),
}

/// Which rows are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum View {
    /// The last ones.
    #[default]
    End,
    /// From this row of this block on.
    From(BlockId, usize),
}

impl Conversation {
    /// Adds a block.
    pub fn push(&mut self, block: Block) -> BlockId {
        if self.blocks.len() == BLOCKS_MAX {
            self.blocks.pop_front();
            self.gone += 1;
        }
        self.blocks.push_back(block);
        self.gone + self.blocks.len() - 1
    }

    /// Adds words.
    pub fn say(&mut self, voice: Voice, text: impl Into<String>) -> BlockId {
        self.push(Block::Words(Words::new(voice, text)))
    }

    /// Adds to an answer, and says where the next piece belongs.
    pub fn extend(&mut self, id: Option<BlockId>, delta: &str) -> BlockId {
        if let Some(id) = id
            && let Some(Block::Words(words)) = self.get(id)
            && words.text().len() < WORDS_BYTES_MAX
        {
            words.push(delta);
            return id;
        }
        self.say(Voice::Answer, delta)
    }

    /// A block, unless it left.
    pub fn get(&mut self, id: BlockId) -> Option<&mut Block> {
        self.blocks.get_mut(id.checked_sub(self.gone)?)
    }

    /// The number the next block will have.
    pub fn next_id(&self) -> BlockId {
        self.gone + self.blocks.len()
    }

    /// Forgets this block and all after it.
    pub fn cut(&mut self, from: BlockId) {
        self.blocks.truncate(from.saturating_sub(self.gone));
        self.first = self.first.min(self.next_id());
        self.view = View::End;
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.cut(0);
    }

    /// The first block that is drawn.
    pub fn first_shown(&self) -> BlockId {
        self.first.max(self.gone)
    }

    /// The lines of the first block that is drawn, which is drawn no more.
    pub fn take_first(&mut self, width: usize, theme: &Theme) -> Vec<Line<'static>> {
        let at = self.first_shown() - self.gone;
        self.first = self.gone + at + 1;
        let Some(block) = self.blocks.get_mut(at) else { return Vec::new() };
        let rows = block.height(width, theme);
        let line = |row| {
            let (sign, line) = block.row(row);
            let mut spans = vec![sign];
            spans.extend(line.into_iter().flat_map(|line| {
                line.spans.iter().map(|span| Span::styled(span.content.clone(), line.style.patch(span.style)))
            }));
            // The empty row below a block has no sign.
            if row + 1 == rows { Line::default() } else { Line::from(spans) }
        };
        (0..rows).map(line).collect()
    }

    /// Rows of what is drawn, at most so many.
    pub fn rows_shown(&mut self, width: usize, rows_max: usize, theme: &Theme) -> usize {
        let mut rows = 0;
        for at in self.first_shown() - self.gone..self.blocks.len() {
            rows += self.blocks[at].height(width, theme);
            if rows >= rows_max {
                return rows_max;
            }
        }
        rows
    }

    /// Blocks, newest first.
    pub fn newest_first(&self) -> impl Iterator<Item = &Block> {
        self.blocks.iter().rev()
    }

    /// Whether the end is shown.
    pub fn at_end(&self) -> bool {
        self.view == View::End
    }

    /// Shows the end from now on.
    pub fn follow(&mut self) {
        self.view = View::End;
    }

    /// Goes up (negative) or down by rows.
    pub fn scroll(&mut self, rows: isize, theme: &Theme) {
        let (mut at, mut row) = self.top(theme);
        row += rows;
        while row < 0 && at > 0 {
            at -= 1;
            row += self.height(at, theme) as isize;
        }
        row = row.max(0);
        while at < self.blocks.len() && row >= self.height(at, theme) as isize {
            row -= self.height(at, theme) as isize;
            at += 1;
        }
        let end = self.end_top(theme);
        self.view = if (at, row) >= end { View::End } else { View::From(self.gone + at, row as usize) };
    }

    /// Rows of one screen.
    pub fn page(&self) -> isize {
        (self.size.1 as isize - 2).max(1)
    }

    /// Draws the rows that are seen.
    pub fn draw(&mut self, area: Rect, buffer: &mut Buffer, theme: &Theme) {
        self.size = (usize::from(area.width), usize::from(area.height));
        let (mut at, row) = self.top(theme);
        let mut row = row as usize;
        let mut y = area.y;
        while y < area.bottom() && at < self.blocks.len() {
            let height = self.height(at, theme);
            let block = &self.blocks[at];
            while row < height && y < area.bottom() {
                let (sign, line) = block.row(row);
                let (x, _) = buffer.set_span(area.x, y, &sign, area.width);
                if let Some(line) = line {
                    buffer.set_line(x, y, line, area.right().saturating_sub(x));
                }
                row += 1;
                y += 1;
            }
            row = 0;
            at += 1;
        }
    }

    /// The block and row at the top of the screen.
    fn top(&mut self, theme: &Theme) -> (usize, isize) {
        match self.view {
            View::From(id, row) if id >= self.gone && id < self.next_id() => (id - self.gone, row as isize),
            View::From(id, _) if id < self.gone => (0, 0),
            _ => self.end_top(theme),
        }
    }

    /// The block and row at the top of the screen when the end is shown.
    fn end_top(&mut self, theme: &Theme) -> (usize, isize) {
        let mut room = self.size.1;
        let first = self.first_shown() - self.gone;
        for at in (first..self.blocks.len()).rev() {
            // The empty row below the last block is not needed.
            let height = self.height(at, theme) - usize::from(at + 1 == self.blocks.len());
            if height >= room {
                return (at, (height - room) as isize);
            }
            room -= height;
        }
        (first, 0)
    }

    fn height(&mut self, at: usize, theme: &Theme) -> usize {
        self.blocks[at].height(self.size.0, theme)
    }
}

#[cfg(test)]
mod tests;

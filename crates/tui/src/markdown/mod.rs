//! Lays out the Markdown that models write, while it grows: headings, lists, quotes, tables, code in colours.
//!
//! Lines that have ended are laid out once; the line that is still open, and a table whose last row may come yet, are
//! laid out again with each frame, so a frame costs what is new and one line (of at most [`LINE_BYTES_MAX`]). Invariant,
//! held by a test: text pushed in any pieces gives the rows of the whole text pushed at once.

mod inline;
mod table;

use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::flow::{Styled, wrap};
use crate::highlight::Highlighter;
use crate::theme::Theme;

/// A line that is longer is laid out in parts of this size.
const LINE_BYTES_MAX: usize = 2_048;
/// Rows of a table that are laid out together; more begin another one.
const TABLE_ROWS_MAX: usize = 64;
/// Columns by which code stands to the right of prose.
const CODE_INDENT: &str = "  ";
/// Columns of a line that separates.
const RULE_WIDTH: usize = 40;

/// Rows of one growing answer at one width.
#[derive(Debug)]
pub struct Markdown {
    width: usize,
    rows: Vec<Line<'static>>,
    /// Rows that will not change any more.
    done: usize,
    open: String,
    fence: Option<Fence>,
    table: Vec<String>,
}

/// An open block of code.
#[derive(Clone, Debug)]
struct Fence {
    mark: char,
    length: usize,
    indent: usize,
    highlighter: Highlighter,
}

impl Markdown {
    /// An empty answer.
    pub fn new(width: usize) -> Markdown {
        Markdown { width: width.max(1), rows: Vec::new(), done: 0, open: String::new(), fence: None, table: Vec::new() }
    }

    /// The width it was laid out for.
    pub fn width(&self) -> usize {
        self.width
    }

    /// All rows, the open ones included.
    pub fn rows(&self) -> &[Line<'static>] {
        &self.rows
    }

    /// Adds text at the end.
    pub fn push(&mut self, text: &str, theme: &Theme) {
        self.rows.truncate(self.done);
        for c in text.chars() {
            if c == '\n' {
                self.end_line(theme);
                continue;
            }
            self.open.push(c);
            let long = self.open.len() >= LINE_BYTES_MAX;
            if long && (c == ' ' || self.open.len() >= 2 * LINE_BYTES_MAX) {
                self.end_line(theme);
            }
        }
        self.done = self.rows.len();
        if !self.table.is_empty() {
            let mut lines = self.table.clone();
            let goes_on = table::is_row(&self.open);
            lines.extend(goes_on.then(|| self.open.clone()));
            self.rows.extend(table::lay_out(&lines, self.width, theme));
            if goes_on {
                return;
            }
        }
        if !self.open.is_empty() {
            let mut fence = self.fence.clone();
            self.rows.extend(line(&self.open, &mut fence, true, self.width, theme));
        }
    }

    fn end_line(&mut self, theme: &Theme) {
        let open = std::mem::take(&mut self.open);
        if self.fence.is_none() && table::is_row(&open) {
            self.table.push(open);
            if self.table.len() == TABLE_ROWS_MAX {
                self.end_table(theme);
            }
            return;
        }
        self.end_table(theme);
        self.rows.extend(line(&open, &mut self.fence, false, self.width, theme));
    }

    fn end_table(&mut self, theme: &Theme) {
        let lines = std::mem::take(&mut self.table);
        self.rows.extend(table::lay_out(&lines, self.width, theme));
    }
}

/// The rows of one line of text. `open` says that more of it may come.
fn line(text: &str, fence: &mut Option<Fence>, open: bool, width: usize, theme: &Theme) -> Vec<Line<'static>> {
    if let Some(inside) = fence {
        if inside.is_ended_by(text) {
            *fence = None;
            return Vec::new();
        }
        return inside.code(text, width, theme);
    }
    if let Some(opened) = Fence::opened_by(text) {
        *fence = Some(opened);
        return Vec::new();
    }
    prose(text, open, width, theme)
}

impl Fence {
    fn opened_by(text: &str) -> Option<Fence> {
        let bare = text.trim_start();
        let mark = bare.chars().next().filter(|mark| matches!(mark, '`' | '~'))?;
        let length = bare.chars().take_while(|c| *c == mark).count();
        let info = &bare[length..];
        // Backticks further on in the line mean code in a sentence.
        (length >= 3 && !info.contains('`')).then(|| Fence {
            mark,
            length,
            indent: text.len() - bare.len(),
            highlighter: Highlighter::new(info.trim()),
        })
    }

    fn is_ended_by(&self, text: &str) -> bool {
        let text = text.trim();
        text.chars().all(|c| c == self.mark) && text.chars().count() >= self.length
    }

    fn code(&mut self, text: &str, width: usize, theme: &Theme) -> Vec<Line<'static>> {
        let blanks = text.bytes().take(self.indent).take_while(|byte| *byte == b' ').count();
        let code = self.highlighter.line(&text[blanks..], theme);
        let indent = [Span::raw(CODE_INDENT)];
        wrap(&code, &indent, &indent, width)
    }
}

/// A line outside of code.
fn prose(text: &str, open: bool, width: usize, theme: &Theme) -> Vec<Line<'static>> {
    let bare = text.trim_start();
    let styled = |text: &str, style: Style| inline::spans(text, style, open, theme);
    if let Some((level, title)) = heading(bare) {
        let style = if level <= 2 { theme.heading } else { theme.strong };
        return wrap(&styled(title, style), &[], &[], width);
    }
    if is_rule(bare) {
        return vec![Line::styled("─".repeat(width.min(RULE_WIDTH)), theme.quiet)];
    }
    if let Some(quoted) = bare.strip_prefix('>') {
        let bar = [Span::styled("▎ ", theme.quiet)];
        return wrap(&styled(quoted.trim_start(), theme.quiet), &bar, &bar, width);
    }
    if let Some((mark, item)) = list_item(bare) {
        // Deep lists on a narrow screen give up their indent, not their words.
        let indent = " ".repeat((text.len() - bare.len()).min(width / 3));
        let first = [Span::raw(indent.clone()), Span::styled(mark.clone(), theme.kind)];
        let rest = [Span::raw(indent + &" ".repeat(mark.chars().count()))];
        return wrap(&styled(item, theme.answer), &first, &rest, width);
    }
    wrap(&styled(text, theme.answer), &[], &[], width)
}

/// `## Title ##`: its level and its words.
fn heading(line: &str) -> Option<(usize, &str)> {
    let level = line.bytes().take_while(|byte| *byte == b'#').count();
    let title = line[level..].strip_prefix(' ')?;
    (1..=6).contains(&level).then(|| (level, title.trim().trim_end_matches('#').trim_end()))
}

/// `---`, `***` or `___`.
fn is_rule(line: &str) -> bool {
    let line = line.trim_end();
    line.len() >= 3 && ["-", "*", "_"].iter().any(|mark| line.split(mark).all(str::is_empty))
}

/// What stands before an item of a list, and the item.
fn list_item(line: &str) -> Option<(String, &str)> {
    if let Some(item) = ["- ", "* ", "+ "].iter().find_map(|mark| line.strip_prefix(mark)) {
        let task = [("[ ] ", "☐ "), ("[x] ", "☑ "), ("[X] ", "☑ ")];
        let task = task.iter().find_map(|(mark, sign)| Some(((*sign).to_owned(), item.strip_prefix(mark)?)));
        return Some(task.unwrap_or_else(|| ("• ".to_owned(), item.trim_start())));
    }
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    let rest = line[digits..].strip_prefix(['.', ')'])?;
    let item = rest.strip_prefix(' ')?;
    (1..=4).contains(&digits).then(|| (format!("{} ", &line[..=digits]), item))
}

/// The columns that styled text takes.
fn columns_of(text: &[Styled]) -> usize {
    text.iter().flat_map(|(text, _)| text.chars()).map(crate::flow::columns).sum()
}

#[cfg(test)]
mod tests;

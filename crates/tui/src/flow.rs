//! Lays out text that only grows at its end.
//!
//! A model that says 5,000 tokens a second must not make the screen read its whole answer again for each frame. Breaking
//! lines greedily needs nothing before the row that is still open, so a [`Flow`] keeps finished rows and touches only the
//! last one. Invariant, held by a test: text pushed in any pieces gives the rows of the whole text pushed at once.

use boundary::terminal::visible;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthChar;

use crate::theme::Theme;

/// Columns of a tab.
const TAB_WIDTH: usize = 4;

/// Rows of one growing text at one width.
#[derive(Debug)]
pub struct Flow {
    width: usize,
    look: Look,
    rows: Vec<Line<'static>>,
    /// The row that may still grow, with the columns it takes.
    open: String,
    open_width: usize,
    /// Whether the last row of `rows` is a picture of `open`.
    pictured: bool,
    at_row: Mark,
}

/// How a text is coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// All of it alike.
    Even(Style),
    /// As the light Markdown that models write: headings, fences, code between backticks.
    Prose,
}

/// What was open at the beginning of a row.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    /// The row begins inside a line of the text.
    continues: bool,
    /// Inside a fenced block.
    fenced: bool,
    /// Inside a heading.
    heading: bool,
    /// Between two backticks.
    ticked: bool,
}

impl Flow {
    /// An empty text.
    pub fn new(width: usize, look: Look) -> Flow {
        Flow {
            width: width.max(1),
            look,
            rows: Vec::new(),
            open: String::new(),
            open_width: 0,
            pictured: false,
            at_row: Mark::default(),
        }
    }

    /// The width it was laid out for.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Adds text at the end. Costs what is new and at most one row more.
    pub fn push(&mut self, text: &str, theme: &Theme) {
        if self.pictured {
            self.rows.pop();
            self.pictured = false;
        }
        for c in text.chars() {
            match c {
                '\n' => self.end_line(theme),
                '\t' => (0..TAB_WIDTH - self.open_width % TAB_WIDTH).for_each(|_| self.add(' ', theme)),
                // Escape sequences in a file or an answer must never reach the terminal.
                '\r' => {}
                c => self.add(visible(c), theme),
            }
        }
        if !self.open.is_empty() {
            let (line, _) = self.picture(&self.open, theme);
            self.rows.push(line);
            self.pictured = true;
        }
    }

    /// All rows, the open one included.
    pub fn rows(&self) -> &[Line<'static>] {
        &self.rows
    }

    fn add(&mut self, c: char, theme: &Theme) {
        let columns = columns(c);
        // Spaces may hang over the edge: they cannot be seen there, and the next row should not begin with them.
        if c != ' ' && self.open_width + columns > self.width && !self.open.is_empty() {
            self.break_row(theme);
        }
        self.open.push(c);
        self.open_width += columns;
    }

    /// Ends the open row behind its last space, or where it stands if it has none.
    fn break_row(&mut self, theme: &Theme) {
        let cut = self.open.rfind(' ').map(|at| at + 1).filter(|&at| !self.open[..at].trim_start().is_empty());
        let rest = self.open.split_off(cut.unwrap_or(self.open.len()));
        let (line, mut mark) = self.picture(&self.open, theme);
        mark.continues = true;
        self.rows.push(line);
        self.at_row = mark;
        self.open_width = rest.chars().map(columns).sum();
        self.open = rest;
    }

    fn end_line(&mut self, theme: &Theme) {
        let (line, mark) = self.picture(&self.open, theme);
        self.rows.push(line);
        self.at_row = Mark { fenced: mark.fenced, ..Mark::default() };
        self.open.clear();
        self.open_width = 0;
    }

    /// The row with its colours, and what is open behind it.
    fn picture(&self, row: &str, theme: &Theme) -> (Line<'static>, Mark) {
        match self.look {
            Look::Even(style) => (Line::styled(row.to_owned(), style), self.at_row),
            Look::Prose => prose(row, self.at_row, theme),
        }
    }
}

fn prose(row: &str, mut mark: Mark, theme: &Theme) -> (Line<'static>, Mark) {
    if !mark.continues && row.trim_start().starts_with("```") {
        mark.fenced = !mark.fenced;
        return (Line::styled(row.to_owned(), theme.quiet), mark);
    }
    if mark.fenced {
        return (Line::styled(row.to_owned(), theme.code), mark);
    }
    if !mark.continues && row.starts_with('#') {
        mark.heading = true;
    }
    if mark.heading {
        return (Line::styled(row.to_owned(), theme.strong), mark);
    }
    let mut spans = Vec::new();
    for piece in row.split_inclusive('`') {
        let ticks = piece.ends_with('`');
        let style = if mark.ticked { theme.code } else { theme.answer };
        spans.push(Span::styled(piece.to_owned(), style));
        mark.ticked ^= ticks;
    }
    (Line::from(spans), mark)
}

/// Columns of one character. The sign that asks for a coloured picture widens what stands before it.
pub fn columns(c: char) -> usize {
    if c == '\u{fe0f}' { 1 } else { c.width().unwrap_or(0) }
}

/// One line without what must not reach the terminal, cut to a width with a sign that it was cut.
pub fn fit(text: &str, width: usize) -> String {
    let clean = || text.chars().map(|c| if matches!(c, '\n' | '\t') { ' ' } else { visible(c) });
    if clean().map(columns).sum::<usize>() <= width {
        return clean().collect();
    }
    let mut room = width.saturating_sub(1);
    let mut kept: String =
        clean().take_while(|&c| room.checked_sub(columns(c)).map(|left| room = left).is_some()).collect();
    if width > 0 {
        kept.push('…');
    }
    kept
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rows(pieces: &[&str], width: usize, look: Look) -> Vec<Line<'static>> {
        let theme = Theme::new(true);
        let mut flow = Flow::new(width, look);
        pieces.iter().for_each(|piece| flow.push(piece, &theme));
        flow.rows().to_vec()
    }

    fn text(pieces: &[&str], width: usize) -> Vec<String> {
        rows(pieces, width, Look::Prose).iter().map(Line::to_string).collect()
    }

    #[test]
    fn lines_break_at_spaces_and_long_words_where_they_must() {
        assert_eq!(text(&["one two three"], 8), ["one two ", "three"]);
        assert_eq!(text(&["abcdefghij"], 4), ["abcd", "efgh", "ij"]);
        assert_eq!(text(&["a\n\nb\n"], 8), ["a", "", "b"]);
        assert_eq!(text(&["    indented words"], 10), ["    indent", "ed words"]);
        assert_eq!(text(&["日本語"], 4), ["日本", "語"]);
    }

    #[test]
    fn nothing_that_steers_a_terminal_comes_through() {
        assert_eq!(text(&["a\x1b[31mb\x07\r\tc"], 20), ["a␛[31mb␇    c"]);
        assert_eq!(fit("a\x1b]52;c;AAAA\x07b\nc", 40), "a␛]52;c;AAAA␇b c");
    }

    #[test]
    fn a_cut_line_says_so() {
        assert_eq!(fit("abcdef", 6), "abcdef");
        assert_eq!(fit("abcdef", 5), "abcd…");
        assert_eq!(fit("日本語", 4), "日…");
        assert_eq!(fit("abc", 0), "");
    }

    proptest! {
        #[test]
        fn pieces_give_what_the_whole_gives(words in "[a-z `#\n\t日é]{0,200}", cuts in prop::collection::vec(0usize..200, 0..6), width in 1usize..30) {
            let mut edges: Vec<usize> = cuts.into_iter().map(|cut| cut.min(words.len())).filter(|&cut| words.is_char_boundary(cut)).collect();
            edges.extend([0, words.len()]);
            edges.sort_unstable();
            let pieces: Vec<&str> = edges.windows(2).map(|edge| &words[edge[0]..edge[1]]).collect();
            prop_assert_eq!(rows(&pieces, width, Look::Prose), rows(&[&words], width, Look::Prose));
        }
    }
}

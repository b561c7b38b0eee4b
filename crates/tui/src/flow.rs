//! Lays out text that only grows at its end, and text in several styles.
//!
//! A model that says 5,000 tokens a second must not make the screen read its whole answer again for each frame. Breaking
//! lines greedily needs nothing before the row that is still open, so a [`Flow`] keeps finished rows and touches only the
//! last one. Invariant, held by a test: text pushed in any pieces gives the rows of the whole text pushed at once.

use boundary::terminal::visible;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthChar;

/// Columns of a tab.
const TAB_WIDTH: usize = 4;

/// Text and how it looks.
pub type Styled = (String, Style);

/// Rows of one growing text of one style, at one width.
#[derive(Debug)]
pub struct Flow {
    width: usize,
    style: Style,
    rows: Vec<Line<'static>>,
    /// The row that may still grow, with the columns it takes.
    open: String,
    open_width: usize,
    /// Whether the last row of `rows` is a picture of `open`.
    pictured: bool,
}

impl Flow {
    /// An empty text.
    pub fn new(width: usize, style: Style) -> Flow {
        Flow { width: width.max(1), style, rows: Vec::new(), open: String::new(), open_width: 0, pictured: false }
    }

    /// The width it was laid out for.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Adds text at the end. Costs what is new and at most one row more.
    pub fn push(&mut self, text: &str) {
        if self.pictured {
            self.rows.pop();
            self.pictured = false;
        }
        for c in text.chars() {
            match c {
                '\n' => self.end_row(),
                '\t' => (0..TAB_WIDTH - self.open_width % TAB_WIDTH).for_each(|_| self.add(' ')),
                // Escape sequences in a file or an answer must never reach the terminal.
                '\r' => {}
                c => self.add(visible(c)),
            }
        }
        if !self.open.is_empty() {
            self.rows.push(Line::styled(self.open.clone(), self.style));
            self.pictured = true;
        }
    }

    /// All rows, the open one included.
    pub fn rows(&self) -> &[Line<'static>] {
        &self.rows
    }

    fn add(&mut self, c: char) {
        let columns = columns(c);
        // Spaces may hang over the edge: they cannot be seen there, and the next row should not begin with them.
        if c != ' ' && self.open_width + columns > self.width && !self.open.is_empty() {
            self.break_row();
        }
        self.open.push(c);
        self.open_width += columns;
    }

    /// Ends the open row behind its last space, or where it stands if it has none.
    fn break_row(&mut self) {
        let cut = self.open.rfind(' ').map(|at| at + 1).filter(|&at| !self.open[..at].trim_start().is_empty());
        let rest = self.open.split_off(cut.unwrap_or(self.open.len()));
        self.rows.push(Line::styled(std::mem::take(&mut self.open), self.style));
        self.open_width = rest.chars().map(columns).sum();
        self.open = rest;
    }

    fn end_row(&mut self) {
        self.rows.push(Line::styled(std::mem::take(&mut self.open), self.style));
        self.open_width = 0;
    }
}

/// One line in several styles, broken at spaces. `first` stands before its first row, `rest` before the others.
pub fn wrap(line: &[Styled], first: &[Span<'static>], rest: &[Span<'static>], width: usize) -> Vec<Line<'static>> {
    let room = |prefix: &[Span<'static>]| width.saturating_sub(prefix.iter().map(Span::width).sum()).max(1);
    let (first_room, rest_room) = (room(first), room(rest));
    let mut rows: Vec<Line<'static>> = Vec::new();
    let mut row: Vec<(char, Style)> = Vec::new();
    let mut used = 0;
    for (c, style) in line.iter().flat_map(|(text, style)| text.chars().map(move |c| (c, *style))) {
        let c = match c {
            '\r' | '\n' => continue,
            '\t' => {
                let count = TAB_WIDTH - used % TAB_WIDTH;
                row.extend(std::iter::repeat_n((' ', style), count));
                used += count;
                continue;
            }
            c => visible(c),
        };
        let room = if rows.is_empty() { first_room } else { rest_room };
        if c != ' ' && used + columns(c) > room && !row.is_empty() {
            let cut = row.iter().rposition(|(c, _)| *c == ' ').map(|at| at + 1);
            let cut = cut.filter(|&at| row[..at].iter().any(|(c, _)| *c != ' ')).unwrap_or(row.len());
            let tail = row.split_off(cut);
            rows.push(joined(if rows.is_empty() { first } else { rest }, &row));
            used = tail.iter().map(|(c, _)| columns(*c)).sum();
            row = tail;
        }
        row.push((c, style));
        used += columns(c);
    }
    rows.push(joined(if rows.is_empty() { first } else { rest }, &row));
    rows
}

/// A row of what stands before it and of its characters, with as few spans as there are changes of style.
fn joined(prefix: &[Span<'static>], row: &[(char, Style)]) -> Line<'static> {
    let mut spans = prefix.to_vec();
    for run in row.chunk_by(|a, b| a.1 == b.1) {
        spans.push(Span::styled(run.iter().map(|(c, _)| *c).collect::<String>(), run[0].1));
    }
    Line::from(spans)
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

    fn text(pieces: &[&str], width: usize) -> Vec<String> {
        let mut flow = Flow::new(width, Style::new());
        pieces.iter().for_each(|piece| flow.push(piece));
        flow.rows().iter().map(Line::to_string).collect()
    }

    #[test]
    fn lines_break_at_spaces_and_long_words_where_they_must() {
        let both = |line: &str, width: usize, expected: &[&str]| {
            assert_eq!(text(&[line], width), expected);
            let wrapped = wrap(&[(line.to_owned(), Style::new())], &[], &[], width);
            assert_eq!(wrapped.iter().map(Line::to_string).collect::<Vec<_>>(), expected);
        };
        both("one two three", 8, &["one two ", "three"]);
        both("abcdefghij", 4, &["abcd", "efgh", "ij"]);
        both("    indented words", 10, &["    indent", "ed words"]);
        both("日本語", 4, &["日本", "語"]);
        assert_eq!(text(&["a\n\nb\n"], 8), ["a", "", "b"]);
    }

    #[test]
    fn what_stands_before_a_line_stands_before_each_row() {
        let rows = wrap(&[("one two three".to_owned(), Style::new())], &[Span::raw("• ")], &[Span::raw("  ")], 8);
        assert_eq!(rows.iter().map(Line::to_string).collect::<Vec<_>>(), ["• one ", "  two ", "  three"]);
    }

    #[test]
    fn nothing_that_steers_a_terminal_comes_through() {
        assert_eq!(text(&["a\x1b[31mb\x07\r\tc"], 20), ["a␛[31mb␇    c"]);
        assert_eq!(fit("a\x1b]52;c;AAAA\x07b\nc", 40), "a␛]52;c;AAAA␇b c");
        let wrapped = wrap(&[("a\x1b[2J\r".to_owned(), Style::new())], &[], &[], 20);
        assert_eq!(wrapped[0].to_string(), "a␛[2J");
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
            prop_assert_eq!(text(&pieces, width), text(&[&words], width));
        }
    }
}

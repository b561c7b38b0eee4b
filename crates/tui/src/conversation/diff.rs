//! The rows of a change that grows.
//!
//! The partner sends the whole diff each time. Most of it is what was sent before, so lines are compared (a memory
//! comparison) and only those that differ are laid out again.

use std::sync::Arc;

use ratatui::style::Style;
use ratatui::text::Line;

use crate::flow::{Flow, Look};
use crate::theme::Theme;

/// A diff and its rows at one width.
#[derive(Debug)]
pub struct DiffRows {
    text: Arc<str>,
    width: usize,
    /// The first row of each line.
    starts: Vec<usize>,
    rows: Vec<Line<'static>>,
    /// Lines laid out so far, which is what a frame costs.
    laid_out: usize,
}

impl DiffRows {
    /// An empty diff.
    pub fn new(width: usize) -> DiffRows {
        DiffRows { text: "".into(), width: width.max(1), starts: Vec::new(), rows: Vec::new(), laid_out: 0 }
    }

    /// The diff as it was sent.
    pub fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// Its rows.
    pub fn rows(&self) -> &[Line<'static>] {
        &self.rows
    }

    /// Lays everything out for another width.
    pub fn resize(&mut self, width: usize, theme: &Theme) {
        if width.max(1) != self.width {
            let text = std::mem::replace(&mut self.text, "".into());
            *self = DiffRows { laid_out: self.laid_out, ..DiffRows::new(width) };
            self.set(text, theme);
        }
    }

    /// Takes the diff as it is now.
    pub fn set(&mut self, new: Arc<str>, theme: &Theme) {
        let old = std::mem::replace(&mut self.text, new.clone());
        let mut before = old.lines();
        for (number, line) in new.lines().enumerate() {
            let same = before.next() == Some(line);
            if !(same && number < self.starts.len()) {
                self.lay_out(number, line, theme);
            }
        }
        let count = new.lines().count();
        if count < self.starts.len() {
            self.rows.truncate(self.starts[count]);
            self.starts.truncate(count);
        }
    }

    /// Lays out one line. If it takes as many rows as before, such as a hunk's header whose count grew, the lines after it
    /// stay; else they are laid out again when their turn comes.
    fn lay_out(&mut self, number: usize, line: &str, theme: &Theme) {
        self.laid_out += 1;
        let mut flow = Flow::new(self.width, Look::Even(style(line, theme)));
        flow.push(line, theme);
        let new = if flow.rows().is_empty() { &[Line::default()][..] } else { flow.rows() };
        if let Some(&start) = self.starts.get(number) {
            let end = self.starts.get(number + 1).copied().unwrap_or(self.rows.len());
            if end - start == new.len() {
                self.rows[start..end].clone_from_slice(new);
                return;
            }
            self.rows.truncate(start);
            self.starts.truncate(number);
        }
        self.starts.push(self.rows.len());
        self.rows.extend_from_slice(new);
    }
}

/// The colour of a line of a unified diff.
fn style(line: &str, theme: &Theme) -> Style {
    match line.as_bytes() {
        [b'+', b'+', b'+', b' ', ..] | [b'-', b'-', b'-', b' ', ..] => theme.strong,
        [b'+', ..] => theme.added,
        [b'-', ..] => theme.removed,
        [b'@', b'@', ..] => theme.hunk,
        _ => theme.quiet,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(rows: &DiffRows) -> Vec<String> {
        rows.rows().iter().map(Line::to_string).collect()
    }

    #[test]
    fn a_growing_diff_lays_out_only_what_is_new() {
        let theme = Theme::new(true);
        let mut rows = DiffRows::new(40);
        let mut diff = String::from("@@ -1,1 +1,1 @@\n");
        for line in 0..2_000 {
            diff.push_str(&format!("+line {line}\n"));
            let header = format!("@@ -1,1 +1,{} @@\n", line + 1);
            diff.replace_range(..diff.find('\n').unwrap() + 1, &header);
            rows.set(diff.as_str().into(), &theme);
        }
        assert_eq!(rows.rows().len(), 2_001);
        // Each update changes the header and adds one line.
        assert!(rows.laid_out <= 4_001, "{} lines were laid out", rows.laid_out);
    }

    #[test]
    fn whatever_came_before_the_rows_are_those_of_the_last_diff() {
        let theme = Theme::new(true);
        let diffs = [
            "@@ -1 +1 @@\n-a\n+b\n",
            "@@ -1 +1 @@\n+a line that is too long for one row\n+b\n",
            "@@ -1 +1 @@\n+short\n+b\n c\n",
            "",
            "+x\n\n+y",
        ];
        let mut grown = DiffRows::new(12);
        for diff in diffs {
            grown.set(diff.into(), &theme);
            let mut fresh = DiffRows::new(12);
            fresh.set(diff.into(), &theme);
            assert_eq!(text(&grown), text(&fresh));
        }
    }
}

//! The rows of a change that grows, with the words that changed marked.
//!
//! The partner sends the whole diff each time. Most of it is what was sent before, so lines are compared (a memory
//! comparison) and only those that differ, or whose counterpart differs, are laid out again.

use std::ops::Range;
use std::sync::Arc;

use ratatui::style::Style;
use ratatui::text::Line;

use super::words::changed_words;
use crate::flow::{Styled, wrap};
use crate::theme::Theme;

/// A diff and its rows at one width.
#[derive(Debug)]
pub struct DiffRows {
    text: Arc<str>,
    width: usize,
    /// The first row of each line.
    starts: Vec<usize>,
    /// The line that each line was compared with.
    partners: Vec<Option<usize>>,
    rows: Vec<Line<'static>>,
    /// Lines laid out so far, which is what a frame costs.
    laid_out: usize,
}

impl DiffRows {
    /// An empty diff.
    pub fn new(width: usize) -> DiffRows {
        DiffRows {
            text: "".into(),
            width: width.max(1),
            starts: Vec::new(),
            partners: Vec::new(),
            rows: Vec::new(),
            laid_out: 0,
        }
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
        let before: Vec<&str> = old.lines().collect();
        let lines: Vec<&str> = new.lines().collect();
        let partners = partners(&lines);
        let old_partners = std::mem::take(&mut self.partners);
        for (number, line) in lines.iter().enumerate() {
            let partner = partners[number].map(|at| lines[at]);
            let old_partner = old_partners.get(number).copied().flatten().and_then(|at| before.get(at)).copied();
            let same = before.get(number) == Some(line) && partner == old_partner;
            if !(same && number < self.starts.len()) {
                self.lay_out(number, line, partner, theme);
            }
        }
        self.partners = partners;
        if lines.len() < self.starts.len() {
            self.rows.truncate(self.starts[lines.len()]);
            self.starts.truncate(lines.len());
        }
    }

    /// Lays out one line. If it takes as many rows as before, such as a hunk's header whose count grew, the lines after it
    /// stay; else they are laid out again when their turn comes.
    fn lay_out(&mut self, number: usize, line: &str, partner: Option<&str>, theme: &Theme) {
        self.laid_out += 1;
        let new = wrap(&styled(line, partner, theme), &[], &[], self.width);
        if let Some(&start) = self.starts.get(number) {
            let end = self.starts.get(number + 1).copied().unwrap_or(self.rows.len());
            if end - start == new.len() {
                self.rows[start..end].clone_from_slice(&new);
                return;
            }
            self.rows.truncate(start);
            self.starts.truncate(number);
        }
        self.starts.push(self.rows.len());
        self.rows.extend(new);
    }
}

/// The line that a removed line became, and the other way round: the first removed one with the first added one behind
/// it, and so on, in each run of changed lines.
fn partners(lines: &[&str]) -> Vec<Option<usize>> {
    let mut partners = vec![None; lines.len()];
    let run = |from: usize, sign: &str| -> Range<usize> {
        let length = lines[from..].iter().take_while(|line| line.starts_with(sign)).count();
        from..from + length
    };
    let mut at = 0;
    while at < lines.len() {
        let removed = run(at, "-");
        let added = run(removed.end, "+");
        for (old, new) in removed.zip(added.clone()) {
            partners[old] = Some(new);
            partners[new] = Some(old);
        }
        at = added.end.max(at + 1);
    }
    partners
}

/// A line in its colours. What its counterpart does not have is marked.
fn styled(line: &str, partner: Option<&str>, theme: &Theme) -> Vec<Styled> {
    let style = style(line, theme);
    let Some(partner) = partner else { return vec![(line.to_owned(), style)] };
    let (sign, text) = line.split_at(1);
    let mut spans = vec![(sign.to_owned(), style)];
    let mut from = 0;
    for marked in changed_words(text, &partner[1..]) {
        spans.push((text[from..marked.start].to_owned(), style));
        spans.push((text[marked.clone()].to_owned(), Theme::marked(style)));
        from = marked.end;
    }
    spans.push((text[from..].to_owned(), style));
    spans
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
    use ratatui::style::Modifier;

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
            "@@ -1 +1 @@\n-a b\n-c d\n+a x\n",
            "@@ -1 +1 @@\n-a b\n-c d\n+a x\n+c y\n",
            "@@ -1 +1 @@\n-a b\n-c d\n+a z\n+c y\n",
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
            assert_eq!(grown.rows(), fresh.rows());
        }
    }

    #[test]
    fn the_words_that_changed_are_marked() {
        let mut rows = DiffRows::new(60);
        rows.set("@@ -1 +1 @@\n-    return sum(prices)\n+    return sum(prices) * 2\n x\n".into(), &Theme::new(true));
        let marked: Vec<String> = rows
            .rows()
            .iter()
            .flat_map(|row| row.spans.iter())
            .filter(|span| span.style.add_modifier.contains(Modifier::REVERSED))
            .map(|span| span.content.to_string())
            .collect();
        assert_eq!(marked, [" * 2"]);
    }
}

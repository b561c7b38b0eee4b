//! The table of candidates: what became of each of the answers to one task, and how large its change is.

use agent::{CandidateRow, CandidateState};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::flow::fit;
use crate::theme::Theme;

/// Candidates of a try.
#[derive(Debug, Default)]
pub struct Candidates {
    candidates: Vec<CandidateRow>,
    best: Option<usize>,
    rows: Vec<Line<'static>>,
    width: usize,
}

impl Candidates {
    /// How they stand now.
    pub fn set(&mut self, candidates: Vec<CandidateRow>, best: Option<usize>) {
        *self = Candidates { candidates, best, rows: Vec::new(), width: 0 };
    }

    /// Its rows as last laid out.
    pub fn rows(&self) -> &[Line<'static>] {
        &self.rows
    }

    /// Brings the rows up to date.
    pub fn lay_out(&mut self, width: usize, theme: &Theme) {
        if self.width == width && !self.rows.is_empty() {
            return;
        }
        self.width = width;
        let inner = width.saturating_sub(2);
        self.rows = vec![Line::styled(fit(" #  lines       time  outcome", inner), theme.quiet)];
        for row in &self.candidates {
            let offered = self.best == Some(row.candidate);
            let (outcome, style) = outcome(&row.state, theme);
            let sign = if offered { '▸' } else { ' ' };
            let (added, removed) = row.lines;
            let lines = format!("+{added} -{removed}");
            let head = format!("{sign}{:<2} {lines:<10} {:>5.1} s  ", row.candidate, row.ms as f64 / 1000.0);
            let room = inner.saturating_sub(head.chars().count());
            let style = if offered { theme.good } else { style };
            self.rows.push(Line::from(vec![Span::raw(fit(&head, inner)), Span::styled(fit(&outcome, room), style)]));
        }
    }
}

/// A candidate's outcome in a few words.
pub fn outcome(state: &CandidateState, theme: &Theme) -> (String, Style) {
    match state {
        CandidateState::Writing => ("writing".to_owned(), theme.waiting),
        CandidateState::Checking => ("checking".to_owned(), theme.waiting),
        CandidateState::Passed => ("passed".to_owned(), theme.good),
        CandidateState::Failed { check, output } => {
            let last = output.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no output");
            (format!("failed {check}: {}", last.trim()), theme.bad)
        }
        CandidateState::NotApplied { why } => (format!("not applied: {why}"), theme.bad),
    }
}

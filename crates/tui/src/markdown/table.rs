//! Tables of Markdown: columns as wide as their widest cell. One that is wider than the screen stands as it was written.

use ratatui::text::{Line, Span};

use super::{columns_of, inline};
use crate::flow::{Styled, wrap};
use crate::theme::Theme;

/// What stands between two columns.
const GAP: &str = "  ";

/// Whether a line may belong to a table.
pub fn is_row(line: &str) -> bool {
    line.trim_start().starts_with('|')
}

/// The rows of a table, or of the part of it that is there.
pub fn lay_out(lines: &[String], width: usize, theme: &Theme) -> Vec<Line<'static>> {
    let has_head = lines.get(1).is_some_and(|line| is_rule(line));
    let style = |row: usize| if has_head && row == 0 { theme.strong } else { theme.answer };
    let cells = |(row, line): (usize, &String)| -> Vec<Vec<Styled>> {
        cells(line).into_iter().map(|cell| inline::spans(&cell, style(row), false, theme)).collect()
    };
    let body = lines.iter().enumerate().filter(|(row, _)| !(has_head && *row == 1));
    let table: Vec<Vec<Vec<Styled>>> = body.map(cells).collect();
    let count = table.iter().map(Vec::len).max().unwrap_or(0);
    let widest = |column: usize| table.iter().filter_map(|row| row.get(column)).map(|cell| columns_of(cell)).max();
    let widths: Vec<usize> = (0..count).map(|column| widest(column).unwrap_or(0)).collect();
    if widths.iter().sum::<usize>() + GAP.len() * count.saturating_sub(1) > width {
        return lines.iter().flat_map(|line| wrap(&[(line.clone(), theme.answer)], &[], &[], width)).collect();
    }
    let mut rows = Vec::new();
    for (number, row) in table.into_iter().enumerate() {
        let mut line: Vec<Styled> = Vec::new();
        for (cell, &wide) in row.into_iter().zip(&widths) {
            if !line.is_empty() {
                line.push((GAP.to_owned(), theme.answer));
            }
            let blanks = wide - columns_of(&cell);
            line.extend(cell);
            line.push((" ".repeat(blanks), theme.answer));
        }
        rows.extend(wrap(&line, &[], &[], width));
        if has_head && number == 0 {
            let rules: Vec<String> = widths.iter().map(|&wide| "─".repeat(wide)).collect();
            rows.push(Line::from(Span::styled(rules.join(GAP), theme.quiet)));
        }
    }
    rows
}

/// `|---|:-:|`.
fn is_rule(line: &str) -> bool {
    line.contains('-') && line.chars().all(|c| matches!(c, '|' | '-' | ':' | ' '))
}

/// The cells of a line; `\|` is a character of a cell.
fn cells(line: &str) -> Vec<String> {
    let line = line.trim();
    let line = line.strip_prefix('|').unwrap_or(line);
    let line = line.strip_suffix('|').filter(|rest| !rest.ends_with('\\')).unwrap_or(line);
    let mut cells = vec![String::new()];
    let mut escaped = false;
    for c in line.chars() {
        match c {
            '|' if !escaped => cells.push(String::new()),
            c => cells.last_mut().into_iter().for_each(|cell| cell.push(c)),
        }
        escaped = c == '\\' && !escaped;
    }
    cells.iter().map(|cell| cell.trim().replace("\\|", "|")).collect()
}

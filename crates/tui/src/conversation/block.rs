//! One thing in the conversation: a prompt, an answer, a change, a command, a table. A block keeps its content, and its rows
//! for the width they were last seen at, so that a frame costs the rows it shows.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::diff::DiffRows;
use super::table;
use crate::flow::{Flow, fit};
use crate::markdown::Markdown;
use crate::theme::Theme;

/// Bytes of a command's output that are kept; what came before is left out, and said to be.
const OUTPUT_BYTES_MAX: usize = 64 * 1024;
/// Lines of a command's output that are shown, and of one that the person ran to read it.
const OUTPUT_LINES_SHOWN: usize = 8;
const OWN_OUTPUT_LINES_SHOWN: usize = 400;

/// One thing in the conversation.
#[derive(Debug)]
pub enum Block {
    /// Words.
    Words(Words),
    /// A change of a file.
    Edit(Edit),
    /// A tool at work.
    Tool(Tool),
    /// Candidates of a try.
    Candidates(table::Candidates),
}

impl Block {
    /// Brings the rows up to date and says how many there are, the empty one below included.
    pub fn height(&mut self, width: usize, theme: &Theme) -> usize {
        match self {
            Block::Words(words) => words.lay_out(width, theme),
            Block::Edit(edit) => edit.lay_out(width, theme),
            Block::Tool(tool) => tool.lay_out(width, theme),
            Block::Candidates(candidates) => candidates.lay_out(width, theme),
        }
        self.row_count() + 1
    }

    fn row_count(&self) -> usize {
        match self {
            Block::Words(words) => words.rows().len(),
            Block::Edit(edit) => 1 + edit.diff.as_ref().map_or(0, |diff| diff.rows().len()) + edit.note.len(),
            Block::Tool(tool) => tool.rows.len(),
            Block::Candidates(candidates) => candidates.rows().len(),
        }
    }

    /// A row as last laid out, and what stands before it.
    pub fn row(&self, row: usize) -> (Span<'static>, Option<&Line<'static>>) {
        match self {
            Block::Words(words) => {
                let sign = if row == 0 { words.voice.sign() } else { "  " };
                (Span::styled(sign, words.sign_style), words.rows().get(row))
            }
            Block::Edit(edit) => (Span::raw(if row == 0 { "" } else { "  " }), edit.row(row)),
            Block::Tool(tool) => (Span::raw(if row == 0 { "" } else { "  " }), tool.rows.get(row)),
            Block::Candidates(candidates) => (Span::raw("  "), candidates.rows().get(row)),
        }
    }
}

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Voice {
    /// The person asks.
    Asked,
    /// The person redirects.
    Steer,
    /// The model.
    Answer,
    /// Flint, about itself.
    Notice,
    /// Flint, about something that went wrong.
    Trouble,
}

impl Voice {
    fn sign(self) -> &'static str {
        match self {
            Voice::Asked => "› ",
            Voice::Steer => "↳ ",
            Voice::Answer => "  ",
            Voice::Notice => "· ",
            Voice::Trouble => "! ",
        }
    }

    fn style(self, theme: &Theme) -> Style {
        match self {
            Voice::Asked | Voice::Steer => theme.asked,
            Voice::Answer => theme.answer,
            Voice::Notice => theme.quiet,
            Voice::Trouble => theme.bad,
        }
    }
}

/// Words that may grow.
#[derive(Debug)]
pub struct Words {
    /// Who says them.
    pub voice: Voice,
    text: String,
    laid: Option<Laid>,
    /// Bytes of the text that are laid out.
    laid_bytes: usize,
    sign_style: Style,
}

/// Words as they are drawn.
#[derive(Debug)]
enum Laid {
    /// All alike.
    Flow(Flow),
    /// As the Markdown that models write.
    Markdown(Markdown),
}

impl Laid {
    fn new(voice: Voice, width: usize, theme: &Theme) -> Laid {
        match voice {
            Voice::Answer => Laid::Markdown(Markdown::new(width)),
            voice => Laid::Flow(Flow::new(width, voice.style(theme))),
        }
    }

    fn width(&self) -> usize {
        match self {
            Laid::Flow(flow) => flow.width(),
            Laid::Markdown(markdown) => markdown.width(),
        }
    }

    fn push(&mut self, text: &str, theme: &Theme) {
        match self {
            Laid::Flow(flow) => flow.push(text),
            Laid::Markdown(markdown) => markdown.push(text, theme),
        }
    }
}

impl Words {
    /// Words that may still grow.
    pub fn new(voice: Voice, text: impl Into<String>) -> Words {
        Words { voice, text: text.into(), laid: None, laid_bytes: 0, sign_style: Style::new() }
    }

    /// All of them.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// More of them.
    pub fn push(&mut self, delta: &str) {
        self.text.push_str(delta);
    }

    /// Others instead.
    pub fn set(&mut self, text: String) {
        *self = Words::new(self.voice, text);
    }

    /// The rows as last laid out, without empty ones at the end.
    fn rows(&self) -> &[Line<'static>] {
        let rows = match &self.laid {
            Some(Laid::Flow(flow)) => flow.rows(),
            Some(Laid::Markdown(markdown)) => markdown.rows(),
            None => &[],
        };
        let empty = |row: &&Line<'_>| row.spans.iter().all(|span| span.content.trim().is_empty());
        &rows[..rows.len() - rows.iter().rev().take_while(empty).count()]
    }

    fn lay_out(&mut self, width: usize, theme: &Theme) {
        let width = width.saturating_sub(2).max(1);
        self.sign_style = if self.voice == Voice::Trouble { theme.bad } else { theme.asked };
        let laid = match &mut self.laid {
            Some(laid) if laid.width() == width => laid,
            other => {
                self.laid_bytes = 0;
                other.insert(Laid::new(self.voice, width, theme))
            }
        };
        if self.laid_bytes < self.text.len() {
            laid.push(&self.text[self.laid_bytes..], theme);
            self.laid_bytes = self.text.len();
        }
    }
}

/// What became of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EditState {
    /// The model writes it.
    Growing,
    /// The file has it.
    Applied,
    /// The file is as it was; why.
    Failed(String),
    /// Nobody will finish it; the file is as it was.
    Left,
}

/// A change of a file.
#[derive(Debug)]
pub struct Edit {
    /// The file.
    pub path: PathBuf,
    /// Lines added and removed.
    pub lines: (usize, usize),
    /// What became of it.
    pub state: EditState,
    latest: Arc<str>,
    diff: Option<DiffRows>,
    title: Line<'static>,
    note: Vec<Line<'static>>,
}

impl Edit {
    /// A change that begins.
    pub fn new(path: PathBuf) -> Edit {
        Edit {
            path,
            lines: (0, 0),
            state: EditState::Growing,
            latest: "".into(),
            diff: None,
            title: Line::default(),
            note: Vec::new(),
        }
    }

    /// The change as it is now. Laying it out waits for the frame that shows it.
    pub fn grow(&mut self, diff: Arc<str>) {
        self.latest = diff;
    }

    /// The change as text.
    pub fn text(&self) -> &Arc<str> {
        &self.latest
    }

    fn lay_out(&mut self, width: usize, theme: &Theme) {
        let inner = width.saturating_sub(2).max(1);
        let diff = self.diff.get_or_insert_with(|| DiffRows::new(inner));
        diff.resize(inner, theme);
        if !Arc::ptr_eq(diff.text(), &self.latest) {
            diff.set(Arc::clone(&self.latest), theme);
        }
        let (word, style) = match &self.state {
            EditState::Growing => ("editing", theme.waiting),
            EditState::Applied => ("changed", theme.good),
            EditState::Failed(_) => ("not changed", theme.bad),
            EditState::Left => ("left as it was", theme.quiet),
        };
        let (added, removed) = self.lines;
        let figures = format!(" +{added} -{removed}");
        let path = fit(&shown(&self.path), width.saturating_sub(word.len() + 1 + figures.len()));
        self.title = Line::from(vec![
            Span::styled(format!("{word} "), style),
            Span::styled(path, theme.strong),
            Span::styled(figures, theme.quiet),
        ]);
        self.note.clear();
        if let EditState::Failed(why) = &self.state {
            let mut flow = Flow::new(inner, theme.bad);
            flow.push(why);
            self.note = flow.rows().to_vec();
        }
    }

    fn row(&self, row: usize) -> Option<&Line<'static>> {
        let diff = self.diff.as_ref().map_or(&[][..], DiffRows::rows);
        match row {
            0 => Some(&self.title),
            row if row <= diff.len() => diff.get(row - 1),
            row => self.note.get(row - 1 - diff.len()),
        }
    }
}

/// A tool at work, or one that has worked.
#[derive(Debug)]
pub struct Tool {
    name: String,
    title: String,
    output: String,
    left_out: bool,
    /// Whether it did what it should, its exit code, and milliseconds; `None` while it works.
    pub ended: Option<(bool, Option<i32>, f64)>,
    rows: Vec<Line<'static>>,
    laid_out: Option<(usize, usize, bool)>,
}

impl Tool {
    /// A tool that begins.
    pub fn new(name: String, title: String) -> Tool {
        Tool { name, title, output: String::new(), left_out: false, ended: None, rows: Vec::new(), laid_out: None }
    }

    /// More output.
    pub fn push(&mut self, delta: &str) {
        self.output.push_str(delta);
        if self.output.len() > 2 * OUTPUT_BYTES_MAX {
            let from = (self.output.len() - OUTPUT_BYTES_MAX..).find(|&at| self.output.is_char_boundary(at));
            self.output.drain(..from.unwrap_or(0));
            self.left_out = true;
        }
        self.laid_out = None;
    }

    /// Only the last lines are laid out, so the cost does not depend on how much was printed.
    fn lay_out(&mut self, width: usize, theme: &Theme) {
        let key = (width, self.output.len(), self.ended.is_some());
        if self.laid_out == Some(key) {
            return;
        }
        self.laid_out = Some(key);
        let (state, style) = match self.ended {
            None => ("…".to_owned(), theme.waiting),
            Some((true, _, ms)) => (format!("{ms:.0} ms"), theme.good),
            Some((false, Some(code), ms)) => (format!("exit {code} after {ms:.0} ms"), theme.bad),
            Some((false, None, ms)) => (format!("failed after {ms:.0} ms"), theme.bad),
        };
        let room = width.saturating_sub(self.name.len() + state.len() + 2);
        self.rows.clear();
        self.rows.push(Line::from(vec![
            Span::styled(format!("{} ", fit(&self.name, width)), theme.strong),
            Span::raw(fit(&self.title, room)),
            Span::styled(format!(" {state}"), style),
        ]));
        let lines = if self.name == agent::OWN_COMMAND { OWN_OUTPUT_LINES_SHOWN } else { OUTPUT_LINES_SHOWN };
        let mut last: Vec<&str> = self.output.trim_end().rsplit('\n').take(lines + 1).collect();
        if last.len() > lines || self.left_out {
            last.truncate(lines);
            last.push("… earlier lines");
        }
        let inner = width.saturating_sub(2);
        let shown = last.iter().rev().filter(|line| !line.is_empty());
        self.rows.extend(shown.map(|line| Line::styled(fit(line, inner), theme.quiet)));
    }
}

/// A path as people write it.
pub fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

//! The picture: conversation, what waits for the person, the composer, the figures.

use std::time::Instant;

use agent::ApprovalAsk;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::text::{Line, Span};

use boundary::terminal::reveal;
use ratatui::style::Style;

use super::{App, Asked, Stage, figures};
use crate::conversation::{Block, BlockId, EditState, shown};
use crate::flow::{Flow, fit};

/// Rows of the composer at most; a longer text scrolls in it.
const COMPOSER_ROWS_MAX: usize = 10;
/// Offers of completion on the screen; more are scrolled to.
const OFFERS_SHOWN: usize = 8;
/// Rows of a list to choose from, where the screen does not give all of its own.
const PICKER_ROWS: usize = 20;

impl App {
    /// Draws everything that is seen, and says where the cursor is.
    pub fn draw(&mut self, area: Rect, buffer: &mut Buffer, now: Instant) -> Option<Position> {
        if area.width < 4 || area.height < 2 {
            return None;
        }
        let width = usize::from(area.width);
        let mut bars = self.bars(width);
        let composer_rows = self.composer.layout(width - 2).0.len().clamp(1, COMPOSER_ROWS_MAX);
        // Whatever the height, the line being written and the figures stay; then the hints, the questions, the rest.
        let mut left = usize::from(area.height) - 1;
        let mut share = |wanted: usize| {
            let given = wanted.min(left);
            left -= given;
            given as u16
        };
        let composer_rows = share(composer_rows);
        let rule_rows = share(1);
        let question = self.question(width, left_of(area, composer_rows + rule_rows));
        bars.splice(0..0, question);
        let bar_rows = share(bars.len());
        let talk_rows = share(usize::MAX);
        let at = |y: u16, height: u16| Rect::new(area.x, area.y + y, area.width, height);
        let talk = at(0, talk_rows);
        match &self.picker {
            Some(picker) => {
                let lines = picker.lines(width, usize::from(talk.height), &self.theme);
                put(&lines, talk, buffer);
            }
            None => self.conversation.draw(talk, buffer, &self.theme),
        }
        self.draw_offers(talk, buffer);
        put(&bars, at(talk_rows, bar_rows), buffer);
        if rule_rows > 0 {
            put(&[self.rule(width, now)], at(talk_rows + bar_rows, 1), buffer);
        }
        let cursor = self.draw_composer(at(talk_rows + bar_rows + rule_rows, composer_rows), buffer);
        put(&[self.status_line(width)], at(area.height - 1, 1), buffer);
        Some(cursor)
    }

    /// Rows that what is not finished wants, at most so many.
    pub fn height(&mut self, width: usize, rows_max: usize) -> usize {
        let width = width.max(4);
        let composer = self.composer.layout(width - 2).0.len().clamp(1, COMPOSER_ROWS_MAX);
        let below = composer + 2;
        let question = self.question(width, rows_max.saturating_sub(below)).len() + self.bars(width).len();
        let offers = self.completion.as_ref().map_or(0, |completion| completion.offers.len().min(OFFERS_SHOWN));
        let talk = match &self.picker {
            Some(picker) => picker.lines(width, rows_max.min(PICKER_ROWS), &self.theme).len(),
            None => self.conversation.rows_shown(width, rows_max, &self.theme),
        };
        (talk.max(offers) + question + below).min(rows_max)
    }

    /// Lines that will not change any more, which leave the picture; each once. None unless [`App::finish_lines`] was said.
    pub fn finished(&mut self, width: usize) -> Vec<Line<'static>> {
        let mut lines = Vec::new();
        while self.finishes && self.conversation.first_shown() < self.conversation.next_id() {
            let id = self.conversation.first_shown();
            if !self.is_settled(id) {
                break;
            }
            lines.extend(self.conversation.take_first(width, &self.theme));
        }
        lines
    }

    /// Whether a block will not change any more.
    fn is_settled(&mut self, id: BlockId) -> bool {
        if self.turn.is_none() {
            return self.offer.is_none() || self.candidates.is_none_or(|table| id < table);
        }
        let may_change = [self.open, self.plan, self.facts.filter(|facts| facts + 1 == self.conversation.next_id())];
        if may_change.contains(&Some(id)) || self.steers.iter().any(|steer| steer.block == id) {
            return false;
        }
        match self.conversation.get(id) {
            Some(Block::Edit(edit)) => edit.state != EditState::Growing,
            Some(Block::Tool(tool)) => tool.ended.is_some(),
            Some(Block::Candidates(_)) => false,
            _ => true,
        }
    }

    /// Completion stands over the end of the conversation.
    fn draw_offers(&self, talk: Rect, buffer: &mut Buffer) {
        let Some(completion) = &self.completion else { return };
        let width = usize::from(talk.width);
        let room = usize::from(talk.height).min(OFFERS_SHOWN);
        let from = (completion.chosen + 1).saturating_sub(room);
        let widest = completion.offers.iter().map(|(offer, _)| offer.chars().count()).max().unwrap_or(0);
        let mut lines = Vec::new();
        for (at, (offer, help)) in completion.offers.iter().enumerate().skip(from).take(room) {
            let style = if at == completion.chosen { self.theme.chosen } else { self.theme.answer };
            let text = format!("  {offer:<widest$}  {help}");
            lines.push(Line::styled(format!("{:<width$}", fit(&text, width)), style));
        }
        let height = lines.len() as u16;
        put(&lines, Rect::new(talk.x, talk.bottom() - height, talk.width, height), buffer);
    }

    /// What waits for the person besides a question.
    fn bars(&self, width: usize) -> Vec<Line<'static>> {
        let mut bars = Vec::new();
        if let Some(best) = self.offer.filter(|_| self.turn.is_none()) {
            let text =
                format!("candidate {best} is the smallest that passes: Enter applies it · 1-9 another · Esc none");
            bars.push(Line::styled(fit(&text, width), self.theme.waiting));
        }
        bars
    }

    /// The question that waits, in at most so many rows: all of what is asked about, wrapped, with what cannot be seen made
    /// visible, why it is asked, and the keys. What does not fit is scrolled to, and nothing is allowed before its end was
    /// on the screen.
    fn question(&mut self, width: usize, rows_max: usize) -> Vec<Line<'static>> {
        let Some((approval, _)) = self.approvals.front() else { return Vec::new() };
        let ask = approval.ask;
        let more = self.approvals.len() - 1;
        let more = if more > 0 { format!(" ({more} more)") } else { String::new() };
        let (question, always) = match &approval.what {
            ApprovalAsk::Command { command, prefix } => {
                let always = format!("always would allow `{} …`\n", reveal(prefix));
                (format!("run `{}`?{more}\n", reveal(command)), (prefix != command).then_some(always))
            }
            ApprovalAsk::Edits { paths, .. } => {
                let named: Vec<String> = paths.iter().map(|path| reveal(&shown(path))).collect();
                (format!("write {}?{more}\n", named.join(", ")), None)
            }
            ApprovalAsk::Change => (format!("Change files for this?{more}\n"), None),
        };
        let is_command = matches!(approval.what, ApprovalAsk::Command { .. });
        let mut rows = wrapped(&question, width, self.theme.waiting);
        rows.extend(wrapped(&format!("{}\n", reveal(&approval.why)), width, self.theme.quiet));
        rows.extend(always.iter().flat_map(|always| wrapped(always, width, self.theme.quiet)));
        if self.asked.ask != Some(ask) {
            self.asked = Asked { ask: Some(ask), ..Asked::default() };
        }
        // A row is for the keys.
        let room = rows_max.saturating_sub(1);
        self.asked.fits = rows.len() <= room;
        self.asked.page = room.max(1);
        self.asked.from = self.asked.from.min(rows.len().saturating_sub(room));
        let end = (self.asked.from + room).min(rows.len());
        self.asked.end_seen |= room > 0 && end == rows.len();
        let alt = if self.composer.is_empty() { "" } else { "with Alt: " };
        let always = if is_command { " · a always" } else { "" };
        let keys = match rows.len() - end {
            _ if matches!(approval.what, ApprovalAsk::Change) => format!("{alt}y change · n answer only · s stop"),
            _ if self.asked.end_seen && self.asked.fits => format!("{alt}y yes{always} · n no · s stop the turn"),
            _ if self.asked.end_seen => format!("{alt}y yes{always} · n no · s stop the turn · PageUp, PageDown"),
            below => format!("… {below} more lines, PageDown shows them · {alt}n no · s stop"),
        };
        let mut shown: Vec<Line<'static>> = rows.drain(self.asked.from..end).collect();
        shown.push(Line::raw(fit(&keys, width)));
        shown
    }

    /// The line above the composer says what runs and what the keys would do.
    fn rule(&self, width: usize, now: Instant) -> Line<'static> {
        let below = if self.conversation.at_end() { "" } else { "more below, PageDown · " };
        let queued = if self.queued > 0 { format!("{} waiting · ", self.queued) } else { String::new() };
        let text = match &self.turn {
            Some(turn) => {
                let doing = match turn.stage {
                    _ if turn.stopping => "stopping".to_owned(),
                    Stage::Sent => "sent".to_owned(),
                    Stage::Reading(done, total) => format!("reading {done}/{total}"),
                    Stage::Writing => "writing".to_owned(),
                    Stage::Working => "working".to_owned(),
                };
                let seconds = (now - turn.started).as_secs_f64();
                format!("{below}{queued}{doing} {seconds:.1} s · Enter steers · Tab queues · Esc stops")
            }
            None if self.leave_armed.is_some() => "Ctrl-C again leaves".to_owned(),
            None if self.rewind_armed.is_some() => "Esc again goes back to an earlier turn".to_owned(),
            None => format!("{below}Enter asks · @ files · / commands"),
        };
        let text = fit(&format!("── {text} "), width);
        let dashes = width.saturating_sub(text.chars().count());
        Line::styled(format!("{text}{}", "─".repeat(dashes)), self.theme.quiet)
    }

    fn draw_composer(&mut self, area: Rect, buffer: &mut Buffer) -> Position {
        let height = usize::from(area.height);
        let (rows, (row, column)) = self.composer.layout(usize::from(area.width) - 2);
        let from = (row + 1).saturating_sub(height);
        for ((at, text), y) in rows.iter().enumerate().skip(from).take(height).zip(area.y..) {
            let sign = if at == 0 { "› " } else { "  " };
            buffer.set_span(area.x, y, &Span::styled(sign, self.theme.asked), 2);
            buffer.set_string(area.x + 2, y, text.replace('\t', "    "), self.theme.answer);
        }
        let x = area.x + 2 + column as u16;
        Position::new(x.min(area.right().saturating_sub(1)), area.y + (row - from) as u16)
    }

    fn status_line(&self, width: usize) -> Line<'static> {
        let mut text = String::new();
        for figure in figures(&self.status) {
            let gap = if text.is_empty() { "" } else { "  " };
            if text.chars().count() + gap.len() + figure.chars().count() > width && !text.is_empty() {
                break;
            }
            text.push_str(gap);
            text.push_str(&figure);
        }
        Line::styled(fit(&text, width), self.theme.quiet)
    }
}

/// Rows that are left of the screen beside those of the composer, its rule and the figures.
fn left_of(area: Rect, taken: u16) -> usize {
    usize::from(area.height.saturating_sub(taken + 1))
}

fn wrapped(text: &str, width: usize, style: Style) -> Vec<Line<'static>> {
    let mut flow = Flow::new(width, style);
    flow.push(text);
    flow.rows().to_vec()
}

fn put(lines: &[Line<'static>], area: Rect, buffer: &mut Buffer) {
    for (line, y) in lines.iter().zip(area.y..area.bottom()) {
        buffer.set_line(area.x, y, line, area.width);
    }
}

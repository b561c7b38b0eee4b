//! What the partner's events do to the screen.

use std::path::PathBuf;
use std::time::Instant;

use agent::{Decided, Event, FileRead, Intent, Outcome, PastTurn, PlanStep, RewindPreview, Status, TurnUsage};

use super::{App, Effect, Picker, Stage, Turn};
use crate::conversation::{Block, Candidates, Edit, EditState, Tool, Voice, Words, shown};

/// Paths named in one line; of more only the count is told.
const PATHS_NAMED: usize = 5;

impl App {
    /// Takes in what happened.
    pub fn event(&mut self, event: Event, now: Instant) {
        match event {
            Event::TurnStarted { turn, text } => self.turn_started(turn, text, now),
            Event::Requested { .. } => self.stage(Stage::Sent),
            Event::Reading { done, total } => self.stage(Stage::Reading(done, total)),
            Event::Text { delta } => {
                self.stage(Stage::Writing);
                self.open = Some(self.conversation.extend(self.open, &delta));
            }
            Event::TurnEnded { outcome, usage, .. } => self.turn_ended(outcome, usage),
            Event::Plan(steps) => self.planned(&steps),
            Event::ApprovalAsked(approval) => self.approvals.push_back((approval, now)),
            Event::ApprovalSettled { ask } => self.approvals.retain(|(approval, _)| approval.ask != ask),
            Event::SteerAccepted { after_ms } => self.steer_accepted(after_ms),
            Event::SteerApplied { after_ms } => self.steer_applied(after_ms),
            Event::SteerFailed { text, why } => self.steer_failed(&text, &why),
            Event::Queued { text, waiting } => self.was_queued(&text, waiting),
            Event::Candidates { rows, best } => self.candidates(rows, best),
            Event::Restored { what, paths, turn } => self.restored(what, &paths, turn),
            Event::Intent(decided) => self.taken_for(&decided),
            Event::FilesRead(files) => self.add_fact(&FileRead::line(&files)),
            Event::Closed => {}
            event @ (Event::EditStarted { .. }
            | Event::EditGrew { .. }
            | Event::EditApplied { .. }
            | Event::EditFailed { .. }) => self.edit_event(event),
            event @ (Event::ToolStarted { .. } | Event::ToolOutput { .. } | Event::ToolEnded { .. }) => {
                self.tool_event(event);
            }
            event => self.answer_event(event),
        }
    }

    /// The partner is gone, which only happens when it broke.
    pub fn partner_gone(&mut self) {
        self.turn = None;
        self.leave_open_edits();
        self.trouble("the partner ended unexpectedly; leave with Ctrl-D and start again with `flint resume`");
    }

    fn turn_started(&mut self, turn: u32, text: String, now: Instant) {
        let block = self.conversation.say(Voice::Asked, text.clone());
        self.turns.push((turn, block, text));
        self.open = None;
        self.plan = None;
        self.facts = None;
        self.offer = None;
        self.queued = self.queued.saturating_sub(usize::from(self.turn.is_none()));
        let started = self.turn.take().map_or(now, |turn| turn.started);
        self.turn = Some(Turn { started, begun: true, stage: Stage::Sent, stopping: false });
    }

    fn turn_ended(&mut self, outcome: Outcome, usage: TurnUsage) {
        let seconds = usage.total_ms / 1000.0;
        self.status.last = usage;
        self.turn = None;
        self.open = None;
        self.steers.clear();
        self.approvals.clear();
        self.leave_open_edits();
        self.files_fresh = false;
        match outcome {
            Outcome::Done | Outcome::Asked { .. } => {}
            Outcome::Stopped => self.notice(format!("stopped after {seconds:.1} s; what is above was kept")),
            Outcome::Failed { why } => self.trouble(why),
        }
        self.send(agent::Command::Status);
    }

    /// Says what the message was taken for, and which key says otherwise.
    fn taken_for(&mut self, decided: &Decided) {
        let otherwise = if decided.intent == Intent::Change { "only answer" } else { "change files" };
        self.add_fact(&format!("{} · Ctrl-O: {otherwise}", decided.words()));
    }

    /// Adds to the line below the question. It stays one block, so that a turn begins with two lines and not with six.
    fn add_fact(&mut self, fact: &str) {
        if let Some(id) = self.facts.filter(|facts| facts + 1 == self.conversation.next_id())
            && let Some(Block::Words(words)) = self.conversation.get(id)
        {
            let text = format!("{}\n{fact}", words.text());
            return words.set(text);
        }
        self.facts = Some(self.conversation.say(Voice::Notice, fact));
        self.open = None;
    }

    fn stage(&mut self, stage: Stage) {
        if let Some(turn) = &mut self.turn {
            turn.stage = stage;
        }
    }

    fn steer_accepted(&mut self, after_ms: f64) {
        let Some(steer) = self.steers.iter_mut().find(|steer| steer.accepted_ms.is_none()) else { return };
        steer.accepted_ms = Some(after_ms);
        let (block, text) = (steer.block, format!("{}  (accepted {after_ms:.0} ms)", steer.text));
        self.reword(block, text);
    }

    fn steer_applied(&mut self, after_ms: f64) {
        // What comes from here on answers the steer, so it stands below it.
        self.open = None;
        let Some(steer) = self.steers.pop_front() else { return };
        let accepted = steer.accepted_ms.map(|ms| format!("accepted {ms:.0} ms, ")).unwrap_or_default();
        self.reword(steer.block, format!("{}  ({accepted}applied {after_ms:.0} ms)", steer.text));
    }

    fn steer_failed(&mut self, text: &str, why: &str) {
        let failed = self.steers.iter().position(|steer| steer.text.trim() == text.trim()).unwrap_or(0);
        if let Some(steer) = self.steers.remove(failed) {
            self.reword(steer.block, format!("{text}  (not applied)"));
        }
        self.trouble(format!("not steered: {why}"));
        if self.composer.is_empty() {
            self.composer.set(text);
        }
    }

    /// A steer that came too early or too late to turn anything waits as well, and then says so where it stands.
    fn was_queued(&mut self, text: &str, waiting: usize) {
        self.queued = waiting;
        match self
            .steers
            .iter()
            .position(|steer| steer.text.trim() == text.trim())
            .and_then(|at| self.steers.remove(at))
        {
            Some(steer) => self.reword(steer.block, format!("{text}  (asks next)")),
            // Below a sentence that is being written, which goes on above it.
            None => drop(self.conversation.say(Voice::Notice, format!("asks next: {text}"))),
        }
    }

    fn reword(&mut self, block: usize, text: String) {
        if let Some(Block::Words(words)) = self.conversation.get(block) {
            words.set(text);
        }
    }

    fn edit_event(&mut self, event: Event) {
        match event {
            Event::EditStarted { edit, path } => {
                self.stage(Stage::Writing);
                let block = self.conversation.push(Block::Edit(Edit::new(path)));
                self.edits.insert(edit, block);
                self.open = None;
            }
            Event::EditGrew { edit, diff, lines } => {
                self.stage(Stage::Writing);
                if let Some(found) = self.edit(edit, None) {
                    found.lines = lines;
                    found.grow(diff);
                }
            }
            Event::EditApplied { edit, path, lines } => {
                if let Some(found) = self.edit(edit, Some(path)) {
                    found.lines = lines;
                    found.state = EditState::Applied;
                }
            }
            Event::EditFailed { edit, path, why } => {
                if let Some(found) = self.edit(edit, Some(path)) {
                    found.state = EditState::Failed(why);
                }
            }
            _ => {}
        }
    }

    /// The block of an edit. One that ends without having begun on this screen gets a block if its path is known.
    fn edit(&mut self, edit: u64, path: Option<PathBuf>) -> Option<&mut Edit> {
        let known = self.edits.get(&edit).copied();
        let id = match (known, path) {
            (Some(id), _) => id,
            (None, Some(path)) => {
                let id = self.conversation.push(Block::Edit(Edit::new(path)));
                self.open = None;
                self.edits.insert(edit, id);
                id
            }
            (None, None) => return None,
        };
        match self.conversation.get(id) {
            Some(Block::Edit(edit)) => Some(edit),
            _ => None,
        }
    }

    fn tool_event(&mut self, event: Event) {
        match event {
            Event::ToolStarted { call, tool, title } => {
                self.stage(Stage::Working);
                let block = self.conversation.push(Block::Tool(Tool::new(tool, title)));
                self.tools.insert(call, block);
                self.open = None;
            }
            Event::ToolOutput { call, delta } => {
                if let Some(tool) = self.tool(call) {
                    tool.push(&delta);
                }
            }
            Event::ToolEnded { call, exit_code, ok, ms } => {
                if let Some(tool) = self.tool(call) {
                    tool.ended = Some((ok, exit_code, ms));
                }
            }
            _ => {}
        }
    }

    fn tool(&mut self, call: u64) -> Option<&mut Tool> {
        match self.conversation.get(*self.tools.get(&call)?) {
            Some(Block::Tool(tool)) => Some(tool),
            _ => None,
        }
    }

    fn planned(&mut self, steps: &[PlanStep]) {
        let line = |step: &PlanStep| format!("{} {}", if step.done { "[x]" } else { "[ ]" }, step.text);
        let text = steps.iter().map(line).collect::<Vec<_>>().join("\n");
        match self.plan.filter(|plan| *plan >= self.conversation.first_shown()) {
            Some(block) => self.reword(block, text),
            None => self.plan = Some(self.conversation.push(Block::Words(Words::new(Voice::Notice, text)))),
        }
        self.open = None;
    }

    fn candidates(&mut self, rows: Vec<agent::CandidateRow>, best: Option<usize>) {
        let new = || Block::Candidates(Candidates::default());
        let id = self.candidates.unwrap_or_else(|| self.conversation.push(new()));
        if let Some(Block::Candidates(candidates)) = self.conversation.get(id) {
            candidates.set(rows, best);
        }
        self.candidates = Some(id);
        self.offer = best;
        self.open = None;
    }

    fn restored(&mut self, what: &str, paths: &[PathBuf], turn: Option<u32>) {
        if let Some(turn) = turn {
            self.rewound_to(turn);
        }
        self.notice(format!("{what}: {}", files_named(paths)));
    }

    /// The conversation went back: what was said since leaves the screen, and the question can be asked otherwise.
    fn rewound_to(&mut self, turn: u32) {
        let Some(at) = self.turns.iter().position(|(number, ..)| *number >= turn) else { return };
        let (_, block, text) = self.turns[at].clone();
        self.conversation.cut(block);
        self.turns.truncate(at);
        self.candidates = None;
        self.plan = None;
        self.offer = None;
        if self.composer.is_empty() {
            self.composer.set(text);
        }
    }

    /// Answers to what the person asked the partner about.
    fn answer_event(&mut self, event: Event) {
        match event {
            Event::RewindPreview(preview) => self.preview(preview),
            Event::Turns(turns) if turns.is_empty() => self.notice("There is no turn to go back to yet."),
            Event::Turns(turns) => {
                let first = self.picker_wanted.take().flatten();
                let picker = Picker::turns(turns, first);
                self.effects.extend(picker.preview_wanted().map(Effect::Send));
                self.picker = Some(picker);
            }
            Event::Sessions(rows) if rows.is_empty() => self.notice("No session was found."),
            Event::Sessions(rows) => self.picker = Some(Picker::sessions(rows)),
            Event::Diff { text } if text.is_empty() => self.notice("This session changed no file."),
            Event::Diff { text } => self.show_diff(&text),
            Event::Compacted { kept, tokens: (before, after) } => {
                self.notice(format!("compacted from {before} to {after} tokens; kept:\n{kept}"));
                self.send(agent::Command::Status);
            }
            Event::SessionOpened { session, turns } => self.session_opened(session, turns),
            Event::Cleared => {
                self.forget_all();
                self.notice("The conversation is empty now. Files, turns and /undo stay.");
                self.send(agent::Command::Status);
            }
            Event::Status(status) => self.status_came(*status),
            Event::Notice { text } => self.notice(text),
            Event::Trouble { text } => {
                // A turn that broke before it began will never end.
                self.turn.take_if(|turn| !turn.begun);
                self.trouble(text);
            }
            _ => {}
        }
    }

    fn preview(&mut self, preview: RewindPreview) {
        if let Some(picker) = &mut self.picker {
            picker.set_preview(preview);
        }
    }

    /// Each file of a diff becomes a block of its own.
    fn show_diff(&mut self, text: &str) {
        for (path, body) in diff_files(text) {
            let mut edit = Edit::new(path.into());
            edit.state = EditState::Applied;
            edit.lines = body.lines().fold((0, 0), |(added, removed), line| match line.as_bytes().first() {
                Some(b'+') => (added + 1, removed),
                Some(b'-') => (added, removed + 1),
                _ => (added, removed),
            });
            edit.grow(body.into());
            self.conversation.push(Block::Edit(edit));
        }
        self.open = None;
    }

    fn forget_all(&mut self) {
        self.conversation.clear();
        self.edits.clear();
        self.tools.clear();
        self.candidates = None;
        self.plan = None;
        self.offer = None;
        self.facts = None;
        self.picker = None;
        self.open = None;
    }

    fn session_opened(&mut self, session: String, turns: Vec<PastTurn>) {
        self.forget_all();
        self.turns.clear();
        self.notice(format!("session {session}"));
        for (number, turn) in (1..).zip(turns) {
            let block = self.conversation.say(Voice::Asked, turn.asked.clone());
            self.turns.push((number, block, turn.asked));
            if !turn.answered.is_empty() {
                self.conversation.say(Voice::Answer, turn.answered);
            }
            for (path, lines, diff) in turn.edits {
                let mut edit = Edit::new(path);
                (edit.lines, edit.state) = (lines, EditState::Applied);
                edit.grow(diff.into());
                self.conversation.push(Block::Edit(edit));
            }
        }
        self.status.session = session;
        self.send(agent::Command::Status);
    }

    fn status_came(&mut self, status: Status) {
        self.status = status;
        if std::mem::take(&mut self.card_wanted) {
            let card = super::card(&self.status);
            self.notice(card);
        }
    }
}

/// The files of a diff with headers, and the hunks of each.
pub fn diff_files(text: &str) -> Vec<(String, String)> {
    let mut files: Vec<(String, String)> = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let next_is_new = lines.peek().is_some_and(|next| next.starts_with("+++ "));
        if let Some(old) = line.strip_prefix("--- ").filter(|_| next_is_new) {
            let new = lines.next().and_then(|line| line.strip_prefix("+++ ")).unwrap_or_default();
            let path = if new == "/dev/null" { old } else { new };
            let path = path.strip_prefix("a/").or_else(|| path.strip_prefix("b/")).unwrap_or(path);
            files.push((path.trim_end().to_owned(), String::new()));
        } else if let Some((_, body)) = files.last_mut()
            && !line.starts_with("diff ")
        {
            body.push_str(line);
            body.push('\n');
        }
    }
    files
}

/// A few paths by name, more by number.
pub fn files_named(paths: &[PathBuf]) -> String {
    match paths.len() {
        0 => "no file changed".to_owned(),
        count if count > PATHS_NAMED => format!("{count} files changed"),
        _ => paths.iter().map(|path| shown(path)).collect::<Vec<_>>().join(", "),
    }
}

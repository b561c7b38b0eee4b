//! What the screen knows. Keys and events go in, effects come out, and nothing here touches a terminal, so that tests can
//! press keys, send events and look at the picture.

mod draw;
mod events;
mod keys;
mod picker;
mod status;

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::time::Instant;

use agent::{Approval, Command, Prompt, Status};
pub use events::files_named;
pub use picker::{ago, now};
pub use status::{card, figures};

use crate::complete::{self, Completion, Wanted};
use crate::composer::{Composer, History};
use crate::conversation::{Block, BlockId, Conversation, EditState, Voice};
use crate::slash::{self, COMMANDS, Slash};
use crate::theme::Theme;
use picker::Picker;

/// What the loop around it must do.
#[derive(Debug, PartialEq)]
pub enum Effect {
    /// Tell the partner.
    Send(Command),
    /// Put a text on the clipboard.
    Copy(String),
    /// Read which files there are.
    ListFiles,
    /// Give the terminal back until the person returns.
    Suspend,
    /// Draw everything anew.
    Redraw,
    /// Tell the partner to close, then leave.
    Leave,
}

/// The state of the screen.
pub struct App {
    theme: Theme,
    conversation: Conversation,
    composer: Composer,
    history: History,
    completion: Option<Completion>,
    files: Vec<String>,
    files_fresh: bool,
    status: Status,
    /// The person asked for the card, not only the line.
    card_wanted: bool,
    turn: Option<Turn>,
    steers: VecDeque<Steer>,
    queued: usize,
    approvals: VecDeque<(Approval, Instant)>,
    /// How much of the first of them was on the screen.
    asked: Asked,
    /// The candidate offered for choosing.
    offer: Option<usize>,
    picker: Option<Picker>,
    /// A list of turns was asked for, to begin with this one.
    picker_wanted: Option<Option<u32>>,
    /// Where the next text belongs.
    open: Option<BlockId>,
    edits: HashMap<u64, BlockId>,
    tools: HashMap<u64, BlockId>,
    candidates: Option<BlockId>,
    plan: Option<BlockId>,
    /// Where the turn says what it was taken for and which files were read.
    facts: Option<BlockId>,
    /// Where each turn begins: its number, its block and what was asked.
    turns: Vec<(u32, BlockId, String)>,
    leave_armed: Option<Instant>,
    rewind_armed: Option<Instant>,
    /// What is finished leaves the picture for the terminal's scrollback.
    finishes: bool,
    effects: Vec<Effect>,
}

/// What of a question was shown. One that is longer than the screen is scrolled, and only allowed when its end was seen.
#[derive(Debug, Default)]
struct Asked {
    /// Its number.
    ask: Option<u64>,
    /// The first row on the screen.
    from: usize,
    /// Rows on the screen at a time.
    page: usize,
    /// All rows are on the screen.
    fits: bool,
    /// The last row was on the screen.
    end_seen: bool,
}

/// The running turn.
#[derive(Debug)]
struct Turn {
    started: Instant,
    /// The partner has begun it.
    begun: bool,
    stage: Stage,
    stopping: bool,
}

/// What the turn is at.
#[derive(Debug, PartialEq, Eq)]
enum Stage {
    /// The request is on its way.
    Sent,
    /// The model reads the prompt: tokens done and in all.
    Reading(usize, usize),
    /// The model writes.
    Writing,
    /// A tool works.
    Working,
}

/// A steer on its way.
#[derive(Debug)]
struct Steer {
    block: BlockId,
    text: String,
    accepted_ms: Option<f64>,
}

impl App {
    /// An empty screen.
    pub fn new(color: bool, history: History, folder: &Path) -> App {
        let mut app = App {
            theme: Theme::new(color),
            conversation: Conversation::default(),
            composer: Composer::default(),
            history,
            completion: None,
            files: Vec::new(),
            files_fresh: false,
            status: Status::default(),
            card_wanted: false,
            turn: None,
            steers: VecDeque::new(),
            queued: 0,
            approvals: VecDeque::new(),
            asked: Asked::default(),
            offer: None,
            picker: None,
            picker_wanted: None,
            open: None,
            edits: HashMap::new(),
            tools: HashMap::new(),
            candidates: None,
            plan: None,
            facts: None,
            turns: Vec::new(),
            leave_armed: None,
            rewind_armed: None,
            finishes: false,
            effects: vec![Effect::Send(Command::Status)],
        };
        let folder = folder.display();
        app.notice(format!("Flint in {folder}. Ask for a change, name files with @, /help lists the rest."));
        app
    }

    /// What the loop must do now.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// What is finished leaves the picture from now on.
    pub fn finish_lines(&mut self) {
        self.finishes = true;
    }

    /// The person leaves: nothing that is open will change any more, and nothing waits for a key.
    pub fn end(&mut self) {
        self.leave_open_edits();
        (self.turn, self.offer, self.picker, self.completion, self.open) = (None, None, None, None, None);
    }

    /// Asks at once, as if the person had written it.
    pub fn begin_with(&mut self, text: &str, now: Instant) {
        self.composer.set(text);
        self.submit(now);
    }

    /// Time has passed: what waited for a second press no longer does.
    pub fn tick(&mut self, now: Instant) {
        let over = |armed: &mut Instant| now.duration_since(*armed) >= keys::TWICE_WITHIN;
        self.leave_armed.take_if(over);
        self.rewind_armed.take_if(over);
    }

    /// Whether a clock on the screen runs.
    pub fn is_ticking(&self) -> bool {
        self.turn.is_some() || self.leave_armed.is_some() || self.rewind_armed.is_some()
    }

    /// The session on the screen, to name it when leaving.
    pub fn session(&self) -> &str {
        &self.status.session
    }

    /// Turns on the screen.
    pub fn turn_count(&self) -> usize {
        self.turns.len()
    }

    /// The files there are.
    pub fn set_files(&mut self, files: Vec<String>) {
        self.files = files;
        self.recomplete();
    }

    /// A quiet line.
    pub fn notice(&mut self, text: impl Into<String>) {
        self.conversation.say(Voice::Notice, text);
        self.open = None;
    }

    /// A loud line.
    pub fn trouble(&mut self, text: impl Into<String>) {
        self.conversation.say(Voice::Trouble, text);
        self.open = None;
    }

    fn send(&mut self, command: Command) {
        self.effects.push(Effect::Send(command));
    }

    /// What the person wrote goes out: a command, a steer, or a question.
    fn submit(&mut self, now: Instant) {
        if self.composer.text().trim().is_empty() {
            return;
        }
        let text = self.composer.take();
        self.remember(&text);
        self.completion = None;
        self.conversation.follow();
        match slash::parse(&text) {
            Some(Ok(slash)) => self.obey(slash),
            Some(Err(why)) => {
                self.trouble(why);
                // Given back, because a slip in a long line should not cost the line.
                self.composer.set(text);
            }
            None if self.turn.is_some() => self.steer(&text),
            None => self.ask(slash::prompt(text.trim_end()), now),
        }
    }

    /// The turn counts as begun when the key is pressed: a second Enter must steer it, not begin another.
    fn ask(&mut self, prompt: Prompt, now: Instant) {
        self.turn = Some(Turn { started: now, begun: false, stage: Stage::Sent, stopping: false });
        self.send(Command::Ask(prompt));
    }

    fn steer(&mut self, text: &str) {
        let block = self.conversation.say(Voice::Steer, format!("{text}  (sent)"));
        self.steers.push_back(Steer { block, text: text.to_owned(), accepted_ms: None });
        self.send(Command::Steer(slash::prompt(text)));
    }

    fn queue(&mut self) {
        if self.composer.text().trim().is_empty() {
            return;
        }
        let text = self.composer.take();
        self.remember(&text);
        self.send(Command::Queue(slash::prompt(text.trim_end())));
    }

    fn remember(&mut self, text: &str) {
        if let Err(error) = self.history.add(text) {
            self.notice(format!("prompts are not remembered beyond this session: {error}"));
            self.history = History::default();
        }
    }

    fn obey(&mut self, slash: Slash) {
        match slash {
            Slash::Tell(Command::Stop) => self.stop(),
            Slash::Tell(command @ Command::Try { .. }) => {
                self.candidates = None;
                self.send(command);
            }
            Slash::Tell(command) => self.send(command),
            Slash::Status => {
                self.card_wanted = true;
                self.send(Command::Status);
            }
            Slash::Rewind(turn) => {
                self.picker_wanted = Some(turn);
                self.send(Command::Turns);
            }
            Slash::RewindTo(turn, what) => self.send(Command::Rewind { turn, what }),
            Slash::Sessions(query) => self.send(Command::Sessions { query }),
            Slash::Copy { diff } => self.copy(diff),
            Slash::Help => self.notice(help()),
            Slash::Quit => self.effects.push(Effect::Leave),
        }
    }

    fn stop(&mut self) {
        match &mut self.turn {
            Some(turn) => {
                turn.stopping = true;
                self.send(Command::Stop);
            }
            None => self.notice("No turn is running."),
        }
    }

    fn copy(&mut self, diff: bool) {
        let mut parts: Vec<&str> = Vec::new();
        for block in self.conversation.newest_first() {
            match block {
                Block::Words(words) if words.voice == Voice::Asked => break,
                Block::Words(words) if words.voice == Voice::Answer && !diff => parts.push(words.text()),
                Block::Edit(edit) if diff => parts.push(edit.text()),
                _ => {}
            }
        }
        parts.reverse();
        let text = parts.concat();
        match (text.trim().is_empty(), diff) {
            (false, _) => self.effects.push(Effect::Copy(text)),
            // An answer that was all code is in the files now, and the change is what there is to copy.
            (true, false) => self.copy(true),
            (true, true) => self.notice("There is neither an answer nor a change to copy yet."),
        }
    }

    /// Looks for offers after the text changed.
    fn recomplete(&mut self) {
        let before = &self.composer.text()[..self.composer.cursor()];
        if !self.files_fresh && matches!(complete::wanted(before), Wanted::File(_)) {
            self.files_fresh = true;
            self.effects.push(Effect::ListFiles);
        }
        self.completion = complete::complete(before, &self.files);
    }

    /// Changes that nobody will finish say so.
    fn leave_open_edits(&mut self) {
        for &id in self.edits.values() {
            if let Some(Block::Edit(edit)) = self.conversation.get(id)
                && edit.state == EditState::Growing
            {
                edit.state = EditState::Left;
            }
        }
        self.edits.clear();
        self.tools.clear();
    }
}

/// Keys and commands, for people.
pub fn help() -> String {
    let mut text = String::from(KEYS);
    for spec in COMMANDS {
        let head = format!("{} {}", spec.name, spec.arguments);
        text.push_str(&format!("\n{:<22} {}", head.trim_end(), spec.help));
    }
    text
}

const KEYS: &str = "\
Enter                  ask; while the model talks: steer it now
Tab                    while the model talks: ask after this turn
Esc                    stop and keep what there is; twice, with nothing written: rewind
Ctrl-O                 the last message was meant otherwise: as a change, or only as a question
Alt-Enter, Ctrl-J      another line
Up, Down               earlier prompts that begin like what is written
PageUp, PageDown       scroll; Shift-Up and Shift-Down by a line
Ctrl-W, Ctrl-U, Ctrl-K cut a word, to the line's beginning, to its end; Ctrl-Y puts it back
Ctrl-C                 clear what is written, or stop, or (twice) leave
@path, @path:10-20     a file, or lines of it
!command               run it in the sandbox; the model reads what it prints";

#[cfg(test)]
mod tests;

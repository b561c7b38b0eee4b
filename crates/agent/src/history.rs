//! What a session remembers beyond the conversation: its turns, what each changed, and the way back.

use crate::edit::Written;
use crate::event::{SessionLine, TurnLine};
use serde_json::Value;

/// The turns of a session.
#[derive(Debug, Default)]
pub struct History {
    session: String,
    turns: Vec<TurnLine>,
    written: Vec<Written>,
}

impl History {
    /// A session that is not kept.
    pub fn ephemeral() -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Self { session: format!("{:x}-{:x}", now.as_nanos(), std::process::id()), ..Self::default() }
    }

    /// Its identity.
    pub fn session_id(&self) -> String {
        self.session.clone()
    }

    /// A turn begins.
    pub fn begin(&mut self, turn: u32, text: &str) {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        self.turns.push(TurnLine { turn, text: text.to_owned(), files: 0, at: now.as_secs() });
    }

    /// Something was said.
    pub fn item(&mut self, _item: &Value) {}

    /// Files were written.
    pub fn edited(&mut self, written: &[Written]) {
        if let Some(turn) = self.turns.last_mut() {
            turn.files += written.len();
        }
        self.written.extend(written.iter().cloned());
    }

    /// What every turn was about.
    pub fn turn_lines(&self) -> Vec<TurnLine> {
        self.turns.clone()
    }

    /// Sessions there are.
    pub fn sessions(&self, _query: &str) -> Vec<SessionLine> {
        Vec::new()
    }

    /// All files written in this session, with what they were first and what they are now.
    pub fn diff(&self) -> String {
        let mut files: Vec<Written> = Vec::new();
        for write in &self.written {
            match files.iter_mut().find(|file| file.path == write.path) {
                Some(file) => file.new = write.new.clone(),
                None => files.push(write.clone()),
            }
        }
        files.iter().map(Written::diff).collect()
    }
}

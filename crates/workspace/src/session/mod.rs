//! Sessions: what was asked, answered and changed, as a file that only grows.
//!
//! One JSON object per line, written by one append each, so a crash costs at most the line being written; a torn last line
//! is cut off when the session is opened. Nothing is ever rewritten: going back is a record too ([`Record::Rewind`]), and
//! [`Session::replay`] says how things stand after all of them. One process at a time writes to a session.

mod find;
mod replay;

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use time::OffsetDateTime;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use find::{SessionLine, list, search};
pub use replay::{Replay, Turn};

/// A session may grow to this size; then it is to be forked or begun anew.
pub const BYTES_MAX: u64 = 256 << 20;
const EXTENSION: &str = "jsonl";

/// One line of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Record {
    /// The first line.
    Meta {
        /// The session's id.
        session: String,
        /// The folder it works in.
        folder: PathBuf,
        /// The model it began with.
        model: String,
        /// The session it was forked from.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        forked_from: Option<String>,
    },
    /// A turn begins.
    Prompt {
        /// Its number, from 1.
        turn: u32,
        /// What was asked.
        text: String,
    },
    /// The files as they were before a turn or a command.
    Checkpoint {
        /// The turn.
        turn: u32,
        /// The snapshot's name.
        tree: String,
    },
    /// Files are about to be written: what stood there and what shall stand there is kept under this name.
    Edit {
        /// The turn.
        turn: u32,
        /// The step's name.
        step: String,
    },
    /// A command is about to run, or has ended.
    Command {
        /// The turn.
        turn: u32,
        /// The files before it.
        before: String,
        /// The files after it, once it has ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<String>,
    },
    /// One item of the conversation, as the API has it.
    Item {
        /// The item.
        item: Value,
    },
    /// Files that were written.
    Edits {
        /// The turn.
        turn: u32,
        /// The files.
        files: Vec<EditedFile>,
    },
    /// The conversation was made shorter: these items stand for all before.
    Compaction {
        /// The items.
        items: Vec<Value>,
        /// What was kept, for a person to read.
        kept: String,
    },
    /// Back to the beginning of a turn.
    Rewind {
        /// The turn.
        turn: u32,
        /// Whether the files went back.
        files: bool,
        /// Whether the conversation went back.
        conversation: bool,
    },
    /// Files went back or forth by undo and redo.
    Restored {
        /// `undo`, `redo` or `rewind`.
        what: String,
        /// The first turn that was taken back or brought back.
        #[serde(default)]
        turn: u32,
        /// What stood there before and what stands there now is kept under this name.
        #[serde(default)]
        step: String,
    },
    /// The files that stay before the model from now on.
    Pinned {
        /// Relative to the workspace.
        paths: Vec<PathBuf>,
    },
    /// A turn is over.
    TurnEnd {
        /// The turn.
        turn: u32,
        /// How it ended.
        outcome: String,
        /// What it cost.
        #[serde(default)]
        usage: Value,
    },
    /// Written by a later version; kept, not understood.
    #[serde(other)]
    Unknown,
}

/// A file that a turn changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EditedFile {
    /// Relative to the workspace.
    pub path: PathBuf,
    /// Lines added.
    pub added: usize,
    /// Lines removed.
    pub removed: usize,
    /// Unified diff without file headers; empty where it was too long to keep.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub diff: String,
}

/// A record and when it was written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Unix milliseconds.
    pub at: u64,
    /// What.
    #[serde(flatten)]
    pub record: Record,
}

/// Why a session could not be written or opened.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The file system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// What it said.
        source: std::io::Error,
    },
    /// There is no such session.
    #[error("there is no session {session}; /resume lists those there are")]
    Unknown {
        /// What was asked for.
        session: String,
    },
    /// The beginning of an id fits several.
    #[error("{session} is the beginning of {count} sessions; write more of it")]
    Ambiguous {
        /// What was asked for.
        session: String,
        /// How many.
        count: usize,
    },
    /// Another process writes to it.
    #[error("session {session} is open in another window; close it there, or fork the session")]
    Busy {
        /// Which.
        session: String,
    },
    /// It is as large as a session may be.
    #[error("session {session} has reached {} MiB; go on with /compact and /fork, or /new", BYTES_MAX >> 20)]
    Full {
        /// Which.
        session: String,
    },
}

impl SessionError {
    fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }
}

/// An open session.
#[derive(Debug)]
pub struct Session {
    id: String,
    /// `None` for one that leaves nothing behind.
    file: Option<(PathBuf, File)>,
    bytes: u64,
    lines: Vec<Line>,
    damaged: usize,
    /// Its name in the folder survives a power cut.
    named: bool,
}

impl Drop for Session {
    fn drop(&mut self) {
        // Closing is not enough while a process that another thread is just starting has the handle too.
        if let Some((_, file)) = &self.file {
            let _ = file.unlock();
        }
    }
}

impl Session {
    /// Begins a session in a folder of sessions.
    pub fn create(sessions: &Path, workspace: &Path, model: &str) -> Result<Self, SessionError> {
        make_folder(sessions)?;
        let id = new_id();
        let path = sessions.join(format!("{id}.{EXTENSION}"));
        let opened = OpenOptions::new().append(true).read(true).create_new(true).mode(0o600).open(&path);
        let file = opened.map_err(SessionError::io(&path))?;
        lock(&file, &path, &id)?;
        let mut session = Self { id, file: Some((path, file)), bytes: 0, lines: Vec::new(), damaged: 0, named: false };
        session.append_meta(workspace, model, None)?;
        Ok(session)
    }

    /// Begins a session that is kept in memory only.
    pub fn ephemeral(workspace: &Path, model: &str) -> Self {
        let mut session = Self { id: new_id(), file: None, bytes: 0, lines: Vec::new(), damaged: 0, named: false };
        session.append_meta(workspace, model, None).expect("memory takes what it is given");
        session
    }

    /// Opens a session by its id or a unique beginning of it. A torn last line is cut off.
    pub fn open(sessions: &Path, id: &str) -> Result<Self, SessionError> {
        let id = find::unique(sessions, id)?;
        let path = sessions.join(format!("{id}.{EXTENSION}"));
        let opened = OpenOptions::new().append(true).read(true).open(&path);
        let mut file = opened.map_err(SessionError::io(&path))?;
        lock(&file, &path, &id)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(SessionError::io(&path))?;
        let (lines, damaged, whole) = parse(&bytes);
        if whole < bytes.len() {
            file.set_len(whole as u64).map_err(SessionError::io(&path))?;
            file.seek(SeekFrom::End(0)).map_err(SessionError::io(&path))?;
        }
        Ok(Self { id, file: Some((path, file)), bytes: whole as u64, lines, damaged, named: true })
    }

    /// Goes on with a copy: all of it, or only what came before a turn. The copy is there whole or not at all.
    pub fn fork(&self, sessions: &Path, before_turn: Option<u32>) -> Result<Self, SessionError> {
        make_folder(sessions)?;
        let id = new_id();
        let path = sessions.join(format!("{id}.{EXTENSION}"));
        let mut lines = replay::before(&self.lines, before_turn).to_vec();
        if let Some(Line { record: Record::Meta { session, forked_from, .. }, .. }) = lines.first_mut() {
            *forked_from = Some(std::mem::replace(session, id.clone()));
        }
        let bytes: Vec<u8> = lines.iter().flat_map(encode).collect();
        let fresh = path.with_extension("new");
        let make = || {
            let mut file = OpenOptions::new().append(true).read(true).create_new(true).mode(0o600).open(&fresh)?;
            file.write_all(&bytes)?;
            file.sync_data()?;
            std::fs::rename(&fresh, &path)?;
            Ok(file)
        };
        let file = make().map_err(SessionError::io(&path))?;
        lock(&file, &path, &id)?;
        Ok(Self { id, file: Some((path, file)), bytes: bytes.len() as u64, lines, damaged: 0, named: false })
    }

    /// Writes a record. When it returns, the record survives the end of this process; the end of a turn, what changes the
    /// past and what undo needs also survive a power cut.
    pub fn append(&mut self, record: Record) -> Result<(), SessionError> {
        let sync = !matches!(
            record,
            Record::Meta { .. }
                | Record::Prompt { .. }
                | Record::Item { .. }
                | Record::Edits { .. }
                | Record::Command { after: Some(_), .. }
                | Record::Checkpoint { .. }
        );
        let line = Line { at: now_ms(), record };
        let bytes = encode(&line);
        if self.bytes + bytes.len() as u64 > BYTES_MAX {
            return Err(SessionError::Full { session: self.id.clone() });
        }
        if let Some((path, file)) = &mut self.file {
            let mut written = file.write_all(&bytes).and_then(|()| if sync { file.sync_data() } else { Ok(()) });
            if sync && !self.named && written.is_ok() {
                // A new file is only there after a power cut when its folder says so.
                #[allow(clippy::disallowed_methods, reason = "a folder of our own")]
                let sync_folder = |folder: &Path| File::open(folder)?.sync_all();
                written = path.parent().map_or(Ok(()), sync_folder);
                self.named = written.is_ok();
            }
            if let Err(source) = written {
                // A line that is half there would swallow the next one.
                let _ = file.set_len(self.bytes);
                return Err(SessionError::Io { path: path.clone(), source });
            }
        }
        self.bytes += bytes.len() as u64;
        self.lines.push(line);
        Ok(())
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Everything in it, oldest first.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// Lines that could not be read and were passed over.
    pub fn damaged(&self) -> usize {
        self.damaged
    }

    /// The folder it works in.
    pub fn folder(&self) -> Option<&Path> {
        match self.lines.first().map(|line| &line.record) {
            Some(Record::Meta { folder, .. }) => Some(folder),
            _ => None,
        }
    }

    /// How things stand: the turns that count and the conversation to send.
    pub fn replay(&self) -> Replay {
        replay::replay(&self.lines)
    }

    fn append_meta(&mut self, folder: &Path, model: &str, forked_from: Option<String>) -> Result<(), SessionError> {
        let (session, folder, model) = (self.id.clone(), folder.to_owned(), model.to_owned());
        self.append(Record::Meta { session, folder, model, forked_from })
    }
}

/// Where a user's state is kept: `$FLINT_HOME/state`, else `$XDG_STATE_HOME/flint`, else `~/.local/state/flint`.
/// Sessions are in `sessions` below it, checkpoints in `checkpoints`.
pub fn state_directory(variable: impl Fn(&str) -> Option<std::ffi::OsString>) -> Option<PathBuf> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("FLINT_HOME")
        .map(|home| home.join("state"))
        .or_else(|| set("XDG_STATE_HOME").filter(|path| path.is_absolute()).map(|state| state.join("flint")))
        .or_else(|| set("HOME").map(|home| home.join(".local/state/flint")))
}

/// The lines of a file, how many could not be read, and the bytes up to the end of the last whole line.
fn parse(bytes: &[u8]) -> (Vec<Line>, usize, usize) {
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let (mut lines, mut damaged) = (Vec::new(), 0);
    for line in bytes[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        match serde_json::from_slice(line) {
            Ok(line) => lines.push(line),
            Err(_) => damaged += 1,
        }
    }
    (lines, damaged, whole)
}

fn encode(line: &Line) -> Vec<u8> {
    // Keys are strings and numbers are finite, so this cannot fail; a newline inside a string is escaped.
    let mut bytes = serde_json::to_vec(line).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

fn make_folder(path: &Path) -> Result<(), SessionError> {
    // Conversations are for the user alone.
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(SessionError::io(path))
}

/// The lock goes with the file: when the process ends, however it ends, it is free.
fn lock(file: &File, path: &Path, id: &str) -> Result<(), SessionError> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(SessionError::Busy { session: id.to_owned() }),
        // File systems without locks: better a session without than none.
        Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => Ok(()),
        Err(TryLockError::Error(error)) => Err(SessionError::Io { path: path.to_owned(), source: error }),
    }
}

/// Sorts by time of creation; the end tells apart what began in the same second.
fn new_id() -> String {
    let time = OffsetDateTime::now_utc();
    let [year, month, day] = [time.year() as u32, u8::from(time.month()).into(), time.day().into()];
    let (hour, minute, second) = time.to_hms();
    let random = getrandom::u32().expect("the system has random numbers");
    format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}-{random:08x}")
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests;

//! The one way to change the user's files: what is about to happen is kept first, then it happens.
//!
//! Whoever edits files or runs a command, in whatever style, does it through the session's journal: the contents that are
//! about to be replaced and the record that says so are on the disk before the first byte is written. What cannot be kept
//! does not happen.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::checkpoint::{Done, Kept, Step, Store, TreeId};
use crate::session::{Record, Replay, Session};

/// The journal of a session, shared by everyone who works in it.
pub struct Journal {
    root: PathBuf,
    store: Result<Arc<Store>, String>,
    book: Mutex<Book>,
    turn: AtomicU32,
    gate: Gate,
    /// Holds the store of a session that leaves nothing behind.
    _scratch: Option<tempfile::TempDir>,
}

struct Book {
    session: Session,
    /// Says to whoever prunes what this session needs.
    kept: Option<Kept>,
    troubles: Vec<String>,
}

/// Closed while the files are being looked at.
#[derive(Debug, Default)]
struct Gate {
    closed: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn set(&self, closed: bool) {
        *self.closed.lock().unwrap_or_else(PoisonError::into_inner) = closed;
        self.opened.notify_all();
    }

    /// Blocks this thread while the gate is closed, which is as long as a snapshot takes.
    fn pass(&self) {
        let closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.opened.wait_while(closed, |closed| *closed));
    }
}

impl Journal {
    /// The journal of a session whose checkpoints are kept in a folder.
    pub fn new(root: &Path, session: Session, checkpoints: &Path) -> Self {
        Self::with(root, session, Store::open(checkpoints), None)
    }

    /// One that leaves nothing behind.
    pub fn ephemeral(root: &Path, session: Session) -> Self {
        let scratch = tempfile::tempdir();
        let store = scratch.as_ref().map_or_else(
            |error| {
                Err(crate::checkpoint::CheckpointError::Io {
                    path: std::env::temp_dir(),
                    source: std::io::Error::other(error.to_string()),
                })
            },
            |folder| Store::open(folder.path()),
        );
        Self::with(root, session, store, scratch.ok())
    }

    fn with(
        root: &Path,
        session: Session,
        store: Result<Store, crate::checkpoint::CheckpointError>,
        scratch: Option<tempfile::TempDir>,
    ) -> Self {
        let mut troubles = Vec::new();
        let store = store.map(Arc::new).map_err(|error| error.to_string());
        if let Err(why) = &store {
            troubles.push(format!(
                "undo cannot work, so Flint will change no file: {why}; free some space there, or use --ephemeral"
            ));
        }
        Self {
            root: root.to_owned(),
            store,
            book: Mutex::new(Book { session, kept: None, troubles }),
            turn: AtomicU32::new(0),
            gate: Gate::default(),
            _scratch: scratch,
        }
    }

    /// The workspace.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where checkpoints are.
    pub fn store(&self) -> Result<Arc<Store>, String> {
        self.store.clone().map_err(|why| format!("there are no checkpoints in this session: {why}"))
    }

    /// What is done from now on belongs to this turn.
    pub fn set_turn(&self, turn: u32) {
        self.turn.store(turn, Ordering::Relaxed);
    }

    fn turn(&self) -> u32 {
        self.turn.load(Ordering::Relaxed)
    }

    /// Goes on with another session.
    pub fn take_up(&self, session: Session) {
        let replay = session.replay();
        {
            let mut book = self.book();
            (book.session, book.kept) = (session, None);
        }
        // All of them once more: a copy of a session, or one of an earlier version, has no list yet.
        let checkpoints =
            replay.turns.iter().filter_map(|turn| Some((turn.turn, TreeId::parse(turn.checkpoint.as_deref()?)?)));
        for (turn, tree) in checkpoints {
            self.note(turn, &tree);
        }
        for (turn, done) in &replay.done {
            match done {
                Done::Edit(step) => self.note(*turn, step),
                Done::Command(before, after) => {
                    [Some(before), after.as_ref()].into_iter().flatten().for_each(|tree| self.note(*turn, tree))
                }
            }
        }
        replay.undone.iter().for_each(|(turn, step)| self.note(*turn, step));
    }

    /// Looks at the session.
    pub fn session<T>(&self, look: impl FnOnce(&Session) -> T) -> T {
        look(&self.book().session)
    }

    /// How the session stands.
    pub fn replay(&self) -> Replay {
        self.session(Session::replay)
    }

    /// What did not work since this was last asked.
    pub fn troubles(&self) -> Vec<String> {
        std::mem::take(&mut self.book().troubles)
    }

    /// Something to be told.
    pub fn trouble(&self, text: String) {
        let mut book = self.book();
        if !book.troubles.contains(&text) {
            book.troubles.push(text);
        }
    }

    /// Writes a record. A session that cannot be written goes on in memory and says so once.
    pub fn record(&self, record: Record) {
        if let Err(why) = self.append(record) {
            self.trouble(format!("this session is no longer saved: {why}"));
        }
    }

    fn append(&self, record: Record) -> Result<(), String> {
        self.book().session.append(record).map_err(|error| error.to_string())
    }

    /// Closes the gate for a look at the files, which [`Journal::look`] then takes.
    pub fn close_gate(&self) {
        self.gate.set(true);
    }

    /// Takes the snapshot before a turn, writes it down and opens the gate.
    pub fn look(&self) {
        let taken = self.store().and_then(|store| store.snapshot(&self.root).map_err(|error| error.to_string()));
        match taken {
            Ok(tree) => {
                self.note(self.turn(), &tree);
                self.record(Record::Checkpoint { turn: self.turn(), tree: tree.to_string() });
            }
            Err(why) => self.trouble(format!("Flint could not save the files as they were before this turn: {why}")),
        }
        self.gate.set(false);
    }

    /// Lists what a turn needs, so that nobody prunes it. Should it not work, its age still protects it for weeks.
    fn note(&self, turn: u32, id: &TreeId) {
        let Ok(store) = &self.store else { return };
        let mut book = self.book();
        if book.kept.is_none() {
            book.kept = store.hold(book.session.id()).ok();
        }
        if let Some(kept) = &mut book.kept {
            let _ = kept.note(turn, id);
        }
    }

    /// Keeps what files are about to be replaced with, and says so in the session. When this fails nothing may be written.
    /// Blocks while a snapshot is being taken.
    pub fn edit(&self, step: &Step) -> Result<(), String> {
        self.gate.pass();
        let kept = self.store().and_then(|store| store.keep(&self.root, step).map_err(|error| error.to_string()));
        let kept = kept.and_then(|id| {
            self.note(self.turn(), &id);
            self.append(Record::Edit { turn: self.turn(), step: id.to_string() })
        });
        kept.map_err(not_kept)
    }

    /// Keeps the files as they are before a command. When this fails the command may not run. Blocks.
    pub fn command_begins(&self) -> Result<TreeId, String> {
        self.gate.pass();
        let kept = self.store().and_then(|store| store.snapshot(&self.root).map_err(|error| error.to_string()));
        let kept = kept.and_then(|before| {
            self.note(self.turn(), &before);
            self.append(Record::Command { turn: self.turn(), before: before.to_string(), after: None })?;
            Ok(before)
        });
        kept.map_err(not_kept)
    }

    /// Keeps the files as a command left them, so that undo can tell its doing from that of others. Blocks.
    pub fn command_ended(&self, before: &TreeId) {
        let after = self.store().and_then(|store| store.snapshot(&self.root).map_err(|error| error.to_string()));
        let after = after.and_then(|after| {
            self.note(self.turn(), &after);
            let (before, after) = (before.to_string(), Some(after.to_string()));
            self.append(Record::Command { turn: self.turn(), before, after })
        });
        if let Err(why) = after {
            self.trouble(format!(
                "undo will ask about every file, because the files after a command were not kept: {why}"
            ));
        }
    }

    /// Says in the session that files go back or forth. When this fails nothing may be changed.
    pub fn restores(&self, what: &str, turn: u32, step: &TreeId) -> Result<(), String> {
        self.note(self.turn(), step);
        self.append(Record::Restored { what: what.to_owned(), turn, step: step.to_string() }).map_err(not_kept)
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        // A record is written or not; a panic elsewhere leaves nothing half done.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn not_kept(why: String) -> String {
    format!(
        "nothing was changed, because Flint could not save what undo needs: {why}; free some space or allow access there first"
    )
}

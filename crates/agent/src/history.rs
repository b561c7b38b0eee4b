//! What a session remembers: its file, its turns, the files before each of them, and the way back.
//!
//! The snapshot before a turn is taken beside the request to the model, so it costs the person nothing; whoever is about
//! to write a file waits for it ([`History::ready`]). A session that cannot be written goes on in memory and says so once.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use serde_json::Value;
use tokio::task::JoinHandle;

use crate::checkpoint::{Store, TreeId};
use crate::edit::Written;
use crate::event::{RewindPreview, SessionLine, TurnLine};
use crate::session::{self, EditedFile, Record, Replay, Session};

/// Undone states that can be brought back.
const REDO_MAX: usize = 100;

/// A session under way.
pub struct History {
    root: PathBuf,
    sessions: PathBuf,
    session: Session,
    store: Option<Arc<Store>>,
    /// Holds the store of a session that leaves nothing behind.
    _scratch: Option<tempfile::TempDir>,
    turn: u32,
    snapshot: Option<JoinHandle<Result<TreeId, String>>>,
    gate: Arc<Gate>,
    /// Where undo stands: the tree it went back to last, and the turn that was taken back.
    undone: Vec<Undone>,
    troubles: Vec<String>,
}

/// Closed while the files are being looked at.
#[derive(Debug, Default)]
pub struct Gate {
    closed: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn set(&self, closed: bool) {
        *self.closed.lock().unwrap_or_else(PoisonError::into_inner) = closed;
        self.opened.notify_all();
    }

    /// Blocks this thread while the gate is closed, which is as long as a snapshot takes.
    pub fn pass(&self) {
        let closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.opened.wait_while(closed, |closed| *closed));
    }
}

struct Undone {
    turn: u32,
    before: TreeId,
}

impl History {
    /// Begins a session below `state`, or one that leaves nothing behind.
    pub fn begin_session(state: &Path, root: &Path, model: &str, ephemeral: bool) -> Self {
        let sessions = state.join("sessions");
        let mut troubles = Vec::new();
        let session = match ephemeral {
            true => Session::ephemeral(root, model),
            false => Session::create(&sessions, root, model).unwrap_or_else(|error| {
                troubles.push(format!("this session is not kept: {error}"));
                Session::ephemeral(root, model)
            }),
        };
        let scratch = if ephemeral { tempfile::tempdir().ok() } else { None };
        let folder = scratch.as_ref().map_or_else(|| state.join("checkpoints"), |folder| folder.path().to_owned());
        let store = match Store::open(&folder) {
            Ok(store) => Some(Arc::new(store)),
            Err(error) => {
                troubles.push(format!("there is no undo: {error}"));
                None
            }
        };
        Self {
            root: root.to_owned(),
            sessions,
            session,
            store,
            _scratch: scratch,
            turn: 0,
            snapshot: None,
            gate: Arc::default(),
            undone: Vec::new(),
            troubles,
        }
    }

    /// Its identity.
    pub fn session_id(&self) -> String {
        self.session.id().to_owned()
    }

    /// What did not work since this was last asked.
    pub fn troubles(&mut self) -> Vec<String> {
        std::mem::take(&mut self.troubles)
    }

    /// How the session stands.
    pub fn replay(&self) -> Replay {
        self.session.replay()
    }

    /// A turn begins: it is written down, and the files are looked at beside everything else.
    pub fn begin(&mut self, turn: u32, text: &str) {
        self.turn = turn;
        self.record(Record::Prompt { turn, text: text.to_owned() });
        if let Some(store) = self.store.clone() {
            let (root, gate) = (self.root.clone(), self.gate.clone());
            gate.set(true);
            self.snapshot = Some(tokio::task::spawn_blocking(move || {
                let taken = store.snapshot(&root).map_err(|error| error.to_string());
                gate.set(false);
                taken
            }));
        }
    }

    /// Waits until the files are safe. To be awaited before anything is written.
    pub async fn ready(&mut self) {
        let Some(snapshot) = self.snapshot.take() else { return };
        match snapshot.await {
            Ok(Ok(tree)) => self.record(Record::Checkpoint { turn: self.turn, tree: tree.to_string() }),
            Ok(Err(why)) => self.troubles.push(format!("this turn cannot be undone: {why}")),
            Err(error) => self.troubles.push(format!("this turn cannot be undone: {error}")),
        }
    }

    /// Lets a thread wait until the files are safe: the same as [`History::ready`] for work beside the desk.
    pub fn gate(&self) -> Arc<Gate> {
        self.gate.clone()
    }

    /// Something was said.
    pub fn item(&mut self, item: &Value) {
        self.record(Record::Item { item: item.clone() });
    }

    /// Files were written.
    pub fn edited(&mut self, written: &[Written]) {
        if written.is_empty() {
            return;
        }
        self.undone.clear();
        let file = |file: &Written| {
            let (added, removed) = file.lines();
            EditedFile { path: file.path.clone(), added, removed }
        };
        let files = written.iter().map(file).collect();
        self.record(Record::Edits { turn: self.turn, files });
    }

    /// The conversation was made shorter.
    pub fn compacted(&mut self, items: Vec<Value>, kept: &str) {
        self.record(Record::Compaction { items, kept: kept.to_owned() });
    }

    /// A turn is over.
    pub async fn end(&mut self, outcome: &str, usage: Value) {
        self.ready().await;
        self.record(Record::TurnEnd { turn: self.turn, outcome: outcome.to_owned(), usage });
    }

    fn record(&mut self, record: Record) {
        if let Err(error) = self.session.append(record) {
            let text = format!("this session is no longer written: {error}");
            if !self.troubles.contains(&text) {
                self.troubles.push(text);
            }
        }
    }

    /// What every turn was about.
    pub fn turn_lines(&self) -> Vec<TurnLine> {
        let line = |turn: session::Turn| TurnLine {
            turn: turn.turn,
            text: turn.text,
            files: turn.files.len(),
            at: turn.at / 1000,
        };
        self.replay().turns.into_iter().map(line).collect()
    }

    /// Sessions that contain these words, newest first; all when there are none.
    pub fn sessions(&self, words: &str) -> Result<Vec<SessionLine>, String> {
        session::search(&self.sessions, words).map_err(|error| error.to_string())
    }

    /// Goes on with an earlier session, by its id or a unique beginning of it.
    pub fn open(&mut self, id: &str) -> Result<Replay, String> {
        let session = Session::open(&self.sessions, id).map_err(|error| error.to_string())?;
        Ok(self.go_on_with(session))
    }

    /// Goes on with a copy of this session.
    pub fn fork(&mut self) -> Result<Replay, String> {
        let session = self.session.fork(&self.sessions, None).map_err(|error| error.to_string())?;
        Ok(self.go_on_with(session))
    }

    /// Forgets a session in which nothing was said.
    pub fn close(&mut self) {
        if self.replay().turns.is_empty() {
            let _ = std::fs::remove_file(self.sessions.join(format!("{}.jsonl", self.session.id())));
        }
    }

    fn go_on_with(&mut self, session: Session) -> Replay {
        self.close();
        if session.damaged() > 0 {
            self.troubles.push(format!("{} lines of the session could not be read", session.damaged()));
        }
        if session.folder().is_some_and(|folder| folder != self.root) {
            let folder = session.folder().map(Path::display).map(|path| path.to_string()).unwrap_or_default();
            self.troubles.push(format!("this session was held in {folder}; files are looked for here now"));
        }
        self.session = session;
        self.undone.clear();
        let replay = self.session.replay();
        self.turn = replay.turns.last().map_or(0, |turn| turn.turn);
        replay
    }

    /// Takes back the files of the last turn that changed any and was not taken back yet.
    pub async fn undo(&mut self) -> Result<Vec<PathBuf>, String> {
        let before_turn = self.undone.last().map_or(u32::MAX, |undone| undone.turn);
        let turns = self.replay().turns;
        let candidates = turns.iter().rev().filter(|turn| turn.turn < before_turn);
        let trees = candidates.filter_map(|turn| Some((turn.turn, TreeId::parse(turn.checkpoint.as_deref()?)?)));
        for (turn, tree) in trees.collect::<Vec<_>>() {
            let (now, paths) = self.go_to(&tree).await?;
            if !paths.is_empty() {
                self.record(Record::Restored { what: "undo".into(), from: now.to_string(), to: tree.to_string() });
                if self.undone.len() == REDO_MAX {
                    self.undone.remove(0);
                }
                self.undone.push(Undone { turn, before: now });
                return Ok(paths);
            }
        }
        Err("there is nothing to undo".to_owned())
    }

    /// Takes back the last undo.
    pub async fn redo(&mut self) -> Result<Vec<PathBuf>, String> {
        let Some(undone) = self.undone.pop() else { return Err("there is nothing to redo".to_owned()) };
        let (now, paths) = self.go_to(&undone.before).await?;
        let (from, to) = (now.to_string(), undone.before.to_string());
        self.record(Record::Restored { what: "redo".into(), from, to });
        Ok(paths)
    }

    /// What a rewind to the beginning of a turn would change.
    pub async fn preview(&self, turn: u32) -> Result<RewindPreview, String> {
        let (tree, turns_lost) = self.before(turn)?;
        let (store, root) = (self.store()?, self.root.clone());
        let files = blocking(move || {
            let now = store.snapshot(&root)?;
            store.compare(&now, &tree)
        });
        Ok(RewindPreview { turn, files: files.await?, turns_lost })
    }

    /// Brings the files back to the beginning of a turn.
    pub async fn rewind_files(&mut self, turn: u32) -> Result<Vec<PathBuf>, String> {
        let (tree, _) = self.before(turn)?;
        let (now, paths) = self.go_to(&tree).await?;
        self.record(Record::Restored { what: "rewind".into(), from: now.to_string(), to: tree.to_string() });
        self.undone.clear();
        self.undone.push(Undone { turn, before: now });
        Ok(paths)
    }

    /// Forgets what was said since the beginning of a turn; returns how the session stands then.
    pub fn rewind_conversation(&mut self, turn: u32, files: bool) -> Result<Replay, String> {
        if !self.replay().turns.iter().any(|known| known.turn == turn) {
            return Err(format!("there is no turn {turn} in this session"));
        }
        self.record(Record::Rewind { turn, files, conversation: true });
        self.turn = turn.saturating_sub(1);
        Ok(self.replay())
    }

    /// What this session changed, as a diff with file headers.
    pub async fn diff(&mut self) -> Result<String, String> {
        self.ready().await;
        let first = self.replay().turns.into_iter().find_map(|turn| TreeId::parse(turn.checkpoint.as_deref()?));
        let Some(first) = first else { return Ok(String::new()) };
        let (store, root) = (self.store()?, self.root.clone());
        blocking(move || {
            let now = store.snapshot(&root)?;
            store.diff(&first, &now)
        })
        .await
    }

    fn store(&self) -> Result<Arc<Store>, String> {
        self.store.clone().ok_or_else(|| "there are no checkpoints in this session".to_owned())
    }

    /// The files before a turn, and how many turns came since.
    fn before(&self, turn: u32) -> Result<(TreeId, usize), String> {
        let turns = self.replay().turns;
        let Some(at) = turns.iter().position(|known| known.turn == turn) else {
            return Err(format!("there is no turn {turn} in this session"));
        };
        let tree = turns[at].checkpoint.as_deref().and_then(TreeId::parse);
        let tree = tree.ok_or_else(|| format!("the files before turn {turn} were not kept"))?;
        Ok((tree, turns.len() - at))
    }

    /// Makes the files what they were; the state before that, and what changed.
    async fn go_to(&self, tree: &TreeId) -> Result<(TreeId, Vec<PathBuf>), String> {
        let (store, root, tree) = (self.store()?, self.root.clone(), tree.clone());
        blocking(move || {
            let now = store.snapshot(&root)?;
            let paths = store.restore(&root, &tree)?;
            Ok((now, paths))
        })
        .await
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, crate::checkpoint::CheckpointError> + Send + 'static,
) -> Result<T, String> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|error| error.to_string()),
        Err(error) => Err(format!("the checkpoint broke: {error}")),
    }
}

//! What a session remembers: its file, its turns, the files before each of them, and the way back.
//!
//! The snapshot before a turn is taken beside the request to the model, so it costs the person nothing; whoever is about
//! to write a file waits for it. Every change goes through the [`Journal`], which keeps the way back first; going back asks
//! it which files are Flint's doing, and is itself a change with a way back.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use tokio::task::JoinHandle;
use workspace::checkpoint::{Done, Gone, Plan, PruneLimits, Reversal, TreeId};
use workspace::edit::Written;
use workspace::journal::Journal;
use workspace::session::{self, EditedFile, Record, Replay, Session, SessionLine};

use crate::event::{RewindPreview, TurnLine};

/// Undone states that can be brought back.
const REDO_MAX: usize = 100;

/// Bytes of a diff that the session keeps, to show it again when it is gone on with.
const DIFF_BYTES_MAX: usize = 32 << 10;

/// A session under way.
pub struct History {
    sessions: PathBuf,
    journal: Arc<Journal>,
    turn: u32,
    snapshot: Option<JoinHandle<()>>,
    /// What was taken back and can be brought back: the turn, and the step.
    undone: Vec<(u32, TreeId)>,
}

/// What going back would do, for a person to agree to.
pub struct Back {
    /// `undo`, `redo` or `rewind`.
    pub what: &'static str,
    /// The first turn that is taken back or brought back.
    pub turn: u32,
    /// File by file.
    pub plan: Plan,
}

impl History {
    /// Begins a session below `state`, or one that leaves nothing behind.
    pub fn begin_session(state: &Path, root: &Path, model: &str, ephemeral: bool) -> Self {
        let sessions = state.join("sessions");
        let mut troubles = Vec::new();
        let session = match ephemeral {
            true => Session::ephemeral(root, model),
            false => Session::create(&sessions, root, model).unwrap_or_else(|error| {
                troubles.push(format!("this session is not saved: {error}"));
                Session::ephemeral(root, model)
            }),
        };
        let journal = Arc::new(match ephemeral {
            true => Journal::ephemeral(root, session),
            false => Journal::new(root, session, &state.join("checkpoints")),
        });
        troubles.into_iter().for_each(|text| journal.trouble(text));
        if let (false, Ok(store)) = (ephemeral, journal.store()) {
            let sessions = sessions.clone();
            // Beside everything else, at most once a day; a process that ends before it is done leaves it to the next.
            std::thread::spawn(move || {
                let has_session = |id: &str| sessions.join(format!("{id}.jsonl")).exists();
                store.prune(&PruneLimits::default(), has_session)
            });
        }
        Self { sessions, journal, turn: 0, snapshot: None, undone: Vec::new() }
    }

    /// Its identity.
    pub fn session_id(&self) -> String {
        self.journal.session(|session| session.id().to_owned())
    }

    /// What did not work since this was last asked.
    pub fn troubles(&mut self) -> Vec<String> {
        self.journal.troubles()
    }

    /// How the session stands.
    pub fn replay(&self) -> Replay {
        self.journal.replay()
    }

    /// What every change of files goes through.
    pub fn journal(&self) -> Arc<Journal> {
        Arc::clone(&self.journal)
    }

    /// A turn begins: it is written down, and the files are looked at beside everything else.
    pub fn begin(&mut self, turn: u32, text: &str) {
        self.turn = turn;
        self.journal.set_turn(turn);
        self.record(Record::Prompt { turn, text: text.to_owned() });
        self.journal.close_gate();
        let journal = self.journal();
        self.snapshot = Some(tokio::task::spawn_blocking(move || journal.look()));
    }

    /// Waits until the files are safe. To be awaited before anything is written.
    pub async fn ready(&mut self) {
        let Some(snapshot) = self.snapshot.take() else { return };
        if let Err(error) = snapshot.await {
            self.journal.trouble(format!("Flint could not save the files as they were before this turn: {error}"));
        }
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
            let mut diff =
                workspace::diff::unified(file.old.as_deref().unwrap_or(""), file.new.as_deref().unwrap_or(""));
            if diff.len() > DIFF_BYTES_MAX {
                diff.clear();
            }
            EditedFile { path: file.path.clone(), added, removed, diff }
        };
        let files = written.iter().map(file).collect();
        self.record(Record::Edits { turn: self.turn, files });
    }

    /// The conversation was made shorter.
    pub fn compacted(&mut self, items: Vec<Value>, kept: &str) {
        self.record(Record::Compaction { items, kept: kept.to_owned() });
    }

    /// Other files stay before the model.
    pub fn pinned(&mut self, paths: &[PathBuf]) {
        self.record(Record::Pinned { paths: paths.to_vec() });
    }

    /// A turn is over.
    pub async fn end(&mut self, outcome: &str, usage: Value) {
        self.ready().await;
        self.record(Record::TurnEnd { turn: self.turn, outcome: outcome.to_owned(), usage });
    }

    fn record(&self, record: Record) {
        self.journal.record(record);
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
        let fork = self.journal.session(|session| session.fork(&self.sessions, None));
        Ok(self.go_on_with(fork.map_err(|error| error.to_string())?))
    }

    /// Forgets a session in which nothing was said.
    pub fn close(&mut self) {
        if self.replay().turns.is_empty() {
            let _ = std::fs::remove_file(self.sessions.join(format!("{}.jsonl", self.session_id())));
        }
    }

    fn go_on_with(&mut self, session: Session) -> Replay {
        self.close();
        if session.damaged() > 0 {
            self.journal.trouble(format!("{} lines of the session are damaged and were skipped", session.damaged()));
        }
        if session.folder().is_some_and(|folder| folder != self.journal.root()) {
            let folder = session.folder().map(Path::display).map(|path| path.to_string()).unwrap_or_default();
            self.journal
                .trouble(format!("this session began in {folder}; Flint works on the files of this folder now"));
        }
        self.journal.take_up(session);
        let replay = self.replay();
        self.undone.clone_from(&replay.undone);
        self.turn = replay.turns.last().map_or(0, |turn| turn.turn);
        self.journal.set_turn(self.turn);
        if replay.turns.last().is_some_and(|turn| turn.outcome.is_none())
            && replay.done.last().is_some_and(|(turn, _)| *turn == self.turn)
        {
            let text =
                "the last turn was cut off while it changed files; /diff shows the changes, /undo takes them back";
            self.journal.trouble(text.to_owned());
        }
        replay
    }

    /// What was done to files, with the turn it counts for. Of turns that an earlier version made only the files before
    /// them are known.
    fn done(&self) -> Vec<(u32, Done)> {
        let replay = self.replay();
        let known = |turn: u32| replay.done.iter().any(|(of, _)| *of == turn);
        let before = |turn: &session::Turn| TreeId::parse(turn.checkpoint.as_deref()?);
        let legacy = replay.turns.iter().filter(|turn| !turn.files.is_empty() && !known(turn.turn));
        let mut done: Vec<(u32, Done)> =
            legacy.filter_map(|turn| Some((turn.turn, Done::Command(before(turn)?, None)))).collect();
        done.extend(replay.done.iter().cloned());
        // Stable, so what one turn did stays in its order.
        done.sort_by_key(|(turn, _)| *turn);
        done
    }

    /// What it takes to take back the last turn that changed files and was not taken back yet. With `force` also what was
    /// left of the one that was taken back last.
    pub async fn plan_undo(&mut self, force: bool) -> Result<Back, String> {
        self.ready().await;
        let before_turn = self.undone.last().map_or(u32::MAX, |(turn, _)| turn.saturating_add(u32::from(force)));
        let done = self.done();
        let mut turns: Vec<u32> = done.iter().map(|(turn, _)| *turn).filter(|turn| *turn < before_turn).collect();
        turns.dedup();
        while let Some(turn) = turns.pop() {
            let of_turn = done.iter().filter(|(of, _)| *of == turn).map(|(_, done)| done.clone()).collect();
            let plan = self.plan(of_turn).await?;
            if !plan.is_empty() {
                return Ok(Back { what: "undo", turn, plan });
            }
        }
        Err("there is nothing to undo".to_owned())
    }

    /// What it takes to take back the last undo.
    pub async fn plan_redo(&mut self) -> Result<Back, String> {
        let Some((turn, step)) = self.undone.last().cloned() else { return Err("there is nothing to redo".to_owned()) };
        let (store, root) = (self.journal.store()?, self.journal.root().to_owned());
        let plan = blocking(move || store.plan_forth(&root, &step)).await?;
        if plan.is_empty() {
            self.undone.pop();
            return Err("there is nothing to redo: the files are there already".to_owned());
        }
        Ok(Back { what: "redo", turn, plan })
    }

    /// What it takes to bring the files back to the beginning of a turn.
    pub async fn plan_rewind(&self, turn: u32) -> Result<Back, String> {
        self.turns_since(turn)?;
        let since = self.done().into_iter().filter(|(of, _)| *of >= turn).map(|(_, done)| done).collect();
        Ok(Back { what: "rewind", turn, plan: self.plan(since).await? })
    }

    async fn plan(&self, done: Vec<Done>) -> Result<Plan, String> {
        let (store, root) = (self.journal.store()?, self.journal.root().to_owned());
        blocking(move || store.plan_back(&root, &done)).await
    }

    /// What going back would do to each of these, as diffs with lines added and removed.
    pub async fn show(&self, reversals: &[Reversal]) -> Vec<(String, (usize, usize))> {
        let (Ok(store), root, reversals) = (self.journal.store(), self.journal.root().to_owned(), reversals.to_vec())
        else {
            return Vec::new();
        };
        blocking(move || Ok(reversals.iter().map(|reversal| store.show(&root, reversal)).collect()))
            .await
            .unwrap_or_default()
    }

    /// Goes back or forth. What stands there now is kept first, so that nothing is ever lost.
    pub async fn go(&mut self, what: &'static str, turn: u32, reversals: Vec<Reversal>) -> Result<Gone, String> {
        if reversals.is_empty() {
            return Ok(Gone::default());
        }
        let (store, journal) = (self.journal.store()?, self.journal());
        let work = tokio::task::spawn_blocking(move || {
            let root = journal.root();
            let step = store.keep_present(root, &reversals).map_err(|error| error.to_string())?;
            journal.restores(what, turn, &step)?;
            let gone = store.go(root, &reversals).map_err(|error| error.to_string())?;
            Ok::<_, String>((step, gone))
        });
        let (step, gone) = work.await.map_err(|error| format!("going back failed: {error}; try again"))??;
        if what == "redo" {
            self.undone.pop();
        } else {
            if self.undone.len() == REDO_MAX {
                self.undone.remove(0);
            }
            self.undone.push((turn, step));
        }
        Ok(gone)
    }

    /// What a rewind to the beginning of a turn would change.
    pub async fn preview(&self, turn: u32) -> Result<RewindPreview, String> {
        let turns_lost = self.turns_since(turn)?;
        let plan = self.plan_rewind(turn).await?.plan;
        let reversals: Vec<Reversal> = plan.ours.into_iter().chain(plan.merged).chain(plan.theirs).collect();
        let lines = self.show(&reversals).await;
        let files = reversals.into_iter().zip(lines).map(|(reversal, (_, lines))| (reversal.path, lines)).collect();
        Ok(RewindPreview { turn, files, turns_lost })
    }

    /// Forgets what was said since the beginning of a turn; returns how the session stands then.
    pub fn rewind_conversation(&mut self, turn: u32, files: bool) -> Result<Replay, String> {
        self.turns_since(turn)?;
        self.record(Record::Rewind { turn, files, conversation: true });
        self.turn = turn.saturating_sub(1);
        self.journal.set_turn(self.turn);
        Ok(self.replay())
    }

    /// What this session changed, as a diff with file headers.
    pub async fn diff(&mut self) -> Result<String, String> {
        self.ready().await;
        let first = self.replay().turns.into_iter().find_map(|turn| TreeId::parse(turn.checkpoint.as_deref()?));
        let Some(first) = first else { return Ok(String::new()) };
        let (store, root) = (self.journal.store()?, self.journal.root().to_owned());
        blocking(move || {
            let now = store.snapshot(&root)?;
            store.diff(&first, &now)
        })
        .await
    }

    /// How many turns there are from this one on.
    fn turns_since(&self, turn: u32) -> Result<usize, String> {
        let turns = self.replay().turns;
        match turns.iter().position(|known| known.turn == turn) {
            Some(at) => Ok(turns.len() - at),
            None => Err(format!("there is no turn {turn} in this session")),
        }
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, workspace::checkpoint::CheckpointError> + Send + 'static,
) -> Result<T, String> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|error| error.to_string()),
        Err(error) => Err(format!("the checkpoint failed: {error}")),
    }
}

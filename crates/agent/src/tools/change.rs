//! The tools that change files: `edit` and `apply_patch`. A change is found in the text as it is on disk at that moment, and
//! all files of a call are written or none is, so a model that misremembers a file gets an error and not a broken file.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use workspace::diff;
use workspace::edit::{Batch, Change, ChangeKind, EditError, Written, patch};

use super::shell::EditRule;
use super::{ToolResult, Tools};
use crate::{ApprovalAsk, Decision, Event};

impl Tools {
    /// Replaces text in one file, or makes it.
    pub(super) async fn edit(self: &Arc<Self>, path: String, old: String, new: String) -> ToolResult {
        let path = match super::path::WorkspacePath::find(&self.options.root, &path) {
            Ok(found) => found.relative,
            Err(why) => return ToolResult::of(Err(why)),
        };
        let kind = if old.is_empty() { ChangeKind::Create { text: new } } else { ChangeKind::Replace { old, new } };
        self.apply(vec![Change { path, kind }]).await
    }

    /// Applies a patch.
    pub(super) async fn patch(self: &Arc<Self>, input: String) -> ToolResult {
        match patch::parse(&input) {
            Ok(changes) => self.apply(changes).await,
            Err(error) => ToolResult::of(Err(error.to_string())),
        }
    }

    async fn apply(self: &Arc<Self>, changes: Vec<Change>) -> ToolResult {
        let root = self.options.root.clone();
        let batch = match off_thread(move || Batch::resolve(&root, &changes)).await {
            Ok(batch) => batch,
            Err(why) => return ToolResult::of(Err(why)),
        };
        let files = batch.files();
        if files.is_empty() {
            return ToolResult::of(Ok("nothing changed: the text is there already\n".to_owned()));
        }
        let edits = self.announce(&files).await;
        if let Some(refused) = self.refused(&edits, &files).await {
            return refused;
        }
        let tools = Arc::clone(self);
        let written = off_thread(move || {
            let written = batch.write(|step| tools.options.journal.edit(step))?;
            tools.written.lock().unwrap_or_else(PoisonError::into_inner).extend(written.iter().cloned());
            Ok(written)
        });
        let written = written.await;
        for (&edit, file) in edits.iter().zip(&files) {
            let path = file.path.clone();
            self.say(match &written {
                Ok(_) => Event::EditApplied { edit, path, lines: file.lines() },
                Err(why) => Event::EditFailed { edit, path, why: why.clone() },
            })
            .await;
        }
        ToolResult::of(written.map(|written| written.iter().map(told).collect()))
    }

    /// Shows the changes before they are made.
    async fn announce(&self, files: &[Written]) -> Vec<u64> {
        let mut edits = Vec::with_capacity(files.len());
        for file in files {
            let edit = self.options.edit_numbers.fetch_add(1, Ordering::Relaxed);
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            let diff = diff::unified(&text(&file.old), &text(&file.new)).into();
            self.say(Event::EditStarted { edit, path: file.path.clone() }).await;
            self.say(Event::EditGrew { edit, diff, lines: file.lines() }).await;
            edits.push(edit);
        }
        edits
    }

    /// In a workspace that may only be read, a person decides.
    async fn refused(&self, edits: &[u64], files: &[Written]) -> Option<ToolResult> {
        let paths: Vec<PathBuf> = files.iter().map(|file| file.path.clone()).collect();
        let (decision, why) = match self.options.shell.edits() {
            EditRule::Free => return None,
            EditRule::Never(why) => (Decision::No, why),
            EditRule::Ask(why) => {
                let ask = ApprovalAsk::Edits { edits: edits.to_vec(), paths: paths.clone() };
                let decision = self.options.asks.ask(&self.options.events, ask, why).await;
                (decision, "the user did not allow this change".to_owned())
            }
        };
        if matches!(decision, Decision::Yes | Decision::Always) {
            return None;
        }
        for (&edit, path) in edits.iter().zip(paths) {
            self.say(Event::EditFailed { edit, path, why: why.clone() }).await;
        }
        Some(ToolResult { ends_turn: decision == Decision::Stop, ..ToolResult::of(Err(why)) })
    }
}

fn told(file: &Written) -> String {
    let (added, removed) = file.lines();
    let path = file.path.display();
    match (&file.old, &file.new) {
        (None, _) => format!("made {path} ({added} lines)\n"),
        (_, None) => format!("removed {path}\n"),
        _ => format!("changed {path}: {added} lines added, {removed} removed\n"),
    }
}

/// Disks are waited for on a thread that may wait.
async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, EditError> + Send + 'static,
) -> Result<T, String> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(error) => Err(format!("the tool failed: {error}; try another way")),
    }
}

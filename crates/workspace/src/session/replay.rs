//! How a session stands after everything that was written into it, rewinds and compactions included.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;

use super::{EditedFile, Line, Record};
use crate::checkpoint::{Done, TreeId};

/// How a session stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Replay {
    /// The conversation to send to the model.
    pub items: Vec<Arc<Value>>,
    /// The turns that count, oldest first.
    pub turns: Vec<Turn>,
    /// What the last compaction kept, if there was one that counts.
    pub compacted: Option<String>,
    /// What was done to files, oldest first, with the turn it counts for. What a forgotten turn did counts for the turn
    /// before it, because the files still have it.
    pub done: Vec<(u32, Done)>,
    /// What was taken back and can be brought back, oldest first: the turn, and the step.
    pub undone: Vec<(u32, TreeId)>,
    /// The files that stay before the model, whatever was said or taken back since.
    pub pinned: Vec<PathBuf>,
}

/// One turn.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Turn {
    /// Its number, from 1.
    pub turn: u32,
    /// What was asked.
    pub text: String,
    /// When, in Unix milliseconds.
    pub at: u64,
    /// The files before it: the first checkpoint of the turn.
    pub checkpoint: Option<String>,
    /// Files it changed.
    pub files: Vec<EditedFile>,
    /// Its items.
    pub items: Vec<Arc<Value>>,
    /// How it ended; `None` when it was cut off.
    pub outcome: Option<String>,
}

impl Replay {
    /// The number the next turn gets.
    pub fn next_turn(&self) -> u32 {
        self.turns.last().map_or(1, |turn| turn.turn + 1)
    }
}

/// The state before each turn, so that a rewind across a compaction finds what was there.
type Before = BTreeMap<u32, (Vec<Arc<Value>>, Option<String>)>;

pub(super) fn replay(lines: &[Line]) -> Replay {
    let mut state = Replay::default();
    let mut before: Before = BTreeMap::new();
    for line in lines {
        match &line.record {
            Record::Prompt { turn, text } => {
                forget(&mut state, *turn);
                before.insert(*turn, (state.items.clone(), state.compacted.clone()));
                state.turns.push(Turn { turn: *turn, text: text.clone(), at: line.at, ..Turn::default() });
            }
            Record::Item { item } => {
                let item = Arc::new(item.clone());
                state.items.push(item.clone());
                state.turns.iter_mut().last().into_iter().for_each(|turn| turn.items.push(item.clone()));
            }
            Record::Compaction { items, kept } => {
                state.items = items.iter().cloned().map(Arc::new).collect();
                state.compacted = Some(kept.clone());
            }
            Record::Rewind { turn, conversation: true, .. } => {
                forget(&mut state, *turn);
                if let Some((items, compacted)) = before.get(turn).cloned() {
                    (state.items, state.compacted) = (items, compacted);
                }
            }
            Record::Checkpoint { turn, tree } => {
                find(&mut state, *turn, |found| found.checkpoint = found.checkpoint.take().or(Some(tree.clone())));
            }
            Record::Edits { turn, files } => find(&mut state, *turn, |found| found.files.extend(files.iter().cloned())),
            Record::TurnEnd { turn, outcome, .. } => {
                find(&mut state, *turn, |found| found.outcome = Some(outcome.clone()));
            }
            Record::Edit { turn, step } => {
                state.undone.clear();
                state.done.extend(TreeId::parse(step).map(|step| (*turn, Done::Edit(step))));
            }
            Record::Command { turn, before, after } => command(&mut state, *turn, before, after.as_deref()),
            Record::Restored { what, turn, step } => match (what.as_str(), TreeId::parse(step)) {
                ("redo", _) => drop(state.undone.pop()),
                (_, Some(step)) => state.undone.push((*turn, step)),
                (_, None) => {}
            },
            Record::Pinned { paths } => state.pinned.clone_from(paths),
            Record::Meta { .. } | Record::Rewind { .. } | Record::Unknown => {}
        }
    }
    state
}

/// Forgets a turn and all after it. What they did to files stays done.
fn forget(state: &mut Replay, turn: u32) {
    state.turns.retain(|other| other.turn < turn);
    for (of, _) in state.done.iter_mut().filter(|(of, _)| *of >= turn) {
        *of = turn.saturating_sub(1);
    }
}

/// A command began, or the one that began last has ended.
fn command(state: &mut Replay, turn: u32, before: &str, after: Option<&str>) {
    let Some(before) = TreeId::parse(before) else { return };
    let Some(after) = after else {
        state.undone.clear();
        return state.done.push((turn, Done::Command(before, None)));
    };
    let open = |(_, done): &&mut (u32, Done)| matches!(done, Done::Command(began, None) if *began == before);
    if let Some((_, done)) = state.done.iter_mut().rev().find(open) {
        *done = Done::Command(before, TreeId::parse(after));
    }
}

fn find(state: &mut Replay, turn: u32, change: impl FnOnce(&mut Turn)) {
    if let Some(found) = state.turns.iter_mut().rev().find(|other| other.turn == turn) {
        change(found);
    }
}

/// The lines before the last beginning of a turn; all of them when none is named.
pub(super) fn before(lines: &[Line], turn: Option<u32>) -> &[Line] {
    let begins = |line: &Line| matches!(&line.record, Record::Prompt { turn: found, .. } if Some(*found) == turn);
    match lines.iter().rposition(begins) {
        Some(mut at) => {
            // The checkpoint before a turn may stand before its prompt.
            while at > 0
                && matches!(&lines[at - 1].record, Record::Checkpoint { turn: found, .. } if Some(*found) == turn)
            {
                at -= 1;
            }
            &lines[..at]
        }
        None => lines,
    }
}

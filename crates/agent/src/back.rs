//! Going back between turns: what Flint left goes back, and what anybody else changed since stays and is shown. Where both
//! changed the same lines they are asked.

use std::path::PathBuf;

use crate::command::Decision;
use crate::desk::Desk;
use crate::event::{ApprovalAsk, Event};
use crate::history::Back;

/// Paths named in one line; of more only the count is told.
const PATHS_NAMED: usize = 20;

/// Goes back. With `force` nobody is asked; with `conversation` what was said goes back too, and the flag says whether that
/// was asked for together with the files.
pub async fn go(desk: &mut Desk, back: Back, force: bool, conversation: Option<bool>) {
    let Back { what, turn, plan } = back;
    let (mut ways, theirs, mut left) = (plan.ours, plan.theirs, plan.refused);
    let mut edits = Vec::new();
    if !plan.merged.is_empty() {
        for (way, (diff, lines)) in plan.merged.iter().zip(desk.history.show(&plan.merged).await) {
            let edit = desk.next_edit();
            desk.emit(Event::EditStarted { edit, path: way.path.clone() }).await;
            desk.emit(Event::EditGrew { edit, diff: diff.into(), lines }).await;
            desk.notice(format!("{}: what was changed there since stays", way.path.display())).await;
            edits.push((edit, way.path.clone(), lines));
        }
        ways.extend(plan.merged);
        ways.sort_by(|a, b| a.path.cmp(&b.path));
    }
    let merged = edits.len();
    if !theirs.is_empty() {
        let paths: Vec<PathBuf> = theirs.iter().map(|way| way.path.clone()).collect();
        for (way, (diff, lines)) in theirs.iter().zip(desk.history.show(&theirs).await) {
            let edit = desk.next_edit();
            desk.emit(Event::EditStarted { edit, path: way.path.clone() }).await;
            desk.emit(Event::EditGrew { edit, diff: diff.into(), lines }).await;
            edits.push((edit, way.path.clone(), lines));
        }
        let decision = if force {
            Decision::Yes
        } else {
            let why = format!(
                "somebody else has changed these files since Flint wrote them: yes takes their changes back too ({} restores \
                 them), no leaves the files alone",
                if what == "redo" { "/undo" } else { "/redo" }
            );
            let what = ApprovalAsk::Edits { edits: edits[merged..].iter().map(|(edit, ..)| *edit).collect(), paths };
            desk.ask(what, why).await
        };
        match decision {
            Decision::Yes | Decision::Always => ways.extend(theirs),
            Decision::No | Decision::Stop => {
                let why = format!("somebody else has changed it since; /{what} force takes that back too");
                for (edit, path, _) in edits.drain(merged..) {
                    desk.emit(Event::EditFailed { edit, path: path.clone(), why: why.clone() }).await;
                    left.push((path, why.clone()));
                }
            }
        }
        // Parents before children, as whoever goes back expects.
        ways.sort_by(|a, b| a.path.cmp(&b.path));
    }
    let gone = match desk.history.go(what, turn, ways).await {
        Ok(gone) => gone,
        Err(why) => return desk.trouble(why).await,
    };
    // What a commit would take is what the files still have; what comes again is the person's to commit.
    desk.uncommitted.retain(|pending| if what == "undo" { pending.turn != turn } else { pending.turn < turn });
    left.extend(gone.failed);
    for (edit, path, lines) in edits {
        let event = match left.iter().find(|(failed, _)| *failed == path) {
            Some((_, why)) => Event::EditFailed { edit, path, why: why.clone() },
            None => Event::EditApplied { edit, path, lines },
        };
        desk.emit(event).await;
    }
    if !left.is_empty() {
        let named = left.iter().take(PATHS_NAMED).map(|(path, why)| format!("{}: {why}", path.display()));
        let mut text = format!("left as they are:\n{}", named.collect::<Vec<_>>().join("\n"));
        if left.len() > PATHS_NAMED {
            text += &format!("\n… and {} more", left.len() - PATHS_NAMED);
        }
        desk.trouble(text).await;
    }
    let mut before = None;
    if let Some(files) = conversation {
        match desk.history.rewind_conversation(turn, files) {
            Ok(replay) => {
                desk.take_up(&replay);
                before = Some(turn);
            }
            Err(why) => return desk.trouble(why).await,
        }
    }
    desk.emit(Event::Restored { what, paths: gone.paths, turn: before }).await;
}

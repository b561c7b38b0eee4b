//! Going back between turns: what Flint left goes back, and what anybody else changed since stays and is shown. Where both
//! changed the same lines they are asked.

use std::path::PathBuf;

use crate::command::Decision;
use crate::event::{ApprovalAsk, Event};
use crate::history::Back;
use crate::turn_context::TurnContext;

/// Paths named in one line; of more only the count is told.
const PATHS_NAMED: usize = 20;

/// Goes back. With `force` nobody is asked; with `conversation` what was said goes back too, and the flag says whether that
/// was asked for together with the files.
pub async fn go(ctx: &mut TurnContext, back: Back, force: bool, conversation: Option<bool>) {
    let Back { what, turn, plan } = back;
    let (mut reversals, theirs, mut left) = (plan.ours, plan.theirs, plan.refused);
    let mut edits = Vec::new();
    if !plan.merged.is_empty() {
        for (reversal, (diff, lines)) in plan.merged.iter().zip(ctx.history.show(&plan.merged).await) {
            let edit = ctx.next_edit();
            ctx.emit(Event::EditStarted { edit, path: reversal.path.clone() }).await;
            ctx.emit(Event::EditGrew { edit, diff: diff.into(), lines }).await;
            ctx.notice(format!("{}: what was changed there since stays", reversal.path.display())).await;
            edits.push((edit, reversal.path.clone(), lines));
        }
        reversals.extend(plan.merged);
        reversals.sort_by(|a, b| a.path.cmp(&b.path));
    }
    let merged = edits.len();
    if !theirs.is_empty() {
        let paths: Vec<PathBuf> = theirs.iter().map(|reversal| reversal.path.clone()).collect();
        for (reversal, (diff, lines)) in theirs.iter().zip(ctx.history.show(&theirs).await) {
            let edit = ctx.next_edit();
            ctx.emit(Event::EditStarted { edit, path: reversal.path.clone() }).await;
            ctx.emit(Event::EditGrew { edit, diff: diff.into(), lines }).await;
            edits.push((edit, reversal.path.clone(), lines));
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
            ctx.ask(what, why).await
        };
        match decision {
            Decision::Yes | Decision::Always => reversals.extend(theirs),
            Decision::No | Decision::Stop => {
                let why = format!("somebody else has changed it since; /{what} force takes that back too");
                for (edit, path, _) in edits.drain(merged..) {
                    ctx.emit(Event::EditFailed { edit, path: path.clone(), why: why.clone() }).await;
                    left.push((path, why.clone()));
                }
            }
        }
        // Parents before children, as whoever goes back expects.
        reversals.sort_by(|a, b| a.path.cmp(&b.path));
    }
    let gone = match ctx.history.go(what, turn, reversals).await {
        Ok(gone) => gone,
        Err(why) => return ctx.trouble(why).await,
    };
    // What a commit would take is what the files still have; what comes again is the person's to commit.
    ctx.uncommitted.retain(|pending| if what == "undo" { pending.turn != turn } else { pending.turn < turn });
    left.extend(gone.failed);
    for (edit, path, lines) in edits {
        let event = match left.iter().find(|(failed, _)| *failed == path) {
            Some((_, why)) => Event::EditFailed { edit, path, why: why.clone() },
            None => Event::EditApplied { edit, path, lines },
        };
        ctx.emit(event).await;
    }
    if !left.is_empty() {
        let named = left.iter().take(PATHS_NAMED).map(|(path, why)| format!("{}: {why}", path.display()));
        let mut text = format!("left as they are:\n{}", named.collect::<Vec<_>>().join("\n"));
        if left.len() > PATHS_NAMED {
            text += &format!("\n… and {} more", left.len() - PATHS_NAMED);
        }
        ctx.trouble(text).await;
    }
    let mut before = None;
    if let Some(files) = conversation {
        match ctx.history.rewind_conversation(turn, files) {
            Ok(replay) => {
                ctx.take_up(&replay);
                before = Some(turn);
            }
            Err(why) => return ctx.trouble(why).await,
        }
    }
    ctx.emit(Event::Restored { what, paths: gone.paths, turn: before }).await;
}

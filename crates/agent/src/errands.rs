//! What a person asks for between turns: looking around, going back, other sessions, other settings.

use std::sync::Arc;

use serde_json::Value;
use workspace::session::{EditedFile, Replay, Turn};

use crate::approval;
use crate::command::{Command, RewindWhat, Style};
use crate::config::Config;
use crate::desk::{Desk, word};
use crate::event::{Event, PastTurn};
use crate::history::History;
use crate::{back, compact, models, pair, pinned};

/// The profile that `Command::Fast` switches.
const FAST: &str = "fast";

/// Does one errand.
pub async fn run(desk: &mut Desk, command: Command) {
    match command {
        Command::Status => desk.emit_status().await,
        Command::Turns => {
            let turns = desk.history.turn_lines();
            desk.emit(Event::Turns(turns)).await;
        }
        Command::Diff => match desk.history.diff().await {
            Ok(text) => desk.emit(Event::Diff { text }).await,
            Err(why) => desk.trouble(why).await,
        },
        Command::Undo { force } => match desk.history.plan_undo(force).await {
            Ok(plan) => back::go(desk, plan, force, None).await,
            Err(why) => desk.trouble(why).await,
        },
        Command::Redo { force } => match desk.history.plan_redo().await {
            Ok(plan) => back::go(desk, plan, force, None).await,
            Err(why) => desk.trouble(why).await,
        },
        Command::PreviewRewind { turn } => match desk.history.preview(turn).await {
            Ok(preview) => desk.emit(Event::RewindPreview(preview)).await,
            Err(why) => desk.trouble(why).await,
        },
        Command::Rewind { turn, what } => rewind(desk, turn, what).await,
        Command::Compact => compact::now(desk).await,
        Command::Clear => {
            desk.conversation.replace(Vec::new());
            desk.history.compacted(Vec::new(), "");
            (desk.status.context_used, desk.asked) = (0, None);
            desk.emit(Event::Cleared).await;
        }
        Command::Add { path } => pinned::add(desk, &path).await,
        Command::Drop { path } => pinned::drop(desk, &path).await,
        Command::New => new(desk).await,
        Command::Resume { session } => resume(desk, &session).await,
        Command::Fork => match desk.history.fork() {
            Ok(replay) => opened(desk, replay).await,
            Err(why) => desk.trouble(why).await,
        },
        Command::Sessions { query } => match desk.history.sessions(&query) {
            Ok(found) => desk.emit(Event::Sessions(found)).await,
            Err(why) => desk.trouble(why).await,
        },
        Command::Model { name } => models::choose(desk, &name).await,
        Command::Profile { name } if name.is_empty() => {
            let profiles = match desk.options.config.profiles.as_slice() {
                [] => "the configuration has none".to_owned(),
                profiles => format!("the configuration has {}", profiles.join(", ")),
            };
            let used = in_use(desk);
            desk.notice(format!("{used}; {profiles}")).await;
        }
        Command::Profile { name } => profile(desk, Some(name)).await,
        Command::Fast => {
            let other = (desk.config().profile.as_deref() != Some(FAST)).then(|| FAST.to_owned());
            profile(desk, other).await;
        }
        Command::Approvals { policy } => approvals(desk, &policy).await,
        Command::SetStyle(style) => {
            desk.options.config.config.style = Some(style);
            let what = match style {
                Style::Pair => "the model answers, and Flint places the code it writes",
                Style::Agent => "the model works through tools until it is done",
            };
            desk.notice(format!("The style is {} now: {what}.", word(&style))).await;
            desk.emit_status().await;
        }
        // Turns and their end are the partner's own.
        _ => {}
    }
}

async fn rewind(desk: &mut Desk, turn: u32, what: RewindWhat) {
    let conversation = (what != RewindWhat::Files).then_some(what == RewindWhat::Both);
    if what != RewindWhat::Conversation {
        return match desk.history.plan_rewind(turn).await {
            Ok(plan) => back::go(desk, plan, false, conversation).await,
            Err(why) => desk.trouble(why).await,
        };
    }
    match desk.history.rewind_conversation(turn, false) {
        Ok(replay) => {
            desk.take_up(&replay);
            desk.emit(Event::Restored { what: "rewind", paths: Vec::new(), turn: Some(turn) }).await;
        }
        Err(why) => desk.trouble(why).await,
    }
}

async fn new(desk: &mut Desk) {
    desk.history.close();
    let options = &desk.options;
    desk.history = History::begin_session(&options.state, &options.root, &desk.model(), options.ephemeral);
    // The tools write into the journal of the session they were made for.
    desk.tools = None;
    desk.pinned.clear();
    desk.uncommitted.clear();
    opened(desk, Replay::default()).await;
}

/// Goes on with an earlier session.
pub async fn resume(desk: &mut Desk, session: &str) {
    match desk.history.open(session) {
        Ok(replay) => opened(desk, replay).await,
        Err(why) => desk.trouble(why).await,
    }
}

async fn opened(desk: &mut Desk, replay: Replay) {
    desk.take_up(&replay);
    let turns = replay.turns.iter().map(past).collect();
    desk.emit(Event::SessionOpened { session: desk.history.session_id(), turns }).await;
}

fn past(turn: &Turn) -> PastTurn {
    let answered = match turn.files.is_empty() {
        true => said(&turn.items),
        false => prose(&said(&turn.items)),
    };
    let edit = |file: &EditedFile| (file.path.clone(), (file.added, file.removed), file.diff.clone());
    PastTurn { asked: turn.text.clone(), answered, edits: turn.files.iter().map(edit).collect() }
}

/// An answer without its code, which the diffs show.
fn prose(said: &str) -> String {
    let mut parser = pair::Parser::default();
    let parts = parser.push(said).into_iter().chain(parser.finish());
    let text: String =
        parts.filter_map(|part| if let pair::Part::Text(text) = part { Some(text) } else { None }).collect();
    text.trim().to_owned()
}

/// What the model said in a turn.
fn said(items: &[Arc<Value>]) -> String {
    let messages = items.iter().filter(|item| item["role"] == "assistant");
    let parts = messages.filter_map(|item| item["content"].as_array()).flatten();
    let texts: Vec<&str> = parts.filter_map(|part| part["text"].as_str()).collect();
    texts.join("\n")
}

/// The profile in use, in words.
fn in_use(desk: &Desk) -> String {
    match &desk.config().profile {
        Some(name) => format!("The profile {name} is in use"),
        None => "No profile is in use".to_owned(),
    }
}

/// Reads the configuration again with another profile.
async fn profile(desk: &mut Desk, name: Option<String>) {
    let mut sources = desk.options.sources.clone();
    sources.profile = name;
    match Config::load(&sources) {
        Ok(loaded) => {
            let (config, known) = (&loaded.config, (desk.options.models)());
            if let Some(model) = config.model.as_ref().filter(|_| config.is_local())
                && let Err(why) = models::find(&known, model)
            {
                return desk.trouble(why).await;
            }
            desk.options.config = loaded;
            desk.options.sources = sources;
            desk.disconnect();
            let (used, model) = (in_use(desk), desk.model());
            desk.notice(format!("{used}: {model}, style {}.", word(&desk.style()))).await;
            desk.emit_status().await;
        }
        Err(error) => desk.trouble(error.to_string()).await,
    }
}

async fn approvals(desk: &mut Desk, name: &str) {
    let in_force = desk.config().approval_policy;
    if name.is_empty() {
        return desk.notice(format!("approval_policy is {}.", word(&in_force))).await;
    }
    match approval::Policy::from_name(name) {
        Some(policy) => {
            desk.options.config.config.approval_policy = policy;
            desk.notice(format!("approval_policy is {name} now.")).await;
            desk.emit_status().await;
        }
        None => {
            let text = format!("there is no approval policy {name}; use untrusted, on-request, on-failure or never");
            desk.trouble(text).await;
        }
    }
}

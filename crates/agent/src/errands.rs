//! What a person asks for between turns: looking around, going back, other sessions, other settings.

use std::sync::Arc;

use serde_json::Value;

use crate::approval;
use crate::command::{Command, RewindWhat};
use crate::config::Config;
use crate::desk::{Desk, word};
use crate::event::Event;
use crate::history::History;
use crate::session::Replay;
use crate::{back, compact};

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
        Command::Model { name } => model(desk, &name).await,
        Command::Profile { name } if name.is_empty() => {
            let profiles = desk.options.config.profiles.join(", ");
            let used = desk.config().profile.clone().unwrap_or_else(|| "none".to_owned());
            desk.notice(format!("profile in use: {used}; there are: {profiles}")).await;
        }
        Command::Profile { name } => profile(desk, Some(name)).await,
        Command::Fast => {
            let other = (desk.config().profile.as_deref() != Some(FAST)).then(|| FAST.to_owned());
            profile(desk, other).await;
        }
        Command::Approvals { policy } => approvals(desk, &policy).await,
        Command::SetStyle(style) => {
            desk.options.config.config.style = Some(style);
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
    let turns = replay.turns.iter().map(|turn| (turn.text.clone(), said(&turn.items))).collect();
    desk.emit(Event::SessionOpened { session: desk.history.session_id(), turns }).await;
}

/// What the model said in a turn.
fn said(items: &[Arc<Value>]) -> String {
    let messages = items.iter().filter(|item| item["role"] == "assistant");
    let parts = messages.filter_map(|item| item["content"].as_array()).flatten();
    let texts: Vec<&str> = parts.filter_map(|part| part["text"].as_str()).collect();
    texts.join("\n")
}

async fn model(desk: &mut Desk, name: &str) {
    if name.is_empty() {
        let names: Vec<&str> = desk.options.known_models.iter().map(|(name, _)| name.as_str()).collect();
        let text = format!("{} is in use; there are {}", desk.model(), names.join(", "));
        return desk.notice(text).await;
    }
    desk.options.config.config.model = Some(name.to_owned());
    desk.disconnect();
    desk.emit_status().await;
}

/// Reads the configuration again with another profile.
async fn profile(desk: &mut Desk, name: Option<String>) {
    let mut sources = desk.options.sources.clone();
    sources.profile = name;
    match Config::load(&sources) {
        Ok(loaded) => {
            desk.options.config = loaded;
            desk.options.sources = sources;
            desk.disconnect();
            desk.emit_status().await;
        }
        Err(error) => desk.trouble(error.to_string()).await,
    }
}

async fn approvals(desk: &mut Desk, name: &str) {
    let in_force = desk.config().approval_policy;
    if name.is_empty() {
        return desk.notice(format!("approval_policy is {}", word(&in_force))).await;
    }
    match approval::Policy::from_name(name) {
        Some(policy) => {
            desk.options.config.config.approval_policy = policy;
            desk.emit_status().await;
        }
        None => {
            let text = format!("there is no approval policy {name}; use untrusted, on-request, on-failure or never");
            desk.trouble(text).await;
        }
    }
}

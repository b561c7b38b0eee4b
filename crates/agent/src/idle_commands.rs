//! What a person asks for between turns: looking around, going back, other sessions, other settings.

use std::sync::Arc;

use serde_json::Value;
use workspace::session::{EditedFile, Replay, Turn};

use crate::approval;
use crate::command::{Command, RewindWhat, Style};
use crate::config::Config;
use crate::event::{Event, PastTurn};
use crate::history::History;
use crate::turn_context::{TurnContext, word};
use crate::{back, compact, models, pair, pinned};

/// Places told for one question.
const PLACES_MAX: usize = 5;

/// The profile that `Command::Fast` switches.
const FAST: &str = "fast";

/// Does one of them.
pub async fn run(ctx: &mut TurnContext, command: Command) {
    match command {
        Command::Status => ctx.emit_status().await,
        Command::Turns => {
            let turns = ctx.history.turn_lines();
            ctx.emit(Event::Turns(turns)).await;
        }
        Command::Diff => match ctx.history.diff().await {
            Ok(text) => ctx.emit(Event::Diff { text }).await,
            Err(why) => ctx.trouble(why).await,
        },
        Command::Where { question } => places(ctx, question).await,
        Command::Undo { force } => match ctx.history.plan_undo(force).await {
            Ok(plan) => back::go(ctx, plan, force, None).await,
            Err(why) => ctx.trouble(why).await,
        },
        Command::Redo { force } => match ctx.history.plan_redo().await {
            Ok(plan) => back::go(ctx, plan, force, None).await,
            Err(why) => ctx.trouble(why).await,
        },
        Command::PreviewRewind { turn } => match ctx.history.preview(turn).await {
            Ok(preview) => ctx.emit(Event::RewindPreview(preview)).await,
            Err(why) => ctx.trouble(why).await,
        },
        Command::Rewind { turn, what } => rewind(ctx, turn, what).await,
        Command::Compact => compact::now(ctx).await,
        Command::Clear => {
            ctx.conversation.replace(Vec::new());
            ctx.history.compacted(Vec::new(), "");
            (ctx.status.context_used, ctx.asked, ctx.open) = (0, None, None);
            ctx.emit(Event::Cleared).await;
        }
        Command::Add { path } => pinned::add(ctx, &path).await,
        Command::Drop { path } => pinned::drop(ctx, &path).await,
        Command::New => new(ctx).await,
        Command::Resume { session } => resume(ctx, &session).await,
        Command::Fork => match ctx.history.fork() {
            Ok(replay) => opened(ctx, replay).await,
            Err(why) => ctx.trouble(why).await,
        },
        Command::Sessions { query } => match ctx.history.sessions(&query) {
            Ok(found) => ctx.emit(Event::Sessions(found)).await,
            Err(why) => ctx.trouble(why).await,
        },
        Command::Model { name } => models::choose(ctx, &name).await,
        Command::Profile { name } if name.is_empty() => {
            let profiles = match ctx.options.config.profiles.as_slice() {
                [] => "the configuration has none".to_owned(),
                profiles => format!("the configuration has {}", profiles.join(", ")),
            };
            let used = in_use(ctx);
            ctx.notice(format!("{used}; {profiles}")).await;
        }
        Command::Profile { name } => profile(ctx, Some(name)).await,
        Command::Fast => {
            let other = (ctx.config().profile.as_deref() != Some(FAST)).then(|| FAST.to_owned());
            profile(ctx, other).await;
        }
        Command::Approvals { policy } => approvals(ctx, &policy).await,
        Command::SetStyle(style) => {
            ctx.options.config.config.style = Some(style);
            let what = match style {
                Style::Pair => "the model answers, and Flint places the code it writes",
                Style::Agent => "the model works through tools until it is done",
            };
            ctx.notice(format!("The style is {} now: {what}.", word(&style))).await;
            ctx.emit_status().await;
        }
        // Turns and their end are the partner's own.
        _ => {}
    }
}

async fn rewind(ctx: &mut TurnContext, turn: u32, what: RewindWhat) {
    let conversation = (what != RewindWhat::Files).then_some(what == RewindWhat::Both);
    if what != RewindWhat::Conversation {
        return match ctx.history.plan_rewind(turn).await {
            Ok(plan) => back::go(ctx, plan, false, conversation).await,
            Err(why) => ctx.trouble(why).await,
        };
    }
    match ctx.history.rewind_conversation(turn, false) {
        Ok(replay) => {
            ctx.take_up(&replay);
            ctx.emit(Event::Restored { what: "rewind", paths: Vec::new(), turn: Some(turn) }).await;
        }
        Err(why) => ctx.trouble(why).await,
    }
}

/// Says where something is.
pub async fn places(ctx: &mut TurnContext, question: String) {
    let index = ctx.index.clone();
    let work = tokio::task::spawn_blocking(move || index.with_history(|index| index.locate(&question, PLACES_MAX)));
    let found = work.await.unwrap_or_default();
    for one in &found.locations {
        ctx.notice(one.to_string()).await;
    }
    match (found.locations.is_empty(), found.sure) {
        (true, _) => ctx.notice("nothing here has these words; say it in the words of the code").await,
        (false, false) => ctx.notice("not sure: these fit about as well as each other").await,
        (false, true) => {}
    }
}

async fn new(ctx: &mut TurnContext) {
    ctx.history.close();
    let options = &ctx.options;
    ctx.history = History::begin_session(&options.state, &options.root, &ctx.model(), options.ephemeral);
    // The tools write into the journal of the session they were made for.
    ctx.tools = None;
    ctx.pinned.clear();
    ctx.uncommitted.clear();
    opened(ctx, Replay::default()).await;
}

/// Goes on with an earlier session.
pub async fn resume(ctx: &mut TurnContext, session: &str) {
    match ctx.history.open(session) {
        Ok(replay) => opened(ctx, replay).await,
        Err(why) => ctx.trouble(why).await,
    }
}

async fn opened(ctx: &mut TurnContext, replay: Replay) {
    ctx.take_up(&replay);
    let turns = replay.turns.iter().map(past).collect();
    ctx.emit(Event::SessionOpened { session: ctx.history.session_id(), turns }).await;
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
fn in_use(ctx: &TurnContext) -> String {
    match &ctx.config().profile {
        Some(name) => format!("The profile {name} is in use"),
        None => "No profile is in use".to_owned(),
    }
}

/// Reads the configuration again with another profile.
async fn profile(ctx: &mut TurnContext, name: Option<String>) {
    let mut sources = ctx.options.sources.clone();
    sources.profile = name;
    match Config::load(&sources) {
        Ok(loaded) => {
            let (config, known) = (&loaded.config, (ctx.options.models)());
            if let Some(model) = config.model.as_ref().filter(|_| config.is_local())
                && let Err(why) = models::find(&known, model)
            {
                return ctx.trouble(why).await;
            }
            ctx.options.config = loaded;
            ctx.options.sources = sources;
            ctx.disconnect();
            let (used, model) = (in_use(ctx), ctx.model());
            ctx.notice(format!("{used}: {model}, style {}.", word(&ctx.style()))).await;
            ctx.emit_status().await;
        }
        Err(error) => ctx.trouble(error.to_string()).await,
    }
}

async fn approvals(ctx: &mut TurnContext, name: &str) {
    let in_force = ctx.config().approval_policy;
    if name.is_empty() {
        return ctx.notice(format!("approval_policy is {}.", word(&in_force))).await;
    }
    match approval::Policy::from_name(name) {
        Some(policy) => {
            ctx.options.config.config.approval_policy = policy;
            ctx.notice(format!("approval_policy is {name} now.")).await;
            ctx.emit_status().await;
        }
        None => {
            let text = format!("there is no approval policy {name}; use untrusted, on-request, on-failure or never");
            ctx.trouble(text).await;
        }
    }
}

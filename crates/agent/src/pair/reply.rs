//! A turn that changes no file: an answer to a question, a few words to a greeting, the command for what is to be run.
//!
//! What the harness knows it says itself. Nothing here can write: blocks of code in an answer are text.

use std::path::PathBuf;

use api::responses::OutputItem;
use serde_json::json;

use super::{prompt, settings};
use crate::command::Prompt;
use crate::context::{self, Gathered, Shown};
use crate::event::{Event, Outcome};
use crate::facts::{self, Found, Missing, Project};
use crate::intent::Intent;
use crate::intent::language::Language;
use crate::names;
use crate::turn::{End, Reply, Step};
use crate::turn_context::{During, TurnContext};

/// Said where a command was written for the screen's `!` and no screen is there to run it.
const NO_SCREEN: &str = "`!` runs a command from the screen; here nothing was run.\n";

/// Longest list of words to search for.
const KEYWORD_TOKENS_MAX: usize = 32;

/// Runs one turn.
pub async fn turn(ctx: &mut TurnContext, prompt: &Prompt, intent: Intent) -> Outcome {
    if prompt.text.trim_start().starts_with('!') {
        return say(ctx, prompt, NO_SCREEN).await;
    }
    let known = match intent {
        Intent::Talk => None,
        _ => match know(ctx, prompt).await {
            None => return Outcome::Stopped,
            known => known,
        },
    };
    let missing = known.as_ref().map(|known| known.missing.as_slice()).unwrap_or_default();
    if intent != Intent::Command && !missing.is_empty() {
        return say(ctx, prompt, &facts::absent(missing, Language::of(&prompt.text))).await;
    }
    let gathered = known.as_ref().map(|known| &known.found.gathered);
    ctx.say(&prompt::question(gathered.unwrap_or(&Gathered::default()), prompt, intent)).await;
    for file in gathered.iter().flat_map(|gathered| &gathered.fresh).filter(|file| file.excerpt.is_none()) {
        ctx.conversation.show(&file.path, &file.text);
    }
    let settings = settings(ctx, &[]);
    let mut said = String::new();
    match answer(ctx, settings, &mut said).await {
        Ok(End::Stopped) => return Outcome::Stopped,
        Ok(_) => {}
        Err(why) => return Outcome::Failed { why },
    }
    names::tell(ctx, &said, &prompt.text).await;
    // Whoever wants JSON wants nothing behind it.
    if let Some(known) = known.filter(|_| intent != Intent::Command && ctx.options.output_schema.is_none()) {
        let citations = facts::citations(&known.project, &known.found, &prompt.text, &said);
        if !citations.is_empty() {
            let gap = if said.ends_with('\n') { "\n" } else { "\n\n" };
            ctx.emit(Event::Text { delta: format!("{gap}{}\n", facts::say_citations(&citations)) }).await;
        }
    }
    Outcome::Done
}

/// What is known about the workspace and the question.
struct Known {
    project: Project,
    found: Found,
    missing: Vec<Missing>,
}

/// Reads the workspace for a question. None when the person stopped it.
async fn know(ctx: &mut TurnContext, prompt: &Prompt) -> Option<Known> {
    let (root, asked) = (ctx.root(), prompt.text.clone());
    let read = tokio::task::spawn_blocking(move || {
        let project = Project::read(&root);
        let missing = facts::missing(&project, &asked);
        (project, missing)
    });
    let nothing = || Project { root: PathBuf::new(), sources: Vec::new(), paths: Vec::new(), unread: None };
    let (project, missing) = read.await.unwrap_or_else(|_| (nothing(), Vec::new()));
    let mut asked = prompt.clone();
    // Code is written in English: words of another language find nothing in it but names.
    if missing.is_empty() && Language::of(&asked.text) != Language::English && !project.is_small() {
        asked.text.push(' ');
        asked.text.push_str(&keywords(ctx, &prompt.text).await?);
    }
    let seen = ctx.conversation.seen().clone();
    let find = tokio::task::spawn_blocking(move || {
        let mut found = if missing.is_empty() { project.find(&asked) } else { Found::default() };
        // What the model has before it already is not shown again.
        let known = |file: &Shown| file.excerpt.is_none() && seen.get(&file.path) == Some(&context::hash(&file.text));
        let gathered = &mut found.gathered;
        gathered.known = gathered.fresh.extract_if(.., |file| known(file)).collect();
        let shown: Vec<PathBuf> = gathered.fresh.iter().map(|file| file.path.clone()).collect();
        gathered.parts.retain(|part| shown.contains(&part.path));
        Known { project, found, missing }
    });
    let known = find.await;
    let known = known.unwrap_or_else(|_| Known { project: nothing(), found: Found::default(), missing: Vec::new() });
    if !known.found.gathered.parts.is_empty() {
        ctx.emit(Event::FilesRead(known.found.gathered.read())).await;
    }
    Some(known)
}

/// What to look for in code, in English, for a question in another language. Empty when the model does not say, none when the
/// person stopped it.
async fn keywords(ctx: &mut TurnContext, text: &str) -> Option<String> {
    let client = match ctx.reach().await {
        Ok(client) => client?,
        Err(_) => return Some(String::new()),
    };
    let asked =
        format!("{}\n\nWhich English words would a search in the code use for this? Five words at most.", text.trim());
    let message = json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": asked}]});
    let body =
        json!({"model": ctx.model(), "input": [message], "store": false, "max_output_tokens": KEYWORD_TOKENS_MAX});
    let work = async move { client.respond(body).await?.finish().await };
    let mut work = std::pin::pin!(work);
    loop {
        match ctx.during(&mut work).await {
            During::Done(Ok(response)) => {
                ctx.spend(&response.usage.clone().unwrap_or_default());
                return Some(response.output.iter().filter_map(OutputItem::text).collect());
            }
            During::Done(Err(_)) => return Some(String::new()),
            During::Stop => return None,
            During::Steer(prompt, at) => ctx.steer_early(prompt, at).await,
            During::Decide { .. } => {}
        }
    }
}

/// Follows an answer to its end.
async fn answer(ctx: &mut TurnContext, settings: serde_json::Value, said: &mut String) -> Result<End, String> {
    let instructions = ctx.options.instructions.clone();
    let Some(mut reply) = Reply::start(ctx, &instructions, settings).await? else {
        return Ok(End::Stopped);
    };
    loop {
        match reply.next(ctx).await? {
            Step::Text(delta) => {
                said.push_str(&delta);
                ctx.emit(Event::Text { delta }).await;
            }
            Step::Turned | Step::Item(_) => {}
            Step::Ended(end) => return Ok(end),
        }
    }
}

/// An answer of the harness, which stands in the conversation like one of the model.
async fn say(ctx: &mut TurnContext, prompt: &Prompt, text: &str) -> Outcome {
    ctx.say(&prompt.text).await;
    let item = ctx.conversation.push_assistant(text);
    ctx.history.item(&item);
    ctx.emit(Event::Text { delta: text.to_owned() }).await;
    Outcome::Done
}

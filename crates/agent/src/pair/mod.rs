//! The working style for fast, small models: one question, one answer, whole functions or whole files.
//!
//! A turn gathers what the task is about, asks once, shows the change as it grows, and writes all of it or nothing. An
//! answer that does not apply is asked for once more with the reason, one that changes nothing without it; then the person
//! is asked. Fresh samples beat long repair chains, and making those is `candidates`' work. No command is run.

mod apply;
mod ask;
mod direct;
mod doubt;
mod draft;
mod parser;
mod place;
mod prompt;
mod reply;
mod request;
mod sample;

use std::path::PathBuf;

use serde_json::{Value, json};

pub(crate) use direct::is_rename;
pub use draft::{Block, Draft};
pub use parser::{Head, Parser, Part};
pub use prompt::{Task, message};
pub use sample::Question;

use crate::check;
use crate::command::Prompt;
use crate::context::{self, Gathered, Shown};
use crate::event::{Event, Outcome};
use crate::intent::Intent;
use crate::names;
use crate::turn::{End, Reply, Step};
use crate::turn_context::TurnContext;
use apply::{apply, write};

/// Tokens of an answer when nothing else is configured. A model that has lost its way repeats itself until stopped.
const OUTPUT_TOKENS_MIN: usize = 2_048;

/// Bytes of code per token, on the low side.
const BYTES_PER_TOKEN: usize = 3;

/// Randomness of another try after an answer that changed nothing: the same again would be the same again.
pub const FRESH_TEMPERATURE: f64 = 0.7;

/// How often an answer that changed nothing is asked for anew where a check fails. Each finds something in about a third of
/// the cases.
const FRESH_TRIES: usize = 3;

/// The same where there is no check that could tell a good answer.
const UNCHECKED_TRIES: usize = 1;

/// Runs one turn. Only a message that asks for a change can change a file.
pub async fn turn(ctx: &mut TurnContext, prompt: &Prompt, intent: Intent) -> Outcome {
    match intent {
        Intent::Change => change(ctx, prompt).await,
        _ => reply::turn(ctx, prompt, intent).await,
    }
}

/// A turn that changes files.
async fn change(ctx: &mut TurnContext, prompt: &Prompt) -> Outcome {
    if let Some(outcome) = direct::turn(ctx, prompt).await {
        return outcome;
    }
    let mut prompt = prompt.clone();
    if prompt.failing.is_none() && Task::of(&prompt.text).repair {
        prompt.failing = check::before_turn(ctx).await;
    }
    let prompt = &prompt;
    names::prepare(ctx);
    let gathered = gather(ctx, prompt).await;
    if let Some(several) = gathered.unclear.first() {
        ctx.say(&prompt.text).await;
        return ask::which(ctx, prompt, several.to_string(), Some(several)).await;
    }
    let files: Vec<Shown> = gathered.files().cloned().collect();
    let mut settings = settings(ctx, &files);
    let begins = ctx.conversation.items().len();
    ctx.say(&message(&gathered, prompt)).await;
    for file in &gathered.fresh {
        ctx.conversation.show(&file.path, &file.text);
    }
    let task = Task::of(&prompt.text);
    let fresh_max = if prompt.failing.is_some() { FRESH_TRIES } else { UNCHECKED_TRIES };
    let (mut repaired, mut fresh) = (false, 0);
    loop {
        let mut draft = Draft::new(ctx.root(), files.clone(), task, &prompt.text);
        match answer(ctx, &mut draft, &settings).await {
            Ok(End::Whole | End::Cut) => {}
            Ok(End::Stopped) => return stopped(ctx, &draft).await,
            Err(why) => return Outcome::Failed { why },
        }
        let failed = match apply(ctx, &draft, repaired).await {
            Ok(()) => return Outcome::Done,
            Err(failed) => failed,
        };
        match failed {
            NotApplied::Unclear { .. } | NotApplied::Nowhere { .. } if !repaired => {
                let why = failed.why();
                ctx.notice(format!("the change did not apply and is asked for again: {why}")).await;
                ctx.say(&ask::once_more(&failed)).await;
                repaired = true;
            }
            // Something must change. A small model that is told so says the same again (0 of 20); asked anew it finds a bug in
            // 6 of 20. What the person said in between must not be lost by that.
            NotApplied::Unchanged { names, .. }
                if fresh < fresh_max && ctx.conversation.items().len() == begins + 2 =>
            {
                fresh += 1;
                ctx.notice("the answer changes nothing; Flint asks the model for another one").await;
                ctx.conversation.truncate(begins);
                ctx.say(&message(&gathered, &anew(prompt, &names))).await;
                if ctx.config().temperature.is_none() {
                    settings["temperature"] = json!(FRESH_TEMPERATURE);
                }
                if ctx.config().is_local() {
                    settings["seed"] = json!(fresh);
                }
            }
            NotApplied::Refused(why) => return Outcome::Failed { why },
            failed => return ask::person(ctx, prompt, &failed).await,
        }
    }
}

/// The same task once more, for a model that answered with what is there already. What the answer defines is named only
/// where the person or the check names it too: anything else would be a task that nobody set.
fn anew(prompt: &Prompt, names: &[String]) -> Prompt {
    let evidence = prompt.failing.as_ref().map(|failing| failing.output.as_str()).unwrap_or_default();
    let known = |name: &&String| words(&prompt.text).chain(words(evidence)).any(|word| word == name.as_str());
    let names: Vec<&str> = names.iter().filter(known).map(String::as_str).collect();
    if names.is_empty() {
        return prompt.clone();
    }
    Prompt { text: format!("{} Write {} anew.", prompt.text, names.join(" and ")), ..prompt.clone() }
}

/// The names in a text.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_alphanumeric() && letter != '_')
}

/// Why a change was not made.
#[derive(Debug)]
pub(crate) enum NotApplied {
    /// The answer cannot be brought into a file; the model could do better.
    Unclear {
        /// What is wrong with it.
        why: String,
        /// The file.
        path: Option<PathBuf>,
    },
    /// Nothing says which file the answer belongs to.
    Nowhere {
        /// What has no file.
        what: String,
        /// Why.
        why: String,
        /// Files it could belong to.
        could: Vec<PathBuf>,
    },
    /// The answer is what is there already.
    Unchanged {
        /// What it defines.
        names: Vec<String>,
        /// The files that stay as they are.
        paths: Vec<PathBuf>,
    },
    /// The file system or the person said no.
    Refused(String),
}

impl NotApplied {
    pub(crate) fn why(&self) -> String {
        match self {
            Self::Unclear { why, .. } | Self::Refused(why) => why.clone(),
            Self::Nowhere { what, why, .. } => format!("{what}: {why}"),
            Self::Unchanged { .. } => {
                "the answer is what the file says already; say more exactly what is to change, or use `try`".to_owned()
            }
        }
    }
}

async fn gather(ctx: &mut TurnContext, prompt: &Prompt) -> Gathered {
    let (root, index) = (ctx.root(), ctx.index.clone());
    let (asked, seen) = (prompt.clone(), ctx.conversation.seen().clone());
    let work = tokio::task::spawn_blocking(move || context::gather(&root, &index, &asked, &seen));
    let gathered = work.await.unwrap_or_default();
    for notice in &gathered.notices {
        ctx.notice(notice.clone()).await;
    }
    if !gathered.fresh.is_empty() {
        ctx.emit(Event::FilesRead(gathered.read())).await;
    }
    gathered
}

/// Asks the model and follows its answer to the end.
async fn answer(ctx: &mut TurnContext, draft: &mut Draft, settings: &Value) -> Result<End, String> {
    let instructions = ctx.options.instructions.clone();
    let Some(mut reply) = Reply::start(ctx, &instructions, settings.clone()).await? else {
        return Ok(End::Stopped);
    };
    loop {
        match reply.next(ctx).await? {
            Step::Text(delta) => draft.push(ctx, &delta).await,
            Step::Turned => draft.turn(ctx).await,
            Step::Item(_) => {}
            Step::Ended(end) => {
                draft.finish(ctx, end == End::Whole).await;
                return Ok(end);
            }
        }
    }
}

/// What a request says beyond the conversation: greedy, long enough for what is shown, and what is expected.
fn settings(ctx: &TurnContext, files: &[Shown]) -> Value {
    let mut settings = json!({});
    let config = ctx.config();
    if config.temperature.is_none() {
        settings["temperature"] = json!(0);
    }
    let largest = files.iter().map(|file| file.text.len()).max().unwrap_or(0);
    if config.max_output_tokens.is_none() {
        settings["max_output_tokens"] = json!(OUTPUT_TOKENS_MIN.max(largest / BYTES_PER_TOKEN + 512));
    }
    if let Some(schema) = &ctx.options.output_schema {
        settings["text"] =
            json!({"format": {"type": "json_schema", "name": "answer", "strict": true, "schema": schema}});
    }
    let target = files.iter().find(|file| !context::files::is_test(&file.path)).or(files.first());
    if let Some(file) = target.filter(|_| config.is_local()) {
        settings["prediction"] = json!({"type": "content", "content": file.text});
    }
    settings
}

/// The person stopped the answer: nothing is written, and every change says so.
async fn stopped(ctx: &mut TurnContext, draft: &Draft) -> Outcome {
    for block in &draft.blocks {
        if let (Some(edit), Some(path)) = (block.edit, block.path.clone()) {
            let why = "stopped before it was written".to_owned();
            ctx.emit(Event::EditFailed { edit, path, why }).await;
        }
    }
    Outcome::Stopped
}

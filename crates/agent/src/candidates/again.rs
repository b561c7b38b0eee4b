//! Another answer after one that did not pass its check.
//!
//! The files and the conversation are as they were before that answer: a small model that is shown its own mistake repeats
//! it. Of 34 handmade bugs that qwen2.5-coder-1.5b does not repair at once, one departure from the answer (`pair::doubt`)
//! repairs 11 and one sample about 10.

use std::sync::Arc;

use workspace::edit::Written;

use super::turn::{apply, unless_stopped, write};
use super::{Author, Sampling, Taken};
use crate::pair::Question;
use crate::turn_context::TurnContext;
use crate::{Outcome, Prompt};

/// Answers that did not pass, of the question that is being asked.
#[derive(Debug, Default)]
pub struct Refused {
    taken: Taken,
    count: usize,
}

/// Takes back what the last turn wrote, and what was said in it.
pub async fn take_back(ctx: &mut TurnContext) -> Result<(), String> {
    let written = std::mem::take(&mut ctx.written);
    let back = |file: &Written| Written { path: file.path.clone(), old: file.new.clone(), new: file.old.clone() };
    let back: Vec<Written> = written.iter().map(back).collect();
    let journal = ctx.history.journal();
    let applied = tokio::task::spawn_blocking(move || apply(&journal, &back)).await;
    applied.map_err(|error| format!("taking the last answer back broke: {error}"))??;
    ctx.refused.taken.take(&written);
    ctx.refused.count += 1;
    ctx.forget_turn()
}

/// Asks for an answer that was not refused yet, and writes it.
pub async fn again(ctx: &mut TurnContext, prompt: &Prompt) -> Outcome {
    let question = match Question::new(ctx, prompt).await {
        Ok(question) => Arc::new(question.after(ctx.refused.count - 1)),
        Err(why) => return Outcome::Failed { why },
    };
    let refused = std::mem::take(&mut ctx.refused);
    let sampling = Sampling::of(1 + refused.count, ctx.config().temperature.unwrap_or(0.0));
    let answer = unless_stopped(ctx, question.write(sampling, &refused.taken)).await;
    ctx.refused = refused;
    let answer = match answer {
        Some(Ok(answer)) => answer,
        Some(Err(why)) => return Outcome::Failed { why },
        None => return Outcome::Stopped,
    };
    ctx.spend(&answer.usage);
    ctx.say(&question.message()).await;
    let item = ctx.conversation.push_assistant(&answer.answer);
    ctx.history.item(&item);
    ctx.history.ready().await;
    match answer.files {
        Ok(files) => write(ctx, &files).await,
        Err(why) => Outcome::Failed { why },
    }
}

//! A conversation made shorter by the model itself, before it no longer fits.
//!
//! The summary replaces everything said so far; files are shown again when they are needed. It is made while there is
//! still room to make it, which is what a model that waits for the wall cannot do.

use serde_json::{Value, json};

use crate::event::Event;
use crate::turn::{Reply, Step};
use crate::turn_context::TurnContext;

/// Share of the context that may be full before a turn begins; the rest is for its files and its answer.
const FULL_PERCENT: usize = 70;

/// Tokens of a summary.
const SUMMARY_TOKENS: usize = 400;

/// Characters per token, on the low side, for what the server has not counted.
const CHARACTERS_PER_TOKEN: usize = 3;

const ASK: &str = "Summarise this conversation for yourself in at most 200 words, because you will forget it: what the \
                   user wants, what was changed in which file, what is still to do. No code.";

/// Makes the conversation shorter when it is about to be too long.
pub async fn when_full(ctx: &mut TurnContext) {
    let window = ctx.config().model_context_window.unwrap_or(ctx.status.context);
    let limit = ctx.config().model_auto_compact_token_limit.unwrap_or(window * FULL_PERCENT / 100);
    if limit > 0 && ctx.status.context_used > limit {
        now(ctx).await;
    }
}

/// Makes the conversation shorter.
pub async fn now(ctx: &mut TurnContext) {
    if ctx.conversation.items().is_empty() {
        return ctx.notice("The conversation is empty, so there is nothing to make shorter.").await;
    }
    let before = ctx.status.context_used.max(ctx.conversation.characters() / CHARACTERS_PER_TOKEN);
    ctx.notice("The model summarises the conversation; this makes room …").await;
    let asked = ctx.history.turn_lines();
    let summary = match summarise(ctx, before).await {
        Ok(summary) => summary,
        Err(why) => return ctx.trouble(format!("the conversation could not be made shorter: {why}")).await,
    };
    let requests: Vec<String> = asked.iter().map(|turn| format!("- {}", first_line(&turn.text))).collect();
    let kept = format!("{}\n\nWhat was asked so far:\n{}", summary.trim(), requests.join("\n"));
    let text = format!("The conversation so far, in short:\n\n{kept}");
    let item = json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]});
    ctx.conversation.replace(vec![item.clone()]);
    ctx.history.compacted(vec![item], &kept);
    let after = text.len() / CHARACTERS_PER_TOKEN;
    ctx.status.context_used = after;
    ctx.emit(Event::Compacted { kept, tokens: (before, after) }).await;
}

/// Asks the model in use, with the oldest part left out where the whole would not fit.
async fn summarise(ctx: &mut TurnContext, tokens: usize) -> Result<String, String> {
    let whole = ctx.conversation.clone();
    let window = ctx.config().model_context_window.unwrap_or(ctx.status.context);
    let room = window.saturating_sub(2 * SUMMARY_TOKENS);
    let mut items: Vec<Value> = whole.items().to_vec();
    let mut tokens = tokens;
    while window > 0 && tokens > room && items.len() > 1 {
        tokens = tokens.saturating_sub(items.remove(0).to_string().len() / CHARACTERS_PER_TOKEN);
    }
    ctx.conversation.replace(items);
    ctx.conversation.push_user(ASK);
    let answer = ask(ctx).await;
    ctx.conversation = whole;
    answer
}

async fn ask(ctx: &mut TurnContext) -> Result<String, String> {
    let settings = json!({"temperature": 0, "max_output_tokens": SUMMARY_TOKENS});
    let instructions = ctx.options.instructions.clone();
    let Some(mut reply) = Reply::start(ctx, &instructions, settings).await?.map(Reply::unheard) else {
        return Err("it was stopped".to_owned());
    };
    let mut summary = String::new();
    loop {
        match reply.next(ctx).await? {
            Step::Text(delta) => summary.push_str(&delta),
            Step::Ended(_) if summary.trim().is_empty() => return Err("the model said nothing".to_owned()),
            Step::Ended(_) => return Ok(summary),
            Step::Item(_) | Step::Turned => {}
        }
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(200).collect()
}

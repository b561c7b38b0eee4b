//! A conversation made shorter by the model itself, before it no longer fits.
//!
//! The summary replaces everything said so far; files are shown again when they are needed. It is made while there is
//! still room to make it, which is what a model that waits for the wall cannot do.

use serde_json::{Value, json};

use crate::desk::Desk;
use crate::event::Event;
use crate::turn::{Reply, Step};

/// Share of the context that may be full before a turn begins; the rest is for its files and its answer.
const FULL_PERCENT: usize = 70;

/// Tokens of a summary.
const SUMMARY_TOKENS: usize = 400;

/// Characters per token, on the low side, for what the server has not counted.
const CHARACTERS_PER_TOKEN: usize = 3;

const ASK: &str = "Summarise this conversation for yourself in at most 200 words, because you will forget it: what the \
                   user wants, what was changed in which file, what is still to do. No code.";

/// Makes the conversation shorter when it is about to be too long.
pub async fn when_full(desk: &mut Desk) {
    let window = desk.config().model_context_window.unwrap_or(desk.status.context);
    let limit = desk.config().model_auto_compact_token_limit.unwrap_or(window * FULL_PERCENT / 100);
    if limit > 0 && desk.status.context_used > limit {
        now(desk).await;
    }
}

/// Makes the conversation shorter.
pub async fn now(desk: &mut Desk) {
    if desk.conversation.items().is_empty() {
        return desk.notice("The conversation is empty, so there is nothing to make shorter.").await;
    }
    let before = desk.status.context_used.max(desk.conversation.characters() / CHARACTERS_PER_TOKEN);
    desk.notice("The model summarises the conversation; this makes room …").await;
    let asked = desk.history.turn_lines();
    let summary = match summarise(desk, before).await {
        Ok(summary) => summary,
        Err(why) => return desk.trouble(format!("the conversation could not be made shorter: {why}")).await,
    };
    let requests: Vec<String> = asked.iter().map(|turn| format!("- {}", first_line(&turn.text))).collect();
    let kept = format!("{}\n\nWhat was asked so far:\n{}", summary.trim(), requests.join("\n"));
    let text = format!("The conversation so far, in short:\n\n{kept}");
    let item = json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]});
    desk.conversation.replace(vec![item.clone()]);
    desk.history.compacted(vec![item], &kept);
    let after = text.len() / CHARACTERS_PER_TOKEN;
    desk.status.context_used = after;
    desk.emit(Event::Compacted { kept, tokens: (before, after) }).await;
}

/// Asks the model in use, with the oldest part left out where the whole would not fit.
async fn summarise(desk: &mut Desk, tokens: usize) -> Result<String, String> {
    let whole = desk.conversation.clone();
    let window = desk.config().model_context_window.unwrap_or(desk.status.context);
    let room = window.saturating_sub(2 * SUMMARY_TOKENS);
    let mut items: Vec<Value> = whole.items().to_vec();
    let mut tokens = tokens;
    while window > 0 && tokens > room && items.len() > 1 {
        tokens = tokens.saturating_sub(items.remove(0).to_string().len() / CHARACTERS_PER_TOKEN);
    }
    desk.conversation.replace(items);
    desk.conversation.push_user(ASK);
    let answer = ask(desk).await;
    desk.conversation = whole;
    answer
}

async fn ask(desk: &mut Desk) -> Result<String, String> {
    let settings = json!({"temperature": 0, "max_output_tokens": SUMMARY_TOKENS});
    let instructions = desk.options.instructions.clone();
    let Some(mut reply) = Reply::start(desk, &instructions, settings).await?.map(Reply::unheard) else {
        return Err("it was stopped".to_owned());
    };
    let mut summary = String::new();
    loop {
        match reply.next(desk).await? {
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

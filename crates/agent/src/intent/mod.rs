//! What a message asks for, decided before anything is done about it.
//!
//! What is certain is decided by rules. Everything else the model decides itself, in one token: it reads a short list of
//! sorted examples, which stays in the prefix cache, and the message, and the probabilities of the five words it may say
//! next are the decision. A change nobody asked for is far worse than a question, so files are changed only when a change
//! is nearly certain, and between the two thresholds the person is asked.

pub mod language;
mod leaning;
mod rules;

use std::time::Instant;

pub use leaning::Leanings;

use api::responses::OutputItem;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::command::{Decision, Prompt};
use crate::event::{ApprovalAsk, Event};
use crate::pair;
use crate::turn_context::{During, TurnContext};

/// What a message asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Intent {
    /// A greeting, thanks, a remark.
    Talk,
    /// An answer: about the code, a review, something to be shown.
    Question,
    /// Files that are different afterwards.
    Change,
    /// A command to be run.
    Command,
    /// It says too little, or could be a change as well as a question.
    Unclear,
}

/// What to do with messages, as configured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Setting {
    /// Every message is decided.
    #[default]
    Auto,
    /// No message changes files.
    Answer,
    /// Every message asks for a change.
    Change,
}

/// A decision and how it was made.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decided {
    /// What is asked for.
    pub intent: Intent,
    /// How likely the model found each intent; none when a rule or the person decided.
    pub odds: Option<Odds>,
    /// What speaks for a change, as log-odds; see `CHANGE_FROM`.
    pub evidence: Option<f64>,
    /// Prompt tokens that were computed for the message.
    pub tokens: usize,
    /// How long it took.
    pub ms: f64,
}

impl Decided {
    /// What a message was taken for, in a few words.
    pub fn words(&self) -> String {
        let what = match self.intent {
            Intent::Talk => "talk: no file changes",
            Intent::Question => "a question: no file changes",
            Intent::Change => "a change",
            Intent::Command => "a command: no file changes",
            Intent::Unclear => "unclear",
        };
        let sure = self.odds.map(|odds| format!(" (change {:.0} %)", odds.change * 100.0)).unwrap_or_default();
        format!("taken for {what}{sure}")
    }
}

/// Probabilities of the intents; they sum to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Odds {
    /// Of [`Intent::Talk`].
    pub talk: f64,
    /// Of [`Intent::Question`].
    pub question: f64,
    /// Of [`Intent::Change`].
    pub change: f64,
    /// Of [`Intent::Command`].
    pub command: f64,
    /// Of [`Intent::Unclear`].
    pub unclear: f64,
}

/// Files are changed from this evidence for a change on, and below the other one the message is answered; between the two the
/// person is asked. Evidence is the log-odds of a change, less those of an empty message, which asks for nothing: models
/// lean to one word or another (to an empty message the 0.5B says `edit` twice as often as the 1.5B), and the same two
/// numbers fit both once that is taken out (contextual calibration, Zhao and others, 2021).
///
/// Of the 136 messages of `bench/intent/first.jsonl` that ask for no change, in eight languages, the 1.5B takes none for one and
/// asks about 15, the 0.5B takes one and asks about 12. Of the 64 that ask for one both miss one, and ask about 13 and 28.
const CHANGE_FROM: f64 = 4.2;
const ANSWER_BELOW: f64 = 1.0;

/// What a decision is when nothing is known of the model's leaning: near that of the 1.5B.
const LEANING: f64 = -2.0;

/// What the model is told before the examples.
const INSTRUCTIONS: &str = "You decide what a coding assistant does with a message. Reply with one word. chat: it is a \
    greeting, thanks or a remark. answer: the person wants to know or see something, or an opinion; no file may change. \
    edit: the person wants code or files to be different, also when asked politely or as a complaint. run: the person \
    wants a command run. unclear: it says too little.";

/// Sorted messages: a word, a tab, the message.
const EXAMPLES: &str = include_str!("examples.txt");

/// The words the model may say.
const WORDS: [&str; 5] = ["chat", "answer", "edit", "run", "unclear"];

/// About as many tokens of a message are read from its beginning and from its end. What stands between is pasted.
const BEGINNING: usize = 18;
const END: usize = 14;

/// Likeliest tokens asked for; the words are among them.
const ALTERNATIVES: usize = 20;

/// Tokens a model of another provider may think and say. Ours says one.
const ELSEWHERE_TOKENS_MAX: usize = 1_024;

/// Decides what the message asks for and tells the person. With it the message, which is joined to what was asked before where
/// it answers a question about that. None when they stopped it.
pub async fn of(ctx: &mut TurnContext, prompt: &Prompt) -> Result<Option<(Decided, Prompt)>, String> {
    let begun = Instant::now();
    let offered = ctx.open.as_ref().is_some_and(|open| open.offers(&prompt.text)).then_some(Intent::Change);
    let sure = prompt.intent.or_else(|| set(ctx.config().intent)).or(offered).or_else(|| rules::intent(&prompt.text));
    let sure = match sure {
        None if pair::is_rename(ctx.root(), &prompt.text).await => Some(Intent::Change),
        sure => sure,
    };
    let mut decided = match sure {
        Some(intent) => Decided { intent, odds: None, evidence: None, tokens: 0, ms: 0.0 },
        None => match ask_model(ctx, &prompt.text).await? {
            Some(decided) => decided,
            None => return Ok(None),
        },
    };
    // What says too little to act on answers a question that is open. A change that stands alone is one of its own.
    let answers = offered.is_some() && decided.odds.is_none() || decided.intent == Intent::Unclear;
    let mut prompt = prompt.clone();
    if let Some(open) = ctx.open.take().filter(|_| answers) {
        (decided.intent, prompt) = (Intent::Change, open.answered(&prompt));
    }
    decided.ms = begun.elapsed().as_micros() as f64 / 1000.0;
    ctx.asked = Some((prompt.clone(), decided.intent));
    ctx.emit(Event::Intent(decided.clone())).await;
    Ok(Some((decided, prompt)))
}

/// The same, and what is unclear is asked about: changed only when the person says so.
pub async fn settle(ctx: &mut TurnContext, prompt: &Prompt) -> Result<Option<(Intent, Prompt)>, String> {
    let Some((decided, prompt)) = of(ctx, prompt).await? else { return Ok(None) };
    if decided.intent != Intent::Unclear {
        return Ok(Some((decided.intent, prompt)));
    }
    let why = "your message can be read either way".to_owned();
    let intent = match ctx.ask(ApprovalAsk::Change, why).await {
        Decision::Yes | Decision::Always => Intent::Change,
        Decision::No => Intent::Question,
        Decision::Stop => return Ok(None),
    };
    Ok(Some((intent, prompt)))
}

fn set(setting: Setting) -> Option<Intent> {
    match setting {
        Setting::Auto => None,
        Setting::Answer => Some(Intent::Question),
        Setting::Change => Some(Intent::Change),
    }
}

async fn ask_model(ctx: &mut TurnContext, text: &str) -> Result<Option<Decided>, String> {
    let (model, local) = (ctx.model(), ctx.config().is_local());
    let mut known = ctx.leanings.of(&model).filter(|_| local);
    if known.is_none() && local {
        let Some(leaning) = measure(ctx).await? else { return Ok(None) };
        known = Some(leaning);
    }
    let Some(reply) = request(ctx, text, false).await? else { return Ok(None) };
    if known.as_ref().is_some_and(|(weights, _)| *weights != reply.weights) {
        let Some(leaning) = measure(ctx).await? else { return Ok(None) };
        known = Some(leaning);
    }
    let leaning = known.map_or(LEANING, |(_, leaning)| leaning);
    let evidence = reply.odds.evidence(leaning);
    let intent = reply.odds.intent(evidence);
    let Reply { odds, tokens, .. } = reply;
    Ok(Some(Decided { intent, odds: Some(odds), evidence: Some(evidence), tokens, ms: 0.0 }))
}

/// What the model says to an empty message, with the weights that said it. It is the one request that the server may keep, so
/// that the examples are read from disk the next time it starts.
async fn measure(ctx: &mut TurnContext) -> Result<Option<(String, f64)>, String> {
    let keep = !ctx.options.ephemeral;
    let Some(empty) = request(ctx, "", keep).await? else { return Ok(None) };
    let (model, leaning) = (ctx.model(), empty.odds.evidence(0.0));
    // What cannot be kept is measured again the next time.
    let _ = ctx.leanings.keep(&model, &empty.weights, leaning);
    Ok(Some((empty.weights, leaning)))
}

/// What the model said about one message.
struct Reply {
    odds: Odds,
    /// Prompt tokens that were computed.
    tokens: usize,
    /// The identity of the weights, where the server gives probabilities and says so.
    weights: String,
}

async fn request(ctx: &mut TurnContext, text: &str, keep: bool) -> Result<Option<Reply>, String> {
    let Some(client) = ctx.reach().await? else { return Ok(None) };
    let local = ctx.config().is_local();
    let mut body = json!({
        "model": ctx.model(),
        "instructions": INSTRUCTIONS,
        "input": input(text),
        "store": keep,
        "max_output_tokens": if local { 1 } else { ELSEWHERE_TOKENS_MAX },
    });
    if local {
        body["temperature"] = json!(0);
        body["top_logprobs"] = json!(ALTERNATIVES);
    }
    if ctx.usage.requests == 0 {
        let after_ms = ctx.elapsed_ms();
        ctx.emit(Event::Requested { after_ms }).await;
    }
    let work = async move { client.respond(body).await?.finish().await };
    let mut work = std::pin::pin!(work);
    let response = loop {
        match ctx.during(&mut work).await {
            During::Done(got) => {
                if matches!(got, Err(client::ClientError::Connect { .. })) {
                    ctx.disconnect();
                }
                break got.map_err(|error| error.to_string())?;
            }
            During::Stop => return Ok(None),
            During::Steer(prompt, at) => ctx.steer_early(prompt, at).await,
            During::Decide { .. } => {}
        }
    };
    let usage = response.usage.clone().unwrap_or_default();
    ctx.spend(&usage);
    let tokens = usage.input_tokens.saturating_sub(usage.input_tokens_details.cached_tokens);
    let weights = response.flint.as_ref().filter(|_| local).map(|flint| flint.weights.clone()).unwrap_or_default();
    Ok(Some(Reply { odds: odds(&response.output), tokens, weights }))
}

/// The examples and the message, as a conversation.
fn input(text: &str) -> Vec<Value> {
    let said = |role: &str, kind: &str, text: &str| json!({"type": "message", "role": role, "content": [{"type": kind, "text": text}]});
    let examples = EXAMPLES.lines().filter_map(|line| line.split_once('\t'));
    let mut items: Vec<Value> = examples
        .flat_map(|(word, text)| {
            [said("user", "input_text", &text.replace("\\n", "\n")), said("assistant", "output_text", word)]
        })
        .collect();
    items.push(said("user", "input_text", &shortened(text)));
    items
}

/// The beginning and the end of a long message.
fn shortened(text: &str) -> String {
    let text = text.trim();
    let pieces: Vec<&str> = pieces(text).collect();
    let total: f32 = pieces.iter().map(|piece| tokens(piece)).sum();
    if total <= (BEGINNING + END) as f32 {
        return text.to_owned();
    }
    let upto = |pieces: &mut dyn Iterator<Item = &&str>, limit: usize| {
        let mut sum = 0.0;
        pieces
            .take_while(|piece| {
                sum += tokens(piece);
                sum <= limit as f32
            })
            .map(|piece| piece.len())
            .sum::<usize>()
    };
    let begins = upto(&mut pieces.iter(), BEGINNING);
    let ends = text.len() - upto(&mut pieces.iter().rev(), END);
    format!("{} … {}", text[..begins].trim_end(), text[ends..].trim_start())
}

/// Words of one script and single other characters. A long word is cut: nobody types one.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    const LETTERS_MAX: usize = 24;
    let mut rest = text;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let of_word = |letter: char| {
            letter.is_alphabetic() && (letter.is_ascii() == first.is_ascii()) && (letter as u32) < 0x2e80
        };
        let length = match of_word(first) {
            true => rest.chars().take(LETTERS_MAX).take_while(|letter| of_word(*letter)).map(char::len_utf8).sum(),
            false => first.len_utf8(),
        };
        let (piece, more) = rest.split_at(length);
        rest = more;
        Some(piece)
    })
}

/// About how many tokens a piece is: measured with the vocabulary of Qwen2.5, on the high side.
fn tokens(piece: &str) -> f32 {
    let Some(first) = piece.chars().next() else { return 0.0 };
    let letters = piece.chars().count() as f32;
    match first {
        // A space belongs to the word behind it.
        ' ' => 0.1,
        _ if !first.is_alphabetic() => 1.0,
        _ if first.is_ascii() => (letters / 5.0).ceil(),
        _ if (first as u32) < 0x2e80 => (letters / 2.5).ceil(),
        _ => 0.9,
    }
}

/// What the first token says. A model that gives no probabilities is believed, one that says something else is not.
fn odds(output: &[OutputItem]) -> Odds {
    let mut weights = [0.0; WORDS.len()];
    let parts = output.iter().filter_map(|item| match item {
        OutputItem::Message { content, .. } => Some(content),
        _ => None,
    });
    let first = parts.flatten().find_map(|part| part.logprobs.first());
    match first {
        Some(token) => {
            for other in &token.top_logprobs {
                if let Some(at) = word(&other.token) {
                    weights[at] += f64::from(other.logprob).exp();
                }
            }
        }
        None => {
            let text: String = output.iter().filter_map(OutputItem::text).collect();
            let said = text.trim().split(|letter: char| !letter.is_alphabetic()).next().unwrap_or_default();
            if let Some(at) = WORDS.iter().position(|word| said.eq_ignore_ascii_case(word)) {
                weights[at] = 1.0;
            }
        }
    }
    let sum: f64 = weights.iter().sum();
    if sum <= 0.0 {
        return Odds { unclear: 1.0, ..Odds::default() };
    }
    let [talk, question, change, command, unclear] = weights.map(|weight| weight / sum);
    Odds { talk, question, change, command, unclear }
}

/// The word that a token begins.
fn word(token: &str) -> Option<usize> {
    let token = token.trim().to_ascii_lowercase();
    (!token.is_empty()).then(|| WORDS.iter().position(|word| word.starts_with(&token))).flatten()
}

impl Odds {
    /// The log-odds of a change, less those of an empty message.
    fn evidence(&self, leaning: f64) -> f64 {
        let change = self.change.clamp(1e-6, 1.0 - 1e-6);
        (change / (1.0 - change)).ln() - leaning
    }

    /// What follows from them.
    fn intent(&self, evidence: f64) -> Intent {
        if evidence >= CHANGE_FROM {
            return Intent::Change;
        }
        if evidence >= ANSWER_BELOW {
            return Intent::Unclear;
        }
        let others = [
            (self.talk, Intent::Talk),
            (self.question, Intent::Question),
            (self.command, Intent::Command),
            (self.unclear, Intent::Unclear),
        ];
        let likeliest = others.into_iter().max_by(|one, other| one.0.total_cmp(&other.0));
        likeliest.map_or(Intent::Unclear, |(_, intent)| intent)
    }
}

#[cfg(test)]
mod tests;

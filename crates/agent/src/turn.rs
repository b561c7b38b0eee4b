//! One answer of the model as a turn sees it: text in pieces, steered and stopped by the person while it comes.
//!
//! [`Reply`] hides how a steer travels. A Flint server turns the running response at its next token; with any other
//! provider the response is cancelled, what was said is kept, and a new request goes out. The turn sees the same steps.

use std::time::Instant;

use api::responses::{EventKind, OutputItem};
use client::Answer;
use serde_json::Value;

use crate::command::Prompt;
use crate::event::Event;
use crate::turn_context::{During, TurnContext};

/// What came next.
#[derive(Debug)]
pub enum Step {
    /// The model wrote this.
    Text(String),
    /// The model finished an item that is no message, such as a call of a tool.
    Item(Box<OutputItem>),
    /// A steer took effect: what was said so far is in the conversation, and the model begins to answer it.
    Turned,
    /// The answer is over.
    Ended(End),
}

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The model had said all.
    Whole,
    /// It reached the limit of tokens.
    Cut,
    /// The person stopped it.
    Stopped,
}

/// One answer under way.
pub struct Reply {
    answer: Answer,
    instructions: String,
    more: Value,
    /// What the model has said since the last item of the conversation.
    said: String,
    steers: Vec<(Prompt, Instant)>,
    /// Steers that were accepted and whose first token is waited for.
    applying: Option<Instant>,
    cut: bool,
    /// The first event of the first response was seen.
    begun: bool,
    /// What is said is not part of the conversation.
    unheard: bool,
}

impl Reply {
    /// The same, of which nothing is kept in the conversation.
    pub fn unheard(mut self) -> Self {
        self.unheard = true;
        self
    }

    /// Sends a request and waits for its first event. None when the person stopped it before that.
    pub async fn start(ctx: &mut TurnContext, instructions: &str, more: Value) -> Result<Option<Self>, String> {
        let Some(answer) = send(ctx, instructions, &more).await? else { return Ok(None) };
        let instructions = instructions.to_owned();
        Ok(Some(Self {
            answer,
            instructions,
            more,
            said: String::new(),
            steers: Vec::new(),
            applying: None,
            cut: false,
            begun: false,
            unheard: false,
        }))
    }

    /// The next step. After [`Step::Ended`] there is none.
    pub async fn next(&mut self, ctx: &mut TurnContext) -> Result<Step, String> {
        loop {
            if !self.unheard
                && let Some((prompt, at)) = ctx.next_early()
            {
                if self.steer(ctx, prompt, at).await? {
                    return Ok(Step::Turned);
                }
                continue;
            }
            let got = match ctx.during(self.answer.next()).await {
                During::Done(got) => got,
                During::Steer(prompt, at) if self.unheard => {
                    ctx.steer_early(prompt, at).await;
                    continue;
                }
                During::Steer(prompt, at) => {
                    if self.steer(ctx, prompt, at).await? {
                        return Ok(Step::Turned);
                    }
                    continue;
                }
                During::Decide { .. } => continue,
                During::Stop => {
                    self.answer.cancel().await;
                    self.keep_said(ctx).await;
                    return Ok(Step::Ended(End::Stopped));
                }
            };
            let Some(event) = got else {
                self.keep_said(ctx).await;
                return Ok(Step::Ended(if self.cut { End::Cut } else { End::Whole }));
            };
            let event = event.map_err(|error| error.to_string())?;
            if let Some(step) = self.take(ctx, event.kind).await? {
                return Ok(step);
            }
        }
    }

    async fn take(&mut self, ctx: &mut TurnContext, kind: EventKind) -> Result<Option<Step>, String> {
        match kind {
            EventKind::TextDelta { delta, .. } => {
                if ctx.usage.first_token_ms.is_none() {
                    ctx.usage.first_token_ms = Some(ctx.elapsed_ms());
                }
                if let Some(at) = self.applying.take() {
                    ctx.emit(Event::SteerApplied { after_ms: ms(at) }).await;
                }
                self.said.push_str(&delta);
                return Ok(Some(Step::Text(delta)));
            }
            EventKind::ItemDone { item, .. } if item.text().is_none() => return Ok(Some(Step::Item(Box::new(item)))),
            EventKind::SteerAccepted { .. } => {
                if let Some((_, at)) = self.steers.last() {
                    ctx.emit(Event::SteerAccepted { after_ms: ms(*at) }).await;
                }
            }
            EventKind::SteerFailed { error, .. } => {
                if let Some((prompt, _)) = self.steers.pop() {
                    ctx.emit(Event::SteerFailed { text: prompt.text, why: error.message }).await;
                }
            }
            EventKind::Created { .. } if !self.begun => self.begun = true,
            EventKind::Created { .. } if !self.steers.is_empty() => {
                self.keep_said(ctx).await;
                for (prompt, at) in std::mem::take(&mut self.steers) {
                    ctx.say(&prompt.text).await;
                    self.applying = Some(at);
                }
                return Ok(Some(Step::Turned));
            }
            EventKind::Failed { response } => {
                ctx.account(&response).await;
                let why = response.error.map_or_else(|| "the response failed".to_owned(), |error| error.message);
                return Err(why);
            }
            EventKind::Completed { response } | EventKind::Incomplete { response } => {
                ctx.account(&response).await;
                let reason = response.incomplete_details.as_ref().map(|details| details.reason.as_str());
                self.cut = reason == Some("max_output_tokens");
            }
            _ => {}
        }
        Ok(None)
    }

    /// Redirects the answer. True when that took effect at once, because the server cannot be steered.
    async fn steer(&mut self, ctx: &mut TurnContext, prompt: Prompt, at: Instant) -> Result<bool, String> {
        let input = Value::String(prompt.text.clone());
        if self.answer.steer(input).await.is_ok() {
            self.steers.push((prompt, at));
            return Ok(false);
        }
        self.answer.cancel().await;
        self.keep_said(ctx).await;
        ctx.say(&prompt.text).await;
        ctx.emit(Event::SteerAccepted { after_ms: ms(at) }).await;
        if let Some(answer) = send(ctx, &self.instructions, &self.more).await? {
            self.answer = answer;
            self.begun = false;
            self.applying = Some(at);
        }
        Ok(true)
    }

    /// Puts what the model said into the conversation.
    async fn keep_said(&mut self, ctx: &mut TurnContext) {
        let said = std::mem::take(&mut self.said);
        if !said.is_empty() && !self.unheard {
            let item = ctx.conversation.push_assistant(&said);
            ctx.history.item(&item);
        }
    }
}

/// Sends a request; none when the person stopped it. A steer meanwhile turns the answer once there is one.
async fn send(ctx: &mut TurnContext, instructions: &str, more: &Value) -> Result<Option<Answer>, String> {
    let Some(client) = ctx.reach().await? else { return Ok(None) };
    let body = ctx.body(instructions, more.clone());
    let after_ms = ctx.elapsed_ms();
    if ctx.usage.requests == 0 {
        ctx.emit(Event::Requested { after_ms }).await;
    }
    ctx.usage.requests += 1;
    let respond = client.respond(body);
    tokio::pin!(respond);
    loop {
        let got = match ctx.during(&mut respond).await {
            During::Done(got) => got,
            During::Stop => return Ok(None),
            During::Steer(prompt, at) => {
                ctx.steer_early(prompt, at).await;
                continue;
            }
            During::Decide { .. } => continue,
        };
        if matches!(got, Err(client::ClientError::Connect { .. })) {
            ctx.disconnect();
        }
        let answer = got.map_err(|error| error.to_string())?;
        ctx.status.transport = Some(answer.transport().to_string());
        return Ok(Some(answer));
    }
}

/// Milliseconds since then.
fn ms(since: Instant) -> f64 {
    since.elapsed().as_micros() as f64 / 1000.0
}

//! One request and its answer: text goes to the screen, calls are collected, and the person may step in at any token.

use std::time::{Duration, Instant};

use api::responses::{EventKind, OutputItem, Response, Status};
use client::{Answer, ClientError};
use serde_json::Value;
use tokio::time::timeout;

use super::calls::Pending;
use super::{Control, Turn};
use crate::Event;
use crate::tools::{INPUT_BYTES_MAX, ToolCall};

/// How long the last events of a stopped answer are waited for.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// What the model said, as far as the loop cares.
pub struct Heard {
    /// What it called.
    pub calls: Vec<Pending>,
    /// The person stopped it.
    pub stopped: bool,
}

/// An answer as it comes.
#[derive(Default)]
struct Listener {
    calls: Vec<Pending>,
    /// Text of the message under way.
    text: String,
    /// Words that the server took and that its successor will answer.
    taken: Vec<String>,
    /// A response has ended; what begins now is its successor.
    ended: bool,
    /// The answer was cut off: by the person, or to ask again with what the person said.
    cut: bool,
    stopped: bool,
    first_delta: Option<Instant>,
}

impl Turn<'_> {
    /// Sends the conversation and listens to the end of the answer. The error is for the person.
    pub(super) async fn ask(&mut self) -> Result<Heard, String> {
        let mut answer = match self.send().await {
            Ok(answer) => answer,
            Err(ClientError::BadRequest { .. } | ClientError::NotFound { .. }) if self.conversation.leaves_out() => {
                // The server forgot the response we go on from, as after a restart.
                self.conversation.send_all();
                self.send().await.map_err(|error| error.to_string())?
            }
            Err(error) => return Err(error.to_string()),
        };
        let mut listener = Listener::default();
        while !listener.cut {
            tokio::select! {
                biased;
                control = self.control.recv() => self.step_in(control, &mut answer, &mut listener).await,
                event = answer.next() => match event {
                    Some(Ok(event)) => self.hear(event.kind, &mut listener).await?,
                    Some(Err(error)) => {
                        self.keep(&mut listener);
                        return Err(error.to_string());
                    }
                    None => break,
                },
            }
        }
        if listener.cut {
            self.last_words(&mut answer, &mut listener).await;
        }
        self.keep(&mut listener);
        Ok(Heard { calls: listener.calls, stopped: listener.stopped })
    }

    async fn send(&mut self) -> Result<Answer, ClientError> {
        let request = self.conversation.request(&self.of.settings, &self.of.tools.specs());
        self.usage.requests += 1;
        if self.usage.requests == 1 {
            self.say(Event::Requested { after_ms: self.begun.elapsed().as_secs_f64() * 1e3 }).await;
        }
        self.of.client.respond(request).await
    }

    async fn step_in(&mut self, control: Option<Control>, answer: &mut Answer, listener: &mut Listener) {
        let Some(Control::Steer { text, at }) = control else {
            (listener.cut, listener.stopped) = (true, true);
            answer.cancel().await;
            return;
        };
        // With calls to answer first, the words follow their results; the server would say the same.
        if !listener.calls.is_empty() {
            return self.waiting.push((text, at));
        }
        match answer.steer(Value::from(text.as_str())).await {
            Ok(()) => {
                listener.taken.push(text);
                self.unanswered.push(at);
            }
            Err(_) => {
                // This server cannot be redirected in the middle: what it said is kept, and a new request follows.
                answer.cancel().await;
                self.waiting.push((text, at));
                listener.cut = true;
            }
        }
    }

    async fn hear(&mut self, event: EventKind, listener: &mut Listener) -> Result<(), String> {
        match event {
            EventKind::TextDelta { delta, .. } => {
                self.token_came(listener).await;
                listener.text.push_str(&delta);
                self.say(Event::Text { delta }).await;
            }
            EventKind::ArgumentsDelta { .. } | EventKind::InputDelta { .. } | EventKind::ReasoningDelta { .. } => {
                self.token_came(listener).await;
            }
            EventKind::ItemDone { item, .. } => self.item(&item, listener),
            EventKind::SteerAccepted { .. } => {
                if let Some(at) = self.unanswered.last() {
                    let after_ms = at.elapsed().as_secs_f64() * 1e3;
                    self.say(Event::SteerAccepted { after_ms }).await;
                }
            }
            EventKind::SteerPending { .. } => {
                // A call came in between. The words are ours to send, after its result, with the whole conversation.
                let at = self.unanswered.pop().unwrap_or_else(Instant::now);
                self.waiting.extend(listener.taken.pop().map(|text| (text, at)));
                self.conversation.send_all();
            }
            EventKind::SteerFailed { error, .. } => {
                self.unanswered.pop();
                if let Some(text) = listener.taken.pop() {
                    self.say(Event::SteerFailed { text, why: error.message }).await;
                }
            }
            EventKind::Created { .. } => self.successor(listener),
            other => {
                if let Some(response) = other.ended() {
                    self.ended(response, listener)?;
                }
            }
        }
        Ok(())
    }

    async fn token_came(&mut self, listener: &mut Listener) {
        let now = Instant::now();
        listener.first_delta.get_or_insert(now);
        if self.usage.first_token_ms.is_none() {
            self.usage.first_token_ms = Some((now - self.begun).as_secs_f64() * 1e3);
        }
        if !listener.taken.is_empty() {
            return; // Still the answer that is being turned.
        }
        for at in std::mem::take(&mut self.unanswered) {
            self.say(Event::SteerApplied { after_ms: (now - at).as_secs_f64() * 1e3 }).await;
        }
    }

    fn item(&mut self, item: &OutputItem, listener: &mut Listener) {
        let (call, whole) = match item {
            OutputItem::FunctionCall { call_id, name, arguments, status, .. } => (
                ToolCall { call_id: call_id.clone(), name: name.clone(), input: arguments.clone(), custom: false },
                *status != Status::Incomplete,
            ),
            OutputItem::CustomToolCall { call_id, name, input, status, .. } => (
                ToolCall { call_id: call_id.clone(), name: name.clone(), input: input.clone(), custom: true },
                *status != Status::Incomplete,
            ),
            item => {
                if matches!(item, OutputItem::Message { .. }) {
                    listener.text.clear();
                }
                return self.conversation.note(item);
            }
        };
        // Half a call was cut off by a stop or a limit; nobody can answer it.
        if whole {
            self.conversation.note(&bounded_call(item));
            let pending = Pending::new(call, &listener.calls, &self.of.tools);
            listener.calls.push(pending);
        }
    }

    /// A response begins. After a steer it is the successor, which has read what the person said in between.
    fn successor(&mut self, listener: &mut Listener) {
        if !std::mem::take(&mut listener.ended) {
            return;
        }
        self.conversation.note_text(&std::mem::take(&mut listener.text));
        for text in std::mem::take(&mut listener.taken) {
            self.conversation.say(&text);
        }
        self.usage.requests += 1;
    }

    fn ended(&mut self, response: &Response, listener: &mut Listener) -> Result<(), String> {
        listener.ended = true;
        if let Some(usage) = &response.usage {
            self.usage.input_tokens += usage.input_tokens;
            self.usage.cached_tokens += usage.input_tokens_details.cached_tokens;
            self.usage.output_tokens += usage.output_tokens;
            self.usage.accepted_prediction_tokens += usage.output_tokens_details.accepted_prediction_tokens;
            self.usage.rejected_prediction_tokens += usage.output_tokens_details.rejected_prediction_tokens;
            let seconds = listener.first_delta.map_or(0.0, |first| first.elapsed().as_secs_f64());
            let seen = (seconds > 0.0).then(|| usage.output_tokens as f64 / seconds);
            let told =
                response.flint.as_ref().and_then(|flint| flint.timings.as_ref()).map(|timings| timings.decode_rate);
            self.usage.decode_rate = told.or(seen);
        }
        self.last = Some(Box::new(response.clone()));
        if let Some(error) = response.error.as_ref().filter(|_| response.status == Status::Failed) {
            return Err(error.message.clone());
        }
        let steered = !listener.taken.is_empty();
        if !listener.cut && !steered {
            self.conversation.covered_by(&response.id);
        }
        if response.status == Status::Incomplete && !steered && listener.calls.is_empty() && !listener.cut {
            let reason = response.incomplete_details.as_ref().map_or("no reason given", |details| &details.reason);
            return Err(format!("the answer is not whole ({reason}); ask for the rest, or for less"));
        }
        Ok(())
    }

    /// Takes what still comes after a stop, such as the item that was under way.
    async fn last_words(&mut self, answer: &mut Answer, listener: &mut Listener) {
        let rest = async {
            while let Some(Ok(event)) = answer.next().await {
                match event.kind {
                    EventKind::TextDelta { delta, .. } => {
                        listener.text.push_str(&delta);
                        self.say(Event::Text { delta }).await;
                    }
                    EventKind::ItemDone { item, .. } => self.item(&item, listener),
                    other => {
                        if let Some(response) = other.ended() {
                            let _ = self.ended(response, listener);
                        }
                    }
                }
            }
        };
        // Who stops does not want to wait; without the last words the text seen so far is kept.
        let _ = timeout(LAST_WORDS, rest).await;
        self.conversation.send_all();
    }

    /// Text of a message whose end never came stays in the conversation.
    fn keep(&mut self, listener: &mut Listener) {
        self.conversation.note_text(&std::mem::take(&mut listener.text));
        for text in std::mem::take(&mut listener.taken) {
            self.conversation.say(&text);
        }
    }
}

/// The call as the conversation keeps it. Arguments that no tool takes are left out: the model is told so in the result,
/// and they would be sent again with every later request.
fn bounded_call(item: &OutputItem) -> OutputItem {
    let mut kept = item.clone();
    match &mut kept {
        OutputItem::FunctionCall { arguments, .. } if arguments.len() > INPUT_BYTES_MAX => *arguments = "{}".to_owned(),
        OutputItem::CustomToolCall { input, .. } if input.len() > INPUT_BYTES_MAX => input.clear(),
        _ => {}
    }
    kept
}

//! Answers as a stream of server-sent events or of lines, for every endpoint that is not the Responses API.
//!
//! Dropping the stream drops the answers, which ends their sequences at the next step.

use std::convert::Infallible;
use std::time::Duration;

use api::ErrorBody;
use axum::response::Response;
use bytes::Bytes;
use futures_util::{FutureExt, Stream, stream};

use crate::endpoints::sse;
use crate::error::ApiError;
use crate::generation::answers::{Answer, Answers, Delta, Step};

/// Bytes of one write; what else is ready comes in the next.
const CHUNK_BYTES: usize = 64 << 10;

/// How an endpoint writes down what happens.
pub trait Wire: Send + 'static {
    /// Before anything happened.
    fn begin(&mut self, answers: &[Answer], out: &mut String);
    /// An answer left the queue.
    fn started(&mut self, _answer: &Answer, _out: &mut String) {}
    /// An answer grew.
    fn grew(&mut self, index: usize, answer: &Answer, deltas: Vec<Delta>, out: &mut String);
    /// Whether the answer needs no more.
    fn enough(&self) -> bool {
        false
    }
    /// An answer is over.
    fn ended(&mut self, index: usize, answer: &Answer, out: &mut String);
    /// All answers are over.
    fn end(&mut self, answers: &[Answer], out: &mut String);
    /// The request failed; nothing follows.
    fn failed(&mut self, error: &ApiError, out: &mut String) {
        let body = ErrorBody { error: error.payload() };
        sse::write(&serde_json::to_string(&body).unwrap_or_default(), out);
    }
    /// Nothing has happened for a while.
    fn beat(&mut self, out: &mut String) {
        out.push_str(": keep-alive\n\n");
    }
}

struct Streaming<W> {
    answers: Answers,
    wire: W,
    heartbeat: Duration,
    begun: bool,
    over: bool,
}

/// The response that streams these answers, with a sign of life each `heartbeat` while nothing happens.
pub fn response(answers: Answers, wire: impl Wire, heartbeat: Duration) -> Response {
    sse::response(chunks(answers, wire, heartbeat))
}

/// The same as lines of JSON.
pub fn lines(answers: Answers, wire: impl Wire, heartbeat: Duration) -> Response {
    sse::lines(chunks(answers, wire, heartbeat))
}

fn chunks(
    answers: Answers,
    wire: impl Wire,
    heartbeat: Duration,
) -> impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static {
    let state = Streaming { answers, wire, heartbeat, begun: false, over: false };
    stream::unfold(state, |mut state| async move {
        let chunk = state.chunk().await?;
        Some((Ok::<_, Infallible>(Bytes::from(chunk)), state))
    })
}

impl<W: Wire> Streaming<W> {
    /// Everything there is to send now; waits until there is something.
    async fn chunk(&mut self) -> Option<String> {
        let mut out = String::new();
        if !std::mem::replace(&mut self.begun, true) {
            self.wire.begin(&self.answers.all, &mut out);
        }
        while out.is_empty() && !self.over {
            match tokio::time::timeout(self.heartbeat, self.answers.next()).await {
                Err(_) => self.wire.beat(&mut out),
                Ok(step) => {
                    self.step(step, &mut out);
                    while !self.over
                        && out.len() < CHUNK_BYTES
                        && let Some(step) = self.answers.next().now_or_never()
                    {
                        self.step(step, &mut out);
                    }
                }
            }
        }
        (!out.is_empty()).then_some(out)
    }

    fn step(&mut self, step: Option<Step>, out: &mut String) {
        match step {
            Some(Step::Started(index)) => self.wire.started(&self.answers.all[index], out),
            Some(Step::Grew(index, deltas)) => {
                self.wire.grew(index, &self.answers.all[index], deltas, out);
                if self.wire.enough() {
                    self.answers.cancel();
                }
            }
            Some(Step::Ended(index)) => match self.answers.all[index].end() {
                Ok(_) => self.wire.ended(index, &self.answers.all[index], out),
                Err(error) => {
                    self.answers.cancel();
                    self.over = true;
                    self.wire.failed(&error, out);
                }
            },
            None => {
                self.over = true;
                self.wire.end(&self.answers.all, out);
            }
        }
    }
}

//! What is told of each request: a span with its numbers while it runs, a log line when an answer is over.
//!
//! One span is one HTTP request or one response on a WebSocket. It lives until the last part of the answer is generated,
//! which for a stream is after the handler has returned. No text of a client or a model is in it.

use std::time::Duration;

use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use engine::{FinishReason, Finished};
use tracing::{Instrument, Span, field};

use crate::telemetry::continue_trace;

/// The headers by which a client's trace goes on here.
const TRACE_HEADERS: [&str; 2] = ["traceparent", "tracestate"];

/// A span that is yet to be told everything.
macro_rules! request_span {
    ($($field:tt)*) => {
        tracing::info_span!(
            "request",
            $($field)*,
            transport = field::Empty,
            id = field::Empty,
            model = field::Empty,
            status = field::Empty,
            finish = field::Empty,
            prompt_tokens = field::Empty,
            cached_tokens = field::Empty,
            output_tokens = field::Empty,
            queue_ms = field::Empty,
            first_token_ms = field::Empty,
            total_ms = field::Empty,
        )
    };
}

/// Gives each request over HTTP its span.
pub async fn over_http(request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let span = request_span!(method = %request.method(), route);
    continue_trace(&span, request.headers());
    let response = next.run(request).instrument(span.clone()).await;
    span.record("status", response.status().as_u16());
    response
}

/// The span of a response on a WebSocket that was opened with these headers.
pub fn on_socket(lane: Option<&str>, opened_with: &HeaderMap) -> Span {
    let span = request_span!(lane);
    continue_trace(&span, opened_with);
    span
}

/// What of a request's headers [`on_socket`] needs.
pub fn kept_headers(headers: &HeaderMap) -> HeaderMap {
    let kept = |name: &'static str| Some((name, headers.get(name)?.clone()));
    let kept = TRACE_HEADERS.into_iter().filter_map(kept);
    kept.map(|(name, value): (_, HeaderValue)| (axum::http::HeaderName::from_static(name), value)).collect()
}

/// Tells the span of the request being served something.
pub fn note(field: &str, value: impl field::Value) {
    Span::current().record(field, value);
}

/// One answer of the request being served, from its start to its log line.
pub struct Told {
    span: Span,
    over: bool,
}

impl Told {
    /// An answer begins.
    pub fn begin(model: &str, prompt_tokens: usize) -> Self {
        let span = Span::current();
        span.record("model", model).record("prompt_tokens", prompt_tokens);
        Self { span, over: false }
    }

    /// It is over, `whole` after it began.
    pub fn end(&mut self, finished: &Finished, whole: Duration) {
        let ms = |time: Duration| time.as_micros() as f64 / 1000.0;
        let (used, times) = (finished.usage, finished.timings);
        self.span
            .record("cached_tokens", used.cached)
            .record("output_tokens", used.generated)
            .record("queue_ms", ms(times.queued))
            .record("first_token_ms", ms(times.first_token))
            .record("total_ms", ms(whole));
        self.close(finish(&finished.reason));
    }

    fn close(&mut self, finish: &str) {
        self.over = true;
        self.span.record("finish", finish);
        // Everything there is to say is in the span, whose fields each line shows.
        tracing::info!(parent: &self.span, "answer over");
    }
}

/// Nobody waited for the end: the client went away.
impl Drop for Told {
    fn drop(&mut self) {
        if !self.over {
            self.close("dropped");
        }
    }
}

fn finish(reason: &FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop | FinishReason::StopToken(_) => "stop",
        FinishReason::Length => "length",
        FinishReason::ContextFull => "context_full",
        FinishReason::Cancelled => "cancelled",
        FinishReason::SlowReader => "slow_reader",
        FinishReason::Shutdown => "shutdown",
        FinishReason::Error { .. } => "error",
    }
}

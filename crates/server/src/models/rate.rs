//! What is left of a model's limits, in the headers that clients read to pace themselves.

use std::time::Duration;

use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;

/// What is left of the limits that a request runs into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Requests that may wait, and how many more.
    requests: (usize, usize),
    tokens: Option<Tokens>,
}

/// What is left of a minute's tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tokens {
    /// Tokens of a minute.
    pub limit: u64,
    /// How many more fit now.
    pub left: u64,
    /// When all of them will fit again.
    pub reset: Duration,
}

impl Rate {
    /// A queue with `limit` places, `left` of them free.
    pub fn queue(limit: usize, left: usize) -> Self {
        Self { requests: (limit, left), tokens: None }
    }

    /// The same with a limit on tokens.
    pub fn with_tokens(self, tokens: Tokens) -> Self {
        Self { tokens: Some(tokens), ..self }
    }

    /// Names and values, names in lower case.
    pub fn headers(&self) -> Vec<(&'static str, String)> {
        let (limit, left) = self.requests;
        let mut headers = vec![
            ("x-ratelimit-limit-requests", limit.to_string()),
            ("x-ratelimit-remaining-requests", left.to_string()),
        ];
        if let Some(Tokens { limit, left, reset }) = self.tokens {
            // Rounded up: who comes back then must not come too early.
            let seconds = reset.as_secs() + u64::from(reset.subsec_nanos() > 0);
            headers.push(("x-ratelimit-limit-tokens", limit.to_string()));
            headers.push(("x-ratelimit-remaining-tokens", left.to_string()));
            headers.push(("x-ratelimit-reset-tokens", format!("{seconds}s")));
        }
        headers
    }

    /// Puts the headers into an answer.
    pub fn mark(&self, response: &mut Response) {
        for (name, value) in self.headers() {
            if let Ok(value) = HeaderValue::try_from(value) {
                response.headers_mut().insert(HeaderName::from_static(name), value);
            }
        }
    }
}

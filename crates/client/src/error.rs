//! What can go wrong, by what a caller will do about it.

use std::time::Duration;

use api::responses::{Event, EventKind, Response};
use api::{ErrorBody, ErrorPayload};
use serde_json::Value;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The key is missing, wrong, or not allowed to do this.
    #[error("the server does not accept the key: {message}")]
    Auth {
        /// The server's words.
        message: String,
    },
    /// Too much was asked for; try again later.
    #[error("the server is busy: {message}{}", retry_text(.retry_after))]
    RateLimited {
        /// The server's words.
        message: String,
        /// When to try again, if it said so.
        retry_after: Option<Duration>,
    },
    /// The prompt does not fit; make it shorter.
    #[error("the prompt does not fit the model's context: {message}")]
    ContextTooLong {
        /// The server's words.
        message: String,
    },
    /// There is no such model, response or route.
    #[error("not found: {message}")]
    NotFound {
        /// The server's words.
        message: String,
    },
    /// The request is wrong; sending it again will not help.
    #[error("the server refuses the request: {message}{}", param_text(.param))]
    BadRequest {
        /// The server's words.
        message: String,
        /// The exact case, such as `previous_response_not_found`.
        code: Option<String>,
        /// The field that is to blame.
        param: Option<String>,
    },
    /// The server broke.
    #[error("the server failed with status {status}: {message}")]
    Server {
        /// The HTTP status, or that of the event; 0 when it gave none.
        status: u16,
        /// The server's words.
        message: String,
    },
    /// The connection was lost in the middle and the rest of the events cannot be had; the request can be sent again. A
    /// stored response that the server has finished since can be had whole, by [`crate::Client::get`].
    #[error(
        "the connection was lost after {events_seen} events of {} ({why}); the request can be sent again",
        .response_id.as_deref().unwrap_or("a response")
    )]
    Interrupted {
        /// The response that was under way.
        response_id: Option<String>,
        /// Events of this answer that were delivered.
        events_seen: u64,
        /// How it was lost, and why it could not be resumed.
        why: String,
    },
    /// Nothing came in time.
    #[error("no {what} within {after:?}; see whether the server is alive, or allow more time")]
    Timeout {
        /// What was waited for.
        what: &'static str,
        /// How long.
        after: Duration,
    },
    /// The server's identity could not be established.
    #[error("TLS with {address}: {message}")]
    Tls {
        /// Where.
        address: String,
        /// What is wrong with the certificate or the handshake.
        message: String,
    },
    /// There is no connection.
    #[error("cannot connect to {address}: {message}; {hint}")]
    Connect {
        /// Where.
        address: String,
        /// What the system said.
        message: String,
        /// What to do.
        hint: &'static str,
    },
    /// A WebSocket was insisted on and the server has none.
    #[error("the server refuses the WebSocket ({why}); use the transport auto or sse")]
    WebSocketRefused {
        /// How.
        why: String,
    },
    /// The answer was read too slowly and held up others on its connection.
    #[error("the answer was read too slowly: {limit} events were waiting and the connection was held up for too long")]
    TooSlow {
        /// Events that may wait.
        limit: usize,
    },
    /// Too many answers at once.
    #[error("{limit} answers are under way, which is the limit of this client; finish or drop one first")]
    TooMany {
        /// The limit.
        limit: usize,
    },
    /// A body or event is larger than is accepted.
    #[error("the server sent more than {limit} bytes at once")]
    TooLarge {
        /// The limit.
        limit: usize,
    },
    /// The server said what no version of the protocol has.
    #[error("the server does not speak the protocol: {message}")]
    Protocol {
        /// What it did.
        message: String,
    },
    /// This answer cannot be steered.
    #[error("this answer cannot be steered: {why}")]
    NotSteerable {
        /// Why not.
        why: &'static str,
    },
    /// The options or the request make no sense.
    #[error("{message}")]
    Options {
        /// What is wrong with them.
        message: String,
    },
}

impl ClientError {
    /// The error that a reply with this status and body stands for.
    pub(crate) fn of_reply(status: u16, body: &[u8], retry_after: Option<Duration>) -> Self {
        let payload = match serde_json::from_slice::<ErrorBody>(body) {
            Ok(body) => body.error,
            Err(_) => {
                let text = String::from_utf8_lossy(&body[..body.len().min(500)]).trim().to_owned();
                let message = if text.is_empty() { format!("status {status}, no explanation") } else { text };
                ErrorPayload { message, ..ErrorPayload::default() }
            }
        };
        Self::of_payload(status, payload, retry_after)
    }

    /// The error of a response that ended as failed, typed as if it had been refused; none for any other response.
    pub fn of_failed(response: &Response) -> Option<Self> {
        let error = response.error.as_ref()?;
        let payload =
            ErrorPayload { code: Some(error.code.clone()), message: error.message.clone(), ..ErrorPayload::default() };
        Some(Self::of_payload(0, payload, None))
    }

    /// The error an event stands for, if it is one.
    pub(crate) fn of_event(event: &Event) -> Option<Self> {
        match &event.kind {
            EventKind::Error { status, error, headers } => {
                let retry_after = headers.get("retry-after").or_else(|| headers.get("Retry-After"));
                let seconds =
                    retry_after.and_then(|value| value.as_str().map(str::to_owned).or(Some(value.to_string())));
                Some(Self::of_payload(*status, error.clone(), seconds.as_deref().and_then(retry_after_of)))
            }
            EventKind::Other(value) if value["type"] == "error" => Some(Self::of_other(value)),
            _ => None,
        }
    }

    /// Other providers put the fields beside the type, or leave some out.
    fn of_other(value: &Value) -> Self {
        let inner = if value["error"].is_object() { &value["error"] } else { value };
        let text = |name: &str| inner[name].as_str().map(str::to_owned);
        let status = value["status"].as_u64().or(value["status_code"].as_u64()).unwrap_or_default();
        let payload = ErrorPayload {
            kind: if value["error"].is_object() { text("type").unwrap_or_default() } else { String::new() },
            code: text("code"),
            message: text("message").unwrap_or_else(|| value.to_string()),
            param: text("param"),
        };
        Self::of_payload(u16::try_from(status).unwrap_or_default(), payload, None)
    }

    fn of_payload(status: u16, payload: ErrorPayload, retry_after: Option<Duration>) -> Self {
        let ErrorPayload { kind, code, message, param } = payload;
        let names = [kind.as_str(), code.as_deref().unwrap_or_default()];
        let named = |wanted: &[&str]| names.iter().any(|name| wanted.contains(name));
        if named(&["context_length_exceeded"]) {
            return Self::ContextTooLong { message };
        }
        let unnamed = status == 0;
        match status {
            401 | 403 => Self::Auth { message },
            404 => Self::NotFound { message },
            429 => Self::RateLimited { message, retry_after },
            400..=499 => Self::BadRequest { message, code, param },
            _ if unnamed && named(&["rate_limit_exceeded", "slow_down", "server_is_overloaded"]) => {
                Self::RateLimited { message, retry_after }
            }
            _ if unnamed && named(&["authentication_error", "invalid_api_key"]) => Self::Auth { message },
            _ if unnamed && named(&["invalid_request_error", "invalid_prompt"]) => {
                Self::BadRequest { message, code, param }
            }
            503 if retry_after.is_some() => Self::RateLimited { message, retry_after },
            _ => Self::Server { status, message },
        }
    }
}

/// Seconds only: a date would need the server's clock.
pub(crate) fn retry_after_of(text: &str) -> Option<Duration> {
    text.trim().parse::<f64>().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
}

fn retry_text(after: &Option<Duration>) -> String {
    after.map(|after| format!("; try again in {after:?}")).unwrap_or_default()
}

fn param_text(param: &Option<String>) -> String {
    param.as_ref().map(|param| format!(" (field `{param}`)")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(error: &ClientError) -> String {
        format!("{error:?}").split([' ', '{']).next().unwrap().to_owned()
    }

    #[test]
    fn replies_become_the_error_a_caller_acts_on() {
        let cases: &[(u16, &str, &str)] = &[
            (400, r#"{"error":{"message":"no","param":"input"}}"#, "BadRequest"),
            (400, r#"{"error":{"message":"no","code":"context_length_exceeded"}}"#, "ContextTooLong"),
            (401, "", "Auth"),
            (403, "{}", "Auth"),
            (404, r#"{"error":{"message":"no model x"}}"#, "NotFound"),
            (422, "nonsense", "BadRequest"),
            (429, "", "RateLimited"),
            (500, "<html>", "Server"),
            (503, "", "Server"),
        ];
        for (status, body, expected) in cases {
            let error = ClientError::of_reply(*status, body.as_bytes(), None);
            assert_eq!(name(&error), *expected, "{status} {body}: {error}");
        }
        let later = ClientError::of_reply(503, b"", Some(Duration::from_secs(2)));
        assert_eq!(name(&later), "RateLimited");
    }

    #[test]
    fn error_events_of_every_provider_are_read() {
        let cases: &[(&str, &str)] = &[
            (
                r#"{"type":"error","status":429,"error":{"type":"x","message":"m"},"headers":{"retry-after":"2"}}"#,
                "RateLimited",
            ),
            (r#"{"type":"error","code":"invalid_prompt","message":"m","param":null}"#, "BadRequest"),
            (r#"{"type":"error","status_code":404,"error":{"message":"m"}}"#, "NotFound"),
            (r#"{"type":"error"}"#, "Server"),
        ];
        for (text, expected) in cases {
            let event: Event = serde_json::from_str(text).unwrap();
            let error = ClientError::of_event(&event).unwrap_or_else(|| panic!("{text} is an error"));
            assert_eq!(name(&error), *expected, "{text}");
        }
        let event: Event = serde_json::from_str(cases[0].0).unwrap();
        let Some(ClientError::RateLimited { retry_after, .. }) = ClientError::of_event(&event) else { panic!() };
        assert_eq!(retry_after, Some(Duration::from_secs(2)));
    }
}

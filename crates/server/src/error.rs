//! One kind of error for every endpoint: a status, words for programs, words for people.
//!
//! Endpoints with another envelope (Messages) or another place for errors (a stream) take it apart themselves.

use api::{ErrorBody, ErrorPayload, FieldError};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use engine::SubmitError;
use text::TextError;
use text::grammar::GrammarError;

use crate::models::rate::Rate;
use crate::telemetry::metrics::Rejection;

/// Why a request was not served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// HTTP status.
    pub status: StatusCode,
    /// The class, such as `invalid_request_error`.
    pub kind: &'static str,
    /// The exact case.
    pub code: Option<&'static str>,
    /// What happened and what to do next.
    pub message: String,
    /// The field to blame.
    pub param: Option<String>,
    /// Seconds after which it is worth trying again.
    pub retry_after: Option<u64>,
    /// The limit that was reached and what is left of it.
    pub rate: Option<Box<Rate>>,
    /// What it counts as; `None` where nothing was refused: something is not there, or broke.
    pub reason: Option<Rejection>,
}

/// Left with the answer to a request that was refused, for whoever counts.
#[derive(Clone, Copy, Debug)]
pub struct Refused(pub Rejection);

impl ApiError {
    fn new(status: StatusCode, kind: &'static str, code: Option<&'static str>, message: impl Into<String>) -> Self {
        Self { status, kind, code, message: message.into(), param: None, retry_after: None, rate: None, reason: None }
    }

    /// The request is wrong.
    pub fn bad_request(message: impl Into<String>) -> Self {
        let error = Self::new(StatusCode::BAD_REQUEST, "invalid_request_error", None, message);
        error.because(Rejection::Invalid)
    }

    /// The request is wrong in one field.
    pub fn bad_field(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self { param: Some(param.into()), ..Self::bad_request(message) }
    }

    /// The same error with an exact code.
    pub fn code(self, code: &'static str) -> Self {
        Self { code: Some(code), ..self }
    }

    /// The same error, counted as something else.
    pub fn because(self, reason: Rejection) -> Self {
        Self { reason: Some(reason), ..self }
    }

    /// No such thing.
    pub fn not_found(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "invalid_request_error", Some(code), message)
    }

    /// A response that was never made here, is gone, or lived on another connection.
    pub fn previous_not_found(id: &str) -> Self {
        let message = format!(
            "previous response {id:?} was not found: it was never stored, has expired, or belongs to another \
             connection; send the whole input instead"
        );
        let error = Self::bad_request(message).code("previous_response_not_found");
        Self { param: Some("previous_response_id".to_owned()), ..error }
    }

    /// The prompt does not fit.
    pub fn too_long(tokens: usize, limit: usize) -> Self {
        Self::longer_than_fits(&tokens.to_string(), limit)
    }

    /// So much that it was not counted to the end.
    pub fn far_too_long(more_than: usize, limit: usize) -> Self {
        Self::longer_than_fits(&format!("more than {more_than}"), limit)
    }

    fn longer_than_fits(tokens: &str, limit: usize) -> Self {
        let message = format!(
            "the input has {tokens} tokens and this model serves {limit} with room for an answer; nothing was cut: \
             shorten the input, or serve the model with a larger --context"
        );
        let error = Self::bad_request(message).code("context_length_exceeded").because(Rejection::ContextLength);
        Self { param: Some("input".to_owned()), ..error }
    }

    /// No room now.
    pub fn overloaded(message: impl Into<String>, retry_after: u64, rate: Rate) -> Self {
        let error = Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", Some("rate_limit_exceeded"), message);
        Self { retry_after: Some(retry_after), rate: Some(Box::new(rate)), ..error }.because(Rejection::QueueFull)
    }

    /// The server, not the client, is to blame.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", Some("server_error"), message)
    }

    /// The server is closing.
    pub fn closing() -> Self {
        let message = "the server is shutting down; try again when it is back";
        let error = Self::new(StatusCode::SERVICE_UNAVAILABLE, "server_error", Some("server_error"), message);
        Self { retry_after: Some(5), ..error }.because(Rejection::Shutdown)
    }

    /// Another status than the constructors give.
    pub fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    /// Adds to an answer what is not in its body: the headers, and what the error counts as.
    pub fn mark(&self, response: &mut Response) {
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(rate) = &self.rate {
            rate.mark(response);
        }
        if let Some(reason) = self.reason {
            response.extensions_mut().insert(Refused(reason));
        }
    }

    /// What goes over the wire.
    pub fn payload(&self) -> ErrorPayload {
        ErrorPayload {
            kind: self.kind.to_owned(),
            code: self.code.map(str::to_owned),
            message: self.message.clone(),
            param: self.param.clone(),
        }
    }
}

impl ApiError {
    /// A grammar that cannot be.
    pub fn from_grammar(error: GrammarError) -> Self {
        match error {
            GrammarError::Busy => Self::overloaded(error.to_string(), 1, Rate::queue(text::grammar::WAITING_MAX, 0)),
            _ => Self::bad_request(error.to_string()),
        }
    }
}

impl From<FieldError> for ApiError {
    fn from(error: FieldError) -> Self {
        Self::bad_field(error.param.clone(), error.to_string())
    }
}

impl From<SubmitError> for ApiError {
    fn from(error: SubmitError) -> Self {
        match &error {
            SubmitError::TooLong { tokens, limit } => Self::too_long(*tokens, *limit),
            SubmitError::Overloaded { limit, .. } => {
                Self::overloaded(format!("{error}; try again shortly"), 1, Rate::queue(*limit, 0))
            }
            SubmitError::Closed => Self::closing(),
            _ => Self::bad_request(error.to_string()),
        }
    }
}

impl From<TextError> for ApiError {
    fn from(error: TextError) -> Self {
        Self::bad_request(format!("the conversation cannot be written for this model: {error}"))
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = axum::Json(ErrorBody { error: self.payload() });
        let mut response = (self.status, body).into_response();
        self.mark(&mut response);
        response
    }
}

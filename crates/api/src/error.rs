//! The error envelope that OpenAI's clients read.

use serde::{Deserialize, Serialize};

/// The body of an HTTP error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// What went wrong.
    pub error: ErrorPayload,
}

/// What went wrong: for programs the type and code, for people the message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorPayload {
    /// The class, such as `invalid_request_error`.
    #[serde(rename = "type", default)]
    pub kind: String,
    /// The exact case, such as `previous_response_not_found`.
    #[serde(default)]
    pub code: Option<String>,
    /// What happened and what to do next.
    pub message: String,
    /// The field that is to blame.
    #[serde(default)]
    pub param: Option<String>,
}

//! Reading a JSON body within its limits, and answering with JSON.

use api::Fields;
use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::Value;

use crate::error::ApiError;
use crate::guard::{Limits, json_depth};
use crate::telemetry::metrics::Rejection;

/// Reads a body as a JSON object.
pub async fn fields(body: Body, limits: &Limits) -> Result<Fields, ApiError> {
    let read = axum::body::to_bytes(body, limits.body_bytes);
    let bytes = match tokio::time::timeout(limits.body_read, read).await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(error)) => {
            let limited =
                std::error::Error::source(&error).is_some_and(|cause| cause.to_string().contains("length limit"));
            if limited || error.to_string().contains("length limit") {
                let message = format!("the body is larger than {} bytes", limits.body_bytes);
                let error = ApiError::bad_request(message).with_status(StatusCode::PAYLOAD_TOO_LARGE);
                return Err(error.because(Rejection::BodySize));
            }
            return Err(ApiError::bad_request(format!("the body could not be read: {error}")));
        }
        Err(_) => {
            return Err(
                ApiError::bad_request("the body did not arrive in time").with_status(StatusCode::REQUEST_TIMEOUT)
            );
        }
    };
    object(&bytes, limits)
}

/// Reads a JSON object that is not nested too deeply.
pub fn object(bytes: &[u8], limits: &Limits) -> Result<Fields, ApiError> {
    let depth = json_depth(bytes);
    if depth > limits.json_depth {
        let message = format!("the JSON is nested {depth} deep; at most {} is taken", limits.json_depth);
        return Err(ApiError::bad_request(message));
    }
    let invalid = |error| ApiError::bad_request(format!("the body is not valid JSON: {error}"));
    if bytes.trim_ascii_start().starts_with(b"{") {
        return serde_json::from_slice(bytes).map_err(invalid);
    }
    let other: Value = serde_json::from_slice(bytes).map_err(invalid)?;
    Ok(Fields::new(other)?)
}

/// A JSON answer.
pub fn json(value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(bytes) => ([(header::CONTENT_TYPE, "application/json")], bytes).into_response(),
        Err(error) => ApiError::internal(format!("the answer has no JSON form: {error}")).into_response(),
    }
}

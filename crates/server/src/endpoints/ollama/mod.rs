//! Ollama's protocol under `/api`: answers come as lines of JSON, errors as one text.
//!
//! What a server of Ollama does to its store (pull, push, create, copy, delete) is refused: models are fetched with
//! `flint models pull`.

mod answer;
mod models;
mod wire;

use std::sync::Arc;
use std::time::Instant;

use api::ollama::EmbedRequest;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

pub use self::answer::{chat, generate};
pub use self::models::{running, show, tags, version};
use crate::endpoints::body;
use crate::error::ApiError;
use crate::models::embeddings::{self, Input, Length};
use crate::shared::Shared;

/// An error as Ollama tells it.
pub fn failure(error: &ApiError) -> Response {
    let mut response = (error.status, axum::Json(json!({"error": error.message}))).into_response();
    error.mark(&mut response);
    response
}

/// The name of a model as it is known here: without the tag that says nothing.
fn name_of(model: &str) -> &str {
    model.strip_suffix(":latest").unwrap_or(model)
}

/// `POST /api/embed`.
pub async fn embed(State(shared): State<Arc<Shared>>, body: Body) -> Response {
    let begun = Instant::now();
    let embedded = async {
        let request = EmbedRequest::read(body::fields(body, &shared.limits).await?)?;
        let (model, embedded) = embedded(&shared, request).await?;
        let vectors: Vec<Value> = embedded.iter().map(|one| Value::from(&one.vector[..])).collect();
        Ok::<_, ApiError>(body::json(&json!({
            "model": model,
            "embeddings": vectors,
            "total_duration": begun.elapsed().as_nanos() as u64,
            "load_duration": 0,
            "prompt_eval_count": embedded.iter().map(|one| one.tokens).sum::<usize>(),
        })))
    };
    embedded.await.unwrap_or_else(|error| failure(&error))
}

/// `POST /api/embeddings`: one text, as it was before.
pub async fn embed_old(State(shared): State<Arc<Shared>>, body: Body) -> Response {
    let embedded = async {
        let request = EmbedRequest::read_old(body::fields(body, &shared.limits).await?)?;
        let (_, embedded) = embedded(&shared, request).await?;
        let vector = embedded.first().map(|one| &one.vector[..]).unwrap_or_default();
        Ok::<_, ApiError>(body::json(&json!({"embedding": vector})))
    };
    embedded.await.unwrap_or_else(|error| failure(&error))
}

async fn embedded(shared: &Shared, request: EmbedRequest) -> Result<(String, Vec<embeddings::Embedded>), ApiError> {
    let length = if request.truncate { Length::Cut } else { Length::Refuse };
    let input: Vec<Input> = request.input.into_iter().map(Input::Text).collect();
    let vectors = embeddings::embed(shared, Some(name_of(&request.model)), input, length, request.dimensions).await?;
    Ok((request.model, vectors))
}

/// What is done to a store is done elsewhere.
pub async fn elsewhere() -> Response {
    let message =
        "models are not changed over the network here: use `flint models pull NAME` and `flint models rm NAME`";
    failure(&ApiError::bad_request(message).with_status(StatusCode::NOT_IMPLEMENTED))
}

//! `POST /v1/messages` and `/v1/messages/count_tokens`: Anthropic's protocol, with its own error envelope.

mod wire;

use std::sync::Arc;

use api::messages::{MessagesError, MessagesRequest};
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use text::Special;

use self::wire::MessagesWire;
use crate::endpoints::body;
use crate::endpoints::chat::blame;
use crate::endpoints::streamed::{self, Wire};
use crate::error::ApiError;
use crate::generation::answers::{Answers, Step};
use crate::generation::conversation::Conversation;
use crate::generation::thoughts::{self, AnswerStart};
use crate::generation::tools::ToolSet;
use crate::generation::{self, Job};
use crate::guard::owner::Owner;
use crate::models::{LoadedModel, ModelLease};
use crate::shared::Shared;
use crate::{facts, ids};

/// `POST /v1/messages`.
pub async fn create(State(shared): State<Arc<Shared>>, owner: Owner, body: Body) -> Response {
    answer(&shared, owner, body).await.unwrap_or_else(|error| failure(&error))
}

/// `POST /v1/messages/count_tokens`.
pub async fn count_tokens(State(shared): State<Arc<Shared>>, owner: Owner, body: Body) -> Response {
    count(&shared, owner, body).await.unwrap_or_else(|error| failure(&error))
}

async fn answer(shared: &Shared, owner: Owner, body: Body) -> Result<Response, ApiError> {
    let mut request = MessagesRequest::read(body::fields(body, &shared.limits).await?)?;
    let loaded = shared.models.get(request.model.as_deref()).await?;
    let mut warnings = std::mem::take(&mut request.warnings);
    let (stream, model, stop) = (request.stream, request.model.clone(), request.stop.clone());
    let (tools, job, mut more) = prepared(shared, &loaded, owner, request, true).await?;
    warnings.append(&mut more);
    let limited = loaded.clone();
    let mut answers = Answers::start(&loaded, vec![job], &tools, "toolu").map_err(blame)?;
    let flint = facts::served(&loaded, if stream { "sse" } else { "http" }, warnings);
    let mut wire = MessagesWire::new(&loaded, model, stop, flint);
    if stream {
        return Ok(limited.rated(streamed::response(answers, wire, shared.limits.progress_event)));
    }
    let mut unsent = String::new();
    while let Some(step) = answers.next().await {
        if let Step::Grew(index, deltas) = step {
            wire.grew(index, &answers.all[0], deltas, &mut unsent);
            unsent.clear();
        }
    }
    wire.whole(&answers.all[0]).map(|message| limited.rated(body::json(&message)))
}

async fn count(shared: &Shared, owner: Owner, body: Body) -> Result<Response, ApiError> {
    let request = MessagesRequest::read_uncounted(body::fields(body, &shared.limits).await?)?;
    let loaded = shared.models.get(request.model.as_deref()).await?;
    let (_, job, _) = prepared(shared, &loaded, owner, request, false).await?;
    Ok(body::json(&json!({"input_tokens": job.prompt.len()})))
}

async fn prepared(
    shared: &Shared,
    loaded: &ModelLease,
    owner: Owner,
    request: MessagesRequest,
    generate: bool,
) -> Result<(Arc<ToolSet>, Job, Vec<String>), ApiError> {
    let (count, limit) = (request.messages.len(), shared.limits.input_items);
    if count > limit {
        return Err(ApiError::bad_field("messages", format!("{count} messages, at most {limit} are taken")));
    }
    let loaded = loaded.clone();
    let prepared = crate::generation::aside::run(move || prepare(&loaded, owner, request, generate)).await?;
    prepared.0.check(shared.limits.tools)?;
    Ok(prepared)
}

/// Writes the prompt and compiles what the answer is held to. Blocking.
fn prepare(
    loaded: &LoadedModel,
    owner: Owner,
    request: MessagesRequest,
    generate: bool,
) -> Result<(Arc<ToolSet>, Job, Vec<String>), ApiError> {
    let mut warnings = Vec::new();
    let tools = ToolSet::new(&request.tools, &request.tool_choice, request.parallel_tool_calls, &mut warnings)?;
    let mut conversation = Conversation::of(owner);
    conversation.messages(request.messages, loaded, &mut warnings)?;
    let mut wish = request.thinking;
    if request.begun.is_some() {
        // An answer that has begun thinks no more.
        (wish.on, wish.effort) = (Some(false), None);
    }
    let thinking = thoughts::told(loaded, &wish, "thinking", &mut warnings);
    let written = conversation.write(loaded, &tools, &thinking, true)?;
    let mut prompt = written.tokens;
    if let Some(begun) = &request.begun {
        loaded.encode(begun.as_bytes(), Special::Plain, &mut prompt)?;
    }
    let tier = request.service_tier.as_deref();
    let format = generation::source(&request.format, &tools);
    if format.is_some() && request.begun.is_some() {
        let message = "a format holds an answer from its beginning: leave out the last message of the assistant";
        return Err(ApiError::bad_field("output_config.format", message));
    }
    let formatted = format.is_some();
    let job = Job {
        max_tokens: request.max_tokens,
        sampling: facts::sampling(&request.sampling, None),
        stop: request.stop,
        priority: facts::priority_of(tier, false),
        grammar: if generate { generation::grammar(loaded, format, &tools)? } else { None },
        answer: generation::answer_options(loaded, &tools, formatted, written.opening),
        begins: AnswerStart { opening: written.opening, budget: wish.budget, lasting: written.lasting },
        ..Job::new(owner, prompt)
    };
    Ok((Arc::new(tools), job, warnings))
}

/// An error in Anthropic's words.
fn in_words(error: &ApiError) -> MessagesError {
    let kind = match error.status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::NOT_FOUND => "not_found_error",
        StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
        status if status.is_server_error() => "api_error",
        _ => "invalid_request_error",
    };
    MessagesError { kind, message: error.message.clone() }
}

/// An error in Anthropic's envelope.
pub fn failure(error: &ApiError) -> Response {
    let id = ids::new("req");
    let body = json!({"type": "error", "error": in_words(error), "request_id": id});
    let mut response = (error.status, axum::Json(body)).into_response();
    if let Ok(id) = HeaderValue::try_from(id) {
        response.headers_mut().insert("request-id", id);
    }
    error.mark(&mut response);
    response
}

//! The Responses API over HTTP.

use std::convert::Infallible;
use std::sync::Arc;

use api::responses::{CreateResponse, OutputItem};
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use serde::Deserialize;
use serde_json::json;

use super::live::{ENTRIES_MAX, Entry};
use super::run::{Origin, Run};
use super::watched::Watched;
use crate::endpoints::body;
use crate::endpoints::sse;
use crate::error::ApiError;
use crate::guard::owner::Owner;
use crate::models::rate::Rate;
use crate::sessions::turn::find_parent;
use crate::shared::Shared;
use crate::telemetry::trace;

/// `POST /v1/responses`.
pub async fn create(State(shared): State<Arc<Shared>>, owner: Owner, body: Body) -> Result<Response, ApiError> {
    let request = CreateResponse::read(body::fields(body, &shared.limits).await?)?;
    let parent = find_parent(&shared, owner, request.previous_response_id.as_deref()).await?;
    let (stream, background) = (request.stream, request.background);
    if background && !request.store {
        return Err(ApiError::bad_field("background", "a background response must be stored: leave `store` true"));
    }
    let mut run = Run::start(&shared, Arc::new(request), parent, Origin::http(owner, stream)).await?;
    trace::note("id", run.response().id.as_str());
    let loaded = run.loaded().clone();
    if background {
        let entry = shared.live.spawn(run);
        let full = || {
            let message = "too many background responses run; try again";
            ApiError::overloaded(message, 5, Rate::queue(ENTRIES_MAX, 0))
        };
        let entry = entry.ok_or_else(full)?;
        return Ok(loaded.rated(if stream { follow(entry, 0) } else { body::json(&entry.response()) }));
    }
    if stream {
        return Ok(loaded.rated(events(Watched::new(&shared, run))));
    }
    while run.next().await.is_some() {}
    let response = run.response();
    match &response.error {
        Some(error) if error.code == "context_length_exceeded" => {
            let error = ApiError::bad_field("input", error.message.clone()).code("context_length_exceeded");
            // Counted when the run began.
            Err(ApiError { reason: None, ..error })
        }
        Some(error) => Err(ApiError::internal(error.message.clone())),
        None => Ok(loaded.rated(body::json(response))),
    }
}

/// A run as a stream of events. When the reader drops it, the engine is free at its next step.
fn events(run: Watched) -> Response {
    let chunks = stream::unfold(Some(run), |run| async move {
        let mut run = run?;
        let mut chunk = String::new();
        let mut next = run.next().await;
        if next.is_none() {
            sse::write("[DONE]", &mut chunk);
            return Some((Ok::<_, Infallible>(Bytes::from(chunk)), None));
        }
        while let Some(event) = next {
            sse::write_named(name_of(&event), &event, &mut chunk);
            next = run.ready();
        }
        Some((Ok(Bytes::from(chunk)), Some(run)))
    });
    sse::response(chunks)
}

/// The events of a background response from number `from` on.
fn follow(entry: Arc<Entry>, from: usize) -> Response {
    let chunks = stream::unfold(Some((entry, from)), |state| async move {
        let (entry, from) = state?;
        let events = entry.events(from).await;
        let mut chunk = String::new();
        if events.is_empty() {
            sse::write("[DONE]", &mut chunk);
            return Some((Ok::<_, Infallible>(Bytes::from(chunk)), None));
        }
        for json in &events {
            sse::write_named(name_of(json), json, &mut chunk);
        }
        Some((Ok(Bytes::from(chunk)), Some((entry, from + events.len()))))
    });
    sse::response(chunks)
}

/// The name of an event, which our JSON begins with.
fn name_of(json: &str) -> &str {
    json.strip_prefix(r#"{"type":""#).and_then(|rest| rest.split('"').next()).unwrap_or("message")
}

/// Where a stream is to be read from.
#[derive(Debug, Default, Deserialize)]
pub struct Reading {
    stream: Option<bool>,
    starting_after: Option<usize>,
}

/// `GET /v1/responses/{id}`: whole, or the rest of its stream.
pub async fn get(
    State(shared): State<Arc<Shared>>,
    owner: Owner,
    Path(id): Path<String>,
    reading: Result<Query<Reading>, QueryRejection>,
) -> Result<Response, ApiError> {
    let Query(reading) = reading.map_err(bad_query)?;
    let from = reading.starting_after.map_or(0, |number| number + 1);
    if let Some(entry) = shared.live.find(owner, &id) {
        if reading.stream != Some(true) {
            return Ok(body::json(&entry.response()));
        }
        entry.wake().await;
        return Ok(follow(entry, from));
    }
    let turn = shared.turns.find(owner, &id).await?.ok_or_else(|| response_not_found(&id))?;
    if reading.stream == Some(true) {
        let message = "the events of this response are no longer kept; get it without `stream`";
        return Err(ApiError::bad_field("stream", message));
    }
    Ok(body::json(&turn.response))
}

/// `DELETE /v1/responses/{id}`.
pub async fn delete(
    State(shared): State<Arc<Shared>>,
    owner: Owner,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    if let Some(entry) = shared.live.find(owner, &id) {
        // It is stored when it ends, so its end comes before the deletion.
        entry.cancel();
        entry.ended().await;
    }
    let live = shared.live.remove(owner, &id);
    let stored = shared.turns.delete(owner, &id).await?;
    match live || stored {
        true => Ok(body::json(&json!({"id": id, "object": "response", "deleted": true}))),
        false => Err(response_not_found(&id)),
    }
}

/// `POST /v1/responses/{id}/cancel`.
pub async fn cancel(
    State(shared): State<Arc<Shared>>,
    owner: Owner,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    if let Some(entry) = shared.live.find(owner, &id) {
        shared.metrics.interrupted();
        entry.cancel();
        entry.ended().await;
        return Ok(body::json(&entry.response()));
    }
    match shared.turns.find(owner, &id).await? {
        Some(turn) => {
            let message = format!("response {id:?} is not running in the background; it is {:?}", turn.response.status);
            Err(ApiError::bad_request(message))
        }
        None => Err(response_not_found(&id)),
    }
}

/// How a list of items is cut.
#[derive(Debug, Deserialize)]
pub struct Paging {
    limit: Option<usize>,
    after: Option<String>,
    order: Option<String>,
}

/// `GET /v1/responses/{id}/input_items`.
pub async fn input_items(
    State(shared): State<Arc<Shared>>,
    owner: Owner,
    Path(id): Path<String>,
    paging: Result<Query<Paging>, QueryRejection>,
) -> Result<Response, ApiError> {
    let Query(paging) = paging.map_err(bad_query)?;
    let turn = shared.turns.find(owner, &id).await?.ok_or_else(|| response_not_found(&id))?;
    let limit = match paging.limit.unwrap_or(20) {
        limit @ 1..=100 => limit,
        _ => return Err(ApiError::bad_field("limit", "must be from 1 to 100")),
    };
    let mut items: Vec<serde_json::Value> = Vec::new();
    for turn in turn.chain() {
        items.extend(turn.input.iter().cloned());
        if turn.response.id != id {
            items.extend(turn.response.output.iter().filter_map(|item: &OutputItem| serde_json::to_value(item).ok()));
        }
    }
    for (index, item) in items.iter_mut().enumerate() {
        if let Some(fields) = item.as_object_mut() {
            fields.entry("id").or_insert_with(|| format!("item_{index}").into());
            fields.entry("type").or_insert_with(|| "message".into());
        }
    }
    match paging.order.as_deref() {
        None | Some("desc") => items.reverse(),
        Some("asc") => {}
        Some(other) => return Err(ApiError::bad_field("order", format!("must be asc or desc, not {other:?}"))),
    }
    let start = match &paging.after {
        None => 0,
        Some(after) => {
            items.iter().position(|item| item["id"] == *after.as_str()).map_or(items.len(), |index| index + 1)
        }
    };
    let rest = &items[start.min(items.len())..];
    let page = &rest[..limit.min(rest.len())];
    let name = |item: Option<&serde_json::Value>| item.map(|item| item["id"].clone());
    Ok(body::json(&json!({
        "object": "list",
        "data": page,
        "first_id": name(page.first()),
        "last_id": name(page.last()),
        "has_more": rest.len() > page.len(),
    })))
}

/// `HEAD /v1/responses`, and `GET` without an upgrade: the path is there, and it is a WebSocket.
pub async fn upgrade_required() -> Response {
    let message = "this path takes POST, or GET upgraded to a WebSocket";
    let error = ApiError::bad_request(message).with_status(StatusCode::UPGRADE_REQUIRED);
    // Clients ask this to find out, which is no refusal.
    let mut response = ApiError { reason: None, ..error }.into_response();
    response.headers_mut().insert(header::UPGRADE, header::HeaderValue::from_static("websocket"));
    response
}

/// A query that cannot be read, in the form of every other error.
fn bad_query(error: QueryRejection) -> ApiError {
    ApiError::bad_request(error.body_text())
}

fn response_not_found(id: &str) -> ApiError {
    let message = format!("response {id:?} was not found: it was not stored, was deleted, or has expired");
    ApiError::not_found("response_not_found", message)
}

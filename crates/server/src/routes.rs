//! Which path leads where, and what every request passes first.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use serde_json::json;

use crate::endpoints::body;
use crate::endpoints::chat;
use crate::endpoints::completions;
use crate::endpoints::infill;
use crate::endpoints::messages;
use crate::endpoints::native;
use crate::endpoints::ollama;
use crate::error::{ApiError, Refused};
use crate::guard::owner::Owner;
use crate::guard::{AuthError, HostError};
use crate::listen::Connection;
use crate::models::embeddings;
use crate::models::list;
use crate::responses::{compact, count, routes as responses, socket};
use crate::shared::{Door, Shared};
use crate::telemetry::metrics;
use crate::telemetry::metrics::Rejection;
use crate::telemetry::status;
use crate::telemetry::trace;

/// All paths. [`behind`] makes it usable.
pub fn router(shared: Arc<Shared>) -> Router {
    let open = Router::new().route("/health", get(health));
    let api = Router::new()
        .route("/v1/responses", post(responses::create).get(socket_or_hint).head(responses::upgrade_required))
        .route("/v1/responses/compact", post(compact::compact))
        .route("/v1/responses/input_tokens", post(count::input_tokens))
        .route("/v1/responses/{id}", get(responses::get).delete(responses::delete))
        .route("/v1/responses/{id}/cancel", post(responses::cancel))
        .route("/v1/responses/{id}/input_items", get(responses::input_items))
        .route("/v1/chat/completions", post(chat::create))
        .route("/v1/completions", post(completions::create))
        .route("/infill", post(infill::create))
        .route("/v1/infill", post(infill::create))
        .route("/tokenize", post(native::tokenize))
        .route("/detokenize", post(native::detokenize))
        .route("/apply-template", post(native::apply_template))
        .route("/props", get(native::props))
        .route("/v1/messages", post(messages::create))
        .route("/v1/messages/count_tokens", post(messages::count_tokens))
        .route("/v1/embeddings", post(embeddings::create))
        .route("/api/version", get(ollama::version))
        .route("/api/tags", get(ollama::tags))
        .route("/api/ps", get(ollama::running))
        .route("/api/show", post(ollama::show))
        .route("/api/chat", post(ollama::chat))
        .route("/api/generate", post(ollama::generate))
        .route("/api/embed", post(ollama::embed))
        .route("/api/embeddings", post(ollama::embed_old))
        .route("/api/pull", post(ollama::elsewhere))
        .route("/api/push", post(ollama::elsewhere))
        .route("/api/create", post(ollama::elsewhere))
        .route("/api/copy", post(ollama::elsewhere))
        .route("/api/delete", delete(ollama::elsewhere))
        .route("/v1/models", get(list::list))
        .route("/v1/models/{name}", get(list::show))
        .route("/metrics", get(scrape))
        .route("/status", get(status::show))
        .layer(middleware::from_fn_with_state(Arc::clone(&shared), authenticate))
        .layer(middleware::from_fn(trace::over_http));
    open.merge(api).fallback(nothing_here).method_not_allowed_fallback(wrong_method).with_state(shared)
}

/// The paths as they are reached through one door.
pub fn behind(router: &Router, door: &Door) -> Router {
    let counted = middleware::from_fn_with_state(door.clone(), count_refusals);
    router.clone().layer(middleware::from_fn_with_state(door.clone(), check_host)).layer(counted)
}

/// The one place where refusals over HTTP are counted, whoever refused.
async fn count_refusals(State(door): State<Door>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    if let Some(Refused(reason)) = response.extensions().get() {
        door.metrics.rejected(*reason);
    }
    response
}

/// A web page must not use the local server, whatever it asks for.
async fn check_host(State(door): State<Door>, request: Request, next: Next) -> Response {
    let origin = match door.hosts.check(request.headers()) {
        Ok(origin) => origin.map(str::to_owned),
        Err(error) => {
            let status = if error == HostError::NoHost { StatusCode::BAD_REQUEST } else { StatusCode::FORBIDDEN };
            let reason = match error {
                HostError::NoHost | HostError::WrongHost(_) => Rejection::Host,
                HostError::WrongOrigin(_) | HostError::CrossSite => Rejection::Origin,
            };
            let error = ApiError::bad_request(error.to_string()).with_status(status).because(reason);
            return in_envelope(request.uri().path(), error);
        }
    };
    let preflight = request.method() == Method::OPTIONS && origin.is_some();
    let mut response = match preflight {
        true => StatusCode::NO_CONTENT.into_response(),
        false => next.run(request).await,
    };
    if let Some(origin) = origin.and_then(|origin| HeaderValue::try_from(origin).ok()) {
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static("authorization, content-type"));
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, DELETE"));
    }
    response
}

/// An error in the words of the protocol that a path belongs to.
fn in_envelope(path: &str, error: ApiError) -> Response {
    if path.starts_with("/v1/messages") {
        messages::failure(&error)
    } else if path.starts_with("/api/") {
        ollama::failure(&error)
    } else {
        error.into_response()
    }
}

/// Lets a request in and says whose it is.
async fn authenticate(State(shared): State<Arc<Shared>>, mut request: Request, next: Next) -> Response {
    let owner = match (&shared.keys, request.extensions().get::<Connection>()) {
        (Some(keys), _) => keys.owner(request.headers()),
        (None, Some(place)) => Ok(place.owner()),
        // No connection, no owner.
        (None, None) => Err(AuthError::Missing),
    };
    let owner = match owner {
        Ok(owner) => owner,
        Err(error) => {
            let error = ApiError::bad_request(error.to_string()).code("invalid_api_key").because(Rejection::Key);
            return in_envelope(request.uri().path(), error.with_status(StatusCode::UNAUTHORIZED));
        }
    };
    if shared.is_closing() {
        return in_envelope(request.uri().path(), ApiError::closing());
    }
    request.extensions_mut().insert(owner);
    next.run(request).await
}

/// `GET /v1/responses`: a WebSocket, or a hint that it is one.
async fn socket_or_hint(
    state: State<Arc<Shared>>,
    axum::Extension(place): axum::Extension<Connection>,
    owner: Owner,
    headers: HeaderMap,
    upgrade: Result<axum::extract::ws::WebSocketUpgrade, axum::extract::ws::rejection::WebSocketUpgradeRejection>,
) -> Response {
    match upgrade {
        Ok(upgrade) => socket::upgrade(state, place, owner, &headers, upgrade).await,
        Err(_) => responses::upgrade_required().await,
    }
}

/// `GET /health`: 200 as long as requests are taken.
async fn health(State(shared): State<Arc<Shared>>) -> Response {
    if shared.is_closing() {
        return ApiError::closing().into_response();
    }
    let loaded: Vec<String> = shared.models.loaded().iter().map(|loaded| loaded.name.clone()).collect();
    body::json(&json!({
        "status": "ok",
        "flint": env!("CARGO_PKG_VERSION"),
        "loaded": loaded,
        "uptime_s": shared.since.elapsed().as_secs(),
    }))
}

/// `GET /metrics`.
async fn scrape(State(shared): State<Arc<Shared>>) -> Response {
    let loaded = shared.models.loaded();
    let engines: Vec<(&str, engine::Stats)> =
        loaded.iter().map(|loaded| (loaded.name.as_str(), loaded.engine.stats())).collect();
    ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], shared.metrics.render(&engines)).into_response()
}

async fn nothing_here(request: Request) -> Response {
    let message = format!("this server has no {} {}", request.method(), request.uri().path());
    in_envelope(request.uri().path(), ApiError::not_found("not_found", message))
}

async fn wrong_method(request: Request) -> Response {
    let message = format!("{} does not take {}", request.uri().path(), request.method());
    ApiError::bad_request(message).with_status(StatusCode::METHOD_NOT_ALLOWED).into_response()
}

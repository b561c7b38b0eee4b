//! `POST /v1/responses/input_tokens`: what a request would cost, without an answer.

use std::sync::Arc;

use api::responses::CreateResponse;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use serde_json::json;

use super::prepare::Order;
use super::run::check;
use super::settings;
use crate::endpoints::body;
use crate::error::ApiError;
use crate::generation::input_tools::input_tool_lists;
use crate::guard::owner::Owner;
use crate::sessions::turn::find_parent;
use crate::shared::Shared;

/// Answers with the number of tokens of the prompt, the turns before it included.
pub async fn input_tokens(State(shared): State<Arc<Shared>>, owner: Owner, body: Body) -> Result<Response, ApiError> {
    let request = CreateResponse::read(body::fields(body, &shared.limits).await?)?;
    let parent = find_parent(&shared, owner, request.previous_response_id.as_deref()).await?;
    check(&shared, &request, parent.as_ref())?;
    let loaded = shared.models.get(request.model.as_deref()).await?;
    let tools = shared.tool_cache.get(&request, input_tool_lists(&request.input, parent.as_ref()))?;
    tools.set.check(shared.limits.tools)?;
    let thinking = settings::thinking(&request, &loaded, &mut Vec::new());
    let order = Order { owner, loaded, request: Arc::new(request), parent, thinking };
    let count = order.count(tools).await?;
    Ok(body::json(&json!({"object": "response.input_tokens", "input_tokens": count})))
}

//! `/v1/models`, in the two shapes clients need: OpenAI's list, and the catalogue that the Codex CLI reads.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use serde_json::{Value, json};

use crate::endpoints::body;
use crate::error::ApiError;
use crate::models::ModelCard;
use crate::shared::Shared;

/// What the Codex CLI tells a model that comes without words of its own: short, because small models forget long
/// prompts and a CPU reads them slowly.
const INSTRUCTIONS: &str = "You are a coding agent working in the user's repository through a terminal. Use the tools \
to read and change files and to run commands. Keep answers short. Change only what was asked.";

/// `GET /v1/models`.
pub async fn list(State(shared): State<Arc<Shared>>) -> Response {
    let cards = shared.models.cards().chain(shared.embedders.cards());
    let data: Vec<Value> = cards.map(|card| openai(card, &shared)).collect();
    let models: Vec<Value> = shared.models.cards().enumerate().map(|(index, card)| codex(card, index)).collect();
    body::json(&json!({"object": "list", "data": data, "models": models}))
}

/// `GET /v1/models/{name}`.
pub async fn show(State(shared): State<Arc<Shared>>, Path(name): Path<String>) -> Result<Response, ApiError> {
    let card = shared.models.cards().chain(shared.embedders.cards()).find(|card| card.answers_to(&name));
    match card {
        Some(card) => Ok(body::json(&openai(card, &shared))),
        None => Err(ApiError::not_found("model_not_found", format!("there is no model {name:?} here"))),
    }
}

fn openai(card: &ModelCard, shared: &Shared) -> Value {
    let loaded =
        shared.models.loaded().iter().any(|loaded| loaded.name == card.name) || shared.embedders.has(&card.name);
    json!({
        "id": card.name,
        "object": "model",
        "created": 0,
        "owned_by": "flint",
        "description": card.description,
        "context_window": card.context,
        "max_model_len": card.context,
        "loaded": loaded,
        "embeds": shared.embedders.offers(&card.name),
    })
}

fn codex(card: &ModelCard, index: usize) -> Value {
    json!({
        "slug": card.name,
        "display_name": card.name,
        "description": card.description,
        "supported_reasoning_levels": [],
        "shell_type": "unified_exec",
        "visibility": "list",
        "supported_in_api": true,
        "priority": index + 1,
        "base_instructions": INSTRUCTIONS,
        "support_verbosity": false,
        "apply_patch_tool_type": "freeform",
        "truncation_policy": {"mode": "tokens", "limit": (card.context / 8).clamp(512, 10_000)},
        "context_window": card.context,
        "input_modalities": ["text"],
        "supports_reasoning_summary_parameter": false,
        "service_tiers": [
            {"id": "priority", "name": "Fast", "description": "Before all other work"},
            {"id": "flex", "name": "Flex", "description": "When nothing else is to be done"},
        ],
        "experimental_supported_tools": [],
    })
}

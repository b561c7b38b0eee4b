//! What there is: `/api/tags`, `/api/ps`, `/api/show` and `/api/version`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use serde_json::{Value, json};

use super::{failure, name_of};
use crate::endpoints::body;
use crate::error::ApiError;
use crate::ids::{now, timestamp};
use crate::models::ModelCard;
use crate::shared::Shared;

/// The version of Ollama's protocol that is spoken; its clients ask for it before they use what is new.
const PROTOCOL: &str = "0.12.6";

/// `GET /api/version`.
pub async fn version() -> Response {
    body::json(&json!({"version": PROTOCOL, "flint": env!("CARGO_PKG_VERSION")}))
}

/// `GET /api/tags`: all models on offer.
pub async fn tags(State(shared): State<Arc<Shared>>) -> Response {
    let models: Vec<Value> = cards(&shared).map(|card| entry(&shared, card)).collect();
    body::json(&json!({"models": models}))
}

/// `GET /api/ps`: those in memory.
pub async fn running(State(shared): State<Arc<Shared>>) -> Response {
    let loaded = shared.models.loaded();
    let models = shared.models.cards().filter(|card| loaded.iter().any(|loaded| loaded.name == card.name));
    let entries = models.map(|card| {
        let mut entry = entry(&shared, card);
        // They stay until there is need for their room.
        entry["expires_at"] = "9999-12-31T23:59:59Z".into();
        entry["size_vram"] = 0.into();
        entry["context_length"] = card.context.into();
        entry
    });
    body::json(&json!({"models": entries.collect::<Vec<Value>>()}))
}

/// `POST /api/show`: one of them.
pub async fn show(State(shared): State<Arc<Shared>>, body: Body) -> Response {
    let shown = async {
        let mut fields = body::fields(body, &shared.limits).await?;
        let model: Option<String> = fields.take("model")?.or(fields.take("name")?);
        let model = model.ok_or_else(|| ApiError::bad_field("model", "model is required"))?;
        let card = cards(&shared).find(|card| card.answers_to(name_of(&model)));
        let card = card.ok_or_else(|| ApiError::not_found("model_not_found", format!("model '{model}' not found")))?;
        Ok::<_, ApiError>(body::json(&described(&shared, card)))
    };
    shown.await.unwrap_or_else(|error| failure(&error))
}

fn cards(shared: &Shared) -> impl Iterator<Item = &ModelCard> {
    shared.models.cards().chain(shared.embedders.cards())
}

fn entry(shared: &Shared, card: &ModelCard) -> Value {
    json!({
        "name": card.name,
        "model": card.name,
        "modified_at": timestamp(now().saturating_sub(shared.since.elapsed().as_secs())),
        "size": card.file.bytes,
        "digest": card.file.sha256,
        "details": details(card),
    })
}

fn details(card: &ModelCard) -> Value {
    json!({
        "parent_model": "",
        "format": "gguf",
        "family": card.file.family,
        "families": [card.file.family],
        "parameter_size": card.file.parameters,
        "quantization_level": card.file.quantisation,
    })
}

fn described(shared: &Shared, card: &ModelCard) -> Value {
    let loaded = shared.models.loaded();
    let loaded = loaded.iter().find(|loaded| loaded.name == card.name);
    let vocabulary = loaded.map(|loaded| loaded.tokenizer.vocabulary());
    let mut capabilities =
        if shared.embedders.offers(&card.name) { vec!["embedding"] } else { vec!["completion", "tools"] };
    if vocabulary.is_some_and(|vocabulary| vocabulary.special().fim_middle.is_some()) {
        capabilities.push("insert");
    }
    if loaded.is_some_and(|loaded| loaded.facts.reasons) {
        capabilities.push("thinking");
    }
    let family = if card.file.family.is_empty() { "unknown" } else { &card.file.family };
    let mut info = json!({"general.architecture": family});
    info[format!("{family}.context_length")] = card.context.into();
    json!({
        "modelfile": format!("FROM {}", card.name),
        "parameters": "",
        "template": vocabulary.and_then(|vocabulary| vocabulary.chat_template()).unwrap_or_default(),
        "details": details(card),
        "model_info": info,
        "capabilities": capabilities,
        "modified_at": timestamp(now().saturating_sub(shared.since.elapsed().as_secs())),
    })
}

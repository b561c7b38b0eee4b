//! `GET /status`: what every loaded model is doing, in one small page of JSON for people and scripts.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use serde_json::{Value, json};

use crate::endpoints::body;
use crate::generation::drafts;
use crate::models::LoadedModel;
use crate::shared::Shared;

/// `GET /status`.
pub async fn show(State(shared): State<Arc<Shared>>) -> Response {
    let models: Vec<Value> = shared.models.loaded().iter().map(|loaded| model(loaded)).collect();
    body::json(&json!({
        "flint": env!("CARGO_PKG_VERSION"),
        "uptime_s": shared.since.elapsed().as_secs(),
        "models": models,
    }))
}

fn model(loaded: &LoadedModel) -> Value {
    let stats = loaded.engine.stats();
    let lanes = |counts: [usize; 2]| json!({"interactive": counts[0], "background": counts[1]});
    let (total, states) = (stats.drafts.total(), stats.states);
    json!({
        "name": loaded.name,
        "served_model": loaded.facts.served_model,
        "context": loaded.facts.context,
        "running": lanes(stats.running),
        "queued": lanes(stats.queued),
        "kv_blocks": {"used": stats.blocks.used, "cached": stats.blocks.cached, "free": stats.blocks.free},
        "states": {
            "used": states.slots - states.cached - states.free,
            "cached": states.cached,
            "free": states.free,
            "bytes_each": states.bytes,
        },
        "steps": stats.steps,
        "prompt_tokens": stats.prompt_tokens,
        "cached_tokens": stats.cached_tokens,
        "generated_tokens": stats.generated_tokens,
        "drafting": {
            "drafted_tokens": total.tokens,
            "accepted_tokens": total.accepted,
            "drafters": drafts::figures(&stats.drafts),
        },
    })
}

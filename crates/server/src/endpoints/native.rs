//! What llama.cpp's clients ask beside answers: `/tokenize`, `/detokenize`, `/apply-template` and `/props`.

use std::sync::Arc;

use api::ThinkingWish;
use api::chat::{ChatMessage, read_tools};
use api::responses::ToolChoice;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};
use text::{Special, Vocabulary};

use crate::endpoints::body;
use crate::endpoints::infill;
use crate::error::ApiError;
use crate::generation::aside;
use crate::generation::conversation::Conversation;
use crate::generation::thoughts;
use crate::generation::tools::ToolSet;
use crate::guard::owner::Owner;
use crate::models::LoadedModel;
use crate::shared::Shared;

/// `POST /tokenize`: the ids of a text, perhaps with the text of each.
pub async fn tokenize(State(shared): State<Arc<Shared>>, body: Body) -> Result<Response, ApiError> {
    let mut fields = body::fields(body, &shared.limits).await?;
    let content: String = fields.need("content")?;
    let add_special = fields.take::<bool>("add_special")?.unwrap_or(false);
    let special = match fields.take::<bool>("parse_special")?.unwrap_or(true) {
        true => Special::Parse,
        false => Special::Plain,
    };
    let with_pieces = fields.take::<bool>("with_pieces")?.unwrap_or(false);
    let loaded = shared.models.get(fields.take::<String>("model")?.as_deref()).await?;
    aside::run(move || {
        let vocabulary = loaded.tokenizer.vocabulary();
        let mut tokens: Vec<u32> = Vec::new();
        tokens.extend(vocabulary.special().bos.filter(|_| add_special && vocabulary.add_bos()));
        loaded
            .encode(content.as_bytes(), special, &mut tokens)
            .map_err(|error| ApiError { param: Some("content".to_owned()), ..error })?;
        let tokens = match with_pieces {
            true => tokens.into_iter().map(|id| json!({"id": id, "piece": piece(vocabulary, id)})).collect(),
            false => Value::from(tokens),
        };
        Ok(body::json(&json!({"tokens": tokens})))
    })
    .await
}

/// The text of a token, or its bytes where it is no text by itself.
fn piece(vocabulary: &Vocabulary, id: u32) -> Value {
    let bytes = vocabulary.token_bytes(id);
    std::str::from_utf8(bytes).map_or_else(|_| Value::from(bytes), Value::from)
}

/// `POST /detokenize`: the text of ids.
pub async fn detokenize(State(shared): State<Arc<Shared>>, body: Body) -> Result<Response, ApiError> {
    let mut fields = body::fields(body, &shared.limits).await?;
    let tokens: Vec<u32> = fields.need("tokens")?;
    let loaded = shared.models.get(fields.take::<String>("model")?.as_deref()).await?;
    let content = loaded.tokenizer.decode(&tokens);
    Ok(body::json(&json!({"content": String::from_utf8_lossy(&content)})))
}

/// `POST /apply-template`: the prompt that a chat request would become.
pub async fn apply_template(State(shared): State<Arc<Shared>>, owner: Owner, body: Body) -> Result<Response, ApiError> {
    let mut fields = body::fields(body, &shared.limits).await?;
    let messages = ChatMessage::read_list("messages", fields.need("messages")?)?;
    if messages.len() > shared.limits.input_items {
        let (count, limit) = (messages.len(), shared.limits.input_items);
        return Err(ApiError::bad_field("messages", format!("{count} messages, at most {limit} are taken")));
    }
    let tools = read_tools("tools", fields.take("tools")?.unwrap_or_default())?;
    let tools = ToolSet::new(&tools, &ToolChoice::Auto, true, &mut Vec::new())?;
    tools.check(shared.limits.tools)?;
    let answer = fields.take::<bool>("add_generation_prompt")?.unwrap_or(true);
    let wish = ThinkingWish::read_chat(&mut fields, &mut Vec::new())?;
    let loaded = shared.models.get(fields.take::<String>("model")?.as_deref()).await?;
    aside::run(move || {
        let mut conversation = Conversation::of(owner);
        conversation.messages(messages, &loaded, &mut Vec::new())?;
        let thinking = thoughts::told(&loaded, &wish, "reasoning_effort", &mut Vec::new());
        let written = conversation.write(&loaded, &tools, &thinking, answer)?;
        let prompt = loaded.tokenizer.decode(&written.tokens);
        Ok(body::json(&json!({"prompt": String::from_utf8_lossy(&prompt)})))
    })
    .await
}

/// Whose properties.
#[derive(Debug, Default, Deserialize)]
pub struct Asked {
    model: Option<String>,
}

/// `GET /props`: what the model can do, and how it is asked unless a request says otherwise.
pub async fn props(
    State(shared): State<Arc<Shared>>,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Result<Response, ApiError> {
    let Query(asked) = asked.map_err(|error| ApiError::bad_request(error.body_text()))?;
    let loaded = shared.models.get(asked.model.as_deref()).await?;
    Ok(body::json(&described(&loaded)))
}

fn described(loaded: &LoadedModel) -> Value {
    let vocabulary = loaded.tokenizer.vocabulary();
    let text = |id: Option<u32>| id.map(|id| String::from_utf8_lossy(vocabulary.token_bytes(id)).into_owned());
    json!({
        "default_generation_settings": {
            "id": 0,
            "n_ctx": loaded.facts.context,
            "is_processing": loaded.engine.stats().running.iter().sum::<usize>() > 0,
            "params": infill::settings(loaded, &api::SamplingFields::default(), None, &[], false),
        },
        "total_slots": loaded.engine.running_max(),
        "model_path": loaded.facts.served_model,
        "model_alias": loaded.name,
        "modalities": {"vision": false, "audio": false},
        "chat_template": vocabulary.chat_template().unwrap_or_default(),
        "bos_token": text(vocabulary.special().bos),
        "eos_token": text(vocabulary.special().eos),
        "build_info": concat!("flint ", env!("CARGO_PKG_VERSION")),
    })
}

//! `POST /v1/responses/compact`: a conversation made short by the model itself.

use std::sync::Arc;

use api::Fields;
use api::ThinkingWish;
use api::responses::{InputItem, OutputItem, Usage};
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use serde_json::{Value, json};
use text::{Message, Part, Written};

use crate::endpoints::body;
use crate::error::ApiError;
use crate::generation::conversation::Conversation;
use crate::generation::thoughts::{self, AnswerStart};
use crate::generation::tools::ToolSet;
use crate::generation::{self, Generation, Job, Piece};
use crate::guard::owner::Owner;
use crate::models::LoadedModel;
use crate::sessions::turn::Turn;
use crate::sessions::turn::find_parent;
use crate::shared::Shared;
use crate::{facts, ids};

/// Most tokens of a summary.
const SUMMARY_TOKENS: usize = 1024;

const ASK: &str = "Summarise this conversation so that another assistant can go on without having read it. Keep every \
decision, fact, name, file path, open question and next step. Write only the summary.";

/// Answers with one `compaction` item that stands for everything before it.
pub async fn compact(State(shared): State<Arc<Shared>>, owner: Owner, body: Body) -> Result<Response, ApiError> {
    let mut fields: Fields = body::fields(body, &shared.limits).await?;
    let model: String = fields.need("model")?;
    let input = fields.take_value("input").map(InputItem::list).transpose()?.unwrap_or_default();
    let instructions: Option<String> = fields.take("instructions")?;
    let previous: Option<String> = fields.take("previous_response_id")?;
    let parent = find_parent(&shared, owner, previous.as_deref()).await?;
    if input.is_empty() && parent.is_none() {
        return Err(ApiError::bad_field("input", "input or previous_response_id is required"));
    }
    let loaded = shared.models.get(Some(&model)).await?;
    let writing = loaded.clone();
    let prompt =
        tokio::task::spawn_blocking(move || write(&writing, owner, instructions, parent.as_ref(), &input)).await;
    let (written, warnings) = prompt.map_err(|error| ApiError::internal(error.to_string()))??;
    // Nobody names a limit here, so the operator's holds as it does for any answer.
    let most =
        Some(loaded.limits.output_tokens).filter(|tokens| *tokens > 0).unwrap_or(SUMMARY_TOKENS).min(SUMMARY_TOKENS);
    // Nothing of it is stored, so its KV is not either.
    let answer = generation::answer_options(&loaded, &ToolSet::default(), false, written.opening);
    let begins = AnswerStart { opening: written.opening, budget: Some(most / 2), ..AnswerStart::default() };
    let job = Job { max_tokens: Some(most), stored: false, answer, begins, ..Job::new(owner, written.tokens) };
    let mut generation = Generation::start(&loaded, job)?;
    let (mut summary, mut usage) = (String::new(), Usage::default());
    while let Some(piece) = generation.next().await {
        match piece {
            Piece::Started(_) => {}
            Piece::Parts { parts, .. } => summary.extend(parts.into_iter().filter_map(|part| match part {
                Part::Text(text) => Some(text),
                _ => None,
            })),
            Piece::Finished(finished) => usage = facts::usage(finished.usage, generation.thought_tokens()),
        }
    }
    let item = OutputItem::Compaction { id: ids::new("cmp"), encrypted_content: summary };
    Ok(body::json(&json!({
        "id": ids::new("resp"),
        "object": "response.compaction",
        "created_at": ids::now(),
        "output": [item],
        "usage": usage,
        "flint": {"warnings": warnings},
    })))
}

fn write(
    loaded: &LoadedModel,
    owner: Owner,
    instructions: Option<String>,
    parent: Option<&Arc<Turn>>,
    input: &[Value],
) -> Result<(Written, Vec<String>), ApiError> {
    let (mut conversation, tools) = (Conversation::of(owner), ToolSet::default());
    if let Some(instructions) = instructions {
        conversation.system(&instructions);
    }
    let mut warnings = Vec::new();
    conversation.turns(parent, loaded, &tools)?;
    conversation.items(input, loaded, &tools, &mut warnings)?;
    conversation.add(Message::user(ASK));
    // A summary needs no thoughts, where the model can do without.
    let wish = ThinkingWish { on: Some(false), ..ThinkingWish::default() };
    let thinking = thoughts::told(loaded, &wish, "compact", &mut Vec::new());
    Ok((conversation.write(loaded, &tools, &thinking, true)?, warnings))
}

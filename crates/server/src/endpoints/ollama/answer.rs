//! `/api/chat` and `/api/generate`.

use std::sync::Arc;
use std::time::Instant;

use api::chat::{ChatMessage, ChatRequest};
use api::completions::Prompt;
use api::ollama::{self, Common, GenerateRequest};
use api::responses::Content;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;

use super::wire::{Form, Lines};
use super::{failure, name_of};
use crate::endpoints::body;
use crate::endpoints::chat;
use crate::endpoints::completions;
use crate::endpoints::streamed;
use crate::error::ApiError;
use crate::facts;
use crate::generation::answers::Answers;
use crate::generation::aside;
use crate::generation::tools::ToolSet;
use crate::generation::{self, Job};
use crate::guard::owner::Owner;
use crate::models::{LoadedModel, ModelLease};
use crate::shared::Shared;

/// `POST /api/chat`.
pub async fn chat(State(shared): State<Arc<Shared>>, owner: Owner, body: Body) -> Response {
    chat_answer(&shared, owner, body).await.unwrap_or_else(|error| failure(&error))
}

/// `POST /api/generate`.
pub async fn generate(State(shared): State<Arc<Shared>>, owner: Owner, body: Body) -> Response {
    generated(&shared, owner, body).await.unwrap_or_else(|error| failure(&error))
}

async fn chat_answer(shared: &Shared, owner: Owner, body: Body) -> Result<Response, ApiError> {
    let request = ollama::ChatRequest::read(body::fields(body, &shared.limits).await?)?;
    let Serving { loaded, mut lines } = Serving::begin(shared, &request.common, Form::Chat).await?;
    if request.messages.is_empty() {
        return Ok(body::json(&lines.loaded()));
    }
    let mut warnings = Vec::new();
    let tools = ToolSet::new(&request.tools, &Default::default(), true, &mut warnings)?;
    tools.check(shared.limits.tools)?;
    let tools = Arc::new(tools);
    let (job, more) = written(shared, &loaded, owner, &request.common, request.messages, &tools).await?;
    warnings.extend(more);
    lines.warn(warnings);
    answered(shared, loaded, job, tools, request.common.stream, lines).await
}

async fn generated(shared: &Shared, owner: Owner, body: Body) -> Result<Response, ApiError> {
    let request = GenerateRequest::read(body::fields(body, &shared.limits).await?)?;
    let Serving { loaded, mut lines } = Serving::begin(shared, &request.common, Form::Generate).await?;
    if request.prompt.is_empty() && request.suffix.is_none() {
        return Ok(body::json(&lines.loaded()));
    }
    let tools = Arc::new(ToolSet::default());
    let GenerateRequest { common, prompt, suffix, system, raw } = request;
    let job = if raw || suffix.is_some() {
        let (loaded, common) = (loaded.clone(), common.clone());
        aside::run(move || raw_job(&loaded, owner, &common, prompt, suffix.as_deref())).await?
    } else {
        let content = |text| Content { text, unread: Vec::new() };
        let mut messages: Vec<ChatMessage> =
            system.map(|text| ChatMessage::Operator(content(text))).into_iter().collect();
        messages.push(ChatMessage::User(content(prompt)));
        let (job, warnings) = written(shared, &loaded, owner, &common, messages, &tools).await?;
        lines.warn(warnings);
        job
    };
    answered(shared, loaded, job, tools, common.stream, lines).await
}

/// The model and what its answer is written with.
struct Serving {
    loaded: ModelLease,
    lines: Lines,
}

impl Serving {
    async fn begin(shared: &Shared, common: &Common, form: Form) -> Result<Self, ApiError> {
        let begun = Instant::now();
        let loaded = shared.models.get(Some(name_of(&common.model))).await?;
        if common.think.asks() && !loaded.facts.reasons {
            return Err(ApiError::bad_field("think", format!("{:?} does not support thinking", common.model)));
        }
        let flint = facts::served(&loaded, if common.stream { "lines" } else { "http" }, Vec::new());
        let lines = Lines::new(form, common.model.clone(), begun, common.logprobs.is_some(), flint);
        Ok(Self { loaded, lines })
    }
}

/// The job of a conversation, and what was left out of it.
async fn written(
    shared: &Shared,
    loaded: &ModelLease,
    owner: Owner,
    common: &Common,
    messages: Vec<ChatMessage>,
    tools: &Arc<ToolSet>,
) -> Result<(Job, Vec<String>), ApiError> {
    let mut request = ChatRequest {
        messages,
        format: common.format.clone(),
        sampling: common.sampling.clone(),
        logprobs: common.logprobs,
        max_tokens: common.max_tokens,
        stop: common.stop.clone(),
        thinking: common.think.clone(),
        n: 1,
        store: true,
        ..ChatRequest::default()
    };
    chat::check(&request, shared)?;
    let (loaded, tools) = (loaded.clone(), Arc::clone(tools));
    aside::run(move || chat::prepare(&loaded, owner, &mut request, &tools)).await
}

/// The job of a prompt as it is, or of a gap in a text. Blocking.
fn raw_job(
    loaded: &LoadedModel,
    owner: Owner,
    common: &Common,
    prompt: String,
    suffix: Option<&str>,
) -> Result<Job, ApiError> {
    let none = ToolSet::default();
    Ok(Job {
        max_tokens: common.max_tokens,
        sampling: facts::sampling(&common.sampling, common.logprobs),
        stop: common.stop.clone(),
        grammar: generation::grammar(loaded, generation::source(&common.format, &none), &none)?,
        ..Job::new(owner, completions::tokens(loaded, &Prompt::Text(prompt), suffix)?)
    })
}

async fn answered(
    shared: &Shared,
    loaded: ModelLease,
    job: Job,
    tools: Arc<ToolSet>,
    stream: bool,
    mut lines: Lines,
) -> Result<Response, ApiError> {
    let mut answers = Answers::start(&loaded, vec![job], &tools, "call")?;
    if stream {
        return Ok(loaded.rated(streamed::lines(answers, lines, shared.limits.progress_event)));
    }
    answers.whole().await?;
    Ok(loaded.rated(body::json(&lines.whole(&answers.all[0])?)))
}

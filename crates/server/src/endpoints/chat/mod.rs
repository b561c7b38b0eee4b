//! `POST /v1/chat/completions`: the whole history in, one or more answers out.

mod wire;

use std::sync::Arc;

use api::chat::{ChatChoice, ChatCompletion, ChatRequest};
use api::responses::Flint;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use engine::Priority;

use self::wire::ChatWire;
use crate::endpoints::body;
use crate::endpoints::streamed;
use crate::error::ApiError;
use crate::generation::answers::{Answers, usage};
use crate::generation::conversation::Conversation;
use crate::generation::drafts;
use crate::generation::thoughts::{self, AnswerStart};
use crate::generation::tools::ToolSet;
use crate::generation::{self, Job};
use crate::guard::owner::Owner;
use crate::models::LoadedModel;
use crate::shared::Shared;
use crate::telemetry::trace;
use crate::{facts, ids};

/// What all chunks of an answer repeat.
#[derive(Clone, Debug)]
pub struct Head {
    /// `chatcmpl_...`.
    pub id: String,
    /// Unix seconds.
    pub created: u64,
    /// The model that was asked for.
    pub model: String,
    /// Identity of the weights.
    pub fingerprint: String,
}

impl Head {
    /// The head of a new answer.
    pub fn new(prefix: &str, loaded: &LoadedModel, model: Option<&str>) -> Self {
        let id = ids::new(prefix);
        trace::note("id", id.as_str());
        Self {
            id,
            created: ids::now(),
            model: model.unwrap_or(&loaded.name).to_owned(),
            fingerprint: format!("fp_{:016x}", loaded.facts.fingerprint),
        }
    }
}

/// `POST /v1/chat/completions`.
pub async fn create(State(shared): State<Arc<Shared>>, owner: Owner, body: Body) -> Result<Response, ApiError> {
    let mut request = ChatRequest::read(body::fields(body, &shared.limits).await?)?;
    check(&request, &shared)?;
    let loaded = shared.models.get(request.model.as_deref()).await?;
    let mut warnings = std::mem::take(&mut request.warnings);
    warn(&request, &mut warnings);
    let tools = ToolSet::new(&request.tools, &request.tool_choice, request.parallel_tool_calls, &mut warnings)?;
    tools.check(shared.limits.tools)?;
    let tools = Arc::new(tools);
    let prepared = {
        let (loaded, tools, mut request) = (loaded.clone(), Arc::clone(&tools), request.clone());
        crate::generation::aside::run(move || prepare(&loaded, owner, &mut request, &tools)).await
    };
    let (job, more) = prepared?;
    warnings.extend(more);
    let jobs = repeat(&job, request.n);
    let limited = loaded.clone();
    let mut answers = Answers::start(&loaded, jobs, &tools, "call").map_err(blame)?;
    let head = Head::new("chatcmpl", &loaded, request.model.as_deref());
    let mut flint = facts::served(&loaded, if request.stream { "sse" } else { "http" }, warnings);
    if request.stream {
        let wire = ChatWire::new(head, flint, &request);
        return Ok(limited.rated(streamed::response(answers, wire, shared.limits.progress_event)));
    }
    answers.whole().await?;
    answers.all[0].describe(&mut flint);
    whole(head, &request, &answers, flint).map(|answer| limited.rated(body::json(&answer)))
}

/// Refuses more than the limits allow.
pub fn check(request: &ChatRequest, shared: &Shared) -> Result<(), ApiError> {
    if request.n > shared.limits.choices {
        let message = format!("{} answers, at most {} are given", request.n, shared.limits.choices);
        return Err(ApiError::bad_field("n", message));
    }
    if request.messages.len() > shared.limits.input_items {
        let (count, limit) = (request.messages.len(), shared.limits.input_items);
        return Err(ApiError::bad_field("messages", format!("{count} messages, at most {limit} are taken")));
    }
    Ok(())
}

fn warn(request: &ChatRequest, warnings: &mut Vec<String>) {
    let tier = request.service_tier.as_deref();
    if let Some(other) = tier.filter(|tier| !["auto", "default", "priority", "fast", "flex"].contains(tier)) {
        warnings.push(format!("`service_tier: {other}` is not known here; priority was used"));
    }
}

/// Writes the prompt and compiles what the answer is held to. Blocking.
pub fn prepare(
    loaded: &LoadedModel,
    owner: Owner,
    request: &mut ChatRequest,
    tools: &ToolSet,
) -> Result<(Job, Vec<String>), ApiError> {
    let mut warnings = Vec::new();
    let mut conversation = Conversation::of(owner);
    conversation.messages(std::mem::take(&mut request.messages), loaded, &mut warnings)?;
    let thinking = thoughts::told(loaded, &request.thinking, "reasoning_effort", &mut warnings);
    let written = conversation.write(loaded, tools, &thinking, true)?;
    let format = generation::source(&request.format, tools);
    let formatted = format.is_some();
    let job = Job {
        max_tokens: request.max_tokens,
        sampling: facts::sampling(&request.sampling, request.logprobs),
        stop: std::mem::take(&mut request.stop),
        priority: facts::priority_of(request.service_tier.as_deref(), false),
        grammar: generation::grammar(loaded, format, tools)?,
        answer: generation::answer_options(loaded, tools, formatted, written.opening),
        begins: AnswerStart { opening: written.opening, budget: request.thinking.budget, lasting: written.lasting },
        prediction: drafts::prediction(loaded, request.prediction.as_deref(), &mut warnings),
        stored: request.store,
        ..Job::new(owner, written.tokens)
    };
    Ok((job, warnings))
}

/// The same job several times, each with its own seed where there is one.
pub fn repeat(job: &Job, n: usize) -> Vec<Job> {
    let one = |index: usize| {
        let mut job = job.clone();
        job.sampling.seed = job.sampling.seed.map(|seed| seed.wrapping_add(index as u64));
        job
    };
    (0..n).map(one).collect()
}

/// A prompt that does not fit is the fault of `messages`.
pub fn blame(error: ApiError) -> ApiError {
    let too_long = error.code == Some("context_length_exceeded");
    let param = if too_long { Some("messages".to_owned()) } else { error.param };
    ApiError { param, ..error }
}

fn whole(head: Head, request: &ChatRequest, answers: &Answers, flint: Flint) -> Result<ChatCompletion, ApiError> {
    let choice = |(index, answer)| wire::choice(index, answer, request.logprobs.is_some());
    let choices: Vec<ChatChoice> = answers.all.iter().enumerate().map(choice).collect::<Result<_, _>>()?;
    let priority = facts::priority_of(request.service_tier.as_deref(), false);
    Ok(ChatCompletion {
        id: head.id,
        object: "chat.completion",
        created: head.created,
        model: head.model,
        choices,
        usage: usage(&answers.all, request.n),
        service_tier: if priority == Priority::Background { "flex" } else { "priority" }.to_owned(),
        system_fingerprint: head.fingerprint,
        flint,
    })
}

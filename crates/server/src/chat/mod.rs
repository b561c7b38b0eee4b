//! `POST /v1/chat/completions`: the whole history in, one or more answers out.

mod wire;

use std::sync::Arc;

use api::chat::{ChatChoice, ChatCompletion, ChatRequest};
use api::responses::Flint;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use engine::Lane;

use self::wire::ChatWire;
use crate::answers::{Answers, usage};
use crate::conversation::Conversation;
use crate::error::ApiError;
use crate::generation::{self, Job};
use crate::owner::Owner;
use crate::pool::Pool;
use crate::shared::Shared;
use crate::tools::ToolSet;
use crate::{body, drafts, facts, ids, streamed, trace};

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
    pub fn new(prefix: &str, pool: &Pool, model: Option<&str>) -> Self {
        let id = ids::new(prefix);
        trace::note("id", id.as_str());
        Self {
            id,
            created: ids::now(),
            model: model.unwrap_or(&pool.name).to_owned(),
            fingerprint: format!("fp_{:016x}", pool.facts.fingerprint),
        }
    }
}

/// `POST /v1/chat/completions`.
pub async fn create(State(shared): State<Arc<Shared>>, owner: Owner, body: Body) -> Result<Response, ApiError> {
    let mut request = ChatRequest::read(body::fields(body, &shared.limits).await?)?;
    check(&request, &shared)?;
    let pool = shared.pools.get(request.model.as_deref()).await?;
    let mut warnings = std::mem::take(&mut request.warnings);
    warn(&request, &pool, &mut warnings);
    let tools = ToolSet::new(&request.tools, &request.tool_choice, request.parallel_tool_calls, &mut warnings)?;
    tools.check(shared.limits.tools)?;
    let tools = Arc::new(tools);
    let prepared = {
        let (pool, tools, mut request) = (Arc::clone(&pool), Arc::clone(&tools), request.clone());
        crate::aside::run(move || prepare(&pool, owner, &mut request, &tools)).await
    };
    let (job, more) = prepared?;
    warnings.extend(more);
    let jobs = repeat(&job, request.n);
    let limited = Arc::clone(&pool);
    let mut answers = Answers::start(&pool, jobs, &tools, "call").map_err(blame)?;
    let head = Head::new("chatcmpl", &pool, request.model.as_deref());
    let mut flint = facts::served(&pool, if request.stream { "sse" } else { "http" }, warnings);
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

fn warn(request: &ChatRequest, pool: &Pool, warnings: &mut Vec<String>) {
    if request.reasoning_effort.as_deref().is_some_and(|effort| effort != "none") && !pool.facts.reasons {
        warnings.push(format!("`reasoning_effort` was ignored: {} answers without reasoning", pool.name));
    }
    let tier = request.service_tier.as_deref();
    if let Some(other) = tier.filter(|tier| !["auto", "default", "priority", "fast", "flex"].contains(tier)) {
        warnings.push(format!("`service_tier: {other}` is not known here; priority was used"));
    }
}

/// Writes the prompt and compiles what the answer is held to. Blocking.
pub fn prepare(
    pool: &Pool,
    owner: Owner,
    request: &mut ChatRequest,
    tools: &ToolSet,
) -> Result<(Job, Vec<String>), ApiError> {
    let mut warnings = Vec::new();
    let mut conversation = Conversation::of(owner);
    conversation.messages(std::mem::take(&mut request.messages), pool, &mut warnings)?;
    let prompt = conversation.write(pool, tools, true)?;
    let format = generation::source(&request.format, tools);
    let formatted = format.is_some();
    let job = Job {
        max_tokens: request.max_tokens,
        sampling: facts::sampling(&request.sampling, request.logprobs),
        stop: std::mem::take(&mut request.stop),
        lane: facts::lane_of(request.service_tier.as_deref(), false),
        grammar: generation::grammar(pool, format, tools)?,
        answer: generation::answer_options(pool, tools, formatted),
        prediction: drafts::prediction(pool, request.prediction.as_deref(), &mut warnings),
        stored: request.store,
        ..Job::new(owner, prompt)
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
    let lane = facts::lane_of(request.service_tier.as_deref(), false);
    Ok(ChatCompletion {
        id: head.id,
        object: "chat.completion",
        created: head.created,
        model: head.model,
        choices,
        usage: usage(&answers.all, request.n),
        service_tier: if lane == Lane::Background { "flex" } else { "priority" }.to_owned(),
        system_fingerprint: head.fingerprint,
        flint,
    })
}

//! `POST /v1/completions`: raw prompts, and fill in the middle by the model's own tokens.
//!
//! A client of this endpoint writes control tokens itself, so its text is read with them.

use std::sync::Arc;

use api::chat::{TextChoice, TextCompletion, TextLogProbs};
use api::completions::{CompletionRequest, Prompt};
use api::responses::{Flint, LogProb};
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use serde_json::Value;
use text::{Infill, Special, TextError, write_infill};

use crate::endpoints::body;
use crate::endpoints::chat::{Head, repeat};
use crate::endpoints::sse;
use crate::endpoints::streamed;
use crate::endpoints::streamed::Wire;
use crate::error::ApiError;
use crate::facts;
use crate::generation::answers::{Answer, Answers, Delta, End, usage};
use crate::generation::aside;
use crate::generation::tools::ToolSet;
use crate::generation::{self, Job};
use crate::guard::owner::Owner;
use crate::models::LoadedModel;
use crate::shared::Shared;

/// `POST /v1/completions`.
pub async fn create(State(shared): State<Arc<Shared>>, owner: Owner, body: Body) -> Result<Response, ApiError> {
    let mut request = CompletionRequest::read(body::fields(body, &shared.limits).await?)?;
    let count = request.prompts.len().saturating_mul(request.n);
    if count > shared.limits.choices {
        let message = format!("{count} answers, at most {} are given", shared.limits.choices);
        return Err(ApiError::bad_field("n", message));
    }
    let loaded = shared.models.get(request.model.as_deref()).await?;
    let warnings = std::mem::take(&mut request.warnings);
    let prepared = {
        let (loaded, request) = (loaded.clone(), request.clone());
        aside::run(move || prepare(&loaded, owner, &request)).await
    };
    let jobs = prepared?;
    let echo = if request.echo { echoes(&loaded, &request) } else { Vec::new() };
    let blame = |error: ApiError| match error.code {
        Some("context_length_exceeded") => ApiError { param: Some("prompt".to_owned()), ..error },
        _ => error,
    };
    let limited = loaded.clone();
    let mut answers = Answers::start(&loaded, jobs, &Arc::new(ToolSet::default()), "call").map_err(blame)?;
    let flint = facts::served(&loaded, if request.stream { "sse" } else { "http" }, warnings);
    let head = Head::new("cmpl", &loaded, request.model.as_deref());
    let offsets = vec![0; answers.all.len()];
    let mut wire = TextWire { head, flint, echo, offsets, ended: 0, request };
    if wire.request.stream {
        return Ok(limited.rated(streamed::response(answers, wire, shared.limits.progress_event)));
    }
    answers.whole().await?;
    wire.whole(&answers.all).map(|answer| limited.rated(body::json(&answer)))
}

/// One job for each answer. Blocking.
fn prepare(loaded: &LoadedModel, owner: Owner, request: &CompletionRequest) -> Result<Vec<Job>, ApiError> {
    let mut jobs = Vec::new();
    let none = ToolSet::default();
    let grammar = generation::grammar(loaded, generation::source(&request.format, &none), &none)?;
    for prompt in &request.prompts {
        let job = Job {
            max_tokens: Some(request.max_tokens),
            sampling: facts::sampling(&request.sampling, request.logprobs),
            stop: request.stop.clone(),
            grammar: grammar.clone(),
            ..Job::new(owner, tokens(loaded, prompt, request.suffix.as_deref())?)
        };
        jobs.extend(repeat(&job, request.n));
    }
    Ok(jobs)
}

/// The tokens of a prompt, or of a text with a gap.
pub fn tokens(loaded: &LoadedModel, prompt: &Prompt, suffix: Option<&str>) -> Result<Vec<u32>, ApiError> {
    let text = match (prompt, suffix) {
        (Prompt::Tokens(tokens), _) => return Ok(tokens.clone()),
        (Prompt::Text(prefix), Some(suffix)) => {
            let most = loaded.facts.context.saturating_mul(loaded.facts.token_bytes_max);
            if prefix.len() > most || suffix.len() > most {
                let context = loaded.facts.context;
                return Err(ApiError::far_too_long(context, context.saturating_sub(1)));
            }
            // Nothing is cut here: a prompt that does not fit is refused later.
            let gap = Infill { prefix, suffix, prompt: "", extra: &[], repo: None, tokens_max: usize::MAX };
            return write_infill(&loaded.tokenizer, &gap).map_err(no_infill);
        }
        (Prompt::Text(text), None) => text,
    };
    let vocabulary = loaded.tokenizer.vocabulary();
    let mut tokens = Vec::new();
    loaded.encode(text.as_bytes(), Special::Parse, &mut tokens)?;
    let special = vocabulary.special();
    if let Some(bos) = special.bos
        && vocabulary.add_bos()
        && tokens.first() != Some(&bos)
    {
        tokens.insert(0, bos);
    }
    if tokens.is_empty() {
        // A text that begins from nothing begins where another ended.
        tokens.extend(special.bos.or(special.eos));
    }
    Ok(tokens)
}

/// A model without the tokens for it cannot fill gaps.
pub fn no_infill(error: TextError) -> ApiError {
    ApiError::bad_field("model", error.to_string()).code("infill_not_supported")
}

/// The prompts as text.
fn echoes(loaded: &LoadedModel, request: &CompletionRequest) -> Vec<String> {
    let text = |prompt: &Prompt| match prompt {
        Prompt::Text(text) => text.clone(),
        Prompt::Tokens(tokens) => String::from_utf8_lossy(&loaded.tokenizer.decode(tokens)).into_owned(),
    };
    request.prompts.iter().map(text).collect()
}

/// Writes answers.
struct TextWire {
    head: Head,
    flint: Flint,
    /// Texts of the prompts, where they are to be repeated.
    echo: Vec<String>,
    /// Bytes that the tokens of each answer came to so far.
    offsets: Vec<usize>,
    ended: usize,
    request: CompletionRequest,
}

impl TextWire {
    fn whole(&mut self, answers: &[Answer]) -> Result<TextCompletion, ApiError> {
        let mut choices = Vec::new();
        for (index, answer) in answers.iter().enumerate() {
            let logprobs = self.logprobs(index, &answer.logprobs);
            let text = format!("{}{}", self.echo(index), answer.text);
            choices.push(TextChoice { text, index, logprobs, finish_reason: Some(reason(answer.end()?)) });
        }
        answers[0].describe(&mut self.flint);
        let mut completion = self.chunk(choices);
        completion.usage = Some(Some(usage(answers, self.request.n)));
        completion.flint = Some(self.flint.clone());
        Ok(completion)
    }

    fn echo(&self, index: usize) -> &str {
        self.echo.get(index / self.request.n).map_or("", String::as_str)
    }

    fn chunk(&self, choices: Vec<TextChoice>) -> TextCompletion {
        TextCompletion {
            id: self.head.id.clone(),
            object: "text_completion",
            created: self.head.created,
            model: self.head.model.clone(),
            system_fingerprint: self.head.fingerprint.clone(),
            choices,
            usage: (self.request.stream && self.request.include_usage).then_some(None),
            flint: None,
        }
    }

    /// The old shape, which counts bytes from the start of the answer.
    fn logprobs(&mut self, index: usize, tokens: &[LogProb]) -> Option<TextLogProbs> {
        self.request.logprobs?;
        let offset = &mut self.offsets[index];
        let mut old = TextLogProbs::default();
        for token in tokens {
            let top = token.top_logprobs.iter().map(|top| (top.token.clone(), Value::from(top.logprob)));
            old.top_logprobs.push(top.collect());
            old.tokens.push(token.token.clone());
            old.token_logprobs.push(token.logprob);
            old.text_offset.push(*offset);
            *offset += token.bytes.len();
        }
        Some(old)
    }

    fn write(chunk: &TextCompletion, out: &mut String) {
        sse::write(&serde_json::to_string(chunk).unwrap_or_default(), out);
    }
}

fn reason(end: End) -> &'static str {
    if end == End::Length { "length" } else { "stop" }
}

impl Wire for TextWire {
    fn begin(&mut self, answers: &[Answer], out: &mut String) {
        for index in 0..answers.len() {
            let text = self.echo(index).to_owned();
            if !text.is_empty() {
                Self::write(&self.chunk(vec![TextChoice { text, index, ..TextChoice::default() }]), out);
            }
        }
    }

    fn grew(&mut self, index: usize, _answer: &Answer, deltas: Vec<Delta>, out: &mut String) {
        for delta in deltas {
            let Delta::Text { text, logprobs } = delta else { continue };
            let logprobs = self.logprobs(index, &logprobs);
            Self::write(&self.chunk(vec![TextChoice { text, index, logprobs, finish_reason: None }]), out);
        }
    }

    fn ended(&mut self, index: usize, answer: &Answer, out: &mut String) {
        self.ended += 1;
        if index == 0 {
            answer.describe(&mut self.flint);
        }
        let finish_reason = answer.end().ok().map(reason);
        let mut chunk = self.chunk(vec![TextChoice { index, finish_reason, ..TextChoice::default() }]);
        if self.ended == self.offsets.len() && !self.request.include_usage {
            chunk.flint = Some(self.flint.clone());
        }
        Self::write(&chunk, out);
    }

    fn end(&mut self, answers: &[Answer], out: &mut String) {
        if self.request.include_usage {
            let mut chunk = self.chunk(Vec::new());
            chunk.usage = Some(Some(usage(answers, self.request.n)));
            chunk.flint = Some(self.flint.clone());
            Self::write(&chunk, out);
        }
        sse::write("[DONE]", out);
    }
}

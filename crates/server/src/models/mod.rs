//! Loaded models: each with its own engine, limits and caches, loaded when first asked for.
//!
//! A request names a model and gets that model or an error; nothing is ever served by another one. What loading means
//! (files, devices, options) is the business of whoever implements [`Loader`].

pub mod embeddings;
pub mod list;
pub mod rate;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use axum::response::Response;
use engine::EngineHandle;
use text::grammar::Grammars;
use text::{ChatTemplate, Dialect, PromptWriter, Special, TextError, Thoughts, Tokenizer};
use tokio::sync::OwnedMutexGuard;
use tokio::task::JoinHandle;

use crate::error::ApiError;
use crate::generation::answer_token_cache::AnswerTokenCache;
use crate::lock::lock;
use crate::models::embeddings::Embedder;
use crate::models::rate::{Rate, Tokens};
use crate::sessions::Sessions;
use crate::telemetry::metrics::{Metrics, ModelMetrics, Rejection};

/// What is known of a model before it is loaded.
#[derive(Clone, Debug)]
pub struct ModelCard {
    /// What clients call it.
    pub name: String,
    /// Other names it answers to.
    pub aliases: Vec<String>,
    /// One line for people.
    pub description: String,
    /// Tokens one sequence may have here: the model's limit or the server's, whichever is less.
    pub context: usize,
    /// What is known of its file.
    pub file: FileFacts,
}

/// What is known of a model's file; empty where nothing is.
#[derive(Clone, Debug, Default)]
pub struct FileFacts {
    /// The architecture, such as `qwen2`.
    pub family: String,
    /// Number of parameters in words.
    pub parameters: String,
    /// Such as `Q4_K_M`.
    pub quantisation: String,
    /// Its size.
    pub bytes: u64,
    /// Its digest.
    pub sha256: String,
}

impl ModelCard {
    /// Whether this is a name of the model.
    pub fn answers_to(&self, name: &str) -> bool {
        self.name == name || self.aliases.iter().any(|alias| alias == name)
    }
}

/// A model that runs, as a loader hands it over.
pub struct ModelParts {
    /// Takes token prompts.
    pub engine: EngineHandle,
    /// Makes them.
    pub tokenizer: Arc<Tokenizer>,
    /// Writes conversations; a model without a template still serves raw prompts.
    pub template: Result<ChatTemplate, TextError>,
    /// The file's own name of the model.
    pub served_model: String,
    /// Identity of the weights.
    pub fingerprint: u64,
    /// Such as `Q4_K_M`.
    pub quantisation: String,
    /// Tokens one sequence may have.
    pub context: usize,
    /// What this model must be told after the results of tools; see [`Facts::after_tools`].
    pub after_tools: Option<String>,
}

/// Knows which models there are and how to load them.
pub trait Loader: Send + Sync + 'static {
    /// The models on offer, the default one first.
    fn cards(&self) -> Vec<ModelCard>;

    /// Loads one. Runs on a blocking thread and may take long.
    fn load(&self, name: &str) -> Result<ModelParts, String>;

    /// The models on offer that write nothing and turn texts into vectors, the default one first.
    fn embedders(&self) -> Vec<ModelCard> {
        Vec::new()
    }

    /// Loads one of those.
    fn load_embedder(&self, name: &str) -> Result<Box<dyn Embedder>, String> {
        Err(format!("{name} is not offered"))
    }
}

/// A prompt that is too long is counted up to so many times what fits, so that its error can name the number.
const COUNTED: usize = 4;

/// Limits of each loaded model.
#[derive(Clone, Copy, Debug)]
pub struct ModelLimits {
    /// Tokens read and generated per minute; 0 is unlimited. More is answered 429.
    pub tokens_per_minute: u64,
    /// Models in memory at once; the one idle longest makes way.
    pub loaded_max: usize,
    /// A model unused for this long is unloaded; zero keeps it.
    pub idle: Duration,
    /// Most tokens of an answer whose request names no limit; 0 is as many as fit.
    pub output_tokens: usize,
    /// Whether KV of requests that are not to be stored may be written to disk like that of others.
    pub snapshot_unstored: bool,
}

impl Default for ModelLimits {
    fn default() -> Self {
        Self { tokens_per_minute: 0, loaded_max: 2, idle: Duration::ZERO, output_tokens: 0, snapshot_unstored: false }
    }
}

/// One loaded model.
pub struct LoadedModel {
    /// What clients call it.
    pub name: String,
    /// Takes token prompts.
    pub engine: EngineHandle,
    /// Makes them.
    pub tokenizer: Arc<Tokenizer>,
    /// What the model said before, by what was shown of it.
    pub answer_tokens: Mutex<AnswerTokenCache>,
    /// Conversations that may go on.
    pub sessions: Mutex<Sessions>,
    /// Facts for the client.
    pub facts: Facts,
    /// Numbers for Prometheus.
    pub metrics: Arc<ModelMetrics>,
    /// Limits in force.
    pub limits: ModelLimits,
    writer: Result<PromptWriter, String>,
    grammars: OnceLock<Result<Grammars, String>>,
    spent: Mutex<Spent>,
    used: Mutex<Instant>,
    /// Requests that hold it.
    leases: AtomicUsize,
}

/// What a client is told about the model that serves it.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The file's own name of the model.
    pub served_model: String,
    /// Identity of the weights.
    pub fingerprint: u64,
    /// Such as `Q4_K_M`.
    pub quantisation: String,
    /// Tokens one sequence may have.
    pub context: usize,
    /// Bytes of its longest token.
    pub token_bytes_max: usize,
    /// A sentence put behind the results of tools, for models that would repeat the call without it.
    pub after_tools: Option<String>,
    /// Whether the chat template announces tools by itself.
    pub announces_tools: bool,
    /// Whether it thinks, or can be made to.
    pub reasons: bool,
    /// What it can be told about thinking; nothing where it holds no conversations.
    pub thoughts: Option<Thoughts>,
    /// How it writes thoughts and calls.
    pub dialect: Dialect,
}

impl LoadedModel {
    fn new(name: &str, model: ModelParts, limits: ModelLimits, metrics: Arc<ModelMetrics>) -> Self {
        let template_text = model.tokenizer.vocabulary().chat_template().unwrap_or_default();
        let context = model.context.min(model.engine.tokens_max());
        let writer = |template| PromptWriter::new(Arc::clone(&model.tokenizer), template).within(context);
        let writer = model.template.map(writer);
        let thoughts = writer.as_ref().ok().map(|writer| writer.thoughts().clone());
        let facts = Facts {
            served_model: model.served_model,
            fingerprint: model.fingerprint,
            quantisation: model.quantisation,
            context,
            token_bytes_max: model.tokenizer.vocabulary().longest().max(1),
            after_tools: model.after_tools,
            announces_tools: template_text.contains("tools"),
            reasons: thoughts.as_ref().is_some_and(|thoughts| thoughts.thinks),
            thoughts,
            dialect: Dialect::of(model.tokenizer.vocabulary()),
        };
        Self {
            name: name.to_owned(),
            engine: model.engine,
            tokenizer: model.tokenizer,
            answer_tokens: Mutex::default(),
            sessions: Mutex::default(),
            facts,
            metrics,
            limits,
            writer: writer.map_err(|error| error.to_string()),
            grammars: OnceLock::new(),
            spent: Mutex::default(),
            used: Mutex::new(Instant::now()),
            leases: AtomicUsize::new(0),
        }
    }

    /// Appends the tokens of a text that came from outside. One that cannot fit is refused before it is read to its end.
    pub fn encode(&self, text: &[u8], special: Special, tokens: &mut Vec<u32>) -> Result<(), ApiError> {
        let Facts { context, token_bytes_max, .. } = self.facts;
        if text.len() / token_bytes_max > context {
            return Err(ApiError::far_too_long(context, context.saturating_sub(1)));
        }
        let counted = context.saturating_mul(COUNTED);
        if self.tokenizer.encode_within(text, special, tokens, counted) {
            Ok(())
        } else {
            Err(ApiError::far_too_long(counted, context.saturating_sub(1)))
        }
    }

    /// What a text that could not be written means to the client.
    pub fn unwritten(&self, error: TextError) -> ApiError {
        match error {
            TextError::TooLong { more_than } => ApiError::far_too_long(more_than, self.facts.context.saturating_sub(1)),
            other => other.into(),
        }
    }

    /// Writes conversations for this model.
    pub fn writer(&self) -> Result<&PromptWriter, ApiError> {
        self.writer.as_ref().map_err(|error| {
            let hint = "use /v1/completions with a raw prompt";
            ApiError::bad_field("model", format!("{} holds no conversations ({error}); {hint}", self.name))
        })
    }

    /// Compiles grammars for this model. The first call takes a moment.
    pub fn grammars(&self) -> Result<&Grammars, ApiError> {
        let made = self.grammars.get_or_init(|| {
            let rows = self.engine.info().vocab;
            Grammars::new(&self.tokenizer, rows).map_err(|error| error.to_string())
        });
        made.as_ref().map_err(|error| ApiError::internal(format!("grammars are not available: {error}")))
    }

    /// Counts tokens against the minute's budget, or says when there will be room.
    pub fn admit(&self, tokens: usize) -> Result<(), ApiError> {
        let limit = self.limits.tokens_per_minute;
        *lock(&self.used) = Instant::now();
        if limit == 0 {
            return Ok(());
        }
        let mut spent = lock(&self.spent);
        let wait = spent.wait(limit, tokens as u64, Instant::now());
        match wait {
            None => Ok(()),
            Some(wait) => {
                let message = format!(
                    "{} may use {limit} tokens per minute and has used them; try again in {}s",
                    self.name,
                    wait.as_secs() + 1
                );
                let rate = self.queue().with_tokens(spent.left(limit, Instant::now()));
                Err(ApiError::overloaded(message, wait.as_secs() + 1, rate).because(Rejection::TokenRate))
            }
        }
    }

    /// Tells in the answer to a request what is left, where tokens are limited.
    pub fn rated(&self, mut response: Response) -> Response {
        let limit = self.limits.tokens_per_minute;
        if limit > 0 {
            let tokens = lock(&self.spent).left(limit, Instant::now());
            self.queue().with_tokens(tokens).mark(&mut response);
        }
        response
    }

    fn queue(&self) -> Rate {
        let limit = self.engine.queue_max();
        let waiting = self.engine.stats().queued[0];
        Rate::queue(limit, limit.saturating_sub(waiting))
    }

    /// Counts generated tokens.
    pub fn spend(&self, tokens: usize) {
        *lock(&self.used) = Instant::now();
        if self.limits.tokens_per_minute > 0 {
            lock(&self.spent).add(tokens as u64, Instant::now());
        }
    }

    fn idle_for(&self) -> Duration {
        lock(&self.used).elapsed()
    }
}

/// Tokens spent in the last minute.
#[derive(Debug, Default)]
struct Spent {
    entries: VecDeque<(Instant, u64)>,
    sum: u64,
}

/// Entries are merged so that a minute never has more of them than this.
const SPENT_GRAIN: Duration = Duration::from_millis(500);

impl Spent {
    /// Takes `tokens` out of `limit` per minute; gives the time to wait when they do not fit. A request larger than
    /// the limit goes through once the minute is otherwise empty.
    fn wait(&mut self, limit: u64, tokens: u64, now: Instant) -> Option<Duration> {
        self.forget(now);
        if self.sum + tokens <= limit || self.sum == 0 {
            self.add(tokens, now);
            return None;
        }
        let mut left = self.sum;
        for &(at, count) in &self.entries {
            left -= count;
            if left + tokens <= limit || left == 0 {
                return Some((at + Duration::from_secs(60)).saturating_duration_since(now));
            }
        }
        Some(Duration::from_secs(60))
    }

    fn left(&mut self, limit: u64, now: Instant) -> Tokens {
        self.forget(now);
        let last = self.entries.back().map(|(at, _)| *at + Duration::from_secs(60));
        let reset = last.map_or(Duration::ZERO, |last| last.saturating_duration_since(now));
        Tokens { limit, left: limit.saturating_sub(self.sum), reset }
    }

    fn add(&mut self, tokens: u64, now: Instant) {
        self.sum += tokens;
        match self.entries.back_mut() {
            Some((at, count)) if now.duration_since(*at) < SPENT_GRAIN => *count += tokens,
            _ => self.entries.push_back((now, tokens)),
        }
    }

    fn forget(&mut self, now: Instant) {
        while let Some(&(at, count)) = self.entries.front()
            && now.duration_since(at) >= Duration::from_secs(60)
        {
            self.sum -= count;
            self.entries.pop_front();
        }
    }
}

/// All models of a server.
pub struct Models {
    loader: Arc<dyn Loader>,
    limits: ModelLimits,
    metrics: Arc<Metrics>,
    slots: Vec<Slot>,
    loads: Arc<AtomicU64>,
    /// Held while room is made and a model is loaded, so that two of them cannot take the same room.
    loading: Arc<tokio::sync::Mutex<()>>,
}

/// While it lives, nobody else makes room or loads.
type Loading = OwnedMutexGuard<()>;

struct Slot {
    card: ModelCard,
    loaded: Arc<tokio::sync::Mutex<Option<Arc<LoadedModel>>>>,
    /// The same, for those who only look.
    seen: Arc<Mutex<Option<Arc<LoadedModel>>>>,
}

impl Models {
    /// The models of a loader, none of them loaded.
    pub fn new(loader: Arc<dyn Loader>, limits: ModelLimits, metrics: Arc<Metrics>) -> Self {
        let slot = |card| Slot { card, loaded: Arc::default(), seen: Arc::default() };
        let slots = loader.cards().into_iter().map(slot).collect();
        Self { loader, limits, metrics, slots, loads: Arc::default(), loading: Arc::default() }
    }

    /// The models on offer.
    pub fn cards(&self) -> impl Iterator<Item = &ModelCard> {
        self.slots.iter().map(|slot| &slot.card)
    }

    /// The models in memory.
    pub fn loaded(&self) -> Vec<Arc<LoadedModel>> {
        self.slots.iter().filter_map(|slot| lock(&slot.seen).clone()).collect()
    }

    /// How many times a model was loaded.
    pub fn loads(&self) -> u64 {
        self.loads.load(Ordering::Relaxed)
    }

    /// A model, loaded if need be; the default model when no name is given.
    pub async fn get(&self, name: Option<&str>) -> Result<ModelLease, ApiError> {
        let slot = match name {
            None => self.slots.first(),
            Some(name) => self.slots.iter().find(|slot| slot.card.answers_to(name)),
        };
        let Some(slot) = slot else {
            let known: Vec<&str> = self.cards().map(|card| card.name.as_str()).collect();
            let name = name.unwrap_or_default();
            let message = match self.loader.embedders().iter().any(|card| card.answers_to(name)) {
                true => format!("{name} turns texts into vectors and writes none: ask it at /v1/embeddings"),
                false => format!("there is no model {name:?} here; this server has {}", known.join(", ")),
            };
            let error = ApiError::not_found("model_not_found", message).because(Rejection::Model);
            return Err(ApiError { param: Some("model".to_owned()), ..error });
        };
        let held = Arc::clone(&slot.loaded).lock_owned().await;
        if let Some(loaded) = &*held {
            return Ok(ModelLease::new(loaded));
        }
        let loading = Arc::clone(&self.loading).lock_owned().await;
        self.make_way(&slot.card.name).await;
        let loaded = self.load(slot, held, loading).await.map_err(|error| error.to_string()).flatten();
        let failed = |error| ApiError::internal(format!("{} could not be loaded: {error}", slot.card.name));
        loaded.map(|(lease, _loading)| lease).map_err(failed)
    }

    /// Loads the model of a slot. Goes on when nobody waits for it any longer, so that a client that asks again finds
    /// it, and so that what it takes up is counted.
    fn load(
        &self,
        slot: &Slot,
        mut held: OwnedMutexGuard<Option<Arc<LoadedModel>>>,
        loading: Loading,
    ) -> JoinHandle<Result<(ModelLease, Loading), String>> {
        let (loader, name, limits) = (Arc::clone(&self.loader), slot.card.name.clone(), self.limits);
        let (seen, loads) = (Arc::clone(&slot.seen), Arc::clone(&self.loads));
        let metrics = self.metrics.model(&name);
        tokio::task::spawn_blocking(move || {
            let begun = Instant::now();
            let loaded = Arc::new(LoadedModel::new(&name, loader.load(&name)?, limits, metrics));
            tracing::info!(model = name, seconds = begun.elapsed().as_secs_f64(), "model loaded");
            loads.fetch_add(1, Ordering::Relaxed);
            *lock(&seen) = Some(Arc::clone(&loaded));
            *held = Some(Arc::clone(&loaded));
            Ok((ModelLease::new(&loaded), loading))
        })
    }

    /// Unloads models that nobody has used for a while, and those above the limit that could not go before. Call it
    /// now and then.
    pub async fn sweep(&self) {
        if !self.limits.idle.is_zero() {
            for slot in &self.slots {
                slot.unload_if(|loaded| loaded.idle_for() >= self.limits.idle).await;
            }
        }
        // While a model is loading, room is made for it already.
        if let Ok(_loading) = self.loading.try_lock() {
            self.shrink_to(self.limits.loaded_max.max(1)).await;
        }
    }

    /// Unloads everything: engines end their streams and write their snapshots.
    pub async fn close(&self) {
        for slot in &self.slots {
            let loaded = lock(&slot.seen).take();
            if let Some(loaded) = loaded {
                let _ = tokio::task::spawn_blocking(move || loaded.engine.shutdown()).await;
            }
        }
    }

    /// Makes room for a model. Those in use stay, and then there are more than the limit says: a request that has begun
    /// is worth more than the limit, and one for a model on offer is never refused for the sake of another.
    async fn make_way(&self, model: &str) {
        let limit = self.limits.loaded_max.max(1);
        let left = self.shrink_to(limit - 1).await;
        if left >= limit {
            let loaded = left + 1;
            tracing::warn!(model, loaded, limit, "more models are loaded than the limit: all others are in use");
        }
    }

    /// Unloads models that are not in use, the one idle longest first, until at most `count` are left. Gives how many
    /// are.
    async fn shrink_to(&self, count: usize) -> usize {
        let mut loaded: Vec<(&Slot, Duration)> =
            self.slots.iter().filter_map(|slot| Some((slot, lock(&slot.seen).as_ref()?.idle_for()))).collect();
        loaded.sort_by_key(|(_, idle)| std::cmp::Reverse(*idle));
        let mut left = loaded.len();
        for (slot, _) in loaded {
            if left > count && slot.unload_if(|_| true).await {
                left -= 1;
            }
        }
        left
    }
}

impl Slot {
    /// Unloads the model when `condition` holds and no request holds it; says whether it did.
    async fn unload_if(&self, condition: impl Fn(&LoadedModel) -> bool) -> bool {
        // Somebody is just taking it.
        let Ok(mut held) = self.loaded.try_lock() else { return false };
        let Some(loaded) = held.take_if(|loaded| loaded.leases.load(Ordering::Acquire) == 0 && condition(loaded))
        else {
            return false;
        };
        lock(&self.seen).take();
        tracing::info!(model = loaded.name, "model unloaded");
        let _ = tokio::task::spawn_blocking(move || loaded.engine.shutdown()).await;
        true
    }
}

/// A request's hold on a model, which stays loaded until the last one is gone.
pub struct ModelLease(Arc<LoadedModel>);

impl ModelLease {
    fn new(loaded: &Arc<LoadedModel>) -> Self {
        loaded.leases.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(loaded))
    }
}

impl Clone for ModelLease {
    fn clone(&self) -> Self {
        Self::new(&self.0)
    }
}

impl Drop for ModelLease {
    fn drop(&mut self) {
        *lock(&self.0.used) = Instant::now();
        self.0.leases.fetch_sub(1, Ordering::AcqRel);
    }
}

impl std::ops::Deref for ModelLease {
    type Target = LoadedModel;

    fn deref(&self) -> &LoadedModel {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_holds_its_budget_and_then_forgets() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut spent = Spent::default();
        assert_eq!(spent.wait(100, 150, at(0)), None, "a large request is not refused for ever");
        assert_eq!(spent.wait(100, 10, at(10)), Some(Duration::from_secs(50)));
        assert_eq!(spent.wait(100, 60, at(61)), None);
        assert_eq!(spent.wait(100, 40, at(70)), None);
        assert_eq!(spent.wait(100, 30, at(80)), Some(Duration::from_secs(41)));
        let left = spent.left(100, at(80));
        assert_eq!(left, Tokens { limit: 100, left: 0, reset: Duration::from_secs(50) });
        spent.add(5, at(80));
        assert_eq!(spent.sum, 105);
        assert_eq!(spent.wait(100, 55, at(121)), None);
        assert_eq!(spent.left(100, at(121)).left, 0);
        assert_eq!(spent.left(100, at(300)), Tokens { limit: 100, left: 100, reset: Duration::ZERO });
    }
}

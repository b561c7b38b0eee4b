//! One answer being generated, whatever the wire format: tokens come from the engine, typed parts go to the endpoint.
//!
//! The engine's thread wakes the reader's task; detokenising and parsing happen there. Dropping a [`Generation`] ends
//! the sequence at the next step.

pub mod answer_token_cache;
pub mod answers;
pub mod aside;
pub mod conversation;
pub mod drafts;
pub mod input_tools;
pub mod thoughts;
pub mod token_healing;
pub mod tool_cache;
pub mod tools;

use std::sync::Arc;
use std::time::{Duration, Instant};

use api::Format;
use api::responses::{LogProb, TopLogProb};
use engine::{
    Constraint, Drafting, Event, FinishReason, Finished, Prediction, Priority, Request, Sampling, Started, Stream,
    TokenOut, TryRecvError, Usage,
};
use text::grammar::{Grammar, GrammarSource, Matcher};
use text::{AnswerOptions, AnswerParser, Detokenizer, Opening, Part, Reasoning, ShowSpecial, Vocabulary};
use tokio::sync::Notify;

use crate::error::ApiError;
use crate::generation::thoughts::{AnswerStart, Thoughtful};
use crate::generation::token_healing::TokenHealing;
use crate::generation::tools::ToolSet;
use crate::guard::owner::Owner;
use crate::models::{LoadedModel, ModelLease};
use crate::telemetry::trace::Told;

/// Tokens that come faster than this are given out together: nobody sees the difference, and a wake-up, an event and a
/// system call for each of them would cost more CPU than all else the server does.
const GATHER: Duration = Duration::from_millis(1);

/// Tokens in a row that came that fast before any is held back, so that a short answer never waits.
const FAST: u32 = 8;

/// Tokens of an answer for which there is room behind a prompt from the start: moving a long list for want of room costs
/// more than all else the engine does in a step.
pub const ROOM: usize = 1024;

/// What to generate.
#[derive(Clone)]
pub struct Job {
    /// For whom.
    pub owner: Owner,
    /// Whether its KV may be written to disk.
    pub stored: bool,
    /// Tokens to start from.
    pub prompt: Vec<u32>,
    /// Most tokens to generate; `None` is as many as fit. 0 only reads the prompt.
    pub max_tokens: Option<usize>,
    /// How tokens are picked.
    pub sampling: Sampling,
    /// Texts that end the answer.
    pub stop: Vec<String>,
    /// Scheduling class.
    pub priority: Priority,
    /// What the answer is held to.
    pub grammar: Option<Grammar>,
    /// How the answer is read.
    pub answer: AnswerOptions,
    /// How it begins, and how long it may think.
    pub begins: AnswerStart,
    /// Text that the answer begins with, in whatever tokens the model likes; not together with a grammar.
    pub begin: String,
    /// What the answer is expected to contain.
    pub prediction: Option<Arc<Prediction>>,
}

impl Job {
    /// A greedy answer of free text.
    pub fn new(owner: Owner, prompt: Vec<u32>) -> Self {
        Self {
            owner,
            stored: true,
            prompt,
            max_tokens: None,
            sampling: Sampling::default(),
            stop: Vec::new(),
            priority: Priority::Interactive,
            grammar: None,
            answer: AnswerOptions::default(),
            begins: AnswerStart { opening: Opening::Text, ..AnswerStart::default() },
            begin: String::new(),
            prediction: None,
        }
    }
}

/// What an answer is held to as a whole. A call that must be made comes before any format, which is then for the answer
/// after its result; otherwise the format wins over tools, which are only told of.
pub fn source(format: &Format, tools: &ToolSet) -> Option<GrammarSource> {
    match format {
        _ if tools.must_call() => None,
        Format::Text => None,
        Format::JsonObject => Some(GrammarSource::JsonObject),
        Format::JsonSchema(schema) => Some(GrammarSource::JsonSchema(schema.clone())),
        Format::Regex(text) => Some(GrammarSource::Regex(text.clone())),
        Format::Choice(texts) => Some(GrammarSource::choice(texts)),
        Format::Grammar(text) => Some(GrammarSource::grammar(text)),
    }
}

/// The grammar of an answer.
pub fn grammar(
    loaded: &LoadedModel,
    format: Option<GrammarSource>,
    tools: &ToolSet,
) -> Result<Option<Grammar>, ApiError> {
    let source = format.or_else(|| tools.grammar(loaded.facts.dialect).map(GrammarSource::Tools));
    let Some(source) = source else { return Ok(None) };
    let compiled = loaded.grammars()?.compile_for(&source, 0, &crate::generation::aside::wanted());
    compiled.map(Some).map_err(ApiError::from_grammar)
}

/// How an answer with these tools is read.
pub fn answer_options(loaded: &LoadedModel, tools: &ToolSet, format: bool, opening: Opening) -> AnswerOptions {
    let names = if tools.may_call() && !format { tools.names() } else { Vec::new() };
    let reasoning = match opening {
        Opening::Thoughts => Reasoning::ThinkTagsOpened,
        _ if loaded.facts.reasons => Reasoning::ThinkTags,
        _ => Reasoning::None,
    };
    AnswerOptions { tools: names, reasoning, parallel: tools.parallel(), dialect: loaded.facts.dialect }
}

/// What happened since the last time.
#[derive(Debug)]
pub enum Piece {
    /// It left the queue.
    Started(Started),
    /// New parts of the answer, perhaps none, and the tokens they came from when log-probabilities are wanted.
    Parts {
        /// In order.
        parts: Vec<Part>,
        /// One per token.
        logprobs: Vec<LogProb>,
    },
    /// It is over.
    Finished(Box<Finished>),
}

/// An answer being generated.
pub struct Generation {
    loaded: ModelLease,
    spec: Spec,
    stream: Stream,
    ready: Arc<Notify>,
    text: Detokenizer,
    parser: AnswerParser,
    tokens: Vec<u32>,
    /// How many of them were thoughts.
    thought: usize,
    prompt_tokens: usize,
    /// The prompt, once the engine has given it back.
    prompt: Option<Vec<u32>>,
    begun: Instant,
    last: Option<Instant>,
    fast: u32,
    finished: Option<Box<Finished>>,
    paused: bool,
    /// What was spent before the last resumption.
    earlier: Option<Usage>,
    told: Told,
}

/// What it takes to submit a sequence again.
struct Spec {
    max_tokens: usize,
    sampling: Sampling,
    stop: Vec<Vec<u8>>,
    priority: Priority,
    owner: Owner,
    stored: bool,
    grammar: Option<Grammar>,
    begin: String,
    begins: AnswerStart,
    /// What is held is the whole answer and not only calls in it.
    whole: bool,
    prediction: Option<Arc<Prediction>>,
}

impl Spec {
    /// What the engine holds the answer to.
    fn constraint(&self, loaded: &LoadedModel) -> Option<Box<dyn Constraint>> {
        let held = self.grammar.as_ref().map(|grammar| Box::new(Held(grammar.matcher())) as Box<dyn Constraint>);
        let own = self.grammar.as_ref().is_some_and(Grammar::holds_thoughts);
        let thinks = loaded.facts.reasons && self.begins.opening != Opening::Text && !own;
        if thinks && (self.begins.budget.is_some() || held.is_some() && self.whole) {
            let rows = loaded.engine.info().vocab;
            return Some(Box::new(Thoughtful::new(loaded, rows, self.begins, held, self.whole)));
        }
        match held {
            Some(held) => Some(held),
            None if self.begin.is_empty() => None,
            None => {
                let vocabulary = Arc::clone(loaded.tokenizer.vocabulary());
                Some(Box::new(TokenHealing::new(vocabulary, loaded.engine.info().vocab, &self.begin)))
            }
        }
    }
}

impl Generation {
    /// Hands a job to the engine.
    pub fn start(loaded: &ModelLease, job: Job) -> Result<Self, ApiError> {
        // Before the engine's own clocks start, so that the whole is never shorter than a part.
        let begun = Instant::now();
        let prompt_tokens = job.prompt.len();
        if prompt_tokens >= loaded.facts.context {
            return Err(ApiError::too_long(prompt_tokens, loaded.facts.context.saturating_sub(1)));
        }
        loaded.admit(prompt_tokens)?;
        let room = loaded.facts.context - prompt_tokens;
        let usual = if loaded.limits.output_tokens > 0 { loaded.limits.output_tokens.min(room) } else { room };
        let spec = Spec {
            max_tokens: job.max_tokens.map_or(usual, |tokens| tokens.min(room)),
            sampling: job.sampling,
            stop: job.stop.into_iter().map(String::into_bytes).collect(),
            priority: job.priority,
            owner: job.owner,
            stored: job.stored,
            whole: job.grammar.as_ref().is_some_and(Grammar::holds_all),
            grammar: job.grammar,
            begin: job.begin,
            begins: job.begins,
            prediction: job.prediction,
        };
        let ready = Arc::new(Notify::new());
        let stream = submit(loaded, &spec, job.prompt, &[], &ready)?;
        Ok(Self {
            text: Detokenizer::new(Arc::clone(loaded.tokenizer.vocabulary()), ShowSpecial::Marked(job.answer.dialect)),
            parser: AnswerParser::new(job.answer),
            loaded: loaded.clone(),
            spec,
            stream,
            ready,
            tokens: Vec::new(),
            thought: 0,
            prompt_tokens,
            prompt: None,
            begun,
            last: None,
            fast: 0,
            finished: None,
            paused: false,
            earlier: None,
            told: Told::begin(&loaded.name, prompt_tokens),
        })
    }

    /// Goes on where a cancelled sequence ended, with the same random numbers. What it said is in the KV cache.
    pub fn resume(&mut self, earlier: Usage) -> Result<(), ApiError> {
        let prompt = self.prompt.take().ok_or_else(|| ApiError::internal("a sequence that has not ended goes on"))?;
        self.stream = submit(&self.loaded, &self.spec, prompt, &self.tokens, &self.ready)?;
        (self.earlier, self.last, self.paused) = (Some(earlier), None, false);
        Ok(())
    }

    /// The next piece; `None` after the end. Can be dropped and called again without losing anything.
    pub async fn next(&mut self) -> Option<Piece> {
        loop {
            if let Some(finished) = self.finished.take() {
                return Some(Piece::Finished(finished));
            }
            if let Some(last) = self.last.filter(|last| self.fast >= FAST && last.elapsed() < GATHER) {
                tokio::time::sleep_until((last + GATHER).into()).await;
            }
            match self.stream.try_recv() {
                Ok(Event::Started(started)) => {
                    // Should it be resumed, it goes on with the same random numbers.
                    self.spec.sampling.seed = Some(started.seed);
                    return Some(Piece::Started(started));
                }
                Ok(Event::Tokens(tokens)) => return Some(self.read(&tokens)),
                Ok(Event::Finished(finished)) => return Some(self.end(finished)),
                Err(TryRecvError::Ended) => return None,
                Err(TryRecvError::Empty) => self.ready.notified().await,
            }
        }
    }

    /// Ends the sequence at the next step; what was generated until then still comes, and then the end, without being
    /// held back: whoever turns an answer waits for it.
    pub fn cancel(&mut self) {
        self.fast = 0;
        self.stream.cancel();
    }

    /// The same, to be resumed later: half a character or half a call waits for its rest.
    pub fn pause(&mut self) {
        self.paused = true;
        self.cancel();
    }

    /// Tokens generated so far, the one that ended the answer left out.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// How many tokens were thoughts.
    pub fn thought_tokens(&self) -> usize {
        self.thought
    }

    /// How many tokens the prompt has.
    pub fn prompt_tokens(&self) -> usize {
        self.prompt_tokens
    }

    /// Prompt and answer in one list; `None` when the engine has not ended.
    pub fn into_tokens(self) -> Option<Vec<u32>> {
        let mut whole = self.prompt?;
        whole.extend_from_slice(&self.tokens);
        Some(whole)
    }

    /// Whose it is.
    pub fn owner(&self) -> Owner {
        self.spec.owner
    }

    /// How many requests come first; `None` once it has started.
    pub fn place(&self) -> Option<usize> {
        self.loaded.engine.place(self.stream.id())
    }

    fn read(&mut self, tokens: &[TokenOut]) -> Piece {
        let now = Instant::now();
        if let Some(last) = self.last.replace(now) {
            // While tokens are gathered each piece holds several, which says the same.
            let fast = now - last < GATHER || tokens.len() > 1;
            self.fast = if fast { self.fast + 1 } else { 0 };
            self.loaded.metrics.tokens(now - last, tokens.len());
        }
        let mut parts = Vec::new();
        for token in tokens {
            if self.parser.stopped() {
                // Nobody is shown what comes after the end, so later prompts must not hold it either.
                break;
            }
            self.tokens.push(token.id);
            let before = self.parser.thinking();
            self.parser.push(self.text.push(token.id), &mut parts);
            self.thought += usize::from(before || self.parser.thinking());
        }
        merge(&mut parts);
        if self.parser.stopped() {
            self.cancel();
        }
        let vocabulary = self.loaded.tokenizer.vocabulary();
        let logprobs = tokens.iter().filter_map(|token| logprob(vocabulary, token)).collect();
        Piece::Parts { parts, logprobs }
    }

    /// The end brings the last parts with it: they come first, then the end itself.
    fn end(&mut self, mut finished: Box<Finished>) -> Piece {
        self.loaded.spend(finished.usage.generated);
        let mut prompt = std::mem::take(&mut finished.tokens);
        prompt.truncate(self.prompt_tokens);
        self.prompt = Some(prompt);
        if let Some(earlier) = self.earlier {
            finished.usage.prompt = earlier.prompt;
            finished.usage.cached = earlier.cached;
            finished.usage.generated += earlier.generated;
            finished.usage.drafts.merge(&earlier.drafts);
        }
        let mut parts = Vec::new();
        self.parser.push(&String::from_utf8_lossy(&finished.tail), &mut parts);
        self.loaded.metrics.finished(&finished, self.begun.elapsed());
        // What was only paused goes on later; what ended by itself just then has ended.
        if !self.paused || finished.reason != FinishReason::Cancelled {
            self.parser.push(self.text.flush(), &mut parts);
            self.parser.finish(&mut parts);
            self.told.end(&finished, self.begun.elapsed());
        }
        if parts.is_empty() {
            return Piece::Finished(finished);
        }
        self.finished = Some(finished);
        Piece::Parts { parts, logprobs: Vec::new() }
    }
}

/// Joins neighbouring parts of the same kind: one delta instead of many.
fn merge(parts: &mut Vec<Part>) {
    parts.dedup_by(|next, before| match (before, next) {
        (Part::Text(before), Part::Text(next))
        | (Part::Reasoning(before), Part::Reasoning(next))
        | (Part::CallDelta(before), Part::CallDelta(next)) => {
            before.push_str(next);
            true
        }
        _ => false,
    });
}

/// Submits a sequence that has said `said` already.
fn submit(
    loaded: &LoadedModel,
    spec: &Spec,
    mut tokens: Vec<u32>,
    said: &[u32],
    ready: &Arc<Notify>,
) -> Result<Stream, ApiError> {
    let wake = Arc::clone(ready);
    let mut constraint = spec.constraint(loaded);
    if let Some(constraint) = &mut constraint {
        for &token in said {
            constraint.accept(token).map_err(ApiError::internal)?;
        }
    }
    let max_tokens = spec.max_tokens.saturating_sub(said.len());
    tokens.reserve(said.len() + max_tokens.min(ROOM));
    tokens.extend_from_slice(said);
    let request = Request {
        max_tokens,
        lasting: spec.begins.lasting,
        sampling: spec.sampling.clone(),
        stop_tokens: loaded.tokenizer.vocabulary().stops().to_vec(),
        stop_strings: spec.stop.clone(),
        priority: spec.priority,
        owner: spec.owner.number(),
        private: !spec.stored && !loaded.limits.snapshot_unstored,
        drafting: Drafting { prediction: spec.prediction.clone(), ..Drafting::default() },
        constraint,
        on_ready: Some(Box::new(move || wake.notify_one())),
        ..Request::new(tokens, 0)
    };
    Ok(loaded.engine.submit(request)?)
}

fn logprob(vocabulary: &Vocabulary, token: &TokenOut) -> Option<LogProb> {
    let text = |id: u32| String::from_utf8_lossy(vocabulary.token_bytes(id)).into_owned();
    let bytes = |id: u32| vocabulary.token_bytes(id).to_vec();
    let top = |&(id, logprob): &(u32, f32)| TopLogProb { token: text(id), logprob, bytes: bytes(id) };
    let logprob = token.logprob?;
    let top_logprobs = token.top.iter().map(top).collect();
    Some(LogProb { token: text(token.id), logprob, bytes: bytes(token.id), top_logprobs })
}

/// A grammar as the engine sees it.
struct Held(Matcher);

impl Constraint for Held {
    fn allowed(&mut self) -> Result<Option<&[u32]>, String> {
        self.0.allowed()
    }

    fn accept(&mut self, token: u32) -> Result<(), String> {
        self.0.accept(token)
    }

    fn forced(&mut self, max: usize, out: &mut Vec<u32>) {
        self.0.forced(max, out);
    }
}

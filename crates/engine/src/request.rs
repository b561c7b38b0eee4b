//! What a caller asks for, checked once at the door so that nothing behind it sees unchecked input.

use crate::constraint::Constraint;
use crate::draft::{Drafter, Drafting};
use crate::event::ErrorKind;

/// Most stop strings one request may carry.
pub const STOP_STRINGS_MAX: usize = 32;
/// Longest stop string in bytes: also the most text ever held back.
pub const STOP_BYTES_MAX: usize = 512;
/// Most stop tokens one request may carry.
pub const STOP_TOKENS_MAX: usize = 64;
/// Most entries of a logit bias.
pub const LOGIT_BIAS_MAX: usize = 1024;
/// Most alternatives reported per token.
pub const LOGPROBS_MAX: usize = 64;

/// Scheduling class. Interactive work goes before background work at every step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Someone is waiting.
    #[default]
    Interactive,
    /// Uses what interactive work leaves over.
    Background,
}

impl Priority {
    /// Both priority classes, in order of precedence.
    pub const ALL: [Priority; 2] = [Priority::Interactive, Priority::Background];

    pub(crate) fn index(self) -> usize {
        self as usize
    }
}

/// How the next token is picked from a row of logits. The default is greedy.
///
/// Order: the request's constraint, logit bias, repetition, presence and frequency penalties, temperature, top-k, min-p, top-p, draw. Each filter
/// works on what the one before it left, renormalised.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// 0 picks the most likely token, the lowest id on ties.
    pub temperature: f32,
    /// Keep the k most likely tokens; 0 keeps all.
    pub top_k: usize,
    /// Keep the smallest set of most likely tokens with at least this probability together; 1 keeps all.
    pub top_p: f32,
    /// Keep tokens at least this share as likely as the most likely one; 0 keeps all.
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of tokens in the window; 1 is off.
    pub repetition_penalty: f32,
    /// How many last tokens, prompt included, the repetition penalty looks at.
    pub repetition_window: usize,
    /// Subtracted from the logit of every token generated before.
    pub presence_penalty: f32,
    /// Subtracted from the logit of a token once for each time it was generated.
    pub frequency_penalty: f32,
    /// Added to the logits of these tokens.
    pub logit_bias: Vec<(u32, f32)>,
    /// Same seed, same request, same output. `None` lets the engine choose; `Started` says what it chose.
    pub seed: Option<u64>,
    /// Report each token's log-probability and this many alternatives, from the model's own distribution, before
    /// constraint, penalties and filters.
    pub logprobs: Option<usize>,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            repetition_window: 64,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: Vec::new(),
            seed: None,
            logprobs: None,
        }
    }
}

/// One sequence to generate.
pub struct Request {
    /// Tokens to start from, at least one.
    pub prompt: Vec<u32>,
    /// Tokens of the prompt that later ones are likely to begin with: a model with recurrent state keeps it behind them.
    /// 0 where nothing is known.
    pub lasting: usize,
    /// Most tokens to generate. 0 only fills the cache with the prompt.
    pub max_tokens: usize,
    /// How tokens are picked.
    pub sampling: Sampling,
    /// Tokens that end the sequence; they are not published.
    pub stop_tokens: Vec<u32>,
    /// Byte strings that end the sequence; neither they nor anything after is published.
    pub stop_strings: Vec<Vec<u8>>,
    /// Scheduling class.
    pub priority: Priority,
    /// Whose request it is: KV is shared, in memory and on disk, among requests of the same owner only.
    pub owner: u64,
    /// Whether its KV stays in memory and is never written to disk.
    pub private: bool,
    /// Who may propose tokens to verify; never changes the output.
    pub drafting: Drafting,
    /// A drafter of the caller's own, asked instead of those and as far as the options allow, whether it pays or not.
    pub drafter: Option<Box<dyn Drafter>>,
    /// Restricts which tokens may be picked.
    pub constraint: Option<Box<dyn Constraint>>,
    /// Called by the engine thread when the stream has something to read, so that an async caller can wake its task.
    /// It must return at once and must not call the engine.
    pub on_ready: Option<Box<dyn Fn() + Send + Sync>>,
}

impl Request {
    /// A greedy, interactive request for up to `max_tokens` tokens after `prompt`.
    pub fn new(prompt: Vec<u32>, max_tokens: usize) -> Self {
        Self {
            prompt,
            lasting: 0,
            max_tokens,
            sampling: Sampling::default(),
            stop_tokens: Vec::new(),
            stop_strings: Vec::new(),
            priority: Priority::default(),
            owner: 0,
            private: false,
            drafting: Drafting::default(),
            drafter: None,
            constraint: None,
            on_ready: None,
        }
    }

    pub(crate) fn check(&self, bounds: &Bounds) -> Result<(), SubmitError> {
        if self.prompt.is_empty() {
            return Err(SubmitError::EmptyPrompt);
        }
        if self.prompt.len() >= bounds.tokens_max {
            return Err(SubmitError::TooLong { tokens: self.prompt.len(), limit: bounds.tokens_max.saturating_sub(1) });
        }
        let bias = self.sampling.logit_bias.iter().map(|(token, _)| *token).max();
        // The largest tells about all of them, and is found several tokens at a time.
        if let Some(token) = self.prompt.iter().copied().max().max(bias).filter(|&token| token as usize >= bounds.vocab)
        {
            return Err(SubmitError::UnknownToken { token, vocab: bounds.vocab });
        }
        self.check_stops(bounds)?;
        self.sampling.check()
    }

    fn check_stops(&self, bounds: &Bounds) -> Result<(), SubmitError> {
        let strings = &self.stop_strings;
        within("stop tokens", self.stop_tokens.len(), STOP_TOKENS_MAX)?;
        within("stop strings", strings.len(), STOP_STRINGS_MAX)?;
        for string in strings {
            within("bytes of a stop string", string.len(), STOP_BYTES_MAX)?;
        }
        if strings.iter().any(Vec::is_empty) {
            return Err(SubmitError::BadSetting { setting: "stop string", rule: "not empty" });
        }
        if !strings.is_empty() && !bounds.has_token_bytes {
            return Err(SubmitError::BadSetting { setting: "stop string", rule: "off: no token bytes" });
        }
        Ok(())
    }
}

impl Sampling {
    fn check(&self) -> Result<(), SubmitError> {
        let rules = [
            ("temperature", "0 to 100", (0.0..=100.0).contains(&self.temperature)),
            ("top_p", "above 0, up to 1", self.top_p > 0.0 && self.top_p <= 1.0),
            ("min_p", "0 to 1", (0.0..=1.0).contains(&self.min_p)),
            (
                "repetition_penalty",
                "above 0, up to 100",
                self.repetition_penalty > 0.0 && self.repetition_penalty <= 100.0,
            ),
            ("presence_penalty", "-100 to 100", self.presence_penalty.abs() <= 100.0),
            ("frequency_penalty", "-100 to 100", self.frequency_penalty.abs() <= 100.0),
            ("logit_bias", "numbers", self.logit_bias.iter().all(|(_, bias)| bias.is_finite())),
        ];
        within("logit_bias entries", self.logit_bias.len(), LOGIT_BIAS_MAX)?;
        within("logprobs", self.logprobs.unwrap_or(0), LOGPROBS_MAX)?;
        match rules.into_iter().find(|(_, _, kept)| !kept) {
            Some((setting, rule, _)) => Err(SubmitError::BadSetting { setting, rule }),
            None => Ok(()),
        }
    }
}

/// What requests are checked against.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub vocab: usize,
    /// Longest sequence: the model's context or all KV blocks, whichever is less.
    pub tokens_max: usize,
    pub has_token_bytes: bool,
}

fn within(what: &'static str, count: usize, limit: usize) -> Result<(), SubmitError> {
    if count > limit { Err(SubmitError::TooMany { what, count, limit }) } else { Ok(()) }
}

/// Why a request was not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The priority class's queue is full; try again later.
    #[error("the {priority:?} queue is full ({limit} waiting)")]
    Overloaded {
        /// The priority class asked for.
        priority: Priority,
        /// Its limit.
        limit: usize,
    },
    /// The prompt leaves no room for a single token.
    #[error("prompt of {tokens} tokens is longer than the {limit} that fit")]
    TooLong {
        /// Tokens of the prompt.
        tokens: usize,
        /// Most tokens a prompt may have.
        limit: usize,
    },
    /// There is nothing to start from.
    #[error("empty prompt")]
    EmptyPrompt,
    /// A token id the model does not have.
    #[error("token {token} is outside the vocabulary of {vocab}")]
    UnknownToken {
        /// The offending id.
        token: u32,
        /// Number of ids.
        vocab: usize,
    },
    /// A setting outside its range.
    #[error("{setting} must be {rule}")]
    BadSetting {
        /// Its name.
        setting: &'static str,
        /// What it must be.
        rule: &'static str,
    },
    /// More of something than the stated limit.
    #[error("{count} {what}, at most {limit} allowed")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many were given.
        count: usize,
        /// How many are allowed.
        limit: usize,
    },
    /// The engine has shut down.
    #[error("the engine is closed")]
    Closed,
}

impl SubmitError {
    /// What kind of trouble this is, for those who only choose a status code.
    pub fn kind(&self) -> ErrorKind {
        match self {
            SubmitError::Overloaded { .. } => ErrorKind::Overloaded,
            SubmitError::TooLong { .. } => ErrorKind::TooLong,
            SubmitError::Closed => ErrorKind::Internal,
            _ => ErrorKind::BadRequest,
        }
    }
}

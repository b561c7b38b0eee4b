//! What a caller hears back: one `Started`, any number of `Tokens`, one `Finished`.

use std::time::Duration;

use crate::block_pool::Miss;
use crate::draft::DraftCounts;

/// Names one accepted request for as long as the engine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// One message of a stream.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The sequence left the queue.
    Started(Started),
    /// New tokens, at least one. Everything published since the last read comes in one event.
    Tokens(Vec<TokenOut>),
    /// The end; nothing follows.
    Finished(Box<Finished>),
}

/// How a sequence began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// How many of them the prefix cache held.
    pub cached_tokens: usize,
    /// How many of those were read from disk for this request; see `SnapshotOptions`.
    pub restored_tokens: usize,
    /// Why not more; `None` when all that can be cached was.
    pub miss: Option<Miss>,
    /// The seed in use, chosen by the engine when the request had none.
    pub seed: u64,
}

/// One generated token.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenOut {
    /// The token.
    pub id: u32,
    /// Its log-probability, when asked for.
    pub logprob: Option<f32>,
    /// The most likely tokens and their log-probabilities, when asked for.
    pub top: Vec<(u32, f32)>,
}

/// How a sequence ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Finished {
    /// The list the request came with, prompt first, given back with all that was generated, so that nobody has to keep
    /// a copy of a long prompt.
    pub tokens: Vec<u32>,
    /// Why.
    pub reason: FinishReason,
    /// Bytes that precede a stop string inside the token where it began.
    pub tail: Vec<u8>,
    /// What it cost in tokens.
    pub usage: Usage,
    /// What it cost in time.
    pub timings: Timings,
}

/// Why a sequence ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// A stop string was generated.
    Stop,
    /// A stop token was generated.
    StopToken(u32),
    /// `max_tokens` were generated.
    Length,
    /// The caller cancelled, or dropped the stream.
    Cancelled,
    /// The reader fell further behind than the stream holds.
    SlowReader,
    /// The context, or the whole KV cache, is full.
    ContextFull,
    /// The engine was shut down.
    Shutdown,
    /// Something broke; other sequences go on.
    Error {
        /// What a caller would branch on.
        kind: ErrorKind,
        /// What a person would read.
        text: String,
    },
}

/// What engine errors reduce to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request itself is wrong.
    BadRequest,
    /// The prompt does not fit.
    TooLong,
    /// No room now.
    Overloaded,
    /// The device or the model's arithmetic failed.
    Device,
    /// The request's constraint allowed nothing, or failed.
    Constraint,
    /// A bug, here or in what came with the request, or the engine is gone.
    Internal,
}

/// Tokens spent on a sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt: usize,
    /// How many of those came from the prefix cache.
    pub cached: usize,
    /// Tokens generated, including a stop token and those of a stop string.
    pub generated: usize,
    /// Tokens that were proposed and verified, and how many were what the model would have said.
    pub drafts: DraftCounts,
}

/// Time spent on a sequence. A part it never reached is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timings {
    /// Waiting to be started.
    pub queued: Duration,
    /// From the start to the first token.
    pub prefill: Duration,
    /// From submission to the first token.
    pub first_token: Duration,
    /// From the first token to the end.
    pub decode: Duration,
}

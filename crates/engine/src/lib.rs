//! Turns token prompts into token streams: many sequences, one model, one OS thread.
//!
//! [`Engine::start`] takes a [`model::Backend`] and gives an [`EngineHandle`]; [`EngineHandle::submit`] takes a
//! [`Request`] and gives a [`Stream`] of [`Event`]s. In between: continuous batching with chunked prefill, a global
//! prefix cache over KV blocks ([`BlockPool`]), sampling within constraints ([`Constraint`]), and verification of drafted
//! tokens ([`Drafter`]). KV of idle sessions can be kept on disk, across restarts ([`SnapshotOptions`]).
//!
//! The crate knows tokens. It stays below text (it sees bytes only to match stop strings), wire formats and async; it
//! stays above tensors, which only the backend sees. It never waits for a reader and every queue has a limit.
//!
//! What a request generates depends on its prompt, settings, constraint and seed alone: not on what ran beside it, on what was
//! cached or saved, on being preempted, or on its drafter.
//!
//! ```
//! use engine::{Engine, EngineOptions, Event, Request};
//! use testkit::toy::{ToyBackend, ToyOptions};
//!
//! let backend = ToyBackend::new(ToyOptions::default());
//! let engine = Engine::start(Box::new(backend), EngineOptions::default())?;
//! let stream = engine.submit(Request::new(vec![1, 2, 3], 8))?;
//! let mut tokens = Vec::new();
//! for event in stream {
//!     match event {
//!         Event::Started(started) => assert_eq!(started.prompt_tokens, 3),
//!         Event::Tokens(more) => tokens.extend(more),
//!         Event::Finished(finished) => assert_eq!(finished.usage.generated, 8),
//!     }
//! }
//! assert_eq!(tokens.len(), 8);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod block_pool;
mod constraint;
mod draft;
mod event;
mod guard;
mod handle;
mod hash;
mod options;
mod plan;
mod request;
mod runner;
mod sampler;
mod scheduler;
mod sequence;
mod snapshot;
mod stats;
mod stop;
mod stream;
mod token_bytes;

pub use block_pool::{BlockCopy, BlockCounts, BlockPool, BlockTable, Miss, Prefix, StateCounts, blocks_for};
pub use constraint::Constraint;
pub use draft::{
    DraftCount, DraftCounts, DraftKind, Drafter, Drafting, NgramDrafter, PREDICTION_TOKENS_MAX, Prediction,
    PredictionDrafter,
};
pub use event::{ErrorKind, Event, FinishReason, Finished, RequestId, Started, Timings, TokenOut, Usage};
pub use handle::{Engine, EngineHandle, StartError};
pub use options::EngineOptions;
pub use request::{
    LOGIT_BIAS_MAX, LOGPROBS_MAX, Priority, Request, STOP_BYTES_MAX, STOP_STRINGS_MAX, STOP_TOKENS_MAX, Sampling,
    SubmitError,
};
pub use snapshot::{BeforeRead, Rejection, SnapshotCounts, SnapshotNotice, SnapshotOptions};
pub use stats::Stats;
pub use stream::{Stream, TryRecvError};
pub use token_bytes::TokenBytes;

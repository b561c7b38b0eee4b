//! `flint serve`: the Responses API on a persistent WebSocket, and everything OpenAI-compatible clients expect besides.
//!
//! From the outside in: [`Server`] listens and guards, the endpoints read and write wire formats, [`conversation`] makes
//! prompts, [`generation`] turns tokens into typed parts, [`pool`] holds the models. The crate stays above the engine,
//! which knows tokens, and below whoever decides which models there are ([`pool::Loader`]).

mod answers;
mod aside;
mod begins;
pub mod body;
mod chat;
mod completions;
pub mod conversation;
mod drafts;
pub mod embeddings;
pub mod error;
mod facts;
pub mod generation;
pub mod guard;
mod ids;
mod infill;
mod listen;
mod lock;
mod lru;
mod messages;
pub mod metrics;
mod models;
mod native;
mod ollama;
pub mod owner;
pub mod pool;
pub mod rate;
pub mod recall;
mod refusal;
pub mod responses;
mod routes;
pub mod sessions;
mod shared;
mod sse;
mod status;
pub mod store;
mod streamed;
pub mod telemetry;
pub mod toolbox;
pub mod tools;
mod trace;

pub use embeddings::Embedder;
pub use listen::{ServeError, Server, ServerOptions};
pub use pool::{FileFacts, LoadedModel, Loader, ModelCard, PoolLimits};

//! `flint serve`: the Responses API on a persistent WebSocket, and everything OpenAI-compatible clients expect besides.
//!
//! From the outside in: [`Server`] listens, [`guard`] decides who is let in, [`responses`] and the other endpoints read and
//! write wire formats, [`generation`] makes prompts and turns tokens into typed parts, [`sessions`] remembers what may be
//! continued, [`models`] holds the models, [`telemetry`] tells how it goes. The crate stays above the engine, which knows
//! tokens, and below whoever decides which models there are ([`models::Loader`]).

mod endpoints;
pub mod error;
mod facts;
pub mod generation;
pub mod guard;
mod ids;
mod listen;
mod lock;
mod lru;
pub mod models;
pub mod responses;
mod routes;
pub mod sessions;
mod shared;
pub mod telemetry;

pub use listen::{ServeError, Server, ServerOptions};
pub use models::embeddings::Embedder;
pub use models::{FileFacts, Loader, ModelCard, ModelLimits, ModelParts};

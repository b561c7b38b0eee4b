//! One streaming client for Flint and every compatible provider.
//!
//! [`Client`] keeps warm connections and sends every turn over them: a WebSocket first, server-sent events when the
//! server refuses it, and a WebSocket again as soon as one can be had. [`Answer`] is one response: a stream of events,
//! and the means to steer and to cancel it. Losing the connection in the middle is repaired where the server keeps the
//! response, and is [`ClientError::Interrupted`] where it does not; an event is never lost or seen twice in silence.
//!
//! The crate stays below the agent: it knows the wire, not conversations. Which response a turn continues is the
//! caller's to remember.
//!
//! ```no_run
//! # async fn example() -> Result<(), client::ClientError> {
//! use api::responses::EventKind;
//! let client = client::Client::new(client::ClientOptions::new("http://127.0.0.1:7117/v1"))?;
//! let mut answer = client.respond(serde_json::json!({"model": "default", "input": "Say hello."})).await?;
//! while let Some(event) = answer.next().await {
//!     if let EventKind::TextDelta { delta, .. } = event?.kind {
//!         print!("{delta}");
//!     }
//! }
//! # Ok(())
//! # }
//! ```

mod answer;
mod backoff;
mod chat;
mod client;
mod dial;
mod error;
mod http;
mod lanes;
mod options;
mod pool;
mod progress;
mod socket;
mod source;
mod sse;
mod tls;
mod wire;

pub use answer::Answer;
pub use client::Client;
pub use error::ClientError;
pub use options::{ClientOptions, Limits, Timeouts, Transport, WireApi};

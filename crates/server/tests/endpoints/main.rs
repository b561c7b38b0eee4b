//! The endpoints beside the Responses API, over real sockets and a toy model.
#![allow(clippy::unwrap_used, reason = "a test whose surroundings fail should fail")]

mod chat;
mod completions;
mod embeddings;
mod families;
mod infill;
mod messages;
mod native;
mod ollama;
mod support;

//! Every API but the Responses API: wire formats read and written over HTTP.

pub mod body;
pub mod chat;
pub mod completions;
pub mod infill;
pub mod messages;
pub mod native;
pub mod ollama;
pub mod sse;
pub mod streamed;

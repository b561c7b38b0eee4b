//! What tests of several crates share. Production code never depends on this crate.
//!
//! [`gguf`] writes small GGUF files; [`toy::ToyBackend`] stands in for a model wherever tokens and KV blocks are enough;
//! [`chat`] makes it one that can be talked with; [`card`] is a card where there is none; [`encoder`] embeds texts.
#![allow(clippy::disallowed_methods, reason = "only tests depend on it")]

pub mod card;
pub mod chat;
pub mod document;
pub mod encoder;
pub mod families;
pub mod gguf;
pub mod models;
pub mod shaped;
pub mod skip;
pub mod toy;

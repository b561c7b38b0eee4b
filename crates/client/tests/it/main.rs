//! The client against a server that each test plays itself.
#![allow(clippy::unwrap_used, reason = "a test whose surroundings fail should fail")]

mod broken;
mod chat;
mod crowd;
mod fallback;
mod http;
mod support;
mod tls;
mod websocket;

//! The client against a server that each test plays itself.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test whose surroundings fail should fail")]

mod broken;
mod chat;
mod crowd;
mod fallback;
mod http;
mod support;
mod tls;
mod websocket;

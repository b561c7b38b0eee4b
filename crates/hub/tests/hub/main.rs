//! The hub from outside: whole pulls with real processes, files, locks and sockets. Only the other side is played by
//! the tests: a pip that copies slowly from a local directory, and a small server that speaks as Hugging Face does.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test whose surroundings fail should fail")]

mod fixture;

mod catalogue;
mod huggingface;
mod kills;
mod pulls;
mod real;
mod search;
mod store;

//! The server as its clients meet it: real sockets, real engines, a model that says what it is told.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test whose surroundings fail should fail")]

mod background;
mod client;
mod errors;
mod guard;
mod lanes;
mod models;
mod ours;
mod sessions;
mod shutdown;
mod socket;
mod steer;
mod stored;
mod stream;
mod support;
mod telemetry;
mod tools;
mod whole;

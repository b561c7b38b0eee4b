//! The attacks that once worked, tried on the real binary: what a hostile repository, model, client or neighbour does, and
//! that it no longer gets anywhere. Each runs as whoever runs the tests, and as an ordinary user too when that is root.
//!
//! `FLINT_UNDER_TEST` names another binary to attack, such as one of an older commit, to see that a test can fail.
#![allow(clippy::disallowed_macros, clippy::disallowed_methods)] // The tests' own files and words.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // Helpers of tests are tests too: a panic is how they fail.

mod approval;
mod files;
mod models;
#[path = "../common/provider.rs"]
mod provider;
mod sandbox;
mod server;
mod serving;
mod support;
mod terminal;
mod trust;
mod undo;

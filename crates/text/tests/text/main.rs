//! One test binary for the crate: golden ids and templates of real models, and properties of a made-up one.
#![allow(clippy::unwrap_used)] // Helpers of tests are not tests to the lint.

mod answer;
mod dialects;
mod golden;
mod grammar;
mod infill;
mod models;
mod prompt;
mod properties;
mod speed;
mod templates;
mod wordpiece;

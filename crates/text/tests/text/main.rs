//! One test binary for the crate: golden ids and templates of real models, and properties of a made-up one.

mod golden;
mod models;
mod properties;
mod templates;

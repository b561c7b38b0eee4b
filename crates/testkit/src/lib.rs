//! Fixtures for tests: production never depends on this crate.
//!
//! [`gguf`] writes small GGUF files.

pub mod gguf;

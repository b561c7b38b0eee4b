//! Weights and the forward pass.
//!
//! This crate turns a GGUF file into something that can be stepped: [`Backend`] is the seam the engine drives,
//! [`gguf`] reads the file. It stays below requests, text and the network.
#![allow(missing_docs)]

pub mod backend;
pub mod gguf;

pub use backend::{BLOCK, Backend, BackendError, Chunk, ModelInfo, Want};

//! Weights and the forward pass.
//!
//! [`CpuModel`] turns a GGUF file into something that can be stepped; [`Backend`] is the seam the engine drives, and
//! [`gguf`] reads the file. One decoder, described by [`Config`], serves the whole family of models.
//!
//! This crate stays below requests, text and the network.

pub mod backend;
pub mod config;
pub mod cpu;
pub mod gguf;
pub mod load;
mod rope;
mod weights;

pub use backend::{BLOCK, Backend, BackendError, Chunk, ModelInfo, Want};
pub use config::{Config, ConfigOptions};
pub use cpu::{CpuModel, CpuOptions};
pub use load::LoadError;

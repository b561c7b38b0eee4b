//! Weights and the forward pass.
//!
//! [`CpuModel`] and [`CudaModel`] turn a GGUF file into something that can be stepped; [`Backend`] is the seam the engine drives, and
//! [`gguf`] reads the file. One decoder, described by [`Config`], serves the whole family of models.
//!
//! [`Encoder`] is the other kind of network: a text goes in, one vector comes out.
//!
//! This crate stays below requests, text and the network.

pub mod backend;
pub mod config;
pub mod cpu;
pub mod cuda;
mod encoder;
pub mod gguf;
pub mod load;
mod rope;
mod weights;

pub use self::cuda::{CudaModel, CudaOptions};
pub use backend::{BLOCK, Backend, BackendError, Chunk, ModelInfo, NOT_A_NUMBER, StateInfo, StateSave, StateUse, Want};
pub use config::{Config, ConfigOptions, LayerKind};
pub use cpu::{CpuModel, CpuOptions};
pub use encoder::{Encoder, EncoderConfig, Pooling};
pub use kernels::shortlist;
pub use load::LoadError;

//! Arithmetic for transformer inference on a CPU.
//!
//! [`Matrix`] holds weights in any of the [`Format`]s, packed for streaming; [`Activations`] holds the other operand,
//! quantised once; [`Runtime`] has the operations (products, normalisation, attention) and the threads to run them. The
//! kernels are chosen at run time from a table ([`Kernels`]), with a scalar reference as oracle and fallback.
//!
//! This crate knows nothing of files, requests or async.
#![allow(unsafe_code)] // Kernels: raw loads and stores behind checked slices. Every block says why it holds.

pub mod activations;
pub mod background;
pub mod blocks;
pub mod cases;
pub mod delta_net;
pub mod format;
pub mod kv;
pub mod memory;
pub mod pack;
pub mod pool;
mod reference;
mod runtime;
pub mod shortlist;
mod simd;

pub use activations::Activations;
pub use delta_net::{DeltaNetInputs, DeltaNetRows, StateLayout, StateStore};
pub use format::{Format, Precision};
pub use kv::{KvLayout, KvStore, KvType};
pub use memory::{Buffer, Region};
pub use pack::{Layout, Matrix, Shape, TILE};
pub use runtime::{Heads, Output, Queries, RowMap, Runtime, output_stride};
pub use simd::{Kernels, UnknownKernels};

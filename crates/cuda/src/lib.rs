//! Arithmetic for transformer inference on an NVIDIA card.
//!
//! [`Device`] is one card with one stream; [`Buffer`] is memory on it; [`Kernels`] holds the compiled kernels and has one
//! method per kernel, which checks shapes before the one unsafe call; [`Graph`] is a recorded run of launches. Weights are
//! packed by [`pack`] into the layout the kernels read.
//!
//! Nothing is needed at build time. The driver and NVRTC are opened when a [`Device`] is first asked for, kernels are
//! compiled for the card that is present and cached on disk. Whatever is missing is an [`Error`] that names it.
//!
//! This crate stays below models, files of weights, requests and text.
#![allow(unsafe_code)] // The driver's interface and launches: every block says why it holds.

mod arguments;
mod blocks;
mod compile;
mod device;
mod error;
mod graph;
mod launch;
mod memory;
pub mod pack;
pub mod selftest;

pub use arguments::{
    AddPartsCall, AttentionCall, DELTA_HEAD, DELTA_RUN_WORDS, DELTA_TAPS, DELTA_WRITES_MAX, DeltaCall, DeltaOutput,
    DeltaRun, DeltaSettleCall, DeltaShape, DeltaStates, DeltaWeights, EmbedCall, ExpandCall, ExpertRowsCall,
    ExpertsCall, FlashCall, FloatsCall, GemmCall, GemmOutput, GemmPackedCall, GemmPackedThen, HeadsCall, MixtureCall,
    NormCall, Part, Partial, PickCall, ProductBatchCall, ProductCall, QueryTile, ResidualNormQuantCall, RouteCall,
    Rows, ScaleRowsCall, ShortlistCall, StoreCall, Then,
};
pub use compile::{Source, architecture_option, compile, nvrtc_version};
pub use device::{Device, Facts};
pub use error::Error;
pub use graph::Graph;
pub use launch::{
    Kernels, KernelsOptions, PICK_RING, PICK_ROWS_MAX, PersistentStep, READINGS, Recorder, RowStep, SHORTLIST_HEAD,
    SPLITS, quantised_bytes, visit_tiles,
};
pub use memory::{Buffer, Mailbox, Matrix, Pinned, Slice};

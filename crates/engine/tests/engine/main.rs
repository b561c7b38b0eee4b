//! The whole engine over a toy backend that notices every misuse of KV blocks. One binary, so that it links once.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // All of this is test code, helpers included.

mod constraints;
mod drafting;
mod exactness;
mod hybrids;
mod limits;
mod lives;
mod snapshots;
mod states;
mod support;

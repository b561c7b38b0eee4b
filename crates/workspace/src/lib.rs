//! The files of a project and what happens to them: edits that apply, the diffs people read, and undo that can be trusted.
//!
//! What a model wrote becomes an [`edit::Batch`]; the [`journal`] keeps what stands there before anything is written, in
//! a store of [`checkpoint`]s, and says so in the record of the [`session`]. The crate knows neither models nor turns as
//! they run, and waits for nobody: everything here is a plain function of the disk, for threads that may block.
#![warn(unreachable_pub)]
#![cfg_attr(not(test), deny(clippy::disallowed_macros, clippy::disallowed_methods))]
#![cfg_attr(test, allow(clippy::disallowed_macros, clippy::disallowed_methods))]

pub mod checkpoint;
pub mod diff;
pub mod edit;
pub mod journal;
pub mod session;

//! The trust boundary: the one gate each for files that others made ([`file`]), programs that Flint starts ([`program`])
//! and text on its way to a terminal ([`terminal`], through [`print`]).
//!
//! Whatever comes from a repository, a model, a client or a web page is hostile until shown otherwise, so every crate
//! that reads a path, starts a program or prints such text does it through here.
#![warn(unreachable_pub)]
#![cfg_attr(not(test), deny(clippy::disallowed_macros, clippy::disallowed_methods))]
#![cfg_attr(test, allow(clippy::disallowed_macros, clippy::disallowed_methods))]
#![warn(missing_docs)]

pub mod file;
pub mod print;
pub mod program;
pub mod terminal;

//! The text crate: being written.

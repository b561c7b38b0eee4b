//! The hub crate: being written.

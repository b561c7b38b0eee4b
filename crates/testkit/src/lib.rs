//! The testkit crate: being written.

//! The engine crate: being written.

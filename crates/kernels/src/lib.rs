//! The kernels crate: being written.

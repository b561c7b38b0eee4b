//! The `flint` binary: arguments and glue.
fn main() {}

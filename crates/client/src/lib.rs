//! One streaming client for Flint and every compatible provider.

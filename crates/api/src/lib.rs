//! Wire types of every protocol Flint speaks: serde and nothing else.

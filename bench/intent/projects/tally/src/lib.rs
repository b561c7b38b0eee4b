//! Counts words.

pub mod count;
pub mod report;
pub mod options;

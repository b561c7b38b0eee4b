//! What a project defines and where it is used, without a model: the items of each file by their lines, the references of
//! a name by whole words and imports, and the changes that follow from them alone, such as a rename.
//!
//! It knows files and languages, and neither models, turns nor terminals; everything here is a plain function of the text
//! on disk, bounded in files and bytes.
#![cfg_attr(test, allow(clippy::disallowed_methods))] // Tests run what was renamed.

mod imports;
mod modules;
mod moves;
pub mod outline;
mod rename;
pub mod walk;
mod words;

use std::path::Path;

pub use imports::{Dangling, dangling};
pub use moves::{importers, moved};
pub use rename::{Renamed, Unclear, rename, uses};

/// One file of a project.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Relative to the project.
    pub path: &'a Path,
    /// Its text.
    pub text: &'a str,
}

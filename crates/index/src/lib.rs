//! What a project defines and where it is used, without a model: the items of each file by their lines, the references of
//! a name by whole words and imports, the changes that follow from them alone, such as a rename, and which file a question
//! is about.
//!
//! [`Index`] holds what was read of a folder: [`Index::load`] takes it from disk, [`Index::refresh`] brings it up to date,
//! [`Index::locate`] answers where something is. It knows files and languages, and neither models, turns nor terminals;
//! everything here is a plain function of the text on disk, bounded in files, bytes and time.
#![cfg_attr(test, allow(clippy::disallowed_methods))] // Tests run what was renamed.

mod contents;
mod disk;
pub mod files;
mod history;
mod imports;
pub mod library;
mod locate;
mod modules;
mod moves;
pub mod names;
pub mod outline;
mod rank;
mod record;
mod refresh;
mod rename;
pub mod terms;
mod vocabulary;
pub mod walk;
mod words;

use std::path::Path;

pub use contents::Index;
pub use imports::{Dangling, dangling};
pub use locate::{Located, Location, Why};
pub use moves::{importers, moved};
pub use rank::Ranked;
pub use refresh::Refreshed;
pub use rename::{Renamed, Unclear, rename, uses};

/// One file of a project.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Relative to the project.
    pub path: &'a Path,
    /// Its text.
    pub text: &'a str,
}

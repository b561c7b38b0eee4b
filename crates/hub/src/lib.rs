//! Models by name: what there is, where it comes from, and whether the copy on this disk is the right one.
//!
//! [`Catalogue`] is the list of known models, read from a data file. [`Store`] is the directory they live in:
//! [`Store::resolve`] turns a name or a path into a checked file, [`Store::pull`] fetches one. The promise of this crate
//! is that a path it hands out was compared with its sha256, whatever was killed, torn or lost on the way.
//!
//! It stays below everything that computes: it does not know what is inside a model file beyond its first four bytes.
//!
//! ```no_run
//! let store = hub::Store::open()?;
//! let entry = store.catalogue().find("smollm2-135m")?;
//! let path = store.pull(entry, &hub::PullOptions::from_env(), &mut hub::Silent)?;
//! # Ok::<(), hub::Error>(())
//! ```

mod catalogue;
mod error;
mod reference;
mod store;

mod progress;
mod pull;

mod cache;
mod huggingface;
mod joined;
mod packages;
mod part;
mod pip;
mod search;

mod pins;

mod disk;
mod lock;
mod verify;

pub use cache::{HuggingFace, Token};
pub use catalogue::{Advice, Catalogue, Entry, Source, Style};
pub use disk::{format_bytes, free_bytes};
pub use error::{Attempt, Error, SourceError};
pub use pip::installer_name;
pub use progress::{Event, Progress, Silent};
pub use pull::PullOptions;
pub use reference::{Reference, is_part};
pub use search::{Found, RepoFile};
pub use store::{Presence, Resolved, Store};

//! What a pull tells its caller while it runs.
//!
//! The hub never prints: a terminal, a server and a test each show these events in their own way.

use crate::error::SourceError;

/// Receives the events of one pull, in order, on the thread that called it.
pub trait Progress {
    /// Called for each event; must return quickly, because the download waits for it.
    fn event(&mut self, event: Event<'_>);
}

/// One thing that happened during a pull.
#[derive(Debug)]
pub enum Event<'a> {
    /// Another process pulls the same model; this one waits and shares its result.
    Waiting,
    /// The file that is there is not usable and is fetched again.
    Damaged {
        /// What is wrong with it.
        reason: &'a str,
    },
    /// A source is being tried.
    Source {
        /// The source in words.
        source: &'a str,
        /// Bytes kept from an earlier pull that was stopped.
        resumed: u64,
    },
    /// Bytes so far.
    Bytes {
        /// Bytes of the model that are on disk.
        done: u64,
        /// Bytes of the whole model, where known.
        total: Option<u64>,
    },
    /// The source did not deliver; the next one is tried.
    SourceFailed {
        /// The source in words.
        source: &'a str,
        /// Why it did not.
        why: &'a SourceError,
    },
    /// All bytes are there and are being compared with the sha256.
    Verifying,
}

/// Shows nothing.
pub struct Silent;

impl Progress for Silent {
    fn event(&mut self, _: Event<'_>) {}
}

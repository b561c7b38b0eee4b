//! KV blocks on disk: what idle sessions computed survives eviction and restarts, and comes back by itself.
//!
//! One file per full block, named after the whole prefix it ends ([`Name`]), under a folder named after the model's
//! fingerprint. The engine thread only copies bytes and passes them on: one thread writes, one reads, and both share a
//! [`Store`] (index, counters, notices) whose locks are never held across file access.
//!
//! What bounds it: bytes on disk by [`SnapshotOptions::bytes_max`], blocks waiting to be written by [`WRITES_MAX`] (a
//! block that finds no room there is lost, and counted), blocks read ahead by [`READS_MAX`].
//!
//! A saved block is used only when its checksum holds and its model, tokens and key of the prefix before it are the
//! wanted ones. So two prefixes would have to agree in all 128 bits of their keys, and in the block itself, to be
//! confused.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use model::{BLOCK, ModelInfo};

use crate::block_pool::FullBlock;
use crate::hash::Key;

mod file;
mod index;
mod reader;
mod store;
mod writer;

pub use file::Rejection;
pub(crate) use file::{HEADER, Kind, Name};
pub(crate) use reader::{Loaded, READS_MAX};
pub(crate) use store::Store;

use file::Wanted;
use reader::{Load, Reader};
use writer::{Job, Writer};

/// Most blocks that wait to be written; at 0.9 MB each, under 60 MB of memory.
const WRITES_MAX: usize = 64;
/// Bytes that wait to be written after which nothing more is taken: recurrent states are large.
const WRITE_BYTES_MAX: usize = 256 << 20;
/// A shorter saved part is computed faster than it is worth the trouble.
const RESTORE_BLOCKS_MIN: usize = 2;

/// Where and how much KV an engine keeps on disk.
#[derive(Clone, Debug)]
pub struct SnapshotOptions {
    /// Holds a folder per model. Made when missing, readable by its owner only: KV tells what was said.
    pub directory: PathBuf,
    /// Most bytes of saved blocks, of all models in the directory together; the least recently used go first. Engines
    /// that share a directory at the same time do not see what the others add until they start again.
    pub bytes_max: u64,
    /// How long the engine must have had nothing to do before it saves what it holds.
    pub idle: Duration,
    /// Called before a saved block is read. Tests slow a disk down with it.
    pub before_read: Option<BeforeRead>,
}

/// Something to do before a file is read, given its path.
#[derive(Clone)]
pub struct BeforeRead(pub Arc<dyn Fn(&Path) + Send + Sync>);

impl std::fmt::Debug for BeforeRead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BeforeRead")
    }
}

/// Counters of snapshots. The first four only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotCounts {
    /// Blocks written.
    pub written: u64,
    /// Blocks read back into the KV cache.
    pub restored: u64,
    /// Blocks that could not be kept: the writer was behind, the disk refused, or the limit is full of better ones.
    pub lost: u64,
    /// Files that were torn, corrupted or not what their name says, and were removed.
    pub rejected: u64,
    /// Bytes on disk.
    pub bytes: u64,
    /// Blocks on disk.
    pub blocks: usize,
}

/// Something about snapshots that a person may want to know. The engine goes on without the block.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotNotice {
    /// A file was not what it should be and was removed.
    #[error("removed the saved block {}: {reason}", .path.display())]
    Rejected {
        /// The file.
        path: PathBuf,
        /// What was wrong with it.
        reason: Rejection,
    },
    /// The system refused.
    #[error("{doing} {}: {error}", .path.display())]
    Io {
        /// What was being done: "listing", "reading", "writing" or "removing".
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        error: String,
    },
}

/// The engine thread's side.
pub(crate) struct Snapshots {
    pub store: Arc<Store>,
    pub idle: Duration,
    writer: Writer,
    reader: Reader,
    loads: u64,
}

impl Snapshots {
    /// Looks at what is on disk and starts the two threads. `wake` is called when something was read.
    pub fn open(
        options: &SnapshotOptions,
        info: &ModelInfo,
        wake: impl Fn() + Send + 'static,
    ) -> std::io::Result<Self> {
        let store = Arc::new(Store::open(options, info)?);
        let writer = Writer::start(Arc::clone(&store))?;
        let reader = Reader::start(Arc::clone(&store), wake)?;
        Ok(Self { store, idle: options.idle, writer, reader, loads: 0 })
    }

    /// Whether a block could be passed to the writer now.
    pub fn has_room(&self) -> bool {
        self.writer.queued() < WRITES_MAX && self.writer.queued_bytes() < WRITE_BYTES_MAX
    }

    /// True when the block need not be exported: it is on disk, and counts as used now.
    pub fn is_saved(&self, block: &FullBlock) -> bool {
        self.is_kept(self.name(block.depth, block.key), block)
    }

    /// The same of the state after it.
    pub fn is_state_saved(&self, block: &FullBlock) -> bool {
        self.is_kept(Name { kind: Kind::State, ..self.name(block.depth, block.key) }, block)
    }

    fn is_kept(&self, name: Name, block: &FullBlock) -> bool {
        let saved = self.store.index().contains(&name);
        if saved {
            self.writer.send(Job::Touch { name, parent: block.parent });
        }
        saved
    }

    /// Passes a block and its KV to the writer, which must have room.
    pub fn save(&self, block: FullBlock, payload: Vec<u8>) {
        let name = self.name(block.depth, block.key);
        let wanted = Wanted { name, parent: block.parent, tokens: block.tokens };
        self.writer.send(Job::Write { wanted, payload });
    }

    /// The same of the state after a block.
    pub fn save_state(&self, block: FullBlock, payload: Vec<u8>) {
        let name = Name { kind: Kind::State, ..self.name(block.depth, block.key) };
        let wanted = Wanted { name, parent: block.parent, tokens: block.tokens };
        self.writer.send(Job::Write { wanted, payload });
    }

    /// Begins to read the saved blocks that follow the first `from` blocks of `tokens`, if they are enough to bother; with
    /// `states` those up to the last saved state, and then that. Answers the number of the load, how many tokens would then
    /// be there, and what stops it.
    pub fn load(
        &mut self,
        tokens: &[u32],
        from: usize,
        parent: Key,
        states: bool,
    ) -> Option<(u64, usize, Arc<AtomicBool>)> {
        let mut blocks = self.find(tokens, from, parent);
        let state_after = |block: &Wanted| Wanted { name: Name { kind: Kind::State, ..block.name }, ..block.clone() };
        let mut state = None;
        while states
            && state.is_none()
            && let Some(last) = blocks.last()
        {
            state = Some(state_after(last)).filter(|state| self.store.index().contains(&state.name));
            if state.is_none() {
                blocks.pop();
            }
        }
        if blocks.len() < RESTORE_BLOCKS_MIN {
            return None;
        }
        self.loads += 1;
        let stop = Arc::new(AtomicBool::new(false));
        let target = (from + blocks.len()) * BLOCK;
        blocks.extend(state);
        self.reader.load(Load { number: self.loads, blocks, stop: Arc::clone(&stop) });
        Some((self.loads, target, stop))
    }

    /// The next thing that was read, if any.
    pub fn loaded(&self) -> Option<Loaded> {
        self.reader.next()
    }

    /// Waits until everything is written, or until `deadline`.
    pub fn close(self, deadline: Instant) {
        self.writer.close(deadline);
    }

    /// Saved blocks without a gap from block `from` on, the one before it being `parent`. As in a lookup, one token is
    /// left to compute.
    fn find(&self, tokens: &[u32], from: usize, mut parent: Key) -> Vec<Wanted> {
        let usable = &tokens[..tokens.len().saturating_sub(1)];
        let mut found = Vec::new();
        for (depth, run) in usable.chunks_exact(BLOCK).enumerate().skip(from) {
            let name = self.name(depth as u32, parent.child(run));
            if !self.store.index().contains(&name) {
                break;
            }
            found.push(Wanted { name, parent, tokens: run.to_vec() });
            parent = name.key;
        }
        found
    }

    fn name(&self, depth: u32, key: Key) -> Name {
        Name { model: self.store.model(), depth, key, kind: Kind::Block }
    }
}

//! How the scheduler uses saved blocks: it passes on what leaves the cache, and lets sequences wait for what comes back.
//!
//! A sequence that is being restored stands outside its queue, so others pass it. It keeps its slot and its blocks are
//! promised to it as if it ran. What was read goes into the prefix tree block by block; at the end the sequence drops
//! its hold, returns to its queue by age and is admitted as any other, which finds the blocks cached. Restoring is only
//! ever an improvement: whatever goes wrong, the rest is computed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use model::{BLOCK, Backend};

use super::Scheduler;
use crate::block_pool::{FullBlock, Prefix};
use crate::request::Priority;
use crate::sequence::Sequence;
use crate::snapshot::{HEADER, Loaded, READS_MAX, Snapshots};

/// Pause between looks at a writer that is behind, when there is nothing else to do.
const WRITER_PAUSE: Duration = Duration::from_millis(2);

/// A sequence whose first blocks are being read from disk into its table.
pub(super) struct Restoring {
    pub sequence: Sequence,
    load: u64,
    /// Tokens it will have if all goes well.
    pub target: usize,
    stop: Arc<AtomicBool>,
}

impl Restoring {
    /// The sequence, without waiting for the rest.
    pub fn stop(self) -> Sequence {
        self.stop.store(true, Ordering::Release);
        self.sequence
    }
}

impl Scheduler {
    /// Turns on snapshots.
    pub fn use_snapshots(&mut self, snapshots: Snapshots) {
        self.pool.track_unsaved();
        self.snapshots = Some(snapshots);
    }

    /// How much longer an engine that `rested` for so long should rest before it saves something; `None` when there is
    /// nothing to save.
    pub fn rest_before_saving(&self, rested: Duration) -> Option<Duration> {
        let snapshots = self.snapshots.as_ref().filter(|_| self.pool.has_unsaved())?;
        let least = if snapshots.has_room() { Duration::ZERO } else { WRITER_PAUSE };
        Some(snapshots.idle.saturating_sub(rested).max(least))
    }

    /// Passes up to `count` cached blocks to the writer, as far as it has room.
    pub fn save_some(&mut self, backend: &mut dyn Backend, count: usize) {
        for _ in 0..count {
            if !self.snapshots.as_ref().is_some_and(Snapshots::has_room) {
                return;
            }
            let Some(block) = self.pool.next_unsaved() else {
                return;
            };
            self.save(block.clone(), backend);
            self.save_state(block, backend);
        }
    }

    /// Passes on blocks that left the cache unsaved. Must come between whatever may evict and the backend's next write.
    pub fn save_evicted(&mut self, backend: &dyn Backend) {
        for block in self.pool.take_evicted() {
            self.save(block, backend);
        }
    }

    /// Saves all that is cached, for as long as `patience` lasts; the engine is closing.
    pub fn save_all(&mut self, backend: &mut dyn Backend, patience: Duration) {
        let deadline = Instant::now() + patience;
        while self.pool.has_unsaved() && Instant::now() < deadline {
            match self.snapshots.as_ref().is_some_and(Snapshots::has_room) {
                true => self.save_some(backend, 1),
                false => std::thread::sleep(WRITER_PAUSE),
            }
        }
        if let Some(snapshots) = self.snapshots.take() {
            let rest = std::iter::from_fn(|| self.pool.next_unsaved()).count();
            snapshots.store.lost.fetch_add(rest as u64, Ordering::Relaxed);
            snapshots.close(deadline);
        }
    }

    fn save(&self, block: FullBlock, backend: &dyn Backend) {
        let Some(snapshots) = &self.snapshots else {
            return;
        };
        if snapshots.is_saved(&block) {
            return;
        }
        let mut payload = Vec::new();
        if snapshots.has_room() && backend.export_block(block.block, &mut payload).is_ok() {
            snapshots.save(block, payload);
        } else {
            snapshots.store.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Passes on the state after a block, where one is kept.
    fn save_state(&self, block: FullBlock, backend: &mut dyn Backend) {
        let (Some(snapshots), Some(slot)) = (&self.snapshots, self.pool.state_of_block(block.block)) else {
            return;
        };
        if snapshots.is_state_saved(&block) {
            return;
        }
        let (position, mut payload) = ((block.depth as usize + 1) * BLOCK, Vec::new());
        // The slot may be one a sequence left, with drafted tokens behind this position.
        let settled = backend.copy_state(slot, slot, position);
        if settled.and_then(|()| backend.export_state(slot, position, &mut payload)).is_ok() {
            snapshots.save_state(block, payload);
        } else {
            snapshots.store.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Tells the disk that what a sequence found cached is in use, so that it is kept there too.
    pub(super) fn touch_saved(&self, sequence: &Sequence) {
        let last = (sequence.table.committed_tokens() / BLOCK).checked_sub(1);
        if let (Some(snapshots), Some(last)) = (&self.snapshots, last) {
            snapshots.is_saved(&self.pool.full_block(sequence.table.blocks()[last]));
        }
    }

    /// Begins to restore what is saved beyond `prefix`; gives the sequence back when that is nothing.
    pub(super) fn begin_restore(&mut self, mut sequence: Sequence, prefix: &Prefix) -> Option<Sequence> {
        let Some(snapshots) = &mut self.snapshots else {
            return Some(sequence);
        };
        if std::mem::replace(&mut sequence.restore_tried, true) {
            return Some(sequence);
        }
        let parent = self.pool.last_key(prefix);
        let Some((load, target, stop)) =
            snapshots.load(&sequence.tokens, prefix.blocks, parent, self.pool.uses_states())
        else {
            return Some(sequence);
        };
        sequence.table = self.pool.acquire_full(prefix, sequence.private);
        self.restoring.push(Restoring { sequence, load, target, stop });
        None
    }

    /// Takes in what was read since the last step.
    pub(super) fn take_loaded(&mut self, backend: &mut dyn Backend) {
        for _ in 0..READS_MAX {
            if self.restoring.is_empty() {
                return;
            }
            let Some(loaded) = self.snapshots.as_ref().and_then(Snapshots::loaded) else {
                return;
            };
            // A load that was stopped may still say something.
            let place = |load| self.restoring.iter().position(|restoring| restoring.load == load);
            let over = match loaded {
                Loaded::Block { load, file } => {
                    place(load).filter(|&index| !self.import(index, &file[HEADER..], backend))
                }
                Loaded::End { load } => place(load),
                Loaded::Gone => Some(0),
            };
            if let Some(index) = over {
                self.end_restore(index);
            }
        }
    }

    /// Stops the restore of the youngest sequence that is no more urgent than `priority`, so that another finds room. False
    /// when there is none.
    pub(super) fn give_up_restore(&mut self, priority: Priority) -> bool {
        let candidates =
            self.restoring.iter().enumerate().filter(|(_, restoring)| restoring.sequence.priority >= priority);
        let age = |restoring: &Restoring| (restoring.sequence.priority, restoring.sequence.id);
        let youngest = candidates.max_by_key(|(_, restoring)| age(restoring)).map(|(index, _)| index);
        youngest.inspect(|&index| self.end_restore(index)).is_some()
    }

    /// Puts one block into the tree. False when it cannot be: then the rest is of no use.
    fn import(&mut self, index: usize, payload: &[u8], backend: &mut dyn Backend) -> bool {
        let Restoring { sequence, target, .. } = &mut self.restoring[index];
        let have = sequence.table.blocks().len();
        if have * BLOCK >= *target {
            return self.import_state(index, payload, backend);
        }
        let end = (have + 1) * BLOCK;
        let found = self.pool.reserve(&mut sequence.table, end);
        self.save_evicted(backend);
        let sequence = &mut self.restoring[index].sequence;
        if !found || backend.import_block(sequence.table.blocks()[have], payload).is_err() {
            return false;
        }
        self.pool.commit(&mut sequence.table, &sequence.tokens[..end]);
        if sequence.table.committed_tokens() < end {
            return false;
        }
        self.pool.mark_saved(sequence.table.blocks()[have]);
        sequence.restored += BLOCK;
        if let Some(snapshots) = &self.snapshots {
            snapshots.store.restored.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    /// Keeps the state that comes behind the blocks.
    fn import_state(&mut self, index: usize, payload: &[u8], backend: &mut dyn Backend) -> bool {
        let Restoring { sequence, target, .. } = &self.restoring[index];
        let Some(slot) = self.pool.take_state(None) else { return false };
        let read = backend.import_state(slot, *target, payload).is_ok();
        match read {
            true => self.pool.keep_state(&sequence.table, &sequence.tokens[..*target], slot),
            false => self.pool.free_state(slot),
        }
        read
    }

    fn end_restore(&mut self, index: usize) {
        let mut sequence = self.restoring.remove(index).stop();
        let valid = sequence.table.committed_tokens();
        self.pool.release(&mut sequence.table, &sequence.tokens[..valid]);
        self.enqueue(sequence);
    }
}

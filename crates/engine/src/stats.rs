//! Counters of one engine, copied out once per step so that reading them never waits for a step.

use crate::block_pool::{BlockCounts, StateCounts};
use crate::draft::DraftCounts;
use crate::snapshot::SnapshotCounts;

/// A picture of the engine after its last step. Counts only grow; the rest is of that moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stats {
    /// Sequences being stepped, by priority class (interactive, background).
    pub running: [usize; 2],
    /// Requests that have not started, by priority class.
    pub queued: [usize; 2],
    /// Sequences that started and wait for KV room or a slot, by priority class.
    pub preempted: [usize; 2],
    /// Where the KV blocks are.
    pub blocks: BlockCounts,
    /// Where the slots of recurrent state are; all zero for models without.
    pub states: StateCounts,
    /// What is kept on disk; of now, not of the last step. All zero when snapshots are off.
    pub snapshots: SnapshotCounts,
    /// Forward passes.
    pub steps: u64,
    /// Tokens picked.
    pub generated_tokens: u64,
    /// Rows computed to read prompts, or to read preempted sequences again.
    pub prompt_tokens: u64,
    /// Prompt tokens taken from the prefix cache.
    pub cached_tokens: u64,
    /// Drafted tokens: verified, and right.
    pub drafts: DraftCounts,
    /// Times a sequence gave up its blocks for another.
    pub preemptions: u64,
    /// Seconds spent in forward passes.
    pub forward_seconds: f64,
    /// Seconds spent with work to do, forward passes included.
    pub busy_seconds: f64,
}

//! How the scheduler uses recurrent state: every running sequence has a slot, a new one begins with a copy of the state its
//! prefix ends with, and copies are kept in the prefix tree where another sequence is likely to begin.

use model::{BLOCK, Backend, StateSave};

use super::Scheduler;
use crate::block_pool::{BlockPool, Prefix};
use crate::sequence::Sequence;

/// Tokens of a long prompt between two states that are kept.
const INTERVAL: usize = 2048;
/// Tokens of an answer after which the state is kept anew, for a restart: the end of a sequence is not on disk, because its
/// last block is not full.
const ANSWER_INTERVAL: usize = 256;

impl Scheduler {
    /// Gives a sequence a slot with the state its prefix ends with; the prefix that is left where there is none.
    pub(super) fn claim_state(&mut self, sequence: &mut Sequence, prefix: Prefix, backend: &mut dyn Backend) -> Prefix {
        if !self.pool.uses_states() {
            return prefix;
        }
        sequence.state = self.pool.take_state(prefix.state);
        let Some(from) = prefix.state else { return prefix };
        match sequence.state {
            Some(slot) => {
                if backend.copy_state(from, slot, prefix.tokens()).is_err() {
                    return Prefix { owner: prefix.owner, ..Prefix::default() };
                }
                self.pool.touch_state(from);
            }
            // The kept state is the last there is: the sequence goes on in it.
            None => {
                self.pool.detach_state(from);
                sequence.state = Some(from);
            }
        }
        prefix
    }

    /// Drops the blocks a sequence was about to begin with.
    pub(super) fn begin_anew(&mut self, sequence: &mut Sequence) -> Prefix {
        let valid = sequence.table.committed_tokens();
        self.pool.release(&mut sequence.table, &sequence.tokens[..valid]);
        let nothing = Prefix { owner: sequence.owner, ..Prefix::default() };
        let (table, prefix, _) = self.pool.acquire_prefix(nothing, sequence.private);
        sequence.table = table;
        prefix
    }

    /// Decides where a sequence's states are kept while it is read: where it parted from what was cached, as others may part
    /// there too; where later prompts are said to part from it; at the end of what is there now; and at intervals, for a
    /// prefix nobody thought of.
    pub(super) fn plan_kept_states(&mut self, sequence: &mut Sequence, parted: usize) {
        sequence.state_positions.clear();
        if sequence.state.is_none() {
            return;
        }
        let end = (sequence.tokens.len() - 1) / BLOCK * BLOCK;
        let told = [parted, sequence.lasting.min(end), end];
        let all = (1..).map(|n| n * INTERVAL).take_while(|&position| position < end).chain(told);
        all.for_each(|position| sequence.keep_state_at(position));
    }

    /// Finds slots for the states to be kept in a sequence's step.
    pub(super) fn plan_saves(&mut self, index: usize) {
        let sequence = &mut self.running[index];
        sequence.saves.clear();
        sequence.saves_from = sequence.kv_len;
        let certain = sequence.kv_len + sequence.rows - sequence.proposed();
        let due = sequence.answer_state.unwrap_or(sequence.usage.prompt) + ANSWER_INTERVAL;
        let answers = sequence.pending() == 1 + sequence.proposed();
        if answers && certain >= due && certain.is_multiple_of(BLOCK) {
            let last = sequence.answer_state.take();
            last.inspect(|&position| self.pool.forget_state(&sequence.table, position));
            // Of the same sequence one is enough, and nobody else's has to go for it.
            if certain > sequence.kv_len && self.pool.state_counts().0 > 0 {
                sequence.keep_state_at(certain);
                sequence.answer_state = Some(certain);
            }
        }
        while let Some(&position) = sequence.state_positions.first()
            && position <= certain
        {
            sequence.state_positions.remove(0);
            if position > sequence.kv_len
                && let Some(slot) = self.pool.take_state(None)
            {
                sequence.saves.push(StateSave { after: position - sequence.kv_len, slot });
            }
        }
    }

    /// Puts the states that a step saved into the tree, which has the blocks.
    pub fn keep_saves(pool: &mut BlockPool, sequence: &mut Sequence) {
        for save in sequence.saves.drain(..) {
            let position = sequence.saves_from + save.after;
            pool.keep_state(&sequence.table, &sequence.tokens[..position], save.slot);
        }
    }

    /// Frees the slots of a step that failed.
    fn drop_saves(&mut self, sequence: &mut Sequence) {
        let slots = sequence.saves.drain(..).map(|save| save.slot).chain(sequence.state.take());
        slots.for_each(|slot| self.pool.free_state(slot));
    }

    /// Gives back what a sequence that ended holds: `valid` tokens of it are good.
    pub fn release(&mut self, sequence: &mut Sequence, valid: usize, failed: bool) {
        if failed {
            self.drop_saves(sequence);
        }
        self.pool.commit(&mut sequence.table, &sequence.tokens[..valid]);
        Self::keep_saves(&mut self.pool, sequence);
        let state = sequence.state.take();
        self.pool.release_with_state(&mut sequence.table, &sequence.tokens[..valid], state);
    }
}

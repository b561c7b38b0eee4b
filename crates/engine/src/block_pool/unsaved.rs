//! Which full blocks of the tree are not on disk yet, for whoever writes snapshots. The pool itself writes nothing.
//!
//! Invariant: while tracking, every full block that entered the tree is handed out exactly once, by [`next_unsaved`]
//! while it is there or by [`take_evicted`] when it leaves, unless it was marked saved before, or is private: in use by
//! sequences only whose KV stays in memory.
//!
//! [`next_unsaved`]: BlockPool::next_unsaved
//! [`take_evicted`]: BlockPool::take_evicted

use model::BLOCK;

use super::{BlockPool, Node};
use crate::hash::Key;

/// A full block as the tree knows it: all that names it but its KV bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FullBlock {
    /// The pool's block that holds, or until the next write still holds, its KV.
    pub block: u32,
    /// How many blocks come before it in its sequence.
    pub depth: u32,
    pub key: Key,
    pub parent: Key,
    pub tokens: Vec<u32>,
}

impl BlockPool {
    /// From now on, remembers which blocks have not been handed out.
    pub(crate) fn track_unsaved(&mut self) {
        self.tracking = true;
    }

    pub(crate) fn has_unsaved(&self) -> bool {
        !self.unsaved.is_empty()
    }

    /// The block that has been in the tree longest without being saved, so a parent always before its children. It
    /// counts as saved from now on.
    pub(crate) fn next_unsaved(&mut self) -> Option<FullBlock> {
        let (_, block) = self.unsaved.pop_first()?;
        let node = self.blocks[block as usize].node.as_mut().expect("unsaved blocks are in the tree");
        node.unsaved = None;
        Some(self.full_block(block))
    }

    /// Describes a full block of the tree.
    pub(crate) fn full_block(&self, block: u32) -> FullBlock {
        self.describe(block, self.node(block))
    }

    /// Blocks evicted unsaved since the last call. Their KV is intact until the backend next writes, so this must be
    /// called before it does.
    pub(crate) fn take_evicted(&mut self) -> Vec<FullBlock> {
        std::mem::take(&mut self.evicted)
    }

    /// Notes that a block of the tree is on disk already.
    pub(crate) fn mark_saved(&mut self, block: u32) {
        if let Some(node) = &mut self.blocks[block as usize].node
            && let Some(entered) = node.unsaved.take()
        {
            self.unsaved.remove(&entered);
        }
    }

    /// A sequence that may be saved needs a block of the tree: what was private no longer is.
    pub(super) fn publish(&mut self, block: u32) {
        let Some(node) = &mut self.blocks[block as usize].node else { return };
        if !std::mem::replace(&mut node.private, false) {
            return;
        }
        let tokens = std::mem::take(&mut node.tokens);
        let unsaved = self.note_entry(block, &tokens);
        if let Some(node) = &mut self.blocks[block as usize].node {
            (node.tokens, node.unsaved) = (tokens, unsaved);
        }
    }

    /// Registers a node that is about to enter the tree; returns what to put in [`Node::unsaved`].
    pub(super) fn note_entry(&mut self, block: u32, tokens: &[u32]) -> Option<u64> {
        if !self.tracking || tokens.len() < BLOCK {
            return None;
        }
        self.clock += 1;
        self.unsaved.insert(self.clock, block);
        Some(self.clock)
    }

    /// A state came to stand at the end of a block: it is to be saved, so the block is handed out again.
    pub(super) fn note_state(&mut self, block: u32) {
        let node = self.node(block);
        if node.private || node.unsaved.is_some() {
            return;
        }
        let tokens = node.tokens.clone();
        let unsaved = self.note_entry(block, &tokens);
        if let Some(node) = &mut self.blocks[block as usize].node {
            node.unsaved = unsaved;
        }
    }

    /// Registers that a node left the tree. Its parent is still there.
    pub(super) fn note_eviction(&mut self, block: u32, node: &Node) {
        if let Some(entered) = node.unsaved {
            self.unsaved.remove(&entered);
            let full = self.describe(block, node);
            self.evicted.push(full);
        }
    }

    fn describe(&self, block: u32, node: &Node) -> FullBlock {
        let parent = self.key(node.parent);
        FullBlock { block, depth: node.depth, key: node.chain, parent, tokens: node.tokens.clone() }
    }
}

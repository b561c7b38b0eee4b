//! Recurrent states kept in the prefix tree. A model with such state can go on only from a position whose state is kept, so a
//! match of keys and values is of use up to the last one on its path.
//!
//! A node owns the states after its last token and after a few tokens more (fewer than a block): that is where a sequence
//! ended. Slots are either free, held by a running sequence, or cached by one node. States are evicted apart from
//! blocks: first the one whose loss costs the fewest tokens to compute again for how long nobody asked for it.

use model::BLOCK;

use super::{BlockPool, BlockTable, Miss, Parent, Prefix, common_prefix};

/// A state in the tree.
#[derive(Debug)]
pub(super) struct CachedState {
    pub slot: u32,
    /// Tokens between the end of its node and its position.
    pub tail: Vec<u32>,
    last_used: u64,
}

/// The slots of a backend.
#[derive(Debug, Default)]
pub(super) struct States {
    free: Vec<u32>,
    /// Nodes with cached states.
    nodes: Vec<u32>,
}

/// Where state slots are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateCounts {
    /// All there are; zero for a model without recurrent state.
    pub slots: usize,
    /// Checkpoints of the prefix cache.
    pub cached: usize,
    /// Empty.
    pub free: usize,
    /// Bytes of each.
    pub bytes: usize,
}

impl BlockPool {
    /// From now on a prefix is of use only up to a state, of which there are `slots`.
    pub(crate) fn use_states(&mut self, slots: usize) {
        self.states = Some(States { free: (0..slots as u32).rev().collect(), nodes: Vec::new() });
    }

    pub(crate) fn uses_states(&self) -> bool {
        self.states.is_some()
    }

    /// Free slots, and those of cached states: a sequence may have any of them.
    pub(crate) fn state_counts(&self) -> (usize, usize) {
        let Some(states) = &self.states else { return (0, 0) };
        (states.free.len(), states.nodes.iter().map(|&node| self.node(node).cached_states.len()).sum())
    }

    /// Whether a sequence could have a slot now, or needs none.
    pub(crate) fn has_state_for_one(&self) -> bool {
        !self.uses_states() || self.state_counts() != (0, 0)
    }

    /// A slot for a sequence or a copy, evicting the cached state that is worth least where none is free, but never
    /// `except`.
    pub(crate) fn take_state(&mut self, except: Option<u32>) -> Option<u32> {
        if let Some(slot) = self.states.as_mut()?.free.pop() {
            return Some(slot);
        }
        let nodes = &self.states.as_ref()?.nodes;
        let all =
            nodes.iter().flat_map(|&node| (0..self.node(node).cached_states.len()).map(move |index| (node, index)));
        let others = all.filter(|&(node, index)| Some(self.node(node).cached_states[index].slot) != except);
        let (node, index) = others.min_by_key(|&(node, index)| self.worth(node, index))?;
        Some(self.drop_cached(node, index))
    }

    /// Takes a cached state's slot from the tree, for a sequence that goes on from there.
    pub(crate) fn detach_state(&mut self, slot: u32) {
        let nodes = self.states.as_ref().map_or(&[][..], |states| &states.nodes);
        let place = nodes.iter().find_map(|&node| {
            let index = self.node(node).cached_states.iter().position(|cached| cached.slot == slot)?;
            Some((node, index))
        });
        if let Some((node, index)) = place {
            self.drop_cached(node, index);
        }
    }

    pub(crate) fn free_state(&mut self, slot: u32) {
        let Self { states: Some(states), blocks, .. } = self else { return };
        assert!(!states.free.contains(&slot), "state slot {slot} freed twice");
        states.free.push(slot);
        let has = |&node: &u32| blocks[node as usize].node.as_ref().is_some_and(|n| !n.cached_states.is_empty());
        states.nodes.retain(has);
    }

    /// Keeps the state after `tokens`, of which the table has the blocks, or frees its slot where it is kept already or its
    /// blocks are not in the tree.
    pub(crate) fn keep_state(&mut self, table: &BlockTable, tokens: &[u32], slot: u32) {
        let (full, tail) = tokens.split_at(tokens.len() / BLOCK * BLOCK);
        let last = (full.len() / BLOCK).checked_sub(1);
        let Some(last) = last.filter(|_| table.committed_tokens() >= full.len()) else {
            // Before the first block's end little is saved.
            return self.free_state(slot);
        };
        let block = table.blocks()[last];
        self.clock += 1;
        let (clock, cached) = (self.clock, CachedState { slot, tail: tail.to_vec(), last_used: self.clock });
        let Some(node) = &mut self.blocks[block as usize].node else { return self.free_state(slot) };
        if let Some(kept) = node.cached_states.iter_mut().find(|kept| kept.tail == tail) {
            kept.last_used = clock;
            return self.free_state(slot);
        }
        node.cached_states.push(cached);
        if let Some(states) = &mut self.states
            && !states.nodes.contains(&block)
        {
            states.nodes.push(block);
        }
        if tail.is_empty() {
            self.note_state(block);
        }
    }

    /// Drops the state at a position of a table, a whole number of blocks, where it is kept.
    pub(crate) fn forget_state(&mut self, table: &BlockTable, position: usize) {
        let block = (position / BLOCK).checked_sub(1).and_then(|last| table.blocks().get(last).copied());
        if let Some(slot) = block.and_then(|block| self.state_of_block(block)) {
            self.detach_state(slot);
            self.free_state(slot);
        }
    }

    /// The slot of the state after a block's last token.
    pub(crate) fn state_of_block(&self, block: u32) -> Option<u32> {
        let node = self.block(block).node.as_ref()?;
        node.cached_states.iter().find(|kept| kept.tail.is_empty()).map(|kept| kept.slot)
    }

    /// A sequence goes on from a cached state.
    pub(crate) fn touch_state(&mut self, slot: u32) {
        self.clock += 1;
        let (clock, Self { states: Some(states), blocks, .. }) = (self.clock, self) else { return };
        for &node in &states.nodes {
            let cached_states = blocks[node as usize].node.iter_mut().flat_map(|node| &mut node.cached_states);
            cached_states.filter(|kept| kept.slot == slot).for_each(|kept| kept.last_used = clock);
        }
    }

    /// Shortens what a lookup found to the last state on its path, and finds what to copy keys and values behind it from.
    pub(super) fn shorten_to_state(&self, prefix: &mut Prefix, usable: &[u32]) {
        let matched = prefix.tokens();
        let at = |blocks: usize| (blocks, &usable[blocks * BLOCK..matched]);
        let kept = (1..=prefix.blocks).rev().map(at).find_map(|(blocks, rest)| {
            let cached_states = &self.node(prefix.path[blocks - 1]).cached_states;
            let fits = cached_states.iter().filter(|kept| rest.starts_with(&kept.tail));
            fits.max_by_key(|kept| kept.tail.len()).map(|kept| (blocks, kept))
        });
        let (blocks, tail, slot) = match kept {
            Some((blocks, kept)) => (blocks, kept.tail.len(), Some(kept.slot)),
            None => (0, 0, None),
        };
        let next = prefix.path.get(blocks).copied().or(prefix.partial.map(|(block, _)| block));
        prefix.partial = next.filter(|_| tail > 0).map(|block| (block, tail));
        prefix.blocks = blocks;
        prefix.path.truncate(blocks);
        prefix.idle_blocks = prefix.path.iter().filter(|&&block| self.block(block).references == 0).count();
        prefix.state = slot;
        let position = prefix.tokens();
        if position < matched {
            prefix.miss = Some(Miss::NoState { position, cached: matched });
        }
    }

    /// What losing a cached state would cost: tokens to compute again, for how recently somebody asked for it.
    fn worth(&self, node: u32, index: usize) -> u64 {
        let cached = &self.node(node).cached_states[index];
        let mut tokens = cached.tail.len();
        let nearer = |tail: &[u32]| tail.len() < cached.tail.len() && common_prefix(tail, &cached.tail) == tail.len();
        let same_node = self.node(node).cached_states.iter().filter(|kept| nearer(&kept.tail));
        match same_node.map(|kept| kept.tail.len()).max() {
            Some(near) => tokens -= near,
            None => {
                tokens += BLOCK;
                let mut parent = self.node(node).parent;
                while let Parent::Block(block) = parent
                    && self.node(block).cached_states.iter().all(|kept| !kept.tail.is_empty())
                {
                    (tokens, parent) = (tokens + BLOCK, self.node(block).parent);
                }
            }
        }
        let age = self.clock - cached.last_used + 1;
        ((tokens as u64) << 24) / age
    }

    fn drop_cached(&mut self, node: u32, index: usize) -> u32 {
        let owner = self.blocks[node as usize].node.as_mut().expect("nodes with cached states are in the tree");
        let slot = owner.cached_states.swap_remove(index).slot;
        if owner.cached_states.is_empty()
            && let Some(states) = &mut self.states
        {
            states.nodes.retain(|&other| other != node);
        }
        slot
    }
}

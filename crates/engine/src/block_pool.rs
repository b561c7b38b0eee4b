//! Which KV block belongs to whom, and what is worth keeping: the global, content-addressed prefix cache.
//!
//! A pure data structure: it moves block ids and never touches KV bytes. Cached blocks form a tree whose edges are runs
//! of tokens. Among many siblings a full block is found by a chain hash over its parent's hash and its own tokens;
//! because the tokens and the parent are compared as well, a collision can cost a miss but never give one sequence the
//! KV of another.
//!
//! Invariants, asserted here and in the property test:
//! - every block is in exactly one state: free, private to one table, or in the tree (shared by any number of tables);
//! - a table that references a block of the tree references all its ancestors, so references never grow downwards;
//! - tables are released tail first, so in order of last use a child always stands before its parent, and plain LRU
//!   evicts leaves before parents;
//! - only full blocks are shared. A half-full one is a leaf nobody references: it is copied, never written again.

use std::collections::{BTreeMap, HashMap, VecDeque};

use model::BLOCK;

use crate::hash::Key;

mod answers;
mod states;
mod unsaved;

pub use answers::{BlockCopy, BlockCounts, Miss, Prefix};
pub use states::StateCounts;
use states::{CachedState, States};
pub(crate) use unsaved::FullBlock;

/// The blocks one sequence holds, in position order. Only a [`BlockPool`] changes it.
#[derive(Debug, Default)]
pub struct BlockTable {
    blocks: Vec<u32>,
    /// How many leading blocks are in the tree (and so may be shared); the rest are private.
    committed: usize,
    /// Set when a chain hash collided: the rest of this sequence is computed but not cached.
    uncachable: bool,
    /// Whose it is: the tree it grows in.
    owner: u64,
    /// Whether what it adds to the tree stays in memory.
    private: bool,
}

impl BlockTable {
    /// Block ids in position order, as a step wants them.
    pub fn blocks(&self) -> &[u32] {
        &self.blocks
    }

    /// What the block at `index` continues.
    fn parent(&self, index: usize) -> Parent {
        index.checked_sub(1).map_or(Parent::Root(self.owner), |before| Parent::Block(self.blocks[before]))
    }

    /// Tokens whose KV is in shared, immutable blocks.
    pub fn committed_tokens(&self) -> usize {
        self.committed * BLOCK
    }
}

#[derive(Debug, Default)]
struct Block {
    references: u32,
    /// `Some` while the block is in the tree.
    node: Option<Node>,
    /// When it was last let go.
    last_used: u64,
}

#[derive(Debug)]
struct Node {
    parent: Parent,
    /// How many ancestors it has.
    depth: u32,
    chain: Key,
    tokens: Vec<u32>,
    children: Vec<u32>,
    /// Key in the pool's map of unsaved blocks while it is in there.
    unsaved: Option<u64>,
    /// Computed for sequences only whose KV stays in memory.
    private: bool,
    /// Recurrent states kept after its last token, or after a few tokens that follow it.
    cached_states: Vec<CachedState>,
}

/// What a block of the tree continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parent {
    /// The empty prefix of an owner: trees of different owners share nothing, so nobody finds what another computed.
    Root(u64),
    Block(u32),
}

/// All KV blocks of a backend.
#[derive(Debug)]
pub struct BlockPool {
    blocks: Vec<Block>,
    free: Vec<u32>,
    /// Children of the empty prefix, by owner; an owner without any has no entry.
    roots: HashMap<u64, Vec<u32>>,
    by_chain: HashMap<Key, u32>,
    /// Blocks of the tree in the order they were last let go, with when. An entry counts only while its block is
    /// unreferenced and was not used again since: so letting go and taking up again cost no search.
    idle: VecDeque<(u64, u32)>,
    /// How many entries of `idle` count.
    idle_count: usize,
    clock: u64,
    /// Whether unsaved blocks are of interest to anyone; see the module `unsaved`.
    tracking: bool,
    /// Full blocks of the tree that were not handed out to be saved, in the order they entered.
    unsaved: BTreeMap<u64, u32>,
    evicted: Vec<FullBlock>,
    /// Where the model has recurrent state; see the module `states`.
    states: Option<States>,
}

/// Up to this many children of a block are compared with a run of tokens one by one; more are found by hash.
const CHILDREN_COMPARED: usize = 8;

/// Blocks needed to hold `tokens` positions.
pub fn blocks_for(tokens: usize) -> usize {
    tokens.div_ceil(BLOCK)
}

impl BlockPool {
    /// A pool of `count` empty blocks with ids `0..count`.
    pub fn new(count: usize) -> Self {
        Self {
            blocks: (0..count).map(|_| Block::default()).collect(),
            free: (0..count as u32).rev().collect(),
            roots: HashMap::new(),
            by_chain: HashMap::new(),
            idle: VecDeque::new(),
            idle_count: 0,
            clock: 0,
            tracking: false,
            unsaved: BTreeMap::new(),
            evicted: Vec::new(),
            states: None,
        }
    }

    /// Blocks that could be handed out now, evicting what nobody references.
    pub fn available(&self) -> usize {
        self.free.len() + self.idle_count
    }

    /// Where the blocks are.
    pub fn counts(&self) -> BlockCounts {
        let (cached, free) = (self.idle_count, self.free.len());
        BlockCounts { used: self.blocks.len() - cached - free, cached, free }
    }

    /// What is cached of `tokens` for whoever has no owner.
    pub fn lookup(&self, tokens: &[u32]) -> Prefix {
        self.lookup_of(0, tokens)
    }

    /// What is cached of an owner's `tokens`, leaving at least one token to compute. Changes nothing.
    pub fn lookup_of(&self, owner: u64, tokens: &[u32]) -> Prefix {
        let usable = &tokens[..tokens.len().saturating_sub(1)];
        let mut prefix = Prefix { owner, ..Prefix::default() };
        let mut parent = Parent::Root(owner);
        for run in usable.chunks_exact(BLOCK) {
            let Some(block) = self.find(parent, run) else {
                break;
            };
            prefix.blocks += 1;
            prefix.path.push(block);
            prefix.idle_blocks += usize::from(self.block(block).references == 0);
            parent = Parent::Block(block);
        }
        let rest = &usable[prefix.blocks * BLOCK..];
        let closest = self
            .children(parent)
            .iter()
            .map(|&child| (child, common_prefix(&self.node(child).tokens, rest)))
            .max_by_key(|&(child, common)| (common, std::cmp::Reverse(child)));
        prefix.partial = closest.filter(|&(_, common)| common > 0);
        prefix.miss = self.explain(closest, rest, prefix.blocks * BLOCK);
        prefix.parted = prefix.tokens();
        if self.states.is_some() {
            self.shorten_to_state(&mut prefix, usable);
        }
        prefix
    }

    /// Why `tokens` is not cached whole; `None` when it is (all but its last token, which is always computed).
    pub fn explain_miss(&self, tokens: &[u32]) -> Option<Miss> {
        self.lookup(tokens).miss
    }

    /// References what is cached of `tokens`. The copy, if any, must be made before the pool is used again.
    pub fn acquire(&mut self, tokens: &[u32]) -> (BlockTable, Prefix, Option<BlockCopy>) {
        self.acquire_prefix(self.lookup(tokens), false)
    }

    /// References what a lookup found; nothing else may have used the pool in between. What a `private` table adds is
    /// never handed out to be saved, unless one that is not private comes to need it.
    pub(crate) fn acquire_prefix(
        &mut self,
        mut prefix: Prefix,
        private: bool,
    ) -> (BlockTable, Prefix, Option<BlockCopy>) {
        let mut table = self.acquire_full(&prefix, private);
        let copy = prefix.partial.and_then(|(from, _)| {
            // Referenced while the copy's target is found, so that the search cannot evict its own source.
            self.reference(from);
            let to = self.take_block();
            self.unreference(from);
            to.map(|to| BlockCopy { from, to })
        });
        match copy {
            Some(copy) => table.blocks.push(copy.to),
            None => prefix.partial = None,
        }
        (table, prefix, copy)
    }

    /// References the whole blocks that a lookup just found.
    pub(crate) fn acquire_full(&mut self, prefix: &Prefix, private: bool) -> BlockTable {
        for &block in &prefix.path {
            self.reference(block);
            if !private {
                self.publish(block);
            }
        }
        let (blocks, committed) = (prefix.path.clone(), prefix.path.len());
        BlockTable { blocks, committed, uncachable: false, owner: prefix.owner, private }
    }

    /// Makes the table cover `tokens` positions. False when no block is left; what was added stays.
    pub fn reserve(&mut self, table: &mut BlockTable, tokens: usize) -> bool {
        while table.blocks.len() < blocks_for(tokens) {
            match self.take_block() {
                Some(block) => table.blocks.push(block),
                None => return false,
            }
        }
        true
    }

    /// Publishes every newly full block of a sequence whose KV holds exactly `tokens`.
    ///
    /// Where another sequence published the same tokens first, the table moves to that block and its own is freed:
    /// the backend promises that both hold the same bytes.
    pub fn commit(&mut self, table: &mut BlockTable, tokens: &[u32]) {
        for (index, run) in tokens.chunks_exact(BLOCK).enumerate().skip(table.committed) {
            if table.uncachable {
                return;
            }
            let parent = table.parent(index);
            let own = table.blocks[index];
            match self.find(parent, run) {
                Some(shared) => {
                    self.reference(shared);
                    if !table.private {
                        self.publish(shared);
                    }
                    table.blocks[index] = shared;
                    self.unreference(own);
                }
                None if self.by_chain.contains_key(&self.chain(parent, run)) => {
                    table.uncachable = true;
                    return;
                }
                None => self.insert(own, parent, run, table.private),
            }
            table.committed += 1;
        }
    }

    /// Ends a sequence whose KV holds exactly `tokens`: the content stays cached, even a half-full last block.
    pub fn release(&mut self, table: &mut BlockTable, tokens: &[u32]) {
        self.release_with_state(table, tokens, None);
    }

    /// The same, with the slot that holds the state after those tokens.
    pub(crate) fn release_with_state(&mut self, table: &mut BlockTable, tokens: &[u32], state: Option<u32>) {
        self.commit(table, tokens);
        if let Some(slot) = state {
            self.keep_state(table, tokens, slot);
        }
        let (full, tail) = tokens.split_at(tokens.len() / BLOCK * BLOCK);
        if !tail.is_empty() && table.committed_tokens() == full.len() {
            self.keep_tail(table, tail);
        }
        while let Some(block) = table.blocks.pop() {
            self.unreference(block);
        }
        *table = BlockTable::default();
    }

    /// Puts a half-full last block in the tree unless the tree already holds its tokens.
    fn keep_tail(&mut self, table: &BlockTable, tail: &[u32]) {
        let parent = table.parent(table.committed);
        if self.children(parent).iter().any(|&child| self.node(child).tokens.starts_with(tail)) {
            return;
        }
        self.insert(table.blocks[table.committed], parent, tail, table.private);
    }

    fn insert(&mut self, block: u32, parent: Parent, tokens: &[u32], private: bool) {
        let chain = self.chain(parent, tokens);
        // A half-full sibling that the new block continues holds nothing more: drop it.
        let covered = self.children(parent).iter().copied().find(|&child| {
            let node = self.node(child);
            node.tokens.len() < BLOCK && tokens.starts_with(&node.tokens)
        });
        if let Some(covered) = covered {
            self.evict(covered);
        }
        self.children_mut(parent).push(block);
        if tokens.len() == BLOCK {
            self.by_chain.insert(chain, block);
        }
        let depth = match parent {
            Parent::Root(_) => 0,
            Parent::Block(parent) => self.node(parent).depth + 1,
        };
        let unsaved = if private { None } else { self.note_entry(block, tokens) };
        let tokens = tokens.to_vec();
        let (children, cached_states) = (Vec::new(), Vec::new());
        let node = Node { parent, depth, chain, tokens, children, unsaved, private, cached_states };
        let slot = &mut self.blocks[block as usize];
        assert!(slot.node.is_none() && slot.references == 1, "only a private block enters the tree");
        slot.node = Some(node);
    }

    /// An empty block, evicting the least recently used idle one when none is free.
    fn take_block(&mut self) -> Option<u32> {
        if self.free.is_empty() {
            let oldest = self.oldest_idle()?;
            self.evict(oldest);
        }
        let block = self.free.pop()?;
        self.blocks[block as usize].references = 1;
        Some(block)
    }

    fn oldest_idle(&mut self) -> Option<u32> {
        loop {
            let (used, block) = self.idle.pop_front()?;
            if is_idle(self.block(block), used) {
                return Some(block);
            }
        }
    }

    fn evict(&mut self, block: u32) {
        let slot = &mut self.blocks[block as usize];
        let node = slot.node.take().expect("only blocks of the tree are evicted");
        assert!(slot.references == 0 && node.children.is_empty(), "leaves go before parents");
        self.idle_count -= 1;
        if node.tokens.len() == BLOCK {
            self.by_chain.remove(&node.chain);
        }
        self.children_mut(node.parent).retain(|&child| child != block);
        if let Parent::Root(owner) = node.parent
            && self.children(node.parent).is_empty()
        {
            self.roots.remove(&owner);
        }
        self.note_eviction(block, &node);
        self.free.push(block);
        node.cached_states.iter().for_each(|cached| self.free_state(cached.slot));
    }

    fn reference(&mut self, block: u32) {
        let slot = &mut self.blocks[block as usize];
        if slot.references == 0 {
            assert!(slot.node.is_some(), "block {block} is free");
            self.idle_count -= 1;
        }
        slot.references += 1;
    }

    fn unreference(&mut self, block: u32) {
        self.clock += 1;
        let slot = &mut self.blocks[block as usize];
        assert!(slot.references > 0, "block {block} released twice");
        slot.references -= 1;
        if slot.references > 0 {
            return;
        }
        if slot.node.is_some() {
            slot.last_used = self.clock;
            self.idle.push_back((self.clock, block));
            self.idle_count += 1;
            if self.idle.len() > 2 * self.blocks.len() {
                let blocks = &self.blocks;
                self.idle.retain(|&(used, block)| is_idle(&blocks[block as usize], used));
            }
        } else {
            self.free.push(block);
        }
    }

    /// The full block that continues `parent` with exactly `run`. Comparing a few children costs less than hashing.
    fn find(&self, parent: Parent, run: &[u32]) -> Option<u32> {
        let children = self.children(parent);
        if children.len() <= CHILDREN_COMPARED {
            return children.iter().copied().find(|&child| self.node(child).tokens == run);
        }
        let block = *self.by_chain.get(&self.chain(parent, run))?;
        let node = self.node(block);
        (node.parent == parent && node.tokens == run).then_some(block)
    }

    fn chain(&self, parent: Parent, run: &[u32]) -> Key {
        self.key(parent).child(run)
    }

    fn key(&self, parent: Parent) -> Key {
        match parent {
            Parent::Root(owner) => Key::root(owner),
            Parent::Block(block) => self.node(block).chain,
        }
    }

    /// The key of the last whole block that a lookup found, or of its owner's empty prefix.
    pub(crate) fn last_key(&self, prefix: &Prefix) -> Key {
        self.key(prefix.path.last().map_or(Parent::Root(prefix.owner), |&block| Parent::Block(block)))
    }

    fn explain(&self, closest: Option<(u32, usize)>, rest: &[u32], start: usize) -> Option<Miss> {
        let common = closest.map_or(0, |(_, common)| common);
        let position = start + common;
        let &wanted = rest.get(common)?;
        let cached = closest.and_then(|(block, _)| self.node(block).tokens.get(common));
        Some(match cached {
            Some(&cached) => Miss::Different { position, cached, wanted },
            None => Miss::Uncached { position },
        })
    }

    fn block(&self, block: u32) -> &Block {
        &self.blocks[block as usize]
    }

    fn node(&self, block: u32) -> &Node {
        self.block(block).node.as_ref().expect("block is in the tree")
    }

    fn children(&self, parent: Parent) -> &[u32] {
        match parent {
            Parent::Root(owner) => self.roots.get(&owner).map_or(&[], Vec::as_slice),
            Parent::Block(parent) => &self.node(parent).children,
        }
    }

    fn children_mut(&mut self, parent: Parent) -> &mut Vec<u32> {
        match parent {
            Parent::Root(owner) => self.roots.entry(owner).or_default(),
            Parent::Block(parent) => {
                let node = self.blocks[parent as usize].node.as_mut();
                &mut node.expect("block is in the tree").children
            }
        }
    }
}

/// Whether a block was let go at `used` and not touched since.
fn is_idle(block: &Block, used: u64) -> bool {
    block.references == 0 && block.node.is_some() && block.last_used == used
}

fn common_prefix(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests;

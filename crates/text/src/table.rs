//! Two hash tables for the inner loops of the tokeniser: token bytes to id, and pair of ids to merge.
//!
//! Open addressing with linear probing at a load of at most one half, filled once and then only read. `HashMap` would
//! do the same work at about a third of the speed, because it stores keys apart or hashes them more carefully. The
//! hash is seeded, so that a file cannot be made whose tokens all collide.

use std::hash::{BuildHasher, RandomState};

/// Marks a free slot.
const FREE: u32 = u32::MAX;

/// Mixes 64 bits well enough for a power-of-two table: each half of the product lacks what the other has.
#[inline]
fn mix(value: u64, seed: u64) -> u64 {
    let product = u128::from(value ^ seed) * u128::from(0x9e37_79b9_7f4a_7c15_u64);
    (product >> 64) as u64 ^ product as u64
}

fn seed() -> u64 {
    RandomState::new().hash_one(0)
}

fn slot_count(entries: usize) -> usize {
    (entries * 2).next_power_of_two().max(2)
}

/// Which token, if any, has exactly these bytes. The bytes themselves stay with the caller.
#[derive(Debug)]
pub(crate) struct WordTable {
    slots: Box<[u32]>,
    seed: u64,
}

impl WordTable {
    /// Room for `entries` words.
    pub fn new(entries: usize) -> Self {
        WordTable { slots: vec![FREE; slot_count(entries)].into(), seed: seed() }
    }

    /// Adds a word, or replaces the id of an equal one. At most as many words as announced.
    pub fn insert<'a>(&mut self, word: &'a [u8], id: u32, bytes_of: impl Fn(u32) -> &'a [u8]) {
        let slot = self.find(word, bytes_of);
        self.slots[slot] = id;
    }

    /// The id of a word.
    #[inline]
    pub fn get<'a>(&self, word: &[u8], bytes_of: impl Fn(u32) -> &'a [u8]) -> Option<u32> {
        let id = self.slots[self.find(word, bytes_of)];
        (id != FREE).then_some(id)
    }

    /// The slot of a word, or the free one where it would go. Ends because half of the slots are free.
    #[inline]
    fn find<'a>(&self, word: &[u8], bytes_of: impl Fn(u32) -> &'a [u8]) -> usize {
        let mask = self.slots.len() - 1;
        let mut slot = self.hash(word) as usize & mask;
        while self.slots[slot] != FREE && bytes_of(self.slots[slot]) != word {
            slot = (slot + 1) & mask;
        }
        slot
    }

    #[inline]
    fn hash(&self, word: &[u8]) -> u64 {
        let (chunks, rest) = word.as_chunks::<8>();
        let mut hash = self.seed ^ word.len() as u64;
        for &chunk in chunks {
            hash = mix(u64::from_le_bytes(chunk), hash);
        }
        let last = rest.iter().fold(0, |value, &byte| value << 8 | u64::from(byte));
        mix(last, hash)
    }
}

/// What two neighbours become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Merge {
    /// Its place in the list of merges: lower goes first. No two pairs share a rank.
    pub rank: u32,
    /// The id of the result.
    pub id: u32,
}

/// All merges of a vocabulary.
#[derive(Debug)]
pub(crate) struct MergeTable {
    /// Pair and merge; a free slot has the id [`FREE`].
    slots: Box<[(u64, Merge)]>,
    seed: u64,
}

impl MergeTable {
    /// Room for `entries` merges.
    pub fn new(entries: usize) -> Self {
        let free = (0, Merge { rank: FREE, id: FREE });
        MergeTable { slots: vec![free; slot_count(entries)].into(), seed: seed() }
    }

    /// Adds a merge unless the pair has one already. At most as many merges as announced.
    pub fn insert(&mut self, left: u32, right: u32, merge: Merge) {
        let slot = self.find(left, right);
        if self.slots[slot].1.id == FREE {
            self.slots[slot] = (pair(left, right), merge);
        }
    }

    /// What the two become, if anything.
    #[inline]
    pub fn get(&self, left: u32, right: u32) -> Option<Merge> {
        let merge = self.slots[self.find(left, right)].1;
        (merge.id != FREE).then_some(merge)
    }

    #[inline]
    fn find(&self, left: u32, right: u32) -> usize {
        let key = pair(left, right);
        let mask = self.slots.len() - 1;
        let mut slot = mix(key, self.seed) as usize & mask;
        while self.slots[slot].1.id != FREE && self.slots[slot].0 != key {
            slot = (slot + 1) & mask;
        }
        slot
    }
}

fn pair(left: u32, right: u32) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}

//! What is on disk and what goes first when room is needed: a pure data structure, no file is touched here.
//!
//! Order of eviction: least recently used first, the deepest first among those used alike. Using a block uses all its
//! ancestors, so a parent is never evicted before a child that still needs it. Times are coarse (see [`Stamp`]), which
//! makes that cheap: the walk up ends at the first ancestor that was already used in the same period.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use super::file::{Kind, Name};
use crate::hash::Key;

/// When a block was last used, in minutes since 1970: exact enough to choose what to forget.
pub(super) type Stamp = u64;

/// Saved blocks of every model that shares the folder; their sizes count together.
#[derive(Debug, Default)]
pub(super) struct Index {
    bytes_max: u64,
    bytes: u64,
    entries: HashMap<Name, Entry>,
    order: BTreeSet<(Stamp, Reverse<u32>, Name)>,
}

#[derive(Debug)]
struct Entry {
    bytes: u64,
    used: Stamp,
    /// Known once the block was written or read here; a listing does not tell.
    parent: Option<Key>,
}

impl Index {
    pub fn new(bytes_max: u64) -> Self {
        Self { bytes_max, ..Self::default() }
    }

    pub fn contains(&self, name: &Name) -> bool {
        self.entries.contains_key(name)
    }

    pub fn blocks(&self) -> usize {
        self.entries.len()
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds a block that is on disk. Room for it is made apart from this.
    pub fn insert(&mut self, name: Name, bytes: u64, used: Stamp) {
        self.remove(&name);
        self.bytes += bytes;
        self.order.insert((used, Reverse(name.depth), name));
        self.entries.insert(name, Entry { bytes, used, parent: None });
    }

    pub fn remove(&mut self, name: &Name) {
        if let Some(entry) = self.entries.remove(name) {
            self.bytes -= entry.bytes;
            self.order.remove(&(entry.used, Reverse(name.depth), *name));
        }
    }

    /// Notes whose child a block is.
    pub fn learn_parent(&mut self, name: &Name, parent: Key) {
        if let Some(entry) = self.entries.get_mut(name) {
            entry.parent = Some(parent);
        }
    }

    /// Uses a block and all its known ancestors; returns those whose time of use changed.
    pub fn touch(&mut self, name: Name, now: Stamp) -> Vec<Name> {
        let mut touched = Vec::new();
        let mut next = Some(name);
        while let Some(name) = next
            && let Some(entry) = self.entries.get_mut(&name)
            && entry.used < now
        {
            self.order.remove(&(entry.used, Reverse(name.depth), name));
            entry.used = now;
            self.order.insert((now, Reverse(name.depth), name));
            touched.push(name);
            next = match name.kind {
                Kind::State => Some(Name { kind: Kind::Block, ..name }),
                Kind::Block => {
                    entry.parent.zip(name.depth.checked_sub(1)).map(|(key, depth)| Name { depth, key, ..name })
                }
            };
        }
        touched
    }

    /// Takes out what must be deleted before `bytes` more fit for a block at `depth` used `now`. `None` when only
    /// blocks worth more than that one could make room: then nothing is taken out.
    pub fn make_room(&mut self, bytes: u64, depth: u32, now: Stamp) -> Option<Vec<Name>> {
        let mut left = self.bytes;
        let mut victims = Vec::new();
        for &(used, Reverse(victim_depth), name) in &self.order {
            if left + bytes <= self.bytes_max {
                break;
            }
            if (used, Reverse(victim_depth)) >= (now, Reverse(depth)) {
                return None;
            }
            left -= self.entries[&name].bytes;
            victims.push(name);
        }
        if left + bytes > self.bytes_max {
            return None;
        }
        victims.iter().for_each(|name| self.remove(name));
        Some(victims)
    }

    /// Takes out what must be deleted to give back `bytes`, all there is if that is less.
    pub fn give_way(&mut self, bytes: u64) -> Vec<Name> {
        let mut victims = Vec::new();
        let mut given = 0;
        while given < bytes
            && let Some(&(_, _, name)) = self.order.first()
        {
            given += self.entries[&name].bytes;
            self.remove(&name);
            victims.push(name);
        }
        victims
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(key: u64, depth: u32) -> Name {
        Name { model: 1, depth, key: Key(key, depth.into()), kind: Kind::Block }
    }

    /// A chain of `count` blocks of 10 bytes each.
    fn chain(index: &mut Index, key: u64, count: u32, used: Stamp) {
        for depth in 0..count {
            index.insert(name(key, depth), 10, used);
            index.learn_parent(&name(key, depth), Key(key, u64::from(depth).wrapping_sub(1)));
        }
    }

    #[test]
    fn the_oldest_go_first_and_children_before_parents() {
        let mut index = Index::new(100);
        chain(&mut index, 1, 3, 5);
        chain(&mut index, 2, 3, 4);
        assert_eq!(index.make_room(40, 0, 9), Some(vec![]));
        assert_eq!(index.make_room(60, 0, 9), Some(vec![name(2, 2), name(2, 1)]));
        assert_eq!((index.bytes(), index.blocks()), (40, 4));
        // Use of a leaf keeps its ancestors, and stops where nothing changes.
        assert_eq!(index.touch(name(2, 0), 6), [name(2, 0)]);
        assert_eq!(index.touch(name(1, 1), 7), [name(1, 1), name(1, 0)]);
        assert_eq!(index.touch(name(1, 2), 7), [name(1, 2)]);
        assert_eq!(index.make_room(80, 0, 9), Some(vec![name(2, 0), name(1, 2)]));
    }

    #[test]
    fn what_is_worth_less_than_everything_else_finds_no_room() {
        let mut index = Index::new(30);
        chain(&mut index, 1, 3, 5);
        assert_eq!(index.make_room(10, 3, 5), None);
        assert_eq!(index.make_room(10, 2, 5), None);
        assert_eq!(index.make_room(31, 0, 9), None);
        assert_eq!(index.blocks(), 3);
        assert_eq!(index.make_room(10, 1, 5), Some(vec![name(1, 2)]));
    }

    #[test]
    fn giving_way_takes_the_oldest_and_no_more_than_needed() {
        let mut index = Index::new(100);
        chain(&mut index, 1, 3, 5);
        chain(&mut index, 2, 2, 4);
        assert_eq!(index.give_way(0), []);
        assert_eq!(index.give_way(11), [name(2, 1), name(2, 0)]);
        assert_eq!(index.bytes(), 30);
        assert_eq!(index.give_way(1000).len(), 3);
        assert_eq!((index.bytes(), index.blocks()), (0, 0));
    }

    proptest! {
        #[test]
        fn parents_outlive_their_children(
            moves in prop::collection::vec((0u64..4, 0u32..8, 0u64..3, any::<bool>()), 1..200),
            limit in 1u64..25,
        ) {
            let mut index = Index::new(limit * 10);
            let mut now = 0;
            for (key, depth, wait, touch) in moves {
                now += wait;
                let whole = (0..depth).all(|depth| index.contains(&name(key, depth)));
                if touch {
                    index.touch(name(key, depth), now);
                } else if whole && !index.contains(&name(key, depth)) {
                    // As the writer does it: the ancestors are used before room is made, so that they stay.
                    if depth > 0 {
                        index.touch(name(key, depth - 1), now);
                    }
                    if index.make_room(10, depth, now).is_some() {
                        index.insert(name(key, depth), 10, now);
                        index.learn_parent(&name(key, depth), Key(key, u64::from(depth).wrapping_sub(1)));
                    }
                }
                prop_assert!(index.bytes() <= limit * 10);
                prop_assert_eq!(index.bytes(), index.blocks() as u64 * 10);
                prop_assert_eq!(index.order.len(), index.blocks());
                for present in index.entries.keys().filter(|name| name.depth > 0) {
                    prop_assert!(index.contains(&name(present.key.0, present.depth - 1)));
                }
            }
        }
    }
}

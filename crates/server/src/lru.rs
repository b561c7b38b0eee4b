//! A map whose least recently used entry can be taken out: the memory behind everything that is only kept to save time.
//! How much is kept is for the owner to say.

use std::borrow::Borrow;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// Values by key, in the order of their use.
#[derive(Debug)]
pub struct Lru<K, V> {
    entries: HashMap<K, Entry<V>>,
    /// Keys in the order of their uses. Only the last use of a key counts, so that using a value costs no search.
    uses: VecDeque<(K, u64)>,
    clock: u64,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    used: u64,
}

impl<K, V> Default for Lru<K, V> {
    fn default() -> Self {
        Self { entries: HashMap::new(), uses: VecDeque::new(), clock: 0 }
    }
}

impl<K: Clone + Eq + Hash, V> Lru<K, V> {
    /// Keeps a value; gives back what the key had before.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let used = self.note_use(key.clone());
        self.entries.insert(key, Entry { value, used }).map(|before| before.value)
    }

    /// The value of a key, which is in use now.
    pub fn get<Q: Eq + Hash + ToOwned<Owned = K> + ?Sized>(&mut self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        if !self.entries.contains_key(key) {
            return None;
        }
        let used = self.note_use(key.to_owned());
        let entry = self.entries.get_mut(key)?;
        entry.used = used;
        Some(&entry.value)
    }

    /// Takes out the value of a key.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        self.entries.remove(key).map(|entry| entry.value)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Takes out the value that was used longest ago.
    pub fn pop(&mut self) -> Option<V> {
        loop {
            let (key, used) = self.uses.pop_front()?;
            if self.entries.get(&key).is_some_and(|entry| entry.used == used) {
                return self.entries.remove(&key).map(|entry| entry.value);
            }
        }
    }

    fn note_use(&mut self, key: K) -> u64 {
        if self.uses.len() > 2 * self.entries.len() + 16 {
            let entries = &self.entries;
            self.uses.retain(|(key, used)| entries.get(key).is_some_and(|entry| entry.used == *used));
        }
        self.clock += 1;
        self.uses.push_back((key, self.clock));
        self.clock
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_longest_ago_goes_first() {
        let mut lru = Lru::default();
        for (key, value) in [("a", 1), ("b", 2), ("c", 3)] {
            assert_eq!(lru.insert(key, value), None);
        }
        assert_eq!(lru.get(&"a"), Some(&1));
        assert_eq!(lru.insert("b", 4), Some(2));
        assert_eq!(lru.get(&"d"), None);
        lru.insert("e", 5);
        assert_eq!((lru.len(), lru.remove(&"e"), lru.remove(&"e"), lru.len()), (4, Some(5), None, 3));
        let order: Vec<i32> = std::iter::from_fn(|| lru.pop()).collect();
        assert_eq!(order, [3, 1, 4]);
    }

    #[test]
    fn uses_leave_nothing_behind() {
        let mut lru = Lru::default();
        for key in 0..10_000 {
            lru.insert(key, ());
            assert!(lru.get(&(key / 2 * 2)).is_some() && lru.get(&key).is_some());
            if lru.entries.len() > 100 {
                lru.pop();
            }
        }
        assert_eq!(lru.entries.len(), 100);
        assert!(lru.uses.len() <= 300, "{}", lru.uses.len());
    }
}

//! The grammars used last. Clients send the same tools and schemas with every request, and compiling takes a while.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Values by key, newest first; the oldest go when there are too many or they weigh too much together.
#[derive(Debug)]
pub(super) struct Cache<V> {
    entries: Mutex<VecDeque<Entry<V>>>,
    limits: Limits,
}

/// What a cache may hold.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub entries: usize,
    pub weight: usize,
}

#[derive(Debug)]
struct Entry<V> {
    key: String,
    weight: usize,
    value: V,
}

impl<V: Clone> Cache<V> {
    pub fn new(limits: Limits) -> Cache<V> {
        Cache { entries: Mutex::default(), limits }
    }

    /// The value of a key, which is then the newest.
    pub fn get(&self, key: &str) -> Option<V> {
        let mut entries = self.lock();
        let index = entries.iter().position(|entry| entry.key == key)?;
        let entry = entries.remove(index)?;
        let value = entry.value.clone();
        entries.push_front(entry);
        Some(value)
    }

    /// Adds a value. One that is too heavy by itself is not kept. Two threads may add the same key; the older one goes.
    pub fn insert(&self, key: String, weight: usize, value: V) {
        if weight > self.limits.weight {
            return;
        }
        let mut entries = self.lock();
        entries.retain(|entry| entry.key != key);
        entries.push_front(Entry { key, weight, value });
        let mut left = self.limits.weight;
        let kept = entries.iter().take(self.limits.entries).take_while(|entry| {
            let fits = entry.weight <= left;
            left = left.saturating_sub(entry.weight);
            fits
        });
        let kept = kept.count();
        entries.truncate(kept);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Entry<V>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(cache: &Cache<u32>) -> Vec<u32> {
        cache.lock().iter().map(|entry| entry.value).collect()
    }

    #[test]
    fn the_oldest_go_first() {
        let cache = Cache::new(Limits { entries: 3, weight: 10 });
        for value in 0..4 {
            cache.insert(value.to_string(), 1, value);
        }
        assert_eq!(kept(&cache), [3, 2, 1]);
        assert_eq!(cache.get("1"), Some(1));
        assert_eq!(cache.get("0"), None);
        assert_eq!(kept(&cache), [1, 3, 2]);
        cache.insert("8".into(), 8, 8);
        assert_eq!(kept(&cache), [8, 1, 3], "10 in all fit");
        cache.insert("9".into(), 9, 9);
        assert_eq!(kept(&cache), [9]);
        cache.insert("9".into(), 2, 7);
        assert_eq!(kept(&cache), [7], "one value for a key");
        cache.insert("11".into(), 11, 11);
        assert_eq!(kept(&cache), [7]);
    }
}

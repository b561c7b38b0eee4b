//! Token lists by key, as many as fit: what is forgotten is made again, which costs only time.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::Arc;

/// A map that holds a stated number of tokens; beyond it the oldest list goes.
#[derive(Debug)]
pub struct TokenMap<K> {
    lists: HashMap<K, Arc<[u32]>>,
    order: VecDeque<K>,
    tokens: usize,
    tokens_max: usize,
}

impl<K: Clone + Eq + Hash> TokenMap<K> {
    /// Room for this many tokens.
    pub fn new(tokens_max: usize) -> Self {
        Self { lists: HashMap::new(), order: VecDeque::new(), tokens: 0, tokens_max }
    }

    /// Keeps a list, in place of what the key had before. One that would never fit is not kept.
    pub fn insert(&mut self, key: K, list: Arc<[u32]>) {
        if list.len() > self.tokens_max {
            return;
        }
        self.tokens += list.len();
        if let Some(before) = self.lists.insert(key.clone(), list) {
            self.tokens -= before.len();
            self.order.retain(|other| *other != key);
        }
        self.order.push_back(key);
        while self.tokens > self.tokens_max
            && let Some(oldest) = self.order.pop_front()
        {
            self.tokens -= self.lists.remove(&oldest).map_or(0, |list| list.len());
        }
    }

    /// The list of a key.
    pub fn get(&self, key: &K) -> Option<Arc<[u32]>> {
        self.lists.get(key).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_and_what_comes_again_is_new() {
        let mut map = TokenMap::new(8);
        for key in ["a", "b", "a", "c"] {
            map.insert(key, vec![7; 4].into());
        }
        assert!(map.get(&"b").is_none());
        assert!(map.get(&"a").is_some() && map.get(&"c").is_some());
        assert_eq!(map.tokens, 8);
        map.insert("d", vec![7; 9].into());
        assert!(map.get(&"d").is_none() && map.get(&"c").is_some(), "what never fits costs nothing");
        assert_eq!((map.tokens, map.order.len()), (8, 2));
    }
}

//! The ids of texts that were encoded lately, within a limit on memory; the longest unused go first.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// What an entry costs beyond its text and ids, roughly.
const ENTRY_BYTES: usize = 128;

/// Remembered segments.
#[derive(Debug)]
pub(super) struct Segments {
    by_text: HashMap<Arc<[u8]>, Entry>,
    /// Texts by when they were last used, oldest first.
    by_use: BTreeMap<u64, Arc<[u8]>>,
    clock: u64,
    bytes: usize,
    bytes_max: usize,
}

#[derive(Debug)]
struct Entry {
    ids: Arc<[u32]>,
    used: u64,
}

impl Segments {
    /// Room for this many bytes.
    pub fn new(bytes_max: usize) -> Self {
        Segments { by_text: HashMap::new(), by_use: BTreeMap::new(), clock: 0, bytes: 0, bytes_max }
    }

    /// The ids of a text, where they are known.
    pub fn get(&mut self, text: &[u8]) -> Option<Arc<[u32]>> {
        let entry = self.by_text.get_mut(text)?;
        self.clock += 1;
        if let Some(text) = self.by_use.remove(&entry.used) {
            self.by_use.insert(self.clock, text);
        }
        entry.used = self.clock;
        Some(entry.ids.clone())
    }

    /// Remembers the ids of a text. One that would take more than half of the room is not worth what it displaces.
    pub fn put(&mut self, text: &[u8], ids: &[u32]) {
        let bytes = cost(text, ids);
        if bytes > self.bytes_max / 2 || self.by_text.contains_key(text) {
            return;
        }
        while self.bytes + bytes > self.bytes_max
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            if let Some(entry) = self.by_text.remove(&oldest) {
                self.bytes -= cost(&oldest, &entry.ids);
            }
        }
        self.clock += 1;
        self.bytes += bytes;
        let text: Arc<[u8]> = text.into();
        self.by_use.insert(self.clock, text.clone());
        self.by_text.insert(text, Entry { ids: ids.into(), used: self.clock });
    }
}

fn cost(text: &[u8], ids: &[u32]) -> usize {
    text.len() + size_of_val(ids) + ENTRY_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_unused_goes_first_and_the_limit_holds() {
        let mut segments = Segments::new(4 * (ENTRY_BYTES + 5));
        for text in [b"a", b"b", b"c", b"d"] {
            segments.put(text, &[u32::from(text[0])]);
        }
        assert_eq!(segments.bytes, segments.bytes_max);
        assert_eq!(segments.get(b"a").as_deref(), Some(&[97][..]));
        segments.put(b"e", &[101]);
        assert!(segments.get(b"b").is_none());
        for text in [b"a", b"c", b"d", b"e"] {
            assert!(segments.get(text).is_some());
        }
        // Twice the same is one entry, and what is too large is not taken.
        segments.put(b"e", &[101]);
        segments.put(&[0; 400], &[0; 4]);
        assert_eq!((segments.by_text.len(), segments.by_use.len()), (4, 4));
        assert_eq!(segments.bytes, segments.bytes_max);
    }
}

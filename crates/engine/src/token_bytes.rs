//! The bytes each token stands for: the little the engine must know of text, to match stop strings.

/// An arena of bytes with one span per token id. Shared, immutable, built once per model.
#[derive(Clone, Debug, Default)]
pub struct TokenBytes {
    arena: Vec<u8>,
    /// End of each token's span; it starts where the previous one ends.
    ends: Vec<u32>,
}

impl TokenBytes {
    /// Bytes of one token; empty for ids beyond the table and for tokens without text.
    pub fn get(&self, token: u32) -> &[u8] {
        let index = token as usize;
        let Some(&end) = self.ends.get(index) else {
            return &[];
        };
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.arena[start as usize..end as usize]
    }

    /// True when no token has bytes.
    pub fn is_empty(&self) -> bool {
        self.arena.is_empty()
    }
}

impl<B: AsRef<[u8]>> FromIterator<B> for TokenBytes {
    /// Collects the bytes of token 0, 1, 2 and so on.
    fn from_iter<I: IntoIterator<Item = B>>(tokens: I) -> Self {
        let mut table = Self::default();
        for bytes in tokens {
            table.arena.extend_from_slice(bytes.as_ref());
            table.ends.push(u32::try_from(table.arena.len()).expect("a vocabulary is under 4 GiB"));
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::TokenBytes;

    #[test]
    fn spans_are_found_by_id() {
        let table: TokenBytes = ["ab", "", "c"].into_iter().collect();
        assert_eq!([table.get(0), table.get(1), table.get(2), table.get(3)], [b"ab", &b""[..], b"c", b""]);
        assert!(TokenBytes::default().is_empty());
    }
}

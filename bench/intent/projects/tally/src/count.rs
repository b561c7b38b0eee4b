//! Counting.

use std::collections::HashMap;

/// What a text has.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Counts {
    pub lines: usize,
    pub words: usize,
    pub bytes: usize,
}

impl Counts {
    pub fn of(text: &str) -> Counts {
        Counts { lines: text.lines().count(), words: text.split(' ').count(), bytes: text.len() }
    }

    pub fn add(&mut self, other: &Counts) {
        self.lines += other.lines;
        self.words += other.words;
        self.bytes += other.bytes;
    }
}

/// How often each word occurs.
pub fn frequencies(text: &str) -> HashMap<String, usize> {
    let mut found = HashMap::new();
    for word in text.split_whitespace() {
        *found.entry(word.to_lowercase()).or_insert(0) += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_text_has_nothing() {
        assert_eq!(Counts::of(""), Counts::default());
    }

    #[test]
    fn words_are_counted_without_case() {
        assert_eq!(frequencies("a A b")["a"], 2);
    }
}

//! Finds special tokens inside text.
//!
//! The rule is llama.cpp's: longer tokens first, each from left to right, wherever the text is not yet taken. So a long
//! token wins over a shorter one that starts before it. All matches are collected in one pass and then settled in that
//! order, which gives the same result without searching the text once per token.

use std::collections::{BTreeMap, HashMap};

use crate::vocabulary::{TokenKind, Vocabulary};

/// A piece of text: a special token, or what lies between two.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    Text(&'a [u8]),
    Token(u32),
}

/// The special tokens of a vocabulary, ready to be searched.
#[derive(Debug)]
pub(crate) struct SpecialTokens {
    by_text: HashMap<Box<[u8]>, u32>,
    /// Lengths of the tokens that start with each byte, longest first: empty for nearly all bytes.
    lengths: Box<[Vec<usize>; 256]>,
}

/// Where a token occurs.
#[derive(Clone, Copy)]
struct Match {
    start: usize,
    length: usize,
    id: u32,
}

impl SpecialTokens {
    /// The tokens of these kinds. Of several with one text the last counts.
    pub fn new(vocabulary: &Vocabulary, kinds: &[TokenKind]) -> Self {
        let mut by_text = HashMap::new();
        let mut lengths: Box<[Vec<usize>; 256]> = Box::new(std::array::from_fn(|_| Vec::new()));
        for id in vocabulary.special_tokens().filter(|&id| kinds.contains(&vocabulary.kind(id))) {
            let text = vocabulary.token_bytes(id);
            if let Some(&first) = text.first() {
                lengths[first as usize].push(text.len());
                by_text.insert(text.into(), id);
            }
        }
        for list in lengths.iter_mut() {
            list.sort_unstable_by(|a, b| b.cmp(a));
            list.dedup();
        }
        SpecialTokens { by_text, lengths }
    }

    /// Cuts a text into special tokens and what lies between them. No piece of text is empty.
    pub fn split<'a>(&self, text: &'a [u8]) -> Vec<Piece<'a>> {
        let mut pieces = Vec::new();
        let mut at = 0;
        for (start, (end, id)) in self.settle(self.matches(text)) {
            if at < start {
                pieces.push(Piece::Text(&text[at..start]));
            }
            pieces.push(Piece::Token(id));
            at = end;
        }
        if at < text.len() {
            pieces.push(Piece::Text(&text[at..]));
        }
        pieces
    }

    /// Puts `marker` behind the first character of every token in `text`, so that none is found any more; `None` where
    /// there is nothing to break. The beginning of a token at the very end of the text counts too, since what is written
    /// behind it could complete it. A token of a single character cannot be broken; no known vocabulary has one.
    pub fn broken(&self, text: &str, marker: char) -> Option<String> {
        let mut broken = String::new();
        let mut copied = 0;
        for (start, c) in text.char_indices() {
            if self.starts_at(&text.as_bytes()[start..]) {
                let end = start + c.len_utf8();
                broken.push_str(&text[copied..end]);
                broken.push(marker);
                copied = end;
            }
        }
        (copied > 0).then(|| broken + &text[copied..])
    }

    /// Whether `rest` starts with a token, or is nothing but the beginning of one.
    fn starts_at(&self, rest: &[u8]) -> bool {
        let Some(&first) = rest.first() else {
            return false;
        };
        let lengths = &self.lengths[first as usize];
        lengths.iter().any(|&length| match rest.get(..length) {
            Some(part) => self.by_text.contains_key(part),
            None => self.by_text.keys().any(|token| token.starts_with(rest)),
        })
    }

    /// Every occurrence of every token, overlapping or not.
    fn matches(&self, text: &[u8]) -> Vec<Match> {
        let mut matches = Vec::new();
        for (start, &byte) in text.iter().enumerate() {
            for &length in &self.lengths[byte as usize] {
                if let Some(&id) = text.get(start..start + length).and_then(|part| self.by_text.get(part)) {
                    matches.push(Match { start, length, id });
                }
            }
        }
        matches
    }

    /// The occurrences that count: start to end and id.
    fn settle(&self, mut matches: Vec<Match>) -> BTreeMap<usize, (usize, u32)> {
        matches.sort_unstable_by_key(|found| (usize::MAX - found.length, found.id, found.start));
        let mut taken: BTreeMap<usize, (usize, u32)> = BTreeMap::new();
        for Match { start, length, id } in matches {
            let end = start + length;
            // Taken matches do not overlap, so only the last one before `end` can reach into this one.
            let free = taken.range(..end).next_back().is_none_or(|(_, &(other_end, _))| other_end <= start);
            if free {
                taken.insert(start, (end, id));
            }
        }
        taken
    }
}

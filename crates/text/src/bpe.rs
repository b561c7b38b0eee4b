//! Byte-pair encoding: a word of bytes becomes the tokens a model knows.
//!
//! Two things keep ordinary text fast: a word that is a token is looked up whole, and whether merging would really give
//! that token (a vocabulary may hold tokens that merging never reaches) is found out once per token and remembered.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, Ordering};

use model::gguf::StringArray;

use crate::alphabet;
use crate::merge::{self, NO_MERGE, Scratch};
use crate::table::{Merge, MergeTable, WordTable};
use crate::vocabulary::Vocabulary;

/// What is known about a token as a whole word.
const UNTRIED: u8 = 0;
const WHOLE: u8 = 1;
const NOT_WHOLE: u8 = 2;

/// Merges and the tables around them.
#[derive(Debug)]
pub(crate) struct Bpe {
    words: WordTable,
    merges: MergeTable,
    /// The symbol of each byte: its token, or a made-up id where the vocabulary has none.
    bytes: [u32; 256],
    /// What made-up ids become at the end. They start at `vocabulary.len()`.
    made_up: Vec<Box<[u32]>>,
    /// Per token, whether merging its bytes gives just this token. Written with the same value by whoever asks first.
    whole: Box<[AtomicU8]>,
    /// Take a word that is a token without merging (Llama 3).
    ignore_merges: bool,
}

impl Bpe {
    /// Builds the tables from the merges of a file, each written `left right`. Merges of other forms never apply.
    pub fn new(vocabulary: &Vocabulary, texts: &StringArray, merges: &StringArray, ignore_merges: bool) -> Bpe {
        let mut symbols = Symbols::new(vocabulary, texts);
        let bytes = std::array::from_fn(|byte| symbols.id(&[byte as u8]));
        let mut table = MergeTable::new(merges.len());
        let (mut left, mut right) = (Vec::new(), Vec::new());
        for (rank, text) in merges.iter().enumerate() {
            // A space that is the first byte belongs to the left part.
            let Some(space) = text.iter().skip(1).position(|&byte| byte == b' ') else {
                continue;
            };
            left.clear();
            right.clear();
            if !alphabet::decode(&text[..=space], &mut left) || !alphabet::decode(&text[space + 2..], &mut right) {
                continue;
            }
            let (left_id, right_id) = (symbols.id(&left), symbols.id(&right));
            left.append(&mut right);
            table.insert(left_id, right_id, Merge { rank: rank as u32, id: symbols.id(&left) });
        }
        Bpe {
            made_up: symbols.made_up(),
            words: symbols.words,
            merges: table,
            bytes,
            whole: (0..vocabulary.len()).map(|_| AtomicU8::new(UNTRIED)).collect(),
            ignore_merges,
        }
    }

    /// Appends the tokens of one word.
    #[inline]
    pub fn encode(&self, vocabulary: &Vocabulary, word: &[u8], scratch: &mut Scratch, ids: &mut Vec<u32>) {
        let Some(id) = self.words.get(word, |id| vocabulary.token_bytes(id)) else {
            return self.merge(word, scratch, ids);
        };
        let whole = &self.whole[id as usize];
        match whole.load(Ordering::Relaxed) {
            _ if self.ignore_merges => ids.push(id),
            WHOLE => ids.push(id),
            NOT_WHOLE => self.merge(word, scratch, ids),
            _ => {
                let start = ids.len();
                self.merge(word, scratch, ids);
                let state = if ids[start..] == [id] { WHOLE } else { NOT_WHOLE };
                whole.store(state, Ordering::Relaxed);
            }
        }
    }

    fn merge(&self, word: &[u8], scratch: &mut Scratch, ids: &mut Vec<u32>) {
        scratch.symbols.clear();
        scratch.symbols.extend(word.iter().map(|&byte| self.bytes[byte as usize]));
        merge::all(scratch, |left, right| self.pair(left, right));
        let made_up_start = self.whole.len();
        for &symbol in &scratch.symbols {
            match (symbol as usize).checked_sub(made_up_start) {
                None => ids.push(symbol),
                Some(index) => ids.extend_from_slice(&self.made_up[index]),
            }
        }
    }

    #[inline]
    fn pair(&self, left: u32, right: u32) -> Merge {
        self.merges.get(left, right).unwrap_or(NO_MERGE)
    }
}

/// Ids for everything that merging can produce, also for what is no token.
struct Symbols<'a> {
    vocabulary: &'a Vocabulary,
    words: WordTable,
    made_up: HashMap<Vec<u8>, u32>,
}

impl<'a> Symbols<'a> {
    /// Only tokens whose text is in the byte alphabet can come out of merging. Of equal ones the last counts.
    fn new(vocabulary: &'a Vocabulary, texts: &StringArray) -> Self {
        let mut words = WordTable::new(vocabulary.len());
        let mut decoded = Vec::new();
        for (id, text) in (0..).zip(texts.iter()) {
            decoded.clear();
            let bytes = vocabulary.token_bytes(id);
            if alphabet::decode(text, &mut decoded) && decoded == bytes {
                words.insert(bytes, id, |id| vocabulary.token_bytes(id));
            }
        }
        Symbols { vocabulary, words, made_up: HashMap::new() }
    }

    fn token(&self, bytes: &[u8]) -> Option<u32> {
        self.words.get(bytes, |id| self.vocabulary.token_bytes(id))
    }

    fn id(&mut self, bytes: &[u8]) -> u32 {
        let free = (self.vocabulary.len() + self.made_up.len()) as u32;
        match self.token(bytes) {
            Some(id) => id,
            None => *self.made_up.entry(bytes.to_vec()).or_insert(free),
        }
    }

    /// A symbol that is no token falls apart into the printable ASCII characters in it, and the rest is lost. That is
    /// what llama.cpp does with vocabularies that lack bytes; byte-level ones lack only bytes that UTF-8 never has.
    fn made_up(&self) -> Vec<Box<[u32]>> {
        let mut symbols: Vec<_> = self.made_up.iter().collect();
        symbols.sort_unstable_by_key(|(_, id)| **id);
        symbols
            .into_iter()
            .map(|(bytes, _)| {
                bytes.iter().filter(|byte| byte.is_ascii_graphic()).filter_map(|&byte| self.token(&[byte])).collect()
            })
            .collect()
    }
}

//! Vocabularies of characters, as SentencePiece and Gemma 4 have them.
//!
//! A word is merged from its characters, and a character that is no token falls apart into the tokens of its bytes. In
//! the file a space is written as U+2581; here it is a space everywhere. What may merge is told by a list of merges, or by
//! scores: then any two neighbours merge whose joined text is a token, the highest score first.

use model::gguf::{Array, StringArray};

use crate::error::TextError;
use crate::merge::{self, NO_MERGE, Scratch};
use crate::table::{Merge, MergeTable, WordTable};
use crate::unicode;
use crate::vocabulary::{TokenKind, Vocabulary};

/// How a file writes a space.
pub(crate) const SPACE: &str = "\u{2581}";

/// The tables.
#[derive(Debug)]
pub(crate) struct Pieces {
    words: WordTable,
    order: Order,
    /// The token of each byte.
    bytes: Box<[Option<u32>; 256]>,
    unknown: Option<u32>,
    /// Symbols from here on are characters without a token: their code point is added.
    characters: u32,
}

/// Which neighbours merge, and in what order.
#[derive(Debug)]
enum Order {
    /// By a list.
    Merges(MergeTable),
    /// The rank of each token: none for those that nothing merges into.
    Ranks(Box<[u32]>),
}

/// The text of a token or merge with spaces for what stands for them.
pub(crate) fn spaced(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        match rest.strip_prefix(SPACE.as_bytes()) {
            Some(after) => {
                out.push(b' ');
                rest = after;
            }
            None => {
                out.push(byte);
                rest = after;
            }
        }
    }
    out
}

impl Pieces {
    /// Builds the tables from a list of merges, each written `left right`. Those whose parts or result are no tokens never
    /// apply.
    pub fn from_merges(vocabulary: &Vocabulary, merges: &StringArray) -> Result<Pieces, TextError> {
        let words = words(vocabulary);
        let token = |text: &[u8]| words.get(text, |id| vocabulary.token_bytes(id));
        let mut table = MergeTable::new(merges.len());
        for (rank, line) in (0..).zip(merges.iter()) {
            // A space in a merge stands between its parts; theirs are written as U+2581.
            let Some(space) = line.iter().skip(1).position(|&byte| byte == b' ') else { continue };
            let (left, right) = (spaced(&line[..=space]), spaced(&line[space + 2..]));
            let joined = [&left[..], &right].concat();
            if let (Some(left), Some(right), Some(id)) = (token(&left), token(&right), token(&joined)) {
                table.insert(left, right, Merge { rank, id });
            }
        }
        Pieces::new(vocabulary, words, Order::Merges(table))
    }

    /// Builds the tables from the scores of the tokens.
    pub fn from_scores(vocabulary: &Vocabulary, scores: &Array) -> Result<Pieces, TextError> {
        if scores.len() != vocabulary.len() {
            return Err(TextError::Vocabulary(format!("{} tokens and {} scores", vocabulary.len(), scores.len())));
        }
        let Array::F32(scores) = scores else {
            return Err(TextError::Vocabulary("scores that are not f32".to_string()));
        };
        let mut distinct: Vec<f32> = scores.clone();
        distinct.sort_unstable_by(|a, b| b.total_cmp(a));
        distinct.dedup();
        let rank = |score: &f32| distinct.partition_point(|other| other.total_cmp(score).is_gt()) as u32;
        let ranks = scores.iter().map(rank).collect();
        Pieces::new(vocabulary, words(vocabulary), Order::Ranks(ranks))
    }

    fn new(vocabulary: &Vocabulary, words: WordTable, order: Order) -> Result<Pieces, TextError> {
        let too_many = || TextError::Vocabulary(format!("{} tokens", vocabulary.len()));
        let characters = u32::try_from(vocabulary.len()).map_err(|_| too_many())?;
        characters.checked_add(unicode::CODE_POINTS as u32).ok_or_else(too_many)?;
        let mut bytes = Box::new([None; 256]);
        for id in (0..characters).filter(|&id| vocabulary.kind(id) == TokenKind::Byte) {
            if let [byte] = vocabulary.token_bytes(id) {
                bytes[usize::from(*byte)] = Some(id);
            }
        }
        Ok(Pieces { words, order, bytes, unknown: vocabulary.special().unk, characters })
    }

    /// Appends the tokens of one word, a sanitized text.
    pub fn encode(&self, vocabulary: &Vocabulary, word: &[u8], scratch: &mut Scratch, ids: &mut Vec<u32>) {
        scratch.symbols.clear();
        let mut at = 0;
        while at < word.len() {
            let (code, length) = unicode::decode(word, at).unwrap_or((0xfffd, 1));
            let token = self.words.get(&word[at..at + length], |id| vocabulary.token_bytes(id));
            scratch.symbols.push(token.unwrap_or(self.characters + code));
            at += length;
        }
        let mut joined = Vec::new();
        merge::all(scratch, |left, right| self.pair(vocabulary, left, right, &mut joined));
        for &symbol in &scratch.symbols {
            match symbol.checked_sub(self.characters) {
                None => ids.push(symbol),
                Some(code) => self.fall_apart(code, ids),
            }
        }
    }

    /// What two neighbours become.
    fn pair(&self, vocabulary: &Vocabulary, left: u32, right: u32, joined: &mut Vec<u8>) -> Merge {
        match &self.order {
            Order::Merges(table) => table.get(left, right).unwrap_or(NO_MERGE),
            Order::Ranks(_) if left.max(right) >= self.characters => NO_MERGE,
            Order::Ranks(ranks) => {
                joined.clear();
                joined.extend_from_slice(vocabulary.token_bytes(left));
                joined.extend_from_slice(vocabulary.token_bytes(right));
                let id = self.words.get(joined, |id| vocabulary.token_bytes(id));
                id.map_or(NO_MERGE, |id| Merge { rank: ranks[id as usize], id })
            }
        }
    }

    /// A character without a token: its bytes, or the unknown token where they have none.
    fn fall_apart(&self, code: u32, ids: &mut Vec<u32>) {
        let mut bytes = Vec::with_capacity(4);
        unicode::encode(code, &mut bytes);
        let tokens: Option<Vec<u32>> = bytes.iter().map(|&byte| self.bytes[usize::from(byte)]).collect();
        ids.extend(tokens.unwrap_or_else(|| self.unknown.into_iter().collect()));
    }
}

/// The tokens that text may become, by text: never a control token. Of equal ones the last counts.
fn words(vocabulary: &Vocabulary) -> WordTable {
    let mut words = WordTable::new(vocabulary.len());
    for id in 0..vocabulary.len() as u32 {
        if matches!(vocabulary.kind(id), TokenKind::Normal | TokenKind::UserDefined) {
            words.insert(vocabulary.token_bytes(id), id, |id| vocabulary.token_bytes(id));
        }
    }
    words
}

//! Our vocabulary as llguidance wants it: a trie of the text tokens, the ends of an answer, and a way to encode.

use std::sync::Arc;

use llguidance::ParserFactory;
use llguidance::earley::SlicedBiasComputer;
use toktrie::{InferenceCapabilities, TokEnv, TokRxInfo, TokTrie, TokenizerEnv};

use super::error::GrammarError;
use super::limits;
use crate::dialect::Dialect;
use crate::tokenizer::{Special, Tokenizer};
use crate::vocabulary::TokenKind;

/// The end of a custom tool's text. The newline is left out where the text itself ends in one.
pub(super) const CLOSE: &[u8] = b"\n</tool_call>";
/// Longer tokens are left out of the trie, which cannot hold much longer ones; they are runs of blanks and the like.
const TOKEN_BYTES: usize = 512;

/// All that matchers share about a vocabulary.
pub(super) struct Environment {
    pub tokenizer: Arc<Tokenizer>,
    pub factory: ParserFactory,
    /// Words of a mask.
    pub words: usize,
    /// Tokens that stand for text, and those that end an answer, as bits.
    usable: Vec<u32>,
    /// The same with the tokens that a call in the model's own form needs.
    usable_in_calls: Vec<u32>,
    stops: Vec<u32>,
    /// The token of each byte. Some vocabularies lack bytes that no text has.
    bytes: Vec<Option<u32>>,
    /// Tokens that are a beginning of `CLOSE[i..]`.
    closers: Vec<Vec<u32>>,
}

impl Environment {
    /// `rows` is the number of logits of the model, which may be more than there are tokens.
    pub fn new(tokenizer: &Arc<Tokenizer>, rows: usize) -> Result<Environment, GrammarError> {
        let vocabulary = tokenizer.vocabulary();
        let unusable = |reason: &str| GrammarError::Vocabulary(reason.to_string());
        let rows = rows.max(vocabulary.len());
        let count = u32::try_from(rows).map_err(|_| unusable("it has too many tokens"))?;
        let eos = *vocabulary.stops().first().ok_or_else(|| unusable("no token ends an answer"))?;
        let texts: Vec<Vec<u8>> = (0..count).map(|id| text(tokenizer, id).to_vec()).collect();
        let mut bytes = vec![None; 256];
        for (id, text) in texts.iter().enumerate() {
            if let [byte] = text[..] {
                bytes[usize::from(byte)] = Some(id as u32);
            }
        }
        if (b' '..=b'~').chain([b'\n', b'\t']).any(|byte| bytes[usize::from(byte)].is_none()) {
            return Err(unusable("not every character of ASCII has a token"));
        }
        let words = rows.div_ceil(32);
        let mut stops = vec![0; words];
        vocabulary.stops().iter().for_each(|&id| allow(&mut stops, id));
        let mut usable = stops.clone();
        (0..count).filter(|&id| !texts[id as usize].is_empty()).for_each(|id| allow(&mut usable, id));
        let mut usable_in_calls = usable.clone();
        let markers = Dialect::of(vocabulary).markers().iter().filter_map(|marker| vocabulary.special_token(marker));
        markers.for_each(|id| allow(&mut usable_in_calls, id));
        let trie = TokTrie::from(&TokRxInfo::new(count, eos), &texts).with_eos_tokens(vocabulary.stops());
        let closers = (0..CLOSE.len())
            .map(|from| (from + 1..=CLOSE.len()).filter_map(|to| trie.token_id_at_bytes(&CLOSE[from..to])).collect())
            .collect();
        let tokens: TokEnv = Arc::new(Tokens { tokenizer: tokenizer.clone(), trie });
        let factory = factory(&tokens)?;
        let tokenizer = tokenizer.clone();
        Ok(Environment { tokenizer, factory, words, usable, usable_in_calls, stops, bytes, closers })
    }

    /// The token of a byte, for text that a parser must be given in parts of tokens.
    pub fn byte(&self, byte: u8) -> Option<u32> {
        self.bytes[usize::from(byte)]
    }

    /// What stands for a marker in a grammar: its token.
    pub fn mark(&self, marker: &str) -> String {
        match self.tokenizer.vocabulary().special_token(marker) {
            Some(id) => format!("<[{id}]>"),
            None => serde_json::Value::from(marker).to_string(),
        }
    }

    /// The marker that a token is in a dialect.
    pub fn marker(&self, dialect: Dialect, token: u32) -> Option<&'static str> {
        let bytes = self.tokenizer.vocabulary().token_bytes(token);
        let special = self.tokenizer.vocabulary().kind(token) != TokenKind::Normal;
        dialect.markers().iter().find(|marker| special && marker.as_bytes() == bytes).copied()
    }

    /// Copies a mask of llguidance's, without the tokens that are neither text nor an end: a client's grammar must not
    /// get control tokens by asking for them by number. Our own grammars of `calls` may have those that calls are made of.
    pub fn copy_mask(&self, from: &[u32], calls: bool, to: &mut Vec<u32>) {
        let usable = if calls { &self.usable_in_calls } else { &self.usable };
        to.clear();
        to.extend(from.iter().zip(usable).map(|(allowed, usable)| allowed & usable));
        to.resize(self.words, 0);
    }

    /// Allows the ends of an answer and nothing else.
    pub fn only_stops(&self, mask: &mut Vec<u32>) {
        mask.clone_from(&self.stops);
    }

    /// Forbids the ends of an answer.
    pub fn no_stops(&self, mask: &mut [u32]) {
        mask.iter_mut().zip(&self.stops).for_each(|(allowed, stops)| *allowed &= !stops);
    }

    /// Allows the tokens that lead on from `CLOSE[from..]`.
    pub fn allow_closers(&self, from: usize, mask: &mut [u32]) {
        self.closers[from].iter().for_each(|&id| allow(mask, id));
    }
}

/// What makes parsers over these tokens, within our limits.
pub(super) fn factory(tokens: &TokEnv) -> Result<ParserFactory, GrammarError> {
    let capabilities = InferenceCapabilities { ff_tokens: true, ..Default::default() };
    let mut factory = ParserFactory::new(tokens, capabilities, &SlicedBiasComputer::json_slices())
        .map_err(|error| GrammarError::Vocabulary(error.to_string()))?;
    factory.quiet();
    *factory.limits_mut() = limits::parser();
    Ok(factory)
}

/// The text of a token; none for tokens that stand for no text.
fn text(tokenizer: &Tokenizer, id: u32) -> &[u8] {
    let vocabulary = tokenizer.vocabulary();
    let bytes = vocabulary.token_bytes(id);
    match vocabulary.kind(id) {
        TokenKind::Normal | TokenKind::UserDefined | TokenKind::Byte if bytes.len() <= TOKEN_BYTES => bytes,
        _ => &[],
    }
}

fn allow(mask: &mut [u32], id: u32) {
    mask[id as usize / 32] |= 1 << (id % 32);
}

/// The tokeniser, for text that a grammar leaves no choice about: the model should read it in the tokens it knows.
struct Tokens {
    tokenizer: Arc<Tokenizer>,
    trie: TokTrie,
}

impl TokenizerEnv for Tokens {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, text: &[u8]) -> Vec<u32> {
        let ids = self.tokenizer.encode(text, Special::Plain);
        // Half a character has no proper encoding, but it has tokens.
        if self.tokenizer.decode(&ids) == text { ids } else { self.trie.greedy_tokenize(text) }
    }
}

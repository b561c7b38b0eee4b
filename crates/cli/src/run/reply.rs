//! The text of one answer, as it grows.

use std::sync::Arc;

use engine::TokenOut;
use text::{Detokenizer, ShowSpecial, TokenKind, Vocabulary};

/// Turns the tokens of one answer into text and keeps the text.
///
/// Invariant: `text[unfinished_start..]`, and after it the characters still held back, come from `unfinished` alone.
pub struct Reply {
    vocabulary: Arc<Vocabulary>,
    detokenizer: Detokenizer,
    text: String,
    /// Bytes of the tokens since the last one that ended on a whole character.
    unfinished: Vec<u8>,
    unfinished_start: usize,
}

impl Reply {
    /// An answer of which nothing is known yet.
    pub fn new(vocabulary: &Arc<Vocabulary>) -> Reply {
        let detokenizer = Detokenizer::new(Arc::clone(vocabulary), ShowSpecial::Hide);
        let vocabulary = Arc::clone(vocabulary);
        Reply { vocabulary, detokenizer, text: String::new(), unfinished: Vec::new(), unfinished_start: 0 }
    }

    /// Adds tokens and gives the text that became certain with them.
    pub fn push(&mut self, tokens: &[TokenOut]) -> String {
        let start = self.text.len();
        for token in tokens {
            if !self.detokenizer.is_pending() {
                self.unfinished.clear();
                self.unfinished_start = self.text.len();
            }
            self.text.push_str(self.detokenizer.push(token.id));
            // Control tokens are not shown and so are no part of the text.
            if self.detokenizer.is_pending() && self.vocabulary.kind(token.id) != TokenKind::Control {
                self.unfinished.extend_from_slice(self.vocabulary.token_bytes(token.id));
            }
        }
        self.text[start..].to_owned()
    }

    /// Ends the answer with the bytes that came before a stop string, and gives the rest of the text.
    pub fn finish(&mut self, tail: &[u8]) -> String {
        let start = self.text.len();
        if self.detokenizer.is_pending() {
            // The tail may hold the rest of a character: decode both together and skip what was given out.
            self.unfinished.extend_from_slice(tail);
            let whole = String::from_utf8_lossy(&self.unfinished);
            let given = self.text.len() - self.unfinished_start;
            self.text.push_str(whole.get(given..).unwrap_or_default());
        } else {
            self.text.push_str(&String::from_utf8_lossy(tail));
        }
        self.text[start..].to_owned()
    }

    /// The whole text.
    pub fn into_text(self) -> String {
        self.text
    }
}

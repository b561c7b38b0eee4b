//! An answer that begins with a given text, in whatever tokens the model likes.
//!
//! A word that was typed in part is no good end of a prompt: the model has seen `return` as one token and never `retu`.
//! So the part is taken off the prompt and asked for again, and the token that completes it can be picked.

use std::sync::Arc;

use engine::Constraint;
use text::{TokenKind, Vocabulary};

/// Allows only tokens that fit the rest of a text, and after that everything.
pub struct TokenHealing {
    vocabulary: Arc<Vocabulary>,
    rest: Vec<u8>,
    mask: Vec<u32>,
}

impl TokenHealing {
    /// `rows` is the number of logits of the model.
    pub fn new(vocabulary: Arc<Vocabulary>, rows: usize, text: &str) -> Self {
        Self { vocabulary, rest: text.as_bytes().to_vec(), mask: vec![0; rows.div_ceil(32)] }
    }

    fn fits(&self, token: u32) -> bool {
        let bytes = self.vocabulary.token_bytes(token);
        let is_text =
            matches!(self.vocabulary.kind(token), TokenKind::Normal | TokenKind::UserDefined | TokenKind::Byte);
        is_text && !bytes.is_empty() && (bytes.starts_with(&self.rest) || self.rest.starts_with(bytes))
    }
}

impl Constraint for TokenHealing {
    fn allowed(&mut self) -> Result<Option<&[u32]>, String> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        self.mask.fill(0);
        for token in (0..self.vocabulary.len() as u32).filter(|&token| self.fits(token)).collect::<Vec<u32>>() {
            if let Some(word) = self.mask.get_mut(token as usize / 32) {
                *word |= 1 << (token % 32);
            }
        }
        Ok(Some(&self.mask))
    }

    fn accept(&mut self, token: u32) -> Result<(), String> {
        let count = self.vocabulary.token_bytes(token).len().min(self.rest.len());
        self.rest.drain(..count);
        Ok(())
    }
    /// None: there are several ways to cut the text into tokens, and the choice is the model's.
    fn forced(&mut self, _max: usize, _out: &mut Vec<u32>) {}
}

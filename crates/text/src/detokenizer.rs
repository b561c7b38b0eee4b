//! Token ids back to text, one at a time, never half a character.
//!
//! A token may end in the middle of a character. Such bytes (three at most) wait for the next token, so everything that
//! comes out is valid UTF-8 and can be shown at once. Whatever the tokens were, the parts together are what
//! `String::from_utf8_lossy` makes of all their bytes.

use std::sync::Arc;

use crate::dialect::{Dialect, MARK};
use crate::vocabulary::{TokenKind, Vocabulary};

/// Whether structure such as `<|im_end|>` appears in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShowSpecial {
    /// Left out: what a person reads. User-defined tokens, such as `<tool_call>`, are text and stay.
    Hide,
    /// Written out: for logs and exact transcripts.
    Show,
    /// Left out but for the markers of a dialect, which come behind a [`MARK`]: for parsers of answers.
    Marked(Dialect),
}

/// The state of one sequence being turned into text.
#[derive(Debug, Clone)]
pub struct Detokenizer {
    vocabulary: Arc<Vocabulary>,
    show: ShowSpecial,
    /// Ids of the markers to show, in no order: a handful.
    markers: Vec<u32>,
    /// The beginning of a character whose rest has not come yet.
    pending: Vec<u8>,
    /// What the last call gave out; kept for its memory.
    text: String,
}

impl Detokenizer {
    /// A detokeniser at the start of a sequence.
    pub fn new(vocabulary: Arc<Vocabulary>, show: ShowSpecial) -> Self {
        let markers = match show {
            ShowSpecial::Marked(dialect) => {
                dialect.markers().iter().filter_map(|marker| vocabulary.special_token(marker)).collect()
            }
            ShowSpecial::Hide | ShowSpecial::Show => Vec::new(),
        };
        Detokenizer { vocabulary, show, markers, pending: Vec::new(), text: String::new() }
    }

    /// Adds a token and gives the text that became certain with it, which may be empty.
    pub fn push(&mut self, token: u32) -> &str {
        self.text.clear();
        if self.markers.contains(&token) {
            self.text.extend(std::mem::take(&mut self.pending).first().map(|_| char::REPLACEMENT_CHARACTER));
            self.text.push(MARK);
            self.text.push_str(&String::from_utf8_lossy(self.vocabulary.token_bytes(token)));
            return &self.text;
        }
        let hidden = matches!(self.vocabulary.kind(token), TokenKind::Control | TokenKind::Unknown | TokenKind::Unused);
        if !hidden || self.show == ShowSpecial::Show {
            self.pending.extend_from_slice(self.vocabulary.token_bytes(token));
            let rest = drain_text(&self.pending, &mut self.text);
            self.pending.drain(..rest);
            // Nobody but a marker says that there is one.
            if !self.markers.is_empty() && self.text.contains(MARK) {
                self.text = self.text.replace(MARK, "");
            }
        }
        &self.text
    }

    /// Ends the sequence: U+FFFD when a character was left unfinished, else nothing. The next token starts afresh.
    pub fn flush(&mut self) -> &str {
        self.text.clear();
        if !self.pending.is_empty() {
            self.pending.clear();
            self.text.push(char::REPLACEMENT_CHARACTER);
        }
        &self.text
    }

    /// Whether bytes of an unfinished character are held back.
    pub fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }
}

/// Appends what `bytes` mean as text and gives the start of an unfinished character at their end.
fn drain_text(bytes: &[u8], text: &mut String) -> usize {
    let mut at = 0;
    while at < bytes.len() {
        match str::from_utf8(&bytes[at..]) {
            Ok(valid) => {
                text.push_str(valid);
                at = bytes.len();
            }
            Err(error) => {
                let valid = &bytes[at..at + error.valid_up_to()];
                text.push_str(str::from_utf8(valid).unwrap_or_default());
                at += valid.len();
                match error.error_len() {
                    Some(broken) => {
                        text.push(char::REPLACEMENT_CHARACTER);
                        at += broken;
                    }
                    None => break,
                }
            }
        }
    }
    at
}

//! A conversation becomes the tokens of a prompt: exactly, safely, and at the cost of what is new.
//!
//! - What the model wrote itself goes back in as the tokens it wrote ([`Message::raw`](crate::Message)), so that the
//!   prompt repeats what the KV cache holds.
//! - Text from a person, a file or a tool never becomes a control token, whatever it looks like.
//! - The text between two special tokens is encoded once and remembered.
//!
//! The template runs over the whole conversation each time, since it may look at all of it; that costs far less than
//! encoding. The ids are those of encoding the rendered text in one go.

mod cache;
mod guard;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::chat::{ChatRequest, ChatTemplate};
use crate::error::TextError;
use crate::special::Piece;
use crate::tokenizer::{Special, Tokenizer};
use cache::Segments;
use guard::{Guard, Span};

/// Memory for remembered segments, text and ids together. A conversation that fills a context of 128k tokens needs
/// about 1 MiB.
const CACHE_BYTES_MAX: usize = 16 << 20;

/// Writes prompts for one model. Share it between threads; the lock inside is never held while text is encoded.
#[derive(Debug)]
pub struct PromptWriter {
    tokenizer: Arc<Tokenizer>,
    template: ChatTemplate,
    segments: Mutex<Segments>,
}

/// A prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// How many bytes had to be encoded for it; the rest was known.
    pub encoded_bytes: usize,
}

impl PromptWriter {
    /// A writer with nothing remembered yet.
    pub fn new(tokenizer: Arc<Tokenizer>, template: ChatTemplate) -> Self {
        PromptWriter { tokenizer, template, segments: Mutex::new(Segments::new(CACHE_BYTES_MAX)) }
    }

    /// The prompt for a conversation. It starts with the token for the start of a text where the model wants one.
    pub fn write(&self, request: &ChatRequest<'_>) -> Result<Written, TextError> {
        let guard = Guard::new(self.tokenizer.control(), request)?;
        let rendered = match guard.guarded() {
            Some(guarded) => self.template.render(&guarded.request(request))?,
            None => self.template.render(request)?,
        };
        let rendered = guard.markers_decoded(rendered);
        let mut written = Written { tokens: Vec::with_capacity(rendered.len() / 3), encoded_bytes: 0 };
        for span in guard.spans(&rendered, request.messages) {
            match span {
                Span::Raw(tokens) => written.tokens.extend_from_slice(tokens),
                Span::Text(text) => self.write_text(text, &guard, &mut written),
            }
        }
        let vocabulary = self.tokenizer.vocabulary();
        if let Some(bos) = vocabulary.special().bos.filter(|_| vocabulary.add_bos())
            && written.tokens.first() != Some(&bos)
        {
            written.tokens.insert(0, bos);
        }
        Ok(written)
    }

    /// Appends text of the template with the texts in it. Special tokens are the template's: those of others are broken.
    fn write_text(&self, text: &str, guard: &Guard, written: &mut Written) {
        for piece in self.tokenizer.pieces(text) {
            match piece {
                Piece::Token(id) => written.tokens.push(id),
                Piece::Text(text) => self.write_segment(&guard.unmarked(text), written),
            }
        }
    }

    fn write_segment(&self, text: &[u8], written: &mut Written) {
        if let Some(ids) = self.segments().get(text) {
            written.tokens.extend_from_slice(&ids);
            return;
        }
        let ids = self.tokenizer.encode(text, Special::Plain);
        written.tokens.extend_from_slice(&ids);
        written.encoded_bytes += text.len();
        self.segments().put(text, &ids);
    }

    fn segments(&self) -> MutexGuard<'_, Segments> {
        // A panic while the lock is held can at worst leave a segment out of its books; the ids stay right.
        self.segments.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

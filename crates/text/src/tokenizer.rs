//! Text to token ids.

use std::borrow::Cow;
use std::sync::Arc;

use model::gguf::{Array, Gguf, Metadata};

use crate::bpe::Bpe;
use crate::error::TextError;
use crate::merge::Scratch;
use crate::pieces::{self, Pieces};
use crate::special::{Piece, SpecialTokens};
use crate::unicode::sanitize;
use crate::vocabulary::{TokenKind, TokenizerModel, Vocabulary};

/// What to make of text that looks like a control token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Special {
    /// It is one: for rendered templates and other text that the program wrote itself.
    Parse,
    /// It is text: for everything that came from a person, a file or a tool, so that none can fake a turn.
    /// User-defined tokens are still matched, since they stand for text.
    Plain,
}

/// A BPE tokeniser, of bytes or of characters. Share it between threads; encoding needs no lock.
///
/// Bytes that are no UTF-8 are encoded as U+FFFD each, like llama.cpp does; all other text survives a round trip.
#[derive(Debug)]
pub struct Tokenizer {
    vocabulary: Arc<Vocabulary>,
    words: Words,
    parse: SpecialTokens,
    plain: SpecialTokens,
    /// Those that [`Special::Plain`] does not match.
    control: SpecialTokens,
}

/// How a word becomes tokens.
#[derive(Debug)]
enum Words {
    Bytes(Box<Bpe>),
    Characters {
        pieces: Pieces,
        /// A text begins with a space, at its start and behind a special token.
        space_first: bool,
    },
}

impl Tokenizer {
    /// The tokeniser of a model file.
    pub fn from_gguf(gguf: &Gguf) -> Result<Tokenizer, TextError> {
        Self::from_metadata(&gguf.metadata)
    }

    /// The tokeniser that these `tokenizer.*` keys describe.
    pub fn from_metadata(metadata: &Metadata) -> Result<Tokenizer, TextError> {
        let vocabulary = Vocabulary::from_metadata(metadata)?;
        let texts = metadata.strings("tokenizer.ggml.tokens")?;
        let merges = || metadata.strings("tokenizer.ggml.merges");
        let words = match vocabulary.model() {
            TokenizerModel::Bytes => {
                let merges = merges()?;
                // Every merge may need three ids that are no tokens, every byte one.
                if u32::try_from(vocabulary.len() + 3 * merges.len() + 256).is_err() {
                    return Err(TextError::Vocabulary(format!("{} merges", merges.len())));
                }
                let whole = vocabulary.pre_tokenizer().takes_words_whole();
                Words::Bytes(Box::new(Bpe::new(&vocabulary, texts, merges, whole)))
            }
            TokenizerModel::Merges => {
                Words::Characters { pieces: Pieces::from_merges(&vocabulary, merges()?)?, space_first: false }
            }
            TokenizerModel::Scores => {
                let scores: &Array = metadata
                    .optional("tokenizer.ggml.scores")?
                    .ok_or_else(|| TextError::Vocabulary("no scores for its tokens".to_string()))?;
                let space_first = metadata.optional("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
                Words::Characters { pieces: Pieces::from_scores(&vocabulary, scores)?, space_first }
            }
        };
        Ok(Tokenizer {
            words,
            parse: SpecialTokens::new(&vocabulary, &[TokenKind::Control, TokenKind::UserDefined, TokenKind::Unknown]),
            plain: SpecialTokens::new(&vocabulary, &[TokenKind::UserDefined]),
            control: SpecialTokens::new(&vocabulary, &[TokenKind::Control, TokenKind::Unknown]),
            vocabulary: Arc::new(vocabulary),
        })
    }

    /// The vocabulary, for detokenisers, templates and the engine.
    pub fn vocabulary(&self) -> &Arc<Vocabulary> {
        &self.vocabulary
    }

    /// The ids of a text. No token for the start of a text is added; see [`Vocabulary::add_bos`].
    pub fn encode(&self, text: impl AsRef<[u8]>, special: Special) -> Vec<u32> {
        let mut ids = Vec::with_capacity(text.as_ref().len() / 3);
        self.encode_into(text.as_ref(), special, &mut ids);
        ids
    }

    /// The same, appended to `ids`.
    pub fn encode_into(&self, text: &[u8], special: Special, ids: &mut Vec<u32>) {
        // Without a limit all of it is encoded.
        let _ = self.encode_within(text, special, ids, usize::MAX);
    }

    /// The same, until `ids` holds more than `tokens_max`: then the rest is left out, and the answer is false.
    pub fn encode_within(&self, text: &[u8], special: Special, ids: &mut Vec<u32>, tokens_max: usize) -> bool {
        let tokens = match special {
            Special::Parse => &self.parse,
            Special::Plain => &self.plain,
        };
        let mut scratch = Scratch::default();
        for piece in tokens.split(text) {
            match piece {
                Piece::Token(id) => ids.push(id),
                Piece::Text(text) => {
                    let text = self.normal(text);
                    for word in self.vocabulary.pre_tokenizer().words(&text) {
                        match &self.words {
                            Words::Bytes(bpe) => bpe.encode(&self.vocabulary, word, &mut scratch, ids),
                            Words::Characters { pieces, .. } => {
                                pieces.encode(&self.vocabulary, word, &mut scratch, ids);
                            }
                        }
                        if ids.len() > tokens_max {
                            return false;
                        }
                    }
                }
            }
        }
        ids.len() <= tokens_max
    }

    /// A text as its words are cut: well-formed, and with the spaces that a vocabulary of characters asks for.
    fn normal<'a>(&self, text: &'a [u8]) -> Cow<'a, [u8]> {
        let text = sanitize(text);
        match &self.words {
            Words::Bytes(_) => text,
            Words::Characters { space_first, .. } => {
                let marked = text.windows(pieces::SPACE.len()).any(|window| window == pieces::SPACE.as_bytes());
                let text = if marked { Cow::Owned(pieces::spaced(&text)) } else { text };
                if *space_first { Cow::Owned([b" ", &text[..]].concat()) } else { text }
            }
        }
    }

    /// Cuts a text at the tokens that [`Special::Parse`] finds in it.
    pub(crate) fn pieces<'a>(&self, text: &'a str) -> Vec<Piece<'a>> {
        self.parse.split(text.as_bytes())
    }

    /// The tokens that text from outside must not become.
    pub(crate) fn control(&self) -> &SpecialTokens {
        &self.control
    }

    /// The bytes of some tokens, special ones included.
    pub fn decode(&self, ids: &[u32]) -> Vec<u8> {
        ids.iter().flat_map(|&id| self.vocabulary.token_bytes(id)).copied().collect()
    }
}

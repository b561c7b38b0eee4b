//! The vocabulary of a model: the bytes of every token, what kind it is, and which ids have a meaning of their own.

use model::gguf::{Array, Gguf, Metadata, StringArray};

use crate::alphabet;
use crate::error::TextError;
use crate::pieces;
use crate::special_names as names;
use crate::words::PreTokenizer;

/// What a token is for. The numbers in a file are those of `tokenizer.ggml.token_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// Part of ordinary text.
    Normal,
    /// Stands for text that the vocabulary does not have.
    Unknown,
    /// Structure such as `<|im_end|>`: only matched and shown when asked for.
    Control,
    /// Text that is always one token, such as `<tool_call>`.
    UserDefined,
    /// A hole in the numbering.
    Unused,
    /// One raw byte, written `<0x0A>`.
    Byte,
}

/// What the tokens of a file are made of: its `tokenizer.ggml.model`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenizerModel {
    /// `gpt2`: bytes, merged by a list.
    Bytes,
    /// `gemma4`: characters, merged by a list.
    Merges,
    /// `llama`: characters, merged by the scores of the tokens, as SentencePiece does.
    Scores,
}

impl TokenizerModel {
    fn from_metadata(metadata: &Metadata) -> Result<TokenizerModel, TextError> {
        match metadata.str("tokenizer.ggml.model")? {
            "gpt2" => Ok(TokenizerModel::Bytes),
            "gemma4" => Ok(TokenizerModel::Merges),
            "llama" => Ok(TokenizerModel::Scores),
            other => Err(TextError::TokenizerModel { found: other.to_string() }),
        }
    }
}

/// Ids with a meaning, where the model has them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpecialIds {
    /// Start of a text.
    pub bos: Option<u32>,
    /// End of an answer, as the file says.
    pub eos: Option<u32>,
    /// End of a turn.
    pub eot: Option<u32>,
    /// Padding.
    pub pad: Option<u32>,
    /// Unknown text.
    pub unk: Option<u32>,
    /// Fill-in-the-middle: before the text that precedes the gap.
    pub fim_prefix: Option<u32>,
    /// Fill-in-the-middle: before the text that follows the gap.
    pub fim_suffix: Option<u32>,
    /// Fill-in-the-middle: where the answer starts.
    pub fim_middle: Option<u32>,
    /// Fill-in-the-middle: padding.
    pub fim_pad: Option<u32>,
    /// Before a repository's name.
    pub fim_repo: Option<u32>,
    /// Between files.
    pub fim_separator: Option<u32>,
}

/// All tokens of a model and what its file says about text.
#[derive(Debug)]
pub struct Vocabulary {
    /// The bytes of all tokens, one after the other.
    bytes: Vec<u8>,
    /// Where each token ends in `bytes`.
    ends: Vec<u32>,
    kinds: Vec<TokenKind>,
    special: SpecialIds,
    /// Tokens after which an answer is over, sorted.
    stops: Vec<u32>,
    model: TokenizerModel,
    pre: PreTokenizer,
    add_bos: bool,
    chat_template: Option<String>,
}

impl Vocabulary {
    /// Reads the vocabulary of a model file.
    pub fn from_gguf(gguf: &Gguf) -> Result<Vocabulary, TextError> {
        Self::from_metadata(&gguf.metadata)
    }

    /// Reads the `tokenizer.*` keys. A file that names no pre-tokeniser is taken for GPT-2's, as old files are.
    pub fn from_metadata(metadata: &Metadata) -> Result<Vocabulary, TextError> {
        let model = TokenizerModel::from_metadata(metadata)?;
        let pre = match model {
            TokenizerModel::Bytes => pre_tokenizer(metadata)?,
            TokenizerModel::Merges => PreTokenizer::Gemma4,
            TokenizerModel::Scores => PreTokenizer::Whole,
        };
        let texts = metadata.strings("tokenizer.ggml.tokens")?;
        let kinds = kinds(metadata, texts.len())?;
        let (bytes, ends) = token_bytes(texts, &kinds, model)?;
        let add_bos = metadata.optional("tokenizer.ggml.add_bos_token")?;
        let mut vocabulary = Vocabulary {
            bytes,
            ends,
            kinds,
            special: SpecialIds::default(),
            stops: Vec::new(),
            model,
            pre,
            add_bos: add_bos.unwrap_or(pre.starts_with_bos()),
            chat_template: metadata.optional::<&str>("tokenizer.chat_template")?.map(str::to_string),
        };
        vocabulary.find_special(metadata, &names::Index::new(texts))?;
        Ok(vocabulary)
    }

    /// Number of tokens. Ids are `0..len()`.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The bytes a token stands for; none for ids beyond the vocabulary (a model may have more rows than tokens).
    pub fn token_bytes(&self, id: u32) -> &[u8] {
        let index = id as usize;
        let Some(&end) = self.ends.get(index) else {
            return &[];
        };
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start as usize..end as usize]
    }

    /// Bytes of the longest token: a text of more than `n` times as many has more than `n` tokens.
    pub fn longest(&self) -> usize {
        (0..self.len() as u32).map(|id| self.token_bytes(id).len()).max().unwrap_or(0)
    }

    /// What kind of token this is.
    pub fn kind(&self, id: u32) -> TokenKind {
        self.kinds.get(id as usize).copied().unwrap_or(TokenKind::Unused)
    }

    /// The ids with a meaning.
    pub fn special(&self) -> &SpecialIds {
        &self.special
    }

    /// Tokens after which an answer is over, in ascending order.
    pub fn stops(&self) -> &[u32] {
        &self.stops
    }

    /// Whether an answer is over after this token.
    pub fn is_stop(&self, id: u32) -> bool {
        self.stops.binary_search(&id).is_ok()
    }

    /// The special token with exactly this text.
    pub fn special_token(&self, text: &str) -> Option<u32> {
        self.special_tokens().find(|&id| self.token_bytes(id) == text.as_bytes())
    }

    /// All control, user-defined and unknown tokens.
    pub fn special_tokens(&self) -> impl Iterator<Item = u32> {
        (0..self.len() as u32)
            .filter(|&id| matches!(self.kind(id), TokenKind::Control | TokenKind::UserDefined | TokenKind::Unknown))
    }

    /// What the tokens are made of.
    pub(crate) fn model(&self) -> TokenizerModel {
        self.model
    }

    /// How texts are cut into words.
    pub fn pre_tokenizer(&self) -> PreTokenizer {
        self.pre
    }

    /// Whether a prompt starts with [`SpecialIds::bos`].
    pub fn add_bos(&self) -> bool {
        self.add_bos
    }

    /// The chat template of the file, if it has one.
    pub fn chat_template(&self) -> Option<&str> {
        self.chat_template.as_deref()
    }

    /// Finds the ids with a meaning: by key, else by the names that models use. Tokens that end an answer, and those
    /// found by name, become control tokens even where the file calls them text, as llama.cpp does.
    fn find_special(&mut self, metadata: &Metadata, index: &names::Index) -> Result<(), TextError> {
        let mut control = Vec::new();
        let mut find = |keys: &[&str], known: &[&str]| -> Result<Option<u32>, TextError> {
            for key in keys {
                let id = metadata.optional::<u32>(&format!("tokenizer.ggml.{key}_token_id"))?;
                if let Some(id) = id.filter(|&id| (id as usize) < self.ends.len()) {
                    return Ok(Some(id));
                }
            }
            let id = known.iter().find_map(|name| index.get(name));
            control.extend(id);
            Ok(id)
        };
        let special = SpecialIds {
            bos: find(&["bos"], &[])?,
            eos: find(&["eos"], &[])?,
            eot: find(&["eot"], &names::END_OF_TURN)?,
            pad: find(&["padding"], &[])?,
            unk: find(&["unknown"], &[])?,
            fim_prefix: find(&["fim_pre", "prefix"], &names::FIM_PREFIX)?,
            fim_suffix: find(&["fim_suf", "suffix"], &names::FIM_SUFFIX)?,
            fim_middle: find(&["fim_mid", "middle"], &names::FIM_MIDDLE)?,
            fim_pad: find(&["fim_pad"], &names::FIM_PAD)?,
            fim_repo: find(&["fim_rep"], &names::FIM_REPO)?,
            fim_separator: find(&["fim_sep"], &names::FIM_SEPARATOR)?,
        };
        let by_name: Vec<u32> = names::STOPS.iter().filter_map(|name| index.get(name)).collect();
        control.extend(&by_name);
        for id in control {
            self.kinds[id as usize] = TokenKind::Control;
        }
        let found = [special.eos, special.eot, special.fim_pad, special.fim_repo, special.fim_separator];
        self.stops = by_name.into_iter().chain(found.into_iter().flatten()).collect();
        if names::ANSWER_ENDS.iter().all(|name| index.get(name).is_some()) {
            let message_end = index.get(names::MESSAGE_END);
            self.stops.retain(|&id| Some(id) != message_end);
        }
        self.stops.sort_unstable();
        self.stops.dedup();
        self.special = special;
        Ok(())
    }
}

fn pre_tokenizer(metadata: &Metadata) -> Result<PreTokenizer, TextError> {
    let name = metadata.optional::<&str>("tokenizer.ggml.pre")?.unwrap_or("gpt-2");
    PreTokenizer::from_name(name).ok_or_else(|| TextError::PreTokenizer {
        found: name.to_string(),
        known: PreTokenizer::names().collect::<Vec<_>>().join(", "),
    })
}

fn kinds(metadata: &Metadata, count: usize) -> Result<Vec<TokenKind>, TextError> {
    let Some(types) = metadata.optional::<&Array>("tokenizer.ggml.token_type")? else {
        return Ok(vec![TokenKind::Normal; count]);
    };
    if types.len() != count {
        return Err(TextError::Vocabulary(format!("{count} tokens and {} token types", types.len())));
    }
    Ok((0..count)
        .map(|index| match types.integer(index) {
            Some(1) => TokenKind::Normal,
            Some(2) => TokenKind::Unknown,
            Some(3) => TokenKind::Control,
            Some(4) => TokenKind::UserDefined,
            Some(6) => TokenKind::Byte,
            _ => TokenKind::Unused,
        })
        .collect())
}

/// Turns the texts of the file into the bytes they stand for. Only ordinary tokens use the byte alphabet, or another
/// character for a space.
fn token_bytes(
    texts: &StringArray,
    kinds: &[TokenKind],
    model: TokenizerModel,
) -> Result<(Vec<u8>, Vec<u32>), TextError> {
    if u32::try_from(texts.len()).is_err() {
        return Err(TextError::Vocabulary(format!("{} tokens", texts.len())));
    }
    let mut bytes = Vec::with_capacity(texts.byte_count());
    let mut ends = Vec::with_capacity(texts.len());
    for (text, kind) in texts.iter().zip(kinds) {
        let spaces = model != TokenizerModel::Bytes;
        match kind {
            TokenKind::Normal | TokenKind::UserDefined if spaces => bytes.extend(pieces::spaced(text)),
            TokenKind::Normal if alphabet::decode(text, &mut bytes) => {}
            TokenKind::Byte if raw_byte(text).is_some() => bytes.extend(raw_byte(text)),
            _ => bytes.extend_from_slice(text),
        }
        // The bytes are never more than the texts, which the reader holds below 4 GiB.
        ends.push(bytes.len() as u32);
    }
    Ok((bytes, ends))
}

/// The byte in `<0x0A>`.
fn raw_byte(text: &[u8]) -> Option<u8> {
    let digits = str::from_utf8(text.strip_prefix(b"<0x")?.strip_suffix(b">")?).ok()?;
    u8::from_str_radix(digits, 16).ok()
}

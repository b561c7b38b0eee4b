//! WordPiece: the tokeniser of BERT and of the embedding models made from it.
//!
//! A text is made plain (control characters go, accents go, letters become small), cut at white space and punctuation, and
//! each word is spelled with the longest pieces of the vocabulary. A word that cannot be spelled is one unknown token.
//! Ids equal those of the `tokenizers` library for uncased models, but for compatibility ideographs, which stay as they
//! are.

mod table;

use std::collections::HashMap;

use model::gguf::Metadata;

use crate::error::TextError;

/// Letters of a word that is still spelled; a longer one is unknown.
const WORD_LETTERS_MAX: usize = 100;

/// What newer files put before a piece that begins a word; those within a word have nothing. Older files are written as
/// the vocabulary was: nothing, and `##`.
const BEGIN: &str = "\u{2581}";
const WITHIN: &str = "##";

/// A WordPiece tokeniser. Share it between threads.
#[derive(Debug)]
pub struct WordPiece {
    /// Pieces that begin a word, and those within one.
    begin: HashMap<String, u32>,
    within: HashMap<String, u32>,
    /// Letters of the longest piece.
    longest: usize,
    count: usize,
    first: u32,
    last: u32,
    unknown: u32,
}

impl WordPiece {
    /// The tokeniser that these `tokenizer.*` keys describe.
    pub fn from_metadata(metadata: &Metadata) -> Result<WordPiece, TextError> {
        let found = metadata.str("tokenizer.ggml.model")?;
        if found != "bert" {
            return Err(TextError::TokenizerModel { found: found.to_string() });
        }
        let texts = metadata.strings("tokenizer.ggml.tokens")?;
        let marked = texts.iter().any(|text| text.starts_with(BEGIN.as_bytes()));
        let (mut begin, mut within, mut longest) = (HashMap::new(), HashMap::new(), 0);
        let mut named: HashMap<&str, u32> = HashMap::new();
        for (text, id) in texts.iter().zip(0u32..) {
            let Ok(text) = std::str::from_utf8(text) else { continue };
            let special = text.starts_with('[') && text.ends_with(']');
            if special {
                named.entry(text).or_insert(id);
            }
            let (pieces, text) = match (marked, text.strip_prefix(BEGIN), text.strip_prefix(WITHIN)) {
                // Control tokens are no words, whatever a text says. Punctuation of one sign is.
                _ if special && text.chars().count() > 2 => continue,
                (true, Some(text), _) => (&mut begin, text),
                (true, None, _) => (&mut within, text),
                (false, _, Some(text)) if !text.is_empty() => (&mut within, text),
                (false, _, _) => (&mut begin, text),
            };
            longest = longest.max(text.chars().count());
            pieces.entry(text.to_string()).or_insert(id);
        }
        let special = |keys: &[&str], name: &str| -> Result<u32, TextError> {
            for key in keys {
                if let Some(id) = metadata.optional::<u32>(&format!("tokenizer.ggml.{key}_token_id"))?
                    && (id as usize) < texts.len()
                {
                    return Ok(id);
                }
            }
            named.get(name).copied().ok_or_else(|| TextError::Vocabulary(format!("no token {name}")))
        };
        Ok(WordPiece {
            // Files call the last one "seperator".
            first: special(&["cls", "bos"], "[CLS]")?,
            last: special(&["seperator", "separator", "eos"], "[SEP]")?,
            unknown: special(&["unknown"], "[UNK]")?,
            count: texts.len(),
            begin,
            within,
            longest,
        })
    }

    /// Number of tokens. Ids are `0..len()`.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The ids of a text between the tokens that stand around every text. Stops soon after there are more than `most`.
    pub fn encode(&self, text: &str, most: usize) -> Vec<u32> {
        let mut ids = vec![self.first];
        let mut word = String::new();
        for letter in text.chars() {
            match kind(letter) {
                Kind::Nothing => {}
                Kind::Space => self.spell(&mut word, &mut ids),
                Kind::Alone => {
                    self.spell(&mut word, &mut ids);
                    plain(letter, &mut word);
                    self.spell(&mut word, &mut ids);
                }
                Kind::Letter => {
                    // A word that is too long is unknown, however it goes on.
                    if word.len() <= 4 * WORD_LETTERS_MAX {
                        plain(letter, &mut word);
                    }
                }
            }
            if ids.len() > most {
                break;
            }
        }
        self.spell(&mut word, &mut ids);
        ids.push(self.last);
        ids
    }

    /// The first `most` of some ids, ended as every text is.
    pub fn cut(&self, mut ids: Vec<u32>, most: usize) -> Vec<u32> {
        if ids.len() > most {
            ids.truncate(most.saturating_sub(1));
            ids.push(self.last);
        }
        ids
    }

    /// Appends the ids of a word and clears it.
    fn spell(&self, word: &mut String, ids: &mut Vec<u32>) {
        if word.is_empty() {
            return;
        }
        let before = ids.len();
        let letters: Vec<usize> = word.char_indices().map(|(at, _)| at).chain([word.len()]).collect();
        let mut from = 0;
        while from + 1 < letters.len() && letters.len() <= WORD_LETTERS_MAX + 1 {
            let pieces = if from == 0 { &self.begin } else { &self.within };
            let longest = (letters.len() - 1).min(from + self.longest);
            let fits = |&to: &usize| pieces.get(&word[letters[from]..letters[to]]).map(|&id| (to, id));
            let Some((to, id)) = (from + 1..=longest).rev().find_map(|to| fits(&to)) else { break };
            ids.push(id);
            from = to;
        }
        if from + 1 < letters.len() {
            ids.truncate(before);
            ids.push(self.unknown);
        }
        word.clear();
    }
}

/// What a character does to the words around it.
enum Kind {
    /// It is not there.
    Nothing,
    /// It parts words.
    Space,
    /// It is a word of its own.
    Alone,
    /// It is part of a word.
    Letter,
}

fn kind(letter: char) -> Kind {
    if letter.is_whitespace() {
        return Kind::Space;
    }
    if letter.is_ascii() {
        return match letter {
            _ if letter.is_ascii_control() => Kind::Nothing,
            _ if letter.is_ascii_punctuation() => Kind::Alone,
            _ => Kind::Letter,
        };
    }
    if letter == char::REPLACEMENT_CHARACTER || within(&table::CONTROL, letter) || within(&table::NONSPACING, letter) {
        Kind::Nothing
    } else if is_ideograph(letter) || within(&table::PUNCTUATION, letter) {
        Kind::Alone
    } else {
        Kind::Letter
    }
}

/// Ideographs that BERT takes for words.
fn is_ideograph(letter: char) -> bool {
    matches!(letter as u32,
        0x3400..=0x4dbf | 0x4e00..=0x9fff | 0xf900..=0xfaff | 0x20000..=0x2a6df | 0x2a700..=0x2ceaf | 0x2f800..=0x2fa1f)
}

fn within(ranges: &[(u32, u32)], letter: char) -> bool {
    let code = letter as u32;
    let after = ranges.partition_point(|&(first, _)| first <= code);
    after.checked_sub(1).is_some_and(|index| code <= ranges[index].1)
}

/// Appends a letter without its accents, in small.
fn plain(letter: char, word: &mut String) {
    let code = letter as u32;
    if (0xac00..=0xd7a3).contains(&code) {
        // A Hangul syllable is written as its parts.
        let index = code - 0xac00;
        let parts = [0x1100 + index / 588, 0x1161 + index % 588 / 28, 0x11a7 + index % 28];
        word.extend(parts.into_iter().filter(|&part| part != 0x11a7).filter_map(char::from_u32));
        return;
    }
    let base = match table::BASES.binary_search_by_key(&code, |&(accented, _)| accented) {
        Ok(index) if !letter.is_ascii() => char::from_u32(table::BASES[index].1).unwrap_or(letter),
        _ => letter,
    };
    word.extend(base.to_lowercase().filter(|small| !within(&table::NONSPACING, *small)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let mut words = vec![String::new()];
        for letter in text.chars() {
            match kind(letter) {
                Kind::Nothing => {}
                Kind::Space => words.push(String::new()),
                Kind::Letter => plain(letter, words.last_mut().unwrap()),
                Kind::Alone => {
                    let mut alone = String::new();
                    plain(letter, &mut alone);
                    words.extend([alone, String::new()]);
                }
            }
        }
        words.retain(|word| !word.is_empty());
        words
    }

    #[test]
    fn texts_are_made_plain_and_cut() {
        assert_eq!(words("Héllo,  WÖRLD!\n"), ["hello", ",", "world", "!"]);
        assert_eq!(words("e\u{301}a\u{ad}\u{200b}b\u{0}c\u{fffd}"), ["eabc"]);
        assert_eq!(words("日本go"), ["日", "本", "go"]);
        assert_eq!(words("İstanbul Straße ΣΑΣ"), ["istanbul", "straße", "σασ"]);
        assert_eq!(words("한"), ["\u{1112}\u{1161}\u{11ab}"]);
        assert_eq!(words("a_b$c—d"), ["a", "_", "b", "$", "c", "—", "d"]);
    }
}

//! Pre-tokenisers: where a text is cut into words before merging.
//!
//! Each is a hand-written machine for one regular expression: the one in the model's own `tokenizer.json`, and where that
//! agrees with it the one llama.cpp runs for the same name (the golden tests compare the words and the ids). For letters
//! beyond ASCII llama.cpp runs another expression for `gpt-4o` and `tekken`; Flint follows what the model was trained
//! with. Words never overlap, never are empty, and together they are the whole text.

use crate::unicode::{Case, Class, case_at, class_at};

/// The ways to cut a text, named by families that share one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PreTokenizer {
    /// `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
    Gpt2,
    /// Every `\p{N}` on its own, then [`PreTokenizer::Gpt2`] between them.
    Smollm,
    /// `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
    Qwen2,
    /// As [`PreTokenizer::Qwen2`], with `\p{N}{1,3}` for numbers.
    Llama3,
    /// The words of [`PreTokenizer::Llama3`]; a word that is a token is merged like any other.
    Glm4,
    /// As [`PreTokenizer::Qwen2`], with `[\p{L}\p{M}]+` for letters and `[^\s\p{L}\p{M}\p{N}]+` for the rest.
    Qwen35,
    /// `P?U*L+C?|P?U+L*C?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+` with `P` =
    /// `[^\r\n\p{L}\p{N}]`, `U` = `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`, `L` = `[\p{Ll}\p{Lm}\p{Lo}\p{M}]` and `C` =
    /// `(?i:'s|'t|'re|'ve|'m|'ll|'d)`
    Gpt4o,
    /// As [`PreTokenizer::Gpt4o`], without `C` and with `\p{N}` for numbers.
    Tekken,
    /// `[^\n]+|\n+`
    Gemma4,
    /// The whole text is one word.
    Whole,
}

/// The names that `tokenizer.ggml.pre` may have, with what they stand for.
const NAMES: [(&str, PreTokenizer); 19] = [
    ("gpt-2", PreTokenizer::Gpt2),
    ("olmo", PreTokenizer::Gpt2),
    ("smollm", PreTokenizer::Smollm),
    ("starcoder", PreTokenizer::Smollm),
    ("refact", PreTokenizer::Smollm),
    ("qwen2", PreTokenizer::Qwen2),
    ("deepseek-r1-qwen", PreTokenizer::Qwen2),
    ("stablelm2", PreTokenizer::Qwen2),
    ("llama-bpe", PreTokenizer::Llama3),
    ("llama3", PreTokenizer::Llama3),
    ("llama-v3", PreTokenizer::Llama3),
    ("falcon3", PreTokenizer::Llama3),
    ("chatglm-bpe", PreTokenizer::Glm4),
    ("glm4", PreTokenizer::Glm4),
    ("qwen35", PreTokenizer::Qwen35),
    ("gpt-4o", PreTokenizer::Gpt4o),
    ("llama4", PreTokenizer::Gpt4o),
    ("tekken", PreTokenizer::Tekken),
    ("gemma4", PreTokenizer::Gemma4),
];

impl PreTokenizer {
    /// The pre-tokeniser that a file names.
    pub fn from_name(name: &str) -> Option<PreTokenizer> {
        NAMES.iter().find(|row| row.0 == name).map(|row| row.1)
    }

    /// All known names, for messages.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMES.iter().map(|row| row.0)
    }

    /// Whether a word that is a token is taken without merging.
    pub(crate) fn takes_words_whole(self) -> bool {
        matches!(self, PreTokenizer::Llama3 | PreTokenizer::Tekken)
    }

    /// Whether a prompt starts with the token for the start of a text where the file does not say.
    pub(crate) fn starts_with_bos(self) -> bool {
        matches!(self, PreTokenizer::Llama3 | PreTokenizer::Tekken | PreTokenizer::Whole)
    }

    /// Cuts a sanitized text into words.
    pub(crate) fn words(self, text: &[u8]) -> Words<'_> {
        Words { pre: self, text, at: 0, segment_end: if self == PreTokenizer::Smollm { 0 } else { text.len() } }
    }
}

/// The words of a text, in order.
pub(crate) struct Words<'a> {
    pre: PreTokenizer,
    text: &'a [u8],
    at: usize,
    /// No word reaches beyond: the end of the text, or the next number where numbers are cut out first.
    segment_end: usize,
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let start = self.at;
        if start == self.text.len() {
            return None;
        }
        if start == self.segment_end {
            self.segment_end = segment_end(self.text, start);
        }
        let segment = &self.text[..self.segment_end];
        self.at = match self.pre {
            PreTokenizer::Gpt2 | PreTokenizer::Smollm => gpt2_end(segment, start),
            PreTokenizer::Qwen2 => qwen_end(segment, start, 1),
            PreTokenizer::Llama3 | PreTokenizer::Glm4 => qwen_end(segment, start, 3),
            PreTokenizer::Qwen35 => qwen35_end(segment, start),
            PreTokenizer::Gpt4o => cased_end(segment, start, 3, true),
            PreTokenizer::Tekken => cased_end(segment, start, 1, false),
            PreTokenizer::Gemma4 => line_end(segment, start),
            PreTokenizer::Whole => segment.len(),
        };
        Some(&self.text[start..self.at])
    }
}

/// Where the segment at `start` ends: after one number, or before the next.
fn segment_end(text: &[u8], start: usize) -> usize {
    let (class, length) = class_at(text, start);
    if class == Class::Number {
        return start + length;
    }
    skip(text, start, |class| class != Class::Number)
}

/// The end of the GPT-2 word at `at`.
fn gpt2_end(text: &[u8], at: usize) -> usize {
    if let Some(end) = contraction_end(text, at, u8::clone) {
        return end;
    }
    let run = if text[at] == b' ' { at + 1 } else { at };
    let (class, _) = class_at(text, run);
    match class {
        Class::Letter | Class::Number | Class::Other => skip(text, run, |next| next == class),
        Class::Space | Class::End => space_end(text, at),
    }
}

/// The end of the Qwen or Llama 3 word at `at`; they differ in how many digits go together.
fn qwen_end(text: &[u8], at: usize, digits_max: usize) -> usize {
    if let Some(end) = contraction_end(text, at, u8::to_ascii_lowercase) {
        return end;
    }
    let (class, length) = class_at(text, at);
    if class == Class::Number {
        return number_end(text, at, digits_max);
    }
    let line_break = matches!(text[at], b'\r' | b'\n');
    if class == Class::Letter || (!line_break && class_at(text, at + length).0 == Class::Letter) {
        return skip(text, at + length, |class| class == Class::Letter);
    }
    let run = if text[at] == b' ' { at + 1 } else { at };
    if class_at(text, run).0 == Class::Other {
        let end = skip(text, run, |class| class == Class::Other);
        return end + text[end..].iter().take_while(|&&byte| matches!(byte, b'\r' | b'\n')).count();
    }
    line_break_end(text, at)
}

/// `\s*[\r\n]+|\s+(?!\S)|\s+`
fn line_break_end(text: &[u8], at: usize) -> usize {
    let spaces_end = skip(text, at, |class| class == Class::Space);
    match text[at..spaces_end].iter().rposition(|&byte| matches!(byte, b'\r' | b'\n')) {
        Some(last_break) => at + last_break + 1,
        None => space_end(text, at),
    }
}

/// The end of the Qwen 3.5 word at `at`.
fn qwen35_end(text: &[u8], at: usize) -> usize {
    if let Some(end) = contraction_end(text, at, u8::to_ascii_lowercase) {
        return end;
    }
    let (class, length) = class_at(text, at);
    if class == Class::Number {
        return at + length;
    }
    let in_word = |at| case_at(text, at).0 != Case::None;
    let line_break = matches!(text[at], b'\r' | b'\n');
    if in_word(at) || (!line_break && in_word(at + length)) {
        return skip_cases(text, at + length, |case| case != Case::None);
    }
    let run = if text[at] == b' ' { at + 1 } else { at };
    let rest_end = skip_at(text, run, |at| class_at(text, at).0 == Class::Other && !in_word(at));
    if rest_end > run {
        return rest_end + text[rest_end..].iter().take_while(|&&byte| matches!(byte, b'\r' | b'\n')).count();
    }
    line_break_end(text, at)
}

/// The end of the word at `at` where capitals start words.
fn cased_end(text: &[u8], at: usize, digits_max: usize, contractions: bool) -> usize {
    if let Some(end) = cased_letters_end(text, at) {
        let more = contractions.then(|| contraction_end(text, end, u8::to_ascii_lowercase)).flatten();
        return more.unwrap_or(end);
    }
    if class_at(text, at).0 == Class::Number {
        return number_end(text, at, digits_max);
    }
    let run = if text[at] == b' ' { at + 1 } else { at };
    let end = skip(text, run, |class| class == Class::Other);
    if end > run {
        return end + text[end..].iter().take_while(|&&byte| matches!(byte, b'\r' | b'\n' | b'/')).count();
    }
    line_break_end(text, at)
}

/// `P?U*L+|P?U+L*` of [`PreTokenizer::Gpt4o`], in the order in which a backtracking matcher tries it.
fn cased_letters_end(text: &[u8], at: usize) -> Option<usize> {
    let (class, length) = class_at(text, at);
    let prefix = matches!(class, Class::Other | Class::Space) && !matches!(text[at], b'\r' | b'\n');
    let starts = [prefix.then_some(at + length), Some(at)];
    for start in starts.into_iter().flatten() {
        // All of `U*`, and the last place in it that could be `L` as well.
        let (mut end, mut last_both) = (start, None);
        loop {
            match case_at(text, end) {
                (Case::Upper, length) => end += length,
                (Case::Caseless | Case::Mark, length) => {
                    end += length;
                    last_both = Some(end);
                }
                (Case::Lower, _) => {
                    return Some(skip_cases(text, end, |case| !matches!(case, Case::None | Case::Upper)));
                }
                (Case::None, _) => break,
            }
        }
        if last_both.is_some() {
            return last_both;
        }
    }
    // Without a letter of `L` there is nothing but capitals.
    starts.into_iter().flatten().find_map(|start| {
        let end = skip_cases(text, start, |case| case == Case::Upper);
        (end > start).then_some(end)
    })
}

/// A line without its end, or line ends in a row.
fn line_end(text: &[u8], at: usize) -> usize {
    let breaks = text[at] == b'\n';
    let length = text[at..].iter().position(|&byte| (byte == b'\n') != breaks);
    length.map_or(text.len(), |length| at + length)
}

/// `'s|'t|'re|'ve|'m|'ll|'d`, after folding letters as the caller says.
#[inline]
fn contraction_end(text: &[u8], at: usize, fold: fn(&u8) -> u8) -> Option<usize> {
    if text.get(at) != Some(&b'\'') {
        return None;
    }
    let first = fold(text.get(at + 1)?);
    if matches!(first, b's' | b't' | b'm' | b'd') {
        return Some(at + 2);
    }
    let second = fold(text.get(at + 2)?);
    matches!((first, second), (b'r', b'e') | (b'v', b'e') | (b'l', b'l')).then_some(at + 3)
}

fn number_end(text: &[u8], at: usize, digits_max: usize) -> usize {
    let mut end = at;
    for _ in 0..digits_max {
        match class_at(text, end) {
            (Class::Number, length) => end += length,
            _ => break,
        }
    }
    end
}

/// `\s+(?!\S)|\s+`: all spaces, but the last one stays with the word that follows.
fn space_end(text: &[u8], at: usize) -> usize {
    let (mut last, mut end) = (at, at);
    loop {
        match class_at(text, end) {
            (Class::Space, length) => {
                last = end;
                end += length;
            }
            (Class::End, _) => return end,
            _ if last > at => return last,
            _ => return end,
        }
    }
}

/// The first position from `at` on whose character is not wanted.
#[inline]
fn skip(text: &[u8], mut at: usize, wanted: impl Fn(Class) -> bool) -> usize {
    loop {
        match class_at(text, at) {
            (Class::End, _) => return at,
            (class, length) if wanted(class) => at += length,
            _ => return at,
        }
    }
}

/// The same for cases.
fn skip_cases(text: &[u8], at: usize, wanted: impl Fn(Case) -> bool) -> usize {
    skip_at(text, at, |at| wanted(case_at(text, at).0))
}

/// The same by position.
fn skip_at(text: &[u8], mut at: usize, wanted: impl Fn(usize) -> bool) -> usize {
    while at < text.len() && wanted(at) {
        at += class_at(text, at).1;
    }
    at
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn check(pre: PreTokenizer, text: &str, words: &[&str]) {
        let found: Vec<_> = pre.words(text.as_bytes()).map(|word| str::from_utf8(word).unwrap()).collect();
        assert_eq!(found, words, "{pre:?} {text:?}");
    }

    #[test]
    fn gpt2_words() {
        use PreTokenizer::Gpt2;
        check(Gpt2, "I'm 12ok  x", &["I", "'m", " 12", "ok", " ", " x"]);
        check(Gpt2, "it'S a\n\nb  ", &["it", "'", "S", " a", "\n", "\n", "b", "  "]);
        check(Gpt2, "", &[]);
    }

    #[test]
    fn smollm_cuts_numbers_out_first() {
        use PreTokenizer::Smollm;
        check(Smollm, "a  12 b", &["a", "  ", "1", "2", " b"]);
        check(Smollm, "'1s", &["'", "1", "s"]);
    }

    #[test]
    fn qwen_and_llama_words() {
        use PreTokenizer::{Llama3, Qwen2};
        check(
            Qwen2,
            "don'T (x);\n\n  y\u{3000}\u{3000} z",
            &["don", "'T", " (", "x", ");\n\n", " ", " y", "\u{3000}\u{3000}", " z"],
        );
        check(Qwen2, "12 \n \n  ", &["1", "2", " \n \n", "  "]);
        check(Qwen2, "\tif x", &["\tif", " x"]);
        check(Llama3, "12345 x", &["123", "45", " x"]);
    }

    /// The words that the expressions of the models' own `tokenizer.json` find, with a real matcher of them.
    #[test]
    fn words_are_those_of_the_models_own_expressions() {
        let read = |text: &'static str| text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let corpus = read(include_str!("../tests/golden/corpus.jsonl"));
        let made = read(include_str!("../tests/golden/words-corpus.jsonl"));
        let texts: Vec<String> =
            corpus.chain(made).filter_map(|line| Some(line["text"].as_str()?.to_owned())).collect();
        let mut compared = 0;
        for row in read(include_str!("../tests/golden/words.jsonl")) {
            let pre = PreTokenizer::from_name(row["pre"].as_str().unwrap()).unwrap();
            let text = texts[row["text"].as_u64().unwrap() as usize].as_bytes();
            let found: Vec<usize> = pre.words(text).map(<[u8]>::len).collect();
            let expected: Vec<usize> =
                row["bytes"].as_array().unwrap().iter().map(|length| length.as_u64().unwrap() as usize).collect();
            assert_eq!(found, expected, "{pre:?} {:?}", String::from_utf8_lossy(text));
            compared += 1;
        }
        assert_eq!(compared, texts.len() * 5);
    }

    #[test]
    fn capitals_start_words() {
        use PreTokenizer::{Gpt4o, Tekken};
        check(Gpt4o, "aB HTTPServer's x/y//", &["a", "B", " HTTPServer's", " x", "/y", "//"]);
        check(Tekken, "HTTPServer's 12", &["HTTPServer", "'s", " ", "1", "2"]);
        check(Gpt4o, "中A b", &["中", "A", " b"]);
    }
}

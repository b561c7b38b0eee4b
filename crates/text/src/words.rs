//! Pre-tokenisers: where a text is cut into words before merging.
//!
//! Each is a hand-written machine for one regular expression, equal to the one llama.cpp runs for the same name (the
//! golden test compares the ids). Words never overlap, never are empty, and together they are the whole text.

use crate::unicode::{Class, class_at};

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
}

/// The names that `tokenizer.ggml.pre` may have, with what they stand for.
const NAMES: [(&str, PreTokenizer); 12] = [
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
            PreTokenizer::Llama3 => qwen_end(segment, start, 3),
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
    let spaces_end = skip(text, at, |class| class == Class::Space);
    match text[at..spaces_end].iter().rposition(|&byte| matches!(byte, b'\r' | b'\n')) {
        Some(last_break) => at + last_break + 1,
        None => space_end(text, at),
    }
}

/// `'s|'t|'re|'ve|'m|'ll|'d`, after folding letters as the caller says.
#[inline]
fn contraction_end(text: &[u8], at: usize, fold: fn(&u8) -> u8) -> Option<usize> {
    if text[at] != b'\'' {
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

#[cfg(test)]
mod tests {
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
}

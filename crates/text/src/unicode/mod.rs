//! What the tokenisers know about characters: three classes, the case of letters, and a forgiving reading of UTF-8.
//!
//! Both follow llama.cpp, because the ids must be equal. Its reading differs from Rust's: overlong forms and
//! surrogates are accepted, and every other byte that fits nowhere becomes U+FFFD on its own. [`sanitize`] applies
//! that once; everything after it may rely on well-formed sequences.

mod table;

use std::borrow::Cow;
use std::sync::LazyLock;

/// What a pre-tokeniser needs to know about a character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Class {
    /// Everything else: punctuation, symbols, marks, controls.
    Other,
    /// `\p{L}`.
    Letter,
    /// `\p{N}`.
    Number,
    /// `\s`.
    Space,
    /// Past the last character.
    End,
}

/// What some pre-tokenisers know beyond the class: the case of a letter, and marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Case {
    /// Neither a letter nor a mark.
    None,
    /// `\p{Lu}` and `\p{Lt}`.
    Upper,
    /// `\p{Ll}`.
    Lower,
    /// `\p{Lm}` and `\p{Lo}`.
    Caseless,
    /// `\p{M}`.
    Mark,
}

/// How many code points there are.
pub(crate) const CODE_POINTS: usize = 0x11_0000;

/// The class of every code point, one byte each: 1.1 MB, of which a text touches a few pages.
static CLASSES: LazyLock<Box<[Class]>> = LazyLock::new(|| {
    let mut classes = vec![Class::Other; CODE_POINTS].into_boxed_slice();
    for (ranges, class) in [(&table::LETTERS[..], Class::Letter), (&table::NUMBERS[..], Class::Number)] {
        for &(first, last) in ranges {
            classes[first as usize..=last as usize].fill(class);
        }
    }
    for space in (0..=0xffff).filter_map(char::from_u32).filter(|c| c.is_whitespace()) {
        classes[space as usize] = Class::Space;
    }
    classes
});

/// The case of every code point; only files whose pre-tokeniser asks for it make this table.
static CASES: LazyLock<Box<[Case]>> = LazyLock::new(|| {
    let mut cases = vec![Case::None; CODE_POINTS].into_boxed_slice();
    for &(first, last) in &table::LETTERS {
        for code in first..=last {
            cases[code as usize] = match char::from_u32(code) {
                Some(c) if c.is_uppercase() => Case::Upper,
                Some(c) if c.is_lowercase() => Case::Lower,
                _ => Case::Caseless,
            };
        }
    }
    let rest = [
        (&table::TITLE_CASE[..], Case::Upper),
        (&table::CASELESS, Case::Caseless),
        (&table::MARKS, Case::Mark),
        // A small letter in Unicode 15.1, which later versions changed their mind about.
        (&[(0x295, 0x295)], Case::Lower),
    ];
    for (ranges, case) in rest {
        for &(first, last) in ranges {
            cases[first as usize..=last as usize].fill(case);
        }
    }
    cases
});

/// Case and length of the character at `at`, which is a character boundary of a sanitized text.
#[inline]
pub(crate) fn case_at(text: &[u8], at: usize) -> (Case, usize) {
    match text.get(at) {
        None => (Case::None, 0),
        Some(byte) if byte.is_ascii_lowercase() => (Case::Lower, 1),
        Some(byte) if byte.is_ascii_uppercase() => (Case::Upper, 1),
        Some(byte) if byte.is_ascii() => (Case::None, 1),
        Some(_) => {
            let (code, length) = decode(text, at).unwrap_or((0xfffd, 1));
            (CASES.get(code as usize).copied().unwrap_or(Case::None), length)
        }
    }
}

/// Class and length of the character at `at`, which is a character boundary of a sanitized text.
#[inline]
pub(crate) fn class_at(text: &[u8], at: usize) -> (Class, usize) {
    match text.get(at) {
        None => (Class::End, 0),
        Some(&byte) if byte < 0x80 => (ASCII[byte as usize], 1),
        Some(_) => {
            let (code, length) = decode(text, at).unwrap_or((0xfffd, 1));
            (CLASSES.get(code as usize).copied().unwrap_or(Class::Other), length)
        }
    }
}

/// Class of the one-byte characters: the common case does not touch the large table.
const ASCII: [Class; 128] = {
    let mut classes = [Class::Other; 128];
    let mut byte = 0;
    while byte < 128 {
        let c = byte as u8;
        if c.is_ascii_alphabetic() {
            classes[byte] = Class::Letter;
        } else if c.is_ascii_digit() {
            classes[byte] = Class::Number;
        } else if matches!(c, b'\t'..=b'\r' | b' ') {
            classes[byte] = Class::Space;
        }
        byte += 1;
    }
    classes
};

/// Code point and length of the sequence at `at`, judged only by its leading bits as llama.cpp does.
pub(crate) fn decode(text: &[u8], at: usize) -> Option<(u32, usize)> {
    let lead = u32::from(*text.get(at)?);
    let (length, bits) = match lead {
        0x00..=0x7f => return Some((lead, 1)),
        0xc0..=0xdf => (2, lead & 0x1f),
        0xe0..=0xef => (3, lead & 0x0f),
        0xf0..=0xf7 => (4, lead & 0x07),
        _ => return None,
    };
    let rest = text.get(at + 1..at + length)?;
    let code =
        rest.iter().try_fold(bits, |code, &byte| (byte & 0xc0 == 0x80).then(|| code << 6 | u32::from(byte & 0x3f)))?;
    // llama.cpp refuses the whole text here; replacing the byte like any other broken one is kinder.
    (code < CODE_POINTS as u32).then_some((code, length))
}

/// The text with every broken byte replaced by U+FFFD and overlong forms shortened. Valid UTF-8 is returned as it is.
pub(crate) fn sanitize(text: &[u8]) -> Cow<'_, [u8]> {
    if std::str::from_utf8(text).is_ok() {
        return Cow::Borrowed(text);
    }
    let mut clean = Vec::with_capacity(text.len() + 16);
    let mut at = 0;
    while at < text.len() {
        let (code, length) = decode(text, at).unwrap_or((0xfffd, 1));
        encode(code, &mut clean);
        at += length;
    }
    Cow::Owned(clean)
}

/// Appends a code point. `char` cannot do this: surrogates pass through.
pub(crate) fn encode(code: u32, out: &mut Vec<u8>) {
    let tail = |shift: u32| 0x80 | (code >> shift & 0x3f) as u8;
    match code {
        0..=0x7f => out.push(code as u8),
        0x80..=0x7ff => out.extend([0xc0 | (code >> 6) as u8, tail(0)]),
        0x800..=0xffff => out.extend([0xe0 | (code >> 12) as u8, tail(6), tail(0)]),
        _ => out.extend([0xf0 | (code >> 18) as u8, tail(12), tail(6), tail(0)]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_bytes_are_replaced_one_by_one() {
        let check = |text: &[u8], clean: &[u8]| assert_eq!(&*sanitize(text), clean, "{text:x?}");
        check(b"plain \xc3\xa9", b"plain \xc3\xa9");
        check(b"a\xffb", "a\u{fffd}b".as_bytes());
        check(b"\xe2\x82", "\u{fffd}\u{fffd}".as_bytes());
        check(b"\xc0\x80", b"\0");
        check(b"\xed\xa0\x80\xff", b"\xed\xa0\x80\xef\xbf\xbd");
        check(b"\xf4\x90\x80\x80", "\u{fffd}\u{fffd}\u{fffd}\u{fffd}".as_bytes());
    }

    #[test]
    fn both_tables_agree_on_ascii() {
        for byte in 0..128 {
            assert_eq!(ASCII[byte], CLASSES[byte], "{byte}");
        }
    }

    /// The numbers of Unicode 15.1: a later version of the compiler changes none of them.
    #[test]
    fn every_letter_has_its_case() {
        let count = |wanted| CASES.iter().filter(|&&case| case == wanted).count();
        assert_eq!(
            [Case::Upper, Case::Lower, Case::Caseless, Case::Mark].map(count),
            [1831 + 31, 2233, 397 + 132_234, 1985 + 452 + 13]
        );
        for byte in 0..128 {
            assert_eq!(case_at(&[byte], 0), (CASES[usize::from(byte)], 1), "{byte}");
        }
    }

    #[test]
    fn classes_of_some_characters() {
        for (text, class) in
            [("é", Class::Letter), ("中", Class::Letter), ("½", Class::Number), ("\u{3000}", Class::Space)]
        {
            assert_eq!(class_at(text.as_bytes(), 0), (class, text.len()), "{text}");
        }
        assert_eq!(class_at("\u{301}".as_bytes(), 0).0, Class::Other);
        assert_eq!(class_at(b"", 0), (Class::End, 0));
    }
}

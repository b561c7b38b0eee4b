//! The arguments of a call that is written as JSON, passed on while they are written.

/// Where a value stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    /// An object or array, passed on as it is.
    Json {
        /// Open objects and arrays.
        depth: usize,
        string: bool,
        escape: bool,
    },
    /// A number or word, which has no end of its own.
    Word {
        /// Some of it has been passed on.
        started: bool,
    },
    /// Inside a string that is decoded: JSON in a string, or the input of a custom tool.
    Text,
}

/// What became of some text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// This many bytes belong to the value.
    Inside(usize),
    /// The value ends after this many bytes, in good order or not.
    End { length: usize, complete: bool },
    /// Nothing can be said yet.
    Wait,
}

impl Value {
    /// The start of a value, by its first byte. A string's opening quote is not part of it.
    pub fn starting_with(byte: u8) -> Value {
        match byte {
            b'"' => Value::Text,
            b'{' | b'[' => Value::Json { depth: 0, string: false, escape: false },
            _ => Value::Word { started: false },
        }
    }

    /// Reads on, and appends to `delta` what the value says.
    pub fn read(&mut self, text: &str, delta: &mut String) -> Progress {
        match self {
            Value::Json { depth, string, escape } => {
                let progress = read_json(text.as_bytes(), depth, string, escape);
                if let Progress::Inside(length) | Progress::End { length, .. } = progress {
                    delta.push_str(&text[..length]);
                }
                progress
            }
            Value::Word { started } => read_word(text, started, delta),
            Value::Text => read_string(text, delta),
        }
    }
}

fn read_json(bytes: &[u8], depth: &mut usize, string: &mut bool, escape: &mut bool) -> Progress {
    for (at, &byte) in bytes.iter().enumerate() {
        if *string {
            match byte {
                _ if *escape => *escape = false,
                b'\\' => *escape = true,
                b'"' => *string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => *string = true,
            b'{' | b'[' => *depth += 1,
            b'}' | b']' => {
                *depth = depth.saturating_sub(1);
                if *depth == 0 {
                    return Progress::End { length: at + 1, complete: true };
                }
            }
            // The closing tag or fence, before the value was closed.
            b'<' | b'`' => return Progress::End { length: at, complete: false },
            _ => {}
        }
    }
    Progress::Inside(bytes.len())
}

/// `null` is the same as no arguments.
fn read_word(text: &str, started: &mut bool, delta: &mut String) -> Progress {
    if !*started && text.starts_with("null") {
        delta.push_str("{}");
        return Progress::End { length: 4, complete: true };
    }
    if !*started && "null".starts_with(text) {
        return Progress::Wait;
    }
    *started = true;
    let end = text.find(|c: char| c.is_ascii_whitespace() || ",}]<`".contains(c));
    let length = end.unwrap_or(text.len());
    delta.push_str(&text[..length]);
    match end {
        Some(_) => Progress::End { length, complete: true },
        None => Progress::Inside(length),
    }
}

fn read_string(text: &str, delta: &mut String) -> Progress {
    let mut at = 0;
    while let Some(plain) = text[at..].find(['"', '\\']) {
        delta.push_str(&text[at..at + plain]);
        at += plain;
        if text.as_bytes()[at] == b'"' {
            return Progress::End { length: at + 1, complete: true };
        }
        match read_escape(&text[at..], delta) {
            Some(length) => at += length,
            None if at == 0 => return Progress::Wait,
            None => return Progress::Inside(at),
        }
    }
    delta.push_str(&text[at..]);
    Progress::Inside(text.len())
}

/// Appends what an escape stands for and gives its length; nothing while it may be unfinished. What is no escape comes
/// out as it was written.
fn read_escape(text: &str, delta: &mut String) -> Option<usize> {
    let c = text[1..].chars().next()?;
    let plain = match c {
        'n' => '\n',
        't' => '\t',
        'r' => '\r',
        'b' => '\u{8}',
        'f' => '\u{c}',
        '"' | '\\' | '/' => c,
        'u' => return read_unicode(text.as_bytes(), delta),
        other => {
            delta.push('\\');
            delta.push(other);
            return Some(1 + other.len_utf8());
        }
    };
    delta.push(plain);
    Some(2)
}

/// `\u00e9`, or two of them for a character beyond U+FFFF.
fn read_unicode(bytes: &[u8], delta: &mut String) -> Option<usize> {
    let Some(first) = code_unit(bytes)? else {
        delta.push_str("\\u");
        return Some(2);
    };
    if let Some(c) = char::from_u32(first) {
        delta.push(c);
        return Some(6);
    }
    let second = if first < 0xdc00 { code_unit(&bytes[6..])? } else { None };
    match second.filter(|second| (0xdc00..0xe000).contains(second)) {
        Some(second) => {
            let c = char::from_u32(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00));
            delta.extend(c);
            Some(12)
        }
        None => {
            delta.push(char::REPLACEMENT_CHARACTER);
            Some(6)
        }
    }
}

/// The four digits of `\uXXXX`; `None` while they may still come, `Some(None)` when they do not.
fn code_unit(bytes: &[u8]) -> Option<Option<u32>> {
    let mut unit = 0;
    for place in 0..6 {
        let &byte = bytes.get(place)?;
        match place {
            0 if byte == b'\\' => {}
            1 if byte == b'u' => {}
            2.. => match (byte as char).to_digit(16) {
                Some(digit) => unit = unit * 16 + digit,
                None => return Some(None),
            },
            _ => return Some(None),
        }
    }
    Some(Some(unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_decode_as_a_json_library_does() {
        for json in [
            r#""""#,
            r#""a\n\t\r\b\f\"\\\/é""#,
            r#""\u00e9\u20ac\ud83d\ude00 \uD83D\uDE00x""#,
            r#""*** Begin Patch\n*** Update File: a\\b.rs\n@@\n-let s = \"é\";\n+😀\n""#,
        ] {
            let mut delta = String::new();
            let length = json.len() - 1;
            let end = Progress::End { length, complete: true };
            assert_eq!(Value::Text.read(&json[1..], &mut delta), end, "{json}");
            assert_eq!(delta, serde_json::from_str::<String>(json).unwrap());
        }
    }

    #[test]
    fn what_is_no_escape_is_kept() {
        let check = |text: &str, expected: &str| {
            let mut delta = String::new();
            Value::Text.read(text, &mut delta);
            assert_eq!(delta, expected, "{text}");
        };
        check(r#"\d\.\é""#, r"\d\.\é");
        check(r#"\u12g4""#, r"\u12g4");
        check(r#"\ud83d-\ude00-\ud83d\n""#, "\u{fffd}-\u{fffd}-\u{fffd}\n");
    }
}

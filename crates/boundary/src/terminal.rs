//! Text on its way to a terminal. What others wrote may hold escape sequences that set the clipboard, rename the window
//! or hide a line, and characters that reorder what is read; here each becomes a character that can be seen.

use std::borrow::Cow;

/// Blanks in a row that [`reveal`] shows as they are, as many as code is indented by.
const BLANKS_SHOWN_MAX: usize = 16;

/// The text with everything that a terminal would obey made visible. Line feeds and tabs stay; a carriage return before a
/// line feed is dropped.
///
/// Each character is judged by itself (but for `\r\n`), so text may be cleaned in pieces, cut anywhere.
pub fn clean(text: &str) -> Cow<'_, str> {
    replace(text, |c| matches!(c, '\n' | '\t'))
}

/// As [`clean`], for text that must stay on its line: line feeds, tabs and the separators of Unicode become visible too.
pub fn clean_line(text: &str) -> Cow<'_, str> {
    replace(text, |_| false)
}

/// Text for a question the user decides by: as [`clean_line`], but every character that cannot be seen or is easily taken
/// for another blank is written as `<U+XXXX>`, line feeds as `\n` followed by a real one, and a long run of blanks, behind
/// which something could be out of sight, as their number.
pub fn reveal(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            ' ' => {
                let mut blanks = 1;
                while characters.next_if_eq(&' ').is_some() {
                    blanks += 1;
                }
                match blanks {
                    1..=BLANKS_SHOWN_MAX => shown.extend(std::iter::repeat_n(' ', blanks)),
                    _ => shown.push_str(&format!(" <{blanks} blanks> ")),
                }
            }
            '\n' => shown.push_str("\\n\n"),
            c if is_hidden(c) => shown.push_str(&format!("<U+{:04X}>", u32::from(c))),
            c => shown.push(c),
        }
    }
    shown
}

/// Whether a character cannot be seen, or would be obeyed by a terminal.
pub fn is_hidden(c: char) -> bool {
    is_unsafe(c) || is_invisible(c)
}

/// JSON for programs: what a terminal would obey is written as `\uXXXX`. In JSON such characters stand in strings only,
/// so the value stays the same.
pub fn clean_json(json: &str) -> Cow<'_, str> {
    if !json.chars().any(|c| is_unsafe(c) && !matches!(c, '\n' | '\r' | '\t')) {
        return Cow::Borrowed(json);
    }
    let mut escaped = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        match c {
            c if is_unsafe(c) && !matches!(c, '\n' | '\r' | '\t') => {
                let units = c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect::<String>();
                escaped.push_str(&units);
            }
            c => escaped.push(c),
        }
    }
    Cow::Owned(escaped)
}

fn replace(text: &str, keep: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(|c| is_unsafe(c) && !keep(c)) {
        return Cow::Borrowed(text);
    }
    let mut cleaned = String::with_capacity(text.len() + 16);
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            c if keep(c) => cleaned.push(c),
            '\r' if characters.peek() == Some(&'\n') && keep('\n') => {}
            c if is_unsafe(c) => cleaned.push(visible(c)),
            c => cleaned.push(c),
        }
    }
    Cow::Owned(cleaned)
}

/// The character itself where a terminal may have it, else what stands for it: Unicode's picture of it where there is one.
pub fn visible(c: char) -> char {
    match u32::from(c) {
        _ if !is_unsafe(c) => c,
        code @ 0..=0x1f => char::from_u32(0x2400 + code).unwrap_or(char::REPLACEMENT_CHARACTER),
        0x7f => '\u{2421}',
        _ => char::REPLACEMENT_CHARACTER,
    }
}

/// Control characters (C0, DEL, C1), line and paragraph separators, those that change the direction of text, and tags.
pub fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        || matches!(c, '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Characters without ink, and blanks that are not the blank.
fn is_invisible(c: char) -> bool {
    (c.is_whitespace() && c != ' ')
        || matches!(
            c,
            '\u{ad}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        )
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{ffa0}')
        || matches!(c, '\u{fe00}'..='\u{fe0f}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0100}'..='\u{e01ef}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_comes_through() {
        assert_eq!(clean("a\tb\r\nc\n"), "a\tb\nc\n");
        assert_eq!(clean("\x1b]52;c;aGk=\x07"), "\u{241b}]52;c;aGk=\u{2407}");
        assert_eq!(clean("a\u{9b}2Jb\u{202e}c\x7f\r"), "a\u{fffd}2Jb\u{fffd}c\u{2421}\u{240d}");
        assert_eq!(clean_line("a\nb\u{2028}c"), "a\u{240a}b\u{fffd}c");
        assert!(matches!(clean("plain \u{fc}\u{4e2d}"), Cow::Borrowed(_)));
        for code in 0..=0x10_ffff {
            let Some(c) = char::from_u32(code) else { continue };
            let text = c.to_string();
            let cleaned = clean(&text);
            assert!(cleaned.chars().all(|c| !is_unsafe(c) || matches!(c, '\n' | '\t')), "{code:x}");
            assert!(clean_line(&text).chars().all(|c| !is_unsafe(c)), "{code:x}");
            assert!(reveal(&text).chars().all(|c| c == '\n' || (!is_unsafe(c) && !is_invisible(c))), "{code:x}");
        }
    }

    #[test]
    fn json_keeps_its_value() {
        assert_eq!(clean_json("{\"a\":\"x\u{9b}\u{202e}\"}\n"), "{\"a\":\"x\\u009b\\u202e\"}\n");
        assert_eq!(clean_json("\"\u{e0041}\""), "\"\\udb40\\udc41\"");
        assert_eq!(clean_json("{\"a\":\"\u{fc}\"}"), "{\"a\":\"\u{fc}\"}");
    }

    #[test]
    fn a_question_shows_what_it_asks() {
        assert_eq!(reveal("ls\u{a0}-l\u{200b};\nrm"), "ls<U+00A0>-l<U+200B>;\\n\nrm");
        let hidden = format!("make{}; rm", " ".repeat(600));
        assert_eq!(reveal(&hidden), "make <600 blanks> ; rm");
        assert_eq!(reveal("a    b"), "a    b");
    }
}

//! What stands inside a line of Markdown: code, bold and slanted words, links.

use ratatui::style::{Modifier, Style};

use crate::flow::Styled;
use crate::theme::Theme;

/// Marks inside marks that are followed; deeper ones stand as they are.
const DEPTH_MAX: usize = 8;

/// A line in its styles, without the marks. A mark that nothing closes is a character like any other, but in a line that
/// is still `open` it counts as closed at the end, so that words do not jump when their mark comes.
pub fn spans(text: &str, base: Style, open: bool, theme: &Theme) -> Vec<Styled> {
    let mut reader = Reader { spans: Vec::new(), open, theme };
    reader.read(text, base, 0);
    reader.spans
}

struct Reader<'a> {
    spans: Vec<Styled>,
    open: bool,
    theme: &'a Theme,
}

impl Reader<'_> {
    fn read(&mut self, text: &str, style: Style, depth: usize) {
        let mut at = 0;
        while let Some(c) = text[at..].chars().next() {
            let rest = &text[at..];
            let taken = match c {
                '\\' => self.escaped(rest, style),
                '`' => self.code(rest, style),
                '*' | '_' | '~' if depth < DEPTH_MAX => self.emphasis(text, at, style, depth),
                '[' | '!' if depth < DEPTH_MAX => self.link(rest, style, depth),
                _ => None,
            };
            at += taken.unwrap_or_else(|| {
                self.push(&rest[..c.len_utf8()], style);
                c.len_utf8()
            });
        }
    }

    fn push(&mut self, text: &str, style: Style) {
        match self.spans.last_mut().filter(|(_, last)| *last == style) {
            Some((last, _)) => last.push_str(text),
            None => self.spans.push((text.to_owned(), style)),
        }
    }

    fn escaped(&mut self, rest: &str, style: Style) -> Option<usize> {
        let next = rest[1..].chars().next().filter(char::is_ascii_punctuation)?;
        self.push(&rest[1..1 + next.len_utf8()], style);
        Some(1 + next.len_utf8())
    }

    fn code(&mut self, rest: &str, style: Style) -> Option<usize> {
        let ticks = rest.bytes().take_while(|byte| *byte == b'`').count();
        let inside = &rest[ticks..];
        let mut from = 0;
        let end = loop {
            let Some(found) = inside[from..].find('`').map(|found| from + found) else { break None };
            let count = inside[found..].bytes().take_while(|byte| *byte == b'`').count();
            if count == ticks {
                break Some(found);
            }
            from = found + count;
        };
        let Some(end) = end.or(self.open.then_some(inside.len())) else {
            self.push(&rest[..ticks], style);
            return Some(ticks);
        };
        let code = &inside[..end];
        let padded = code.starts_with(' ') && code.ends_with(' ') && !code.trim().is_empty();
        self.push(
            if padded { &code[1..code.len() - 1] } else { code },
            self.theme.code.patch(style_without_colour(style)),
        );
        Some((ticks + end + ticks).min(rest.len()))
    }

    fn emphasis(&mut self, text: &str, at: usize, style: Style, depth: usize) -> Option<usize> {
        let rest = &text[at..];
        let (mark, added) = [
            ("**", Modifier::BOLD),
            ("__", Modifier::BOLD),
            ("~~", Modifier::CROSSED_OUT),
            ("*", Modifier::ITALIC),
            ("_", Modifier::ITALIC),
        ]
        .into_iter()
        .find(|(mark, _)| rest.starts_with(mark))?;
        let before = text[..at].chars().next_back();
        let inside = &rest[mark.len()..];
        // `a * b` and `snake_case` are no emphasis.
        let begins = inside.starts_with(|c: char| !c.is_whitespace())
            && !(mark.starts_with('_') && before.is_some_and(char::is_alphanumeric));
        if !begins {
            return None;
        }
        let end = closing(inside, mark).or((self.open && mark.len() == 2).then_some(inside.len()))?;
        self.read(&inside[..end], style.add_modifier(added), depth + 1);
        Some((mark.len() + end + mark.len()).min(rest.len()))
    }

    /// `[words](address)`: the words, and the address where it says more than they do.
    fn link(&mut self, rest: &str, style: Style, depth: usize) -> Option<usize> {
        let picture = usize::from(rest.starts_with("!["));
        let inside = rest[picture..].strip_prefix('[')?;
        let end = inside.find(']')?;
        let address = inside[end + 1..].strip_prefix('(')?;
        let close = address.find(')')?;
        let (words, target) = (&inside[..end], &address[..close]);
        if words.contains('[') || target.contains(char::is_whitespace) {
            return None;
        }
        self.read(words, style.patch(self.theme.link), depth + 1);
        if target != words {
            self.push(&format!(" ({target})"), self.theme.quiet);
        }
        Some(picture + 1 + end + 2 + close + 1)
    }
}

/// Code in a bold sentence is bold code.
fn style_without_colour(style: Style) -> Style {
    Style { fg: None, bg: None, ..style }
}

/// Where a mark closes what it opened: not behind a blank, and `_` not inside of a word.
fn closing(inside: &str, mark: &str) -> Option<usize> {
    let mut from = 0;
    while let Some(end) = inside[from..].find(mark).map(|found| from + found) {
        let before = inside[..end].chars().next_back();
        let after = inside[end + mark.len()..].chars().next();
        let in_word = mark.starts_with('_') && after.is_some_and(char::is_alphanumeric);
        let longer = mark.len() == 1 && after == mark.chars().next();
        if before.is_some_and(|c| !c.is_whitespace() && c != '\\') && !in_word && !longer {
            return Some(end);
        }
        from = end + if longer { 2 } else { mark.len() };
    }
    None
}

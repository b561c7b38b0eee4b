//! Finds the end of free text that is closed by a tag.

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    /// How many bytes are certainly text.
    pub text_length: usize,
    /// How many bytes there are to the end of the tag, where it is there.
    pub end: Option<usize>,
}

/// Looks for `tag`. The line break before it belongs to it, so one at the end waits for what follows.
pub(super) fn until(text: &str, tag: &str) -> Found {
    if let Some(at) = text.find(tag) {
        let text_length = text[..at].strip_suffix('\n').map_or(at, str::len);
        return Found { text_length, end: Some(at + tag.len()) };
    }
    let mut held = unfinished(text, tag);
    held += usize::from(text[..text.len() - held].ends_with('\n'));
    Found { text_length: text.len() - held, end: None }
}

/// The same, where a line break before the tag is text.
pub(super) fn up_to(text: &str, tag: &str) -> Found {
    match text.find(tag) {
        Some(at) => Found { text_length: at, end: Some(at + tag.len()) },
        None => Found { text_length: text.len() - unfinished(text, tag), end: None },
    }
}

/// How many bytes at the end of `text` may be the beginning of `tag`.
pub(super) fn unfinished(text: &str, tag: &str) -> usize {
    let longest = text.len().min(tag.len() - 1);
    (1..=longest).rev().find(|&length| text.as_bytes().ends_with(&tag.as_bytes()[..length])).unwrap_or(0)
}

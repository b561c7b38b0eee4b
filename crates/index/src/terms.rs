//! The words of a question and of code, made comparable: names are cut at `_` and capitals, endings are left out.

use std::collections::HashMap;

/// Words of a question that say nothing about where its answer is.
#[rustfmt::skip]
const COMMON: &[&str] = &[
    "the", "and", "for", "that", "this", "with", "from", "into", "when", "use", "used", "all", "file", "code",
    "function", "method", "class", "should", "please", "not", "doe", "have", "has", "its", "are", "was", "can",
    "could", "how", "what", "why", "where", "which", "who", "them", "every", "each", "called", "call", "return",
    "returned", "you", "tell", "show", "explain", "happen", "mean", "there", "here", "project", "repository",
    "library", "module", "defined", "define", "is", "in", "it", "of", "to", "a", "an", "do", "or", "on", "be", "by",
    "if", "my", "me", "at", "as", "does", "done", "will", "would", "get", "line", "default", "value", "implemented",
    "handled", "handle", "go",
];

/// Bytes of the longest identifier that is read; a longer one is data.
pub(crate) const NAME_BYTES_MAX: usize = 96;

/// The identifiers of a text, with where each begins: letters, digits and `_`.
pub fn identifiers(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let bytes = text.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < bytes.len() {
            let begins = at;
            let mut end = at;
            while end < bytes.len() {
                match bytes[end] {
                    b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' => end += 1,
                    byte if byte.is_ascii() => break,
                    _ => match text[end..].chars().next().filter(|letter| letter.is_alphanumeric()) {
                        Some(letter) => end += letter.len_utf8(),
                        None => break,
                    },
                }
            }
            if end > begins {
                at = end;
                return Some((begins, &text[begins..end]));
            }
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
        None
    })
}

/// The terms of a text, in order: names whole and in parts.
pub fn of(text: &str) -> Vec<String> {
    let mut terms = Vec::new();
    for (_, name) in identifiers(text) {
        of_name(name, |term| terms.push(term.to_owned()));
    }
    terms
}

/// The terms of a question that may name things, each once.
pub fn of_question(text: &str) -> Vec<String> {
    counted(text).into_iter().map(|(term, _)| term).collect()
}

/// The same, with how often the question has each.
pub(crate) fn counted(text: &str) -> Vec<(String, u32)> {
    let common = |term: &str| COMMON.iter().any(|word| *word == term || stem(word) == term);
    let mut found: Vec<(String, u32)> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    for term in of(text) {
        match known.get(&term) {
            Some(at) => found[*at].1 += 1,
            None if (term.len() > 1 || !term.is_ascii()) && !common(&term) => {
                known.insert(term.clone(), found.len());
                found.push((term, 1));
            }
            None => {}
        }
    }
    found
}

/// The terms of one identifier: whole where it has parts, and its parts without their endings.
pub(crate) fn of_name(name: &str, mut add: impl FnMut(&str)) {
    let parts = parts(name);
    if parts.len() > 1 {
        add(&name.to_lowercase());
    }
    for part in parts {
        add(&stem(&part.to_lowercase()));
    }
}

/// `parseHTTPLine_now` as `parse`, `HTTP`, `Line`, `now`.
pub(crate) fn parts(name: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    for piece in name.split('_').filter(|piece| !piece.is_empty()) {
        let mut begins = 0;
        let mut before: Option<char> = None;
        let mut letters = piece.char_indices().peekable();
        while let Some((at, letter)) = letters.next() {
            let next_is_lower = letters.peek().is_some_and(|(_, next)| next.is_lowercase());
            let cuts = letter.is_uppercase()
                && before.is_some_and(|before| before.is_lowercase() || (before.is_uppercase() && next_is_lower));
            if cuts && at > begins {
                parts.push(&piece[begins..at]);
                begins = at;
            }
            before = Some(letter);
        }
        parts.push(&piece[begins..]);
    }
    parts
}

/// A word without the endings of English.
fn stem(word: &str) -> String {
    for (ending, left) in [("ies", 3), ("ing", 4), ("ed", 4), ("es", 4), ("s", 3)] {
        if let Some(begin) = word.strip_suffix(ending)
            && begin.len() >= left
            && !begin.ends_with('s')
        {
            let begin = if ending == "ies" { format!("{begin}y") } else { begin.to_owned() };
            return begin.trim_end_matches('e').to_owned();
        }
    }
    if word.len() > 4 { word.trim_end_matches('e').to_owned() } else { word.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_questions_meet_names_in_code() {
        let has = |text: &str, term: &str| assert!(of(text).contains(&term.to_owned()), "{text}: {:?}", of(text));
        has("max_redirects", "max_redirects");
        has("max_redirects", "redirect");
        has("RedirectHandler", "redirect");
        has("parseHTTPLine", "http");
        assert_eq!(of("redirecting"), of("redirects"));
        assert_eq!(of("merges"), of("merge"));
        assert_eq!(of_question("Where is the cookie jar merged?"), ["cooki", "jar", "merg"]);
        assert_eq!(of_question("购物车"), ["购物车"]);
        let found: Vec<(usize, &str)> = identifiers("a+b_1 “été”—x\u{301}!").collect();
        assert_eq!(found, [(0, "a"), (2, "b_1"), (9, "été"), (20, "x")]);
    }
}

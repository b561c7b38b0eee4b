//! The words of a question and of code, made comparable: names are cut at `_` and capitals, endings are left out.

/// Words of a question that say nothing about where its answer is.
const COMMON: &[&str] = &[
    "the",
    "and",
    "for",
    "that",
    "this",
    "with",
    "from",
    "into",
    "when",
    "use",
    "used",
    "all",
    "file",
    "code",
    "function",
    "method",
    "class",
    "should",
    "please",
    "not",
    "doe",
    "have",
    "has",
    "its",
    "are",
    "was",
    "can",
    "could",
    "how",
    "what",
    "why",
    "where",
    "which",
    "who",
    "them",
    "every",
    "each",
    "called",
    "call",
    "return",
    "returned",
    "you",
    "tell",
    "show",
    "explain",
    "happen",
    "mean",
    "there",
    "here",
    "project",
    "repository",
    "library",
    "module",
    "defined",
    "define",
    "is",
    "in",
    "it",
    "of",
    "to",
    "a",
    "an",
    "do",
    "or",
    "on",
    "be",
    "by",
    "if",
    "my",
    "me",
    "at",
    "as",
    "does",
    "done",
    "will",
    "would",
    "get",
    "line",
    "default",
    "value",
    "implemented",
    "handled",
    "handle",
    "go",
];

/// The terms of a text, in order: names whole and in parts.
pub fn of(text: &str) -> Vec<String> {
    let mut terms = Vec::new();
    for word in text.split(|letter: char| !letter.is_alphanumeric() && letter != '_') {
        if word.is_empty() {
            continue;
        }
        let parts = parts(word);
        if parts.len() > 1 {
            terms.push(word.to_lowercase());
        }
        terms.extend(parts.into_iter().map(|part| stem(&part.to_lowercase())));
    }
    terms
}

/// The terms of a question that may name things, each once.
pub fn of_question(text: &str) -> Vec<String> {
    let mut terms = of(text);
    let common = |term: &str| COMMON.iter().any(|word| *word == term || stem(word) == term);
    terms.retain(|term| (term.len() > 1 || !term.is_ascii()) && !common(term));
    let mut seen = std::collections::HashSet::new();
    terms.retain(|term| seen.insert(term.clone()));
    terms
}

/// `parseHTTPLine_now` as `parse`, `HTTP`, `Line`, `now`.
fn parts(word: &str) -> Vec<String> {
    let mut parts = Vec::new();
    for piece in word.split('_').filter(|piece| !piece.is_empty()) {
        let letters: Vec<char> = piece.chars().collect();
        let mut part = String::new();
        for (at, letter) in letters.iter().enumerate() {
            let before = at.checked_sub(1).map(|at| letters[at]);
            let next_is_lower = letters.get(at + 1).is_some_and(|next| next.is_lowercase());
            let begins = letter.is_uppercase()
                && before.is_some_and(|before| before.is_lowercase() || (before.is_uppercase() && next_is_lower));
            if begins && !part.is_empty() {
                parts.push(std::mem::take(&mut part));
            }
            part.push(*letter);
        }
        parts.push(part);
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
    }
}

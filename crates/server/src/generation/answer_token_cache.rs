//! What the model said, by what the client was shown of it.
//!
//! A client that sends its whole history sends texts and calls, not the tokens the model produced: a call comes back
//! without its fence, a text may be tokenised differently. This memory finds the tokens again, so that the prompt is
//! what the KV cache holds and nothing is read twice. It forgets the oldest beyond a limit, which costs only time.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::guard::owner::Owner;
use crate::lru::Lru;

/// Most tokens remembered: 16 MiB.
const TOKENS_MAX: usize = 4 << 20;

/// A bounded memory of answers.
#[derive(Debug, Default)]
pub struct AnswerTokenCache {
    answers: Lru<(Owner, u64), Arc<[u32]>>,
    tokens: usize,
}

/// What a client was shown of an answer: its text, and its calls by name and input.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Shown {
    /// All text.
    pub text: String,
    /// Names and inputs of the calls, in order.
    pub calls: Vec<(String, String)>,
}

impl Shown {
    /// Whether the client was shown nothing.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty() && self.calls.is_empty()
    }

    fn key(&self) -> u64 {
        // Clients trim texts and re-space arguments; neither makes another answer.
        let mut hasher = DefaultHasher::new();
        self.text.trim().hash(&mut hasher);
        for (name, input) in &self.calls {
            name.hash(&mut hasher);
            match serde_json::from_str::<serde_json::Value>(input) {
                Ok(value) => value.to_string().hash(&mut hasher),
                Err(_) => input.trim().hash(&mut hasher),
            }
        }
        hasher.finish()
    }
}

impl AnswerTokenCache {
    /// Remembers the tokens of an owner's answer.
    pub fn remember(&mut self, owner: Owner, shown: &Shown, tokens: &[u32]) {
        if shown.is_empty() || tokens.is_empty() {
            return;
        }
        self.tokens += tokens.len();
        let mut gone = self.answers.insert((owner, shown.key()), tokens.into());
        loop {
            self.tokens -= gone.map_or(0, |tokens| tokens.len());
            if self.tokens <= TOKENS_MAX {
                return;
            }
            gone = self.answers.pop();
        }
    }

    /// The tokens of an answer that its owner was shown this way.
    pub fn find(&mut self, owner: Owner, shown: &Shown) -> Option<Arc<[u32]>> {
        if shown.is_empty() { None } else { self.answers.get(&(owner, shown.key())).cloned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, calls: &[(&str, &str)]) -> Shown {
        let calls = calls.iter().map(|(name, input)| ((*name).to_owned(), (*input).to_owned())).collect();
        Shown { text: text.to_owned(), calls }
    }

    #[test]
    fn finds_what_was_shown_however_it_is_spaced() {
        let (one, other) = (Owner::of_user(1), Owner::of_user(2));
        let mut answer_tokens = AnswerTokenCache::default();
        answer_tokens.remember(one, &shown("hello ", &[("ls", r#"{"path": "a"}"#)]), &[1, 2, 3]);
        assert_eq!(answer_tokens.find(one, &shown("hello", &[("ls", r#"{"path":"a"}"#)])).unwrap()[..], [1, 2, 3]);
        assert_eq!(answer_tokens.find(one, &shown("hello", &[("ls", r#"{"path":"b"}"#)])), None);
        assert_eq!(answer_tokens.find(one, &shown("hello", &[])), None);
        assert_eq!(answer_tokens.find(other, &shown("hello", &[("ls", r#"{"path":"a"}"#)])), None, "another's");
        answer_tokens.remember(one, &shown("", &[]), &[9]);
        assert_eq!(answer_tokens.find(one, &shown("", &[])), None);
    }
}

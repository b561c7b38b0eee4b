//! The tokens of conversations that may go on: prompt and answer of recent responses.
//!
//! A request that continues one of them appends to its tokens instead of writing the whole conversation again, so a turn
//! costs what is new in it. What is forgotten here is written again from the stored turns, which costs only time.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::token_map::TokenMap;

/// Most tokens held: 64 MiB.
const TOKENS_MAX: usize = 16 << 20;

/// Recent conversations by the id of their last response and the head of its prompt.
#[derive(Debug)]
pub struct Sessions(TokenMap<(String, u64)>);

impl Default for Sessions {
    fn default() -> Self {
        Self(TokenMap::new(TOKENS_MAX))
    }
}

/// Identity of what stands at the head of a prompt: a request with another head cannot append.
pub fn head(instructions: Option<&str>, tools: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    (instructions, tools).hash(&mut hasher);
    hasher.finish()
}

impl Sessions {
    /// Holds the tokens of a response and everything before it.
    pub fn hold(&mut self, response: &str, head: u64, tokens: Arc<[u32]>) {
        self.0.insert((response.to_owned(), head), tokens);
    }

    /// The tokens up to the end of a response, if it was made under the same head.
    pub fn find(&self, response: &str, head: u64) -> Option<Arc<[u32]>> {
        self.0.get(&(response.to_owned(), head))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_found_only_under_their_head() {
        let mut sessions = Sessions::default();
        sessions.hold("a", 7, vec![1, 2].into());
        assert_eq!(sessions.find("a", 7).unwrap()[..], [1, 2]);
        assert!(sessions.find("a", 8).is_none() && sessions.find("b", 7).is_none());
    }
}

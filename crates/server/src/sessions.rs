//! The tokens of conversations that may go on: prompt and answer of recent responses.
//!
//! A request that continues one of them appends to its tokens instead of writing the whole conversation again, so a turn
//! costs what is new in it. What is forgotten here is written again from the stored turns, which costs only time.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Most tokens held: 64 MiB.
const TOKENS_MAX: usize = 16 << 20;

/// Recent conversations by the id of their last response.
#[derive(Debug, Default)]
pub struct Sessions {
    sessions: HashMap<String, Session>,
    order: VecDeque<String>,
    tokens: usize,
}

#[derive(Debug)]
struct Session {
    tokens: Arc<[u32]>,
    head: u64,
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
        self.tokens += tokens.len();
        self.order.push_back(response.to_owned());
        let before = self.sessions.insert(response.to_owned(), Session { tokens, head });
        self.tokens -= before.map_or(0, |session| session.tokens.len());
        while self.tokens > TOKENS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.tokens -= self.sessions.remove(&oldest).map_or(0, |session| session.tokens.len());
        }
    }

    /// The tokens up to the end of a response, if it was made under the same head.
    pub fn find(&self, response: &str, head: u64) -> Option<Arc<[u32]>> {
        let session = self.sessions.get(response)?;
        (session.head == head).then(|| Arc::clone(&session.tokens))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_what_fits_and_only_under_its_head() {
        let mut sessions = Sessions::default();
        let long: Arc<[u32]> = vec![1; TOKENS_MAX / 2].into();
        for id in ["a", "b", "c"] {
            sessions.hold(id, 7, Arc::clone(&long));
        }
        assert!(sessions.find("a", 7).is_none());
        assert!(sessions.find("b", 7).is_some() && sessions.find("c", 7).is_some());
        assert!(sessions.find("c", 8).is_none());
        assert_eq!(sessions.tokens, TOKENS_MAX);
    }
}

//! The tokens of conversations that may go on: prompt and answer of recent responses.
//!
//! A request that continues one of them appends to its tokens instead of writing the whole conversation again, so a turn
//! costs what is new in it. What is forgotten here is written again from the stored turns, which costs only time.
//!
//! A conversation is a chain of stretches, one for each turn, and those that fork share what they have in common. So what is
//! kept of a conversation grows with its length and not with its length times its turns.

pub mod store;
pub mod turn;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use text::Thinking;

use crate::lru::Lru;

/// Most tokens held: 64 MiB. Beyond it the conversation that was used least recently is forgotten.
const TOKENS_MAX: usize = 16 << 20;

/// What a stretch costs beside its tokens, counted as tokens, so that small ones have a limit too.
const STRETCH_TOKENS: usize = 64;

/// Recent conversations by the id of their last response and the head of its prompt.
#[derive(Debug, Default)]
pub struct Sessions {
    stretches: Lru<(String, u64), Arc<Stretch>>,
    /// Tokens of all stretches that are alive, those included that only later stretches hold.
    tokens: Arc<AtomicUsize>,
}

/// What one turn added to a conversation.
#[derive(Debug)]
pub struct Stretch {
    before: Option<Arc<Stretch>>,
    tokens: Box<[u32]>,
    /// Tokens up to the end of this stretch.
    length: usize,
    counted: Arc<AtomicUsize>,
}

/// Identity of what stands at the head of a prompt, and of what its template was told: a request with another head cannot
/// append.
pub fn head(instructions: Option<&str>, tools: u64, thinking: &Thinking) -> u64 {
    let mut hasher = DefaultHasher::new();
    (instructions, tools, &thinking.variables).hash(&mut hasher);
    hasher.finish()
}

impl Sessions {
    /// Holds the tokens of a response and everything before it, which begin with those of the stretch `before`.
    pub fn hold(&mut self, response: &str, head: u64, before: Option<Arc<Stretch>>, tokens: &[u32]) {
        let added = tokens.get(before.as_ref().map_or(0, |before| before.length)..).unwrap_or_default();
        self.tokens.fetch_add(added.len() + STRETCH_TOKENS, Ordering::Relaxed);
        let counted = Arc::clone(&self.tokens);
        let stretch = Stretch { before, tokens: added.into(), length: tokens.len(), counted };
        self.stretches.insert((response.to_owned(), head), Arc::new(stretch));
        while self.tokens.load(Ordering::Relaxed) > TOKENS_MAX && self.stretches.pop().is_some() {}
    }

    /// The last stretch of a conversation that ends with a response, if it was made under the same head.
    pub fn find(&mut self, response: &str, head: u64) -> Option<Arc<Stretch>> {
        self.stretches.get(&(response.to_owned(), head)).cloned()
    }
}

impl Stretch {
    /// All tokens up to the end of this stretch, and `more`, with room for `room` others.
    pub fn with(&self, more: &[u32], room: usize) -> Vec<u32> {
        let mut stretches: Vec<&Stretch> =
            std::iter::successors(Some(self), |stretch| stretch.before.as_deref()).collect();
        stretches.reverse();
        let mut whole = Vec::with_capacity(self.length + more.len() + room);
        stretches.iter().for_each(|stretch| whole.extend_from_slice(&stretch.tokens));
        whole.extend_from_slice(more);
        whole
    }
}

impl Drop for Stretch {
    fn drop(&mut self) {
        self.counted.fetch_sub(self.tokens.len() + STRETCH_TOKENS, Ordering::Relaxed);
        // A long chain must not overflow the stack.
        let mut before = self.before.take();
        while let Some(mut stretch) = before.and_then(Arc::into_inner) {
            before = stretch.before.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_found_only_under_their_head() {
        let mut sessions = Sessions::default();
        sessions.hold("a", 7, None, &[1, 2]);
        assert_eq!(sessions.find("a", 7).unwrap().with(&[3], 0), [1, 2, 3]);
        assert!(sessions.find("a", 8).is_none() && sessions.find("b", 7).is_none());
    }

    #[test]
    fn forks_share_what_they_have_in_common_and_all_is_given_back() {
        let mut sessions = Sessions::default();
        let long: Vec<u32> = (0..1000).collect();
        sessions.hold("a", 7, None, &long);
        for fork in 0..100 {
            let before = sessions.find("a", 7).unwrap();
            let whole = before.with(&[fork, fork], 8);
            sessions.hold(&format!("b{fork}"), 7, Some(before), &whole);
        }
        let counted = || 1000 + 100 * 2 + 101 * STRETCH_TOKENS;
        assert_eq!(sessions.tokens.load(Ordering::Relaxed), counted());
        let first = sessions.stretches.pop().unwrap();
        assert_eq!(first.with(&[], 0), [&long[..], &[0, 0]].concat(), "the one that others continue was used since");
        drop(first);
        let rest = std::iter::from_fn(|| sessions.stretches.pop()).count();
        assert_eq!((rest, sessions.tokens.load(Ordering::Relaxed)), (100, 0));
    }

    #[test]
    fn a_limit_holds_also_for_what_only_later_turns_keep() {
        let mut sessions = Sessions::default();
        let mut whole = vec![7; TOKENS_MAX / 2];
        sessions.hold("0", 7, None, &whole);
        for turn in 1..=100_000_u32 {
            let before = sessions.find(&(turn - 1).to_string(), 7).unwrap();
            whole.push(turn);
            sessions.hold(&turn.to_string(), 7, Some(before), &whole);
        }
        assert!(sessions.find("100000", 7).unwrap().with(&[], 0) == whole);
        sessions.hold("other", 7, None, &whole);
        sessions.hold("third", 7, None, &whole);
        assert!(sessions.find("100000", 7).is_none() && sessions.find("other", 7).is_none());
        assert!(sessions.find("third", 7).is_some() && sessions.tokens.load(Ordering::Relaxed) <= TOKENS_MAX);
    }
}

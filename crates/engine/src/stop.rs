//! Finds stop strings in a stream of tokens and holds back what may become one.
//!
//! Each string is a Knuth-Morris-Pratt automaton fed byte by byte, so where tokens are cut cannot matter: the first
//! string to be complete wins, the longest if several complete on the same byte. A token is released once it ends
//! before the earliest byte that some automaton still counts as the beginning of its string. Cost per byte: amortised
//! one comparison per string.

use std::collections::VecDeque;

use crate::event::TokenOut;
use crate::token_bytes::TokenBytes;

/// One string and how much of it the bytes so far end with.
#[derive(Debug)]
struct Automaton {
    string: Vec<u8>,
    /// `fallback[n]`: longest proper prefix of the string that is also a suffix of its first `n + 1` bytes.
    fallback: Vec<usize>,
    matched: usize,
}

impl Automaton {
    fn new(string: Vec<u8>) -> Self {
        let mut fallback = vec![0; string.len()];
        let mut matched = 0;
        for i in 1..string.len() {
            while matched > 0 && string[i] != string[matched] {
                matched = fallback[matched - 1];
            }
            matched += usize::from(string[i] == string[matched]);
            fallback[i] = matched;
        }
        Self { string, fallback, matched: 0 }
    }

    /// True when `byte` completes the string.
    fn feed(&mut self, byte: u8) -> bool {
        while self.matched > 0 && self.string[self.matched] != byte {
            self.matched = self.fallback[self.matched - 1];
        }
        self.matched += usize::from(self.string[self.matched] == byte);
        self.matched == self.string.len()
    }
}

/// The stop strings of one sequence and the tokens they hold back.
#[derive(Debug)]
pub(crate) struct StopMatcher {
    automata: Vec<Automaton>,
    /// Held tokens, each with the number of bytes generated up to its end.
    held: VecDeque<(TokenOut, usize)>,
    /// Bytes generated so far.
    bytes: usize,
}

impl StopMatcher {
    pub fn new(strings: Vec<Vec<u8>>) -> Self {
        Self { automata: strings.into_iter().map(Automaton::new).collect(), held: VecDeque::new(), bytes: 0 }
    }

    /// Takes one token and appends to `out` those that can be published. `Some` when a stop string is complete: the
    /// bytes before it that belong to no whole token.
    pub fn push(&mut self, token: TokenOut, table: &TokenBytes, out: &mut Vec<TokenOut>) -> Option<Vec<u8>> {
        if self.automata.is_empty() {
            out.push(token);
            return None;
        }
        let bytes = table.get(token.id);
        for (index, &byte) in bytes.iter().enumerate() {
            let complete = self.automata.iter_mut().filter_map(|a| a.feed(byte).then_some(a.string.len())).max();
            if let Some(length) = complete {
                let start = self.bytes + index + 1 - length;
                self.held.push_back((token, self.bytes + bytes.len()));
                return Some(self.cut(start, table, out));
            }
        }
        self.bytes += bytes.len();
        self.held.push_back((token, self.bytes));
        let matched = self.automata.iter().map(|a| a.matched).max().unwrap_or(0);
        self.release(self.bytes - matched, out);
        None
    }

    /// Gives up what is held: the sequence ended without completing a string.
    pub fn flush(&mut self, out: &mut Vec<TokenOut>) {
        out.extend(self.held.drain(..).map(|(token, _)| token));
    }

    fn cut(&mut self, start: usize, table: &TokenBytes, out: &mut Vec<TokenOut>) -> Vec<u8> {
        self.release(start, out);
        let tail = self.held.front().map(|(token, end)| {
            let bytes = table.get(token.id);
            bytes[..start - (end - bytes.len())].to_vec()
        });
        self.held.clear();
        tail.unwrap_or_default()
    }

    /// Releases the tokens that end at or before byte `limit`.
    fn release(&mut self, limit: usize, out: &mut Vec<TokenOut>) {
        while self.held.front().is_some_and(|&(_, end)| end <= limit) {
            out.extend(self.held.pop_front().map(|(token, _)| token));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn token(id: u32) -> TokenOut {
        TokenOut { id, logprob: None, top: Vec::new() }
    }

    /// What is published when `text` is cut into tokens at `cuts`, and whether it stopped. Checks after every token
    /// that no published byte belongs to a stop string.
    fn stream(text: &[u8], cuts: &[usize], stops: &[&[u8]]) -> (Vec<u8>, bool) {
        let mut edges: Vec<usize> = cuts.iter().map(|c| c % (text.len() + 1)).chain([0, text.len()]).collect();
        edges.sort_unstable();
        let table: TokenBytes = edges.windows(2).map(|w| &text[w[0]..w[1]]).collect();
        let mut matcher = StopMatcher::new(stops.iter().map(|s| s.to_vec()).collect());
        let mut out = Vec::new();
        let mut end = None;
        for id in 0..edges.len() as u32 - 1 {
            end = matcher.push(token(id), &table, &mut out);
            if end.is_some() {
                break;
            }
        }
        if end.is_none() {
            matcher.flush(&mut out);
        }
        let mut bytes: Vec<u8> = out.iter().flat_map(|t| table.get(t.id).to_vec()).collect();
        bytes.extend(end.clone().unwrap_or_default());
        (bytes, end.is_some())
    }

    /// The plain definition: the string that completes first, the longest on ties.
    fn naive(text: &[u8], stops: &[&[u8]]) -> (Vec<u8>, bool) {
        for end in 1..=text.len() {
            let longest = stops.iter().filter(|s| text[..end].ends_with(s)).map(|s| s.len()).max();
            if let Some(length) = longest {
                return (text[..end - length].to_vec(), true);
            }
        }
        (text.to_vec(), false)
    }

    #[test]
    fn table() {
        let check = |text: &str, stops: &[&str], want: &str, stopped: bool| {
            let stops: Vec<&[u8]> = stops.iter().map(|s| s.as_bytes()).collect();
            for cut in 0..=text.len() {
                let got = stream(text.as_bytes(), &[cut], &stops);
                assert_eq!(got, (want.as_bytes().to_vec(), stopped), "{text:?} cut at {cut}");
            }
        };
        check("hello", &[], "hello", false);
        check("hello", &["ll"], "he", true);
        check("hello", &["lo", "ell"], "h", true);
        check("hello wor", &["world"], "hello wor", false);
        check("aaab", &["aab"], "a", true);
        check("abcdef", &["abcdef", "cd"], "ab", true);
        check("xabc", &["c", "bc", "abc"], "x", true);
        check("stop", &["stop"], "", true);
    }

    #[test]
    fn only_what_may_become_a_stop_is_held() {
        let table: TokenBytes = ["ab", "c", "d", ""].into_iter().collect();
        let mut matcher = StopMatcher::new(vec![b"bcd".to_vec()]);
        let mut out = Vec::new();
        let mut published = |id| {
            matcher.push(token(id), &table, &mut out);
            out.len()
        };
        assert_eq!([0, 1, 3, 1, 2, 0].map(&mut published), [0, 0, 0, 4, 5, 5]);
    }

    proptest! {
        #[test]
        fn split_anywhere_equals_whole(
            text in "[ab]{0,40}",
            stops in prop::collection::vec("[ab]{1,6}", 0..4),
            cuts in prop::collection::vec(0usize..64, 0..12),
        ) {
            let stops: Vec<&[u8]> = stops.iter().map(|s| s.as_bytes()).collect();
            prop_assert_eq!(stream(text.as_bytes(), &cuts, &stops), naive(text.as_bytes(), &stops));
        }
    }
}

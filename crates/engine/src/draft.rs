//! The drafting seam: a drafter proposes tokens, the engine verifies them in one step and keeps those that plain
//! decoding would have picked. A wrong proposal costs rows, never a different output.

/// Proposes how a sequence may go on. Called by the engine thread between steps: it must be quick and must not block.
pub trait Drafter: Send {
    /// Appends up to `max` tokens that may follow `tokens` (prompt and output so far) to the empty `out`.
    fn propose(&mut self, tokens: &[u32], max: usize, out: &mut Vec<u32>);

    /// Says how the last proposal fared, so that a drafter can learn when to keep quiet.
    fn observe(&mut self, proposed: usize, accepted: usize);
}

/// Proposes what followed the last occurrence of the sequence's last few tokens. Good for text that repeats itself.
#[derive(Clone, Debug)]
pub struct NgramDrafter {
    length: usize,
}

impl NgramDrafter {
    /// How far back it looks, which bounds the cost of a proposal.
    pub const WINDOW: usize = 8192;

    /// Matches on the last `length` tokens, at least one.
    pub fn new(length: usize) -> Self {
        Self { length: length.max(1) }
    }
}

impl Drafter for NgramDrafter {
    fn propose(&mut self, tokens: &[u32], max: usize, out: &mut Vec<u32>) {
        let tokens = &tokens[tokens.len().saturating_sub(Self::WINDOW)..];
        let Some(start) = tokens.len().checked_sub(self.length) else {
            return;
        };
        let (earlier, last) = (&tokens[..tokens.len() - 1], &tokens[start..]);
        if let Some(found) = earlier.windows(self.length).rposition(|window| window == last) {
            let follow = &tokens[found + self.length..];
            out.extend(follow.iter().take(max));
        }
    }

    fn observe(&mut self, _proposed: usize, _accepted: usize) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ngram_continues_the_last_occurrence() {
        let check = |tokens: &[u32], max: usize, want: &[u32]| {
            let mut out = Vec::new();
            NgramDrafter::new(2).propose(tokens, max, &mut out);
            assert_eq!(out, want, "{tokens:?}");
        };
        check(&[1, 2, 3, 4, 1, 2], 3, &[3, 4, 1]);
        check(&[1, 2, 3, 1, 2, 5, 1, 2], 1, &[5]);
        check(&[7, 7, 7], 4, &[7]);
        check(&[1, 2, 3], 4, &[]);
        check(&[1], 4, &[]);
    }
}

//! The constraint seam: a constraint says which tokens may come next, and the engine picks among them only.
//!
//! The engine knows nothing of grammars. It asks for a mask before every pick and reports every token it picked, row by
//! row, so drafted tokens meet the same masks as plainly decoded ones and the output is the same.

/// Restricts what a sequence may say next. Called by the engine thread: it must be quick and must not block. An error
/// or a panic ends the sequence it belongs to and no other.
pub trait Constraint: Send {
    /// Tokens allowed next, one bit each: bit `t % 32` of word `t / 32`, at least as many bits as the vocabulary has
    /// tokens. `None` allows every token. A mask that allows nothing ends the sequence with an error.
    fn allowed(&mut self) -> Result<Option<&[u32]>, String>;

    /// Takes in a token that was picked. Called once for every token generated, in order, stop tokens included.
    fn accept(&mut self, token: u32) -> Result<(), String>;

    /// Appends up to `max` tokens that must come next whatever the model says to the empty `out`; none is always right.
    /// They are verified like a draft, so a wrong one costs rows, never a different output.
    fn forced(&mut self, max: usize, out: &mut Vec<u32>);
}

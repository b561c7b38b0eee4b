//! What the pool answers when asked: plain values, apart from the structure that produces them.

use model::BLOCK;

/// What the cache holds of a prompt. Valid until the pool next changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prefix {
    /// Whole blocks that match.
    pub blocks: usize,
    /// Whose they are.
    pub(crate) owner: u64,
    /// Which they are.
    pub(crate) path: Vec<u32>,
    /// How many of those no sequence references now: taking them lowers `BlockPool::available` by as many.
    pub idle_blocks: usize,
    /// A block of which only the first tokens match, to be copied: its id and how many.
    pub partial: Option<(u32, usize)>,
    /// Why the match ends where it does.
    pub miss: Option<Miss>,
    /// How many tokens have cached keys and values: more than can be used where the state after them is missing.
    pub parted: usize,
    /// The slot of the state after the tokens that need not be computed.
    pub state: Option<u32>,
}

impl Prefix {
    /// Tokens that need not be computed.
    pub fn tokens(&self) -> usize {
        self.blocks * BLOCK + self.partial.map_or(0, |(_, count)| count)
    }
}

/// Why a prompt was not found whole: what its owner needs to see to find the token that broke the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Miss {
    /// Nothing that starts this way is cached beyond this position: never seen, or evicted.
    Uncached {
        /// First position that must be computed.
        position: usize,
    },
    /// The closest cached sequence goes on differently.
    Different {
        /// First position that differs.
        position: usize,
        /// The token the cache has there.
        cached: u32,
        /// The token that was asked for.
        wanted: u32,
    },
    /// Keys and values are cached beyond this position, but no recurrent state after it is.
    NoState {
        /// First position that must be computed.
        position: usize,
        /// First position without cached keys and values.
        cached: usize,
    },
}

/// A copy of a half-full block that must be made before the pool is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockCopy {
    /// Block to read.
    pub from: u32,
    /// Private block of the new sequence to write.
    pub to: u32,
}

/// Where the blocks are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockCounts {
    /// Referenced by at least one sequence.
    pub used: usize,
    /// Kept for their content, referenced by nobody.
    pub cached: usize,
    /// Empty.
    pub free: usize,
}

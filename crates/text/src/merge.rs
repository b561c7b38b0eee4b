//! Merging neighbours until nothing more merges: the loop that all byte-pair tokenisers share.
//!
//! Always the pair with the lowest rank is merged, the leftmost of equals first, until none is left. Short words do that
//! by looking at all pairs each time, which is fastest up to some dozens of symbols; long ones (base64, minified code, an
//! attack) use a heap, so a word of n symbols costs n log n.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::table::Merge;

/// Longest word, in symbols, that is merged without a heap.
const LINEAR_MAX: usize = 64;

/// No pair here.
pub(crate) const NO_MERGE: Merge = Merge { rank: u32::MAX, id: u32::MAX };

/// Memory that is reused from word to word.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// The word: symbols to merge, then what they became.
    pub symbols: Vec<u32>,
    merges: Vec<Merge>,
    previous: Vec<usize>,
    next: Vec<usize>,
    heap: BinaryHeap<Reverse<(u32, usize)>>,
}

/// Merges the symbols of a word; `pair` says what two neighbours become.
pub(crate) fn all(scratch: &mut Scratch, pair: impl FnMut(u32, u32) -> Merge) {
    if scratch.symbols.len() <= LINEAR_MAX {
        merge_linear(scratch, pair);
    } else {
        merge_heap(scratch, pair);
    }
}

/// `merges[i]` is what `symbols[i]` and `symbols[i + 1]` become.
fn merge_linear(scratch: &mut Scratch, mut pair: impl FnMut(u32, u32) -> Merge) {
    let Scratch { symbols, merges, .. } = scratch;
    merges.clear();
    merges.extend(symbols.windows(2).map(|two| pair(two[0], two[1])));
    loop {
        let mut best = (u32::MAX, 0);
        for (index, merge) in merges.iter().enumerate() {
            if merge.rank < best.0 {
                best = (merge.rank, index);
            }
        }
        let (rank, at) = best;
        if rank == u32::MAX {
            return;
        }
        symbols[at] = merges[at].id;
        symbols.remove(at + 1);
        merges.remove(at);
        if at > 0 {
            merges[at - 1] = pair(symbols[at - 1], symbols[at]);
        }
        if at < merges.len() {
            merges[at] = pair(symbols[at], symbols[at + 1]);
        }
    }
}

/// The same with a heap of (rank, position). An entry counts only while the pair at its position still has its
/// rank, which identifies the pair; symbols that were merged away have no pair.
fn merge_heap(scratch: &mut Scratch, mut pair: impl FnMut(u32, u32) -> Merge) {
    let Scratch { symbols, merges, previous, next, heap } = scratch;
    let count = symbols.len();
    previous.clear();
    previous.extend((0..count).map(|index| index.wrapping_sub(1)));
    next.clear();
    next.extend(1..=count);
    merges.clear();
    merges.resize(count, NO_MERGE);
    heap.clear();
    for at in 0..count - 1 {
        set_pair(merges, heap, at, pair(symbols[at], symbols[at + 1]));
    }
    while let Some(Reverse((rank, at))) = heap.pop() {
        if merges[at].rank != rank {
            continue;
        }
        let gone = next[at];
        let after = next[gone];
        symbols[at] = merges[at].id;
        merges[gone] = NO_MERGE;
        next[at] = after;
        let right = if after < count { pair(symbols[at], symbols[after]) } else { NO_MERGE };
        set_pair(merges, heap, at, right);
        if after < count {
            previous[after] = at;
        }
        let before = previous[at];
        if before < count {
            set_pair(merges, heap, before, pair(symbols[before], symbols[at]));
        }
    }
    let mut at = 0;
    let mut kept = 0;
    while at < count {
        symbols[kept] = symbols[at];
        kept += 1;
        at = next[at];
    }
    symbols.truncate(kept);
}

fn set_pair(merges: &mut [Merge], heap: &mut BinaryHeap<Reverse<(u32, usize)>>, at: usize, merge: Merge) {
    merges[at] = merge;
    if merge != NO_MERGE {
        heap.push(Reverse((merge.rank, at)));
    }
}

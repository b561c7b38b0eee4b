//! Launching attention of single rows, each with blocks of its own or several to a block.

use super::options::HEAD_SHORT;
use super::{Kernels, KernelsOptions, SPLITS};
use crate::arguments::*;
use crate::blocks::*;
use crate::error::Error;

/// Rows that a block of `kernels/attention_rows.cu` works on at a time: a block has a multiple of these.
const CREWS: usize = 4;

impl KernelsOptions {
    /// Shared memory of attention, at least that of `AttentionShared` in `kernels/attention.cuh`: queries, the row's own key
    /// and value, weights, statistics, and the sums of four warps together.
    pub(super) fn attention_bytes(&self) -> usize {
        let (group, head) = (self.group(), self.head);
        let weights = 2 * 16 * (512 / if head > HEAD_SHORT { 2 } else { 1 } + 32);
        let sums = 4 * group * head.min(HEAD_SHORT) * 4;
        let merge = (2 * group * SPLITS + group * head + SPLITS) * 4;
        self.queries_bytes() + 4 * head + weights + 1536 + 64 + sums.max(merge).max((group + 2) * head * 4) + 32 + 512
    }

    /// That of a row's queries, as the tensor cores read them.
    pub(super) fn queries_bytes(&self) -> usize {
        2 * self.head.div_ceil(32) * 512
    }

    /// That of attention with several rows to a block, but for queries; at least `RowsShared` in `kernels/attention_rows.cu`: keys
    /// and values of a part, and weights and statistics of the rows that are worked on.
    pub(super) fn rows_bytes(&self) -> usize {
        let position = if self.kv8 { self.head + 4 } else { self.head * 2 };
        2 * self.chunk_min() * position + CREWS * (16 * 512 + 256 + 16)
    }
}

impl Kernels {
    pub(super) fn attention_block(&self, call: &AttentionCall<'_>) -> (AttentionBlock, Arguments) {
        let KernelsOptions { head, heads, .. } = self.options;
        let rows = call.rows;
        assert!(call.output.len >= rows * heads * head, "room for the output");
        assert!(call.partial.len >= rows * heads * SPLITS * (head + 2), "room for partial results");
        assert!(call.arrived.len >= rows * heads, "room for counters");
        let mut a = Arguments::default();
        let params = AttentionBlock {
            heads: self.heads_block(&mut a, &call.heads, rows),
            output: a.at(call.output),
            partial: a.at(call.partial),
            arrived: a.at(call.arrived),
            store: u32::from(call.store),
            rows: rows as u32,
        };
        (params, a)
    }

    /// Attention of single rows.
    pub fn attention(&self, call: &AttentionCall<'_>) -> Result<(), Error> {
        let (params, a) = self.attention_block(call);
        let (rows, together) = (call.rows, call.together);
        let splits = self.splits_for(call.length_max) as u32;
        let grid = (splits, self.options.attending() as u32, rows.div_ceil(together) as u32);
        if together == 1 {
            return self.launch(&self.attention, grid, 512, self.options.attention_bytes(), a, &params);
        }
        assert!(!call.store && together <= self.together_max(call.length_max), "rows that can share a block");
        let bytes = self.options.rows_bytes() + together * self.options.queries_bytes();
        let kernel = self.attention_rows.as_ref();
        let kernel = kernel.ok_or_else(|| Error::Unsupported("rows of long heads that share a block".to_owned()))?;
        self.launch(kernel, grid, 512, bytes, a, &params)
    }

    /// How many rows that follow each other in one sequence should share a block of [`Kernels::attention`]: as few as need no more
    /// blocks than there are multiprocessors, because a block that has to wait for another waits for all of it.
    pub fn rows_together(&self, rows: usize, length_max: usize) -> usize {
        let most = self.together_max(length_max);
        let blocks = |together| self.splits_for(length_max) * self.options.attending() * rows.div_ceil(together);
        let choices = std::iter::once(1).chain((CREWS..most).step_by(CREWS));
        choices.into_iter().find(|&together| blocks(together) <= self.options.multiprocessors).unwrap_or(most)
    }

    /// Most rows that can share a block: their queries must fit, and no part may have more positions than a block keeps.
    pub(crate) fn together_max(&self, length_max: usize) -> usize {
        let left = self.device.facts().shared_bytes.saturating_sub(self.options.rows_bytes());
        let most = left / self.options.queries_bytes() / CREWS * CREWS;
        let alone = self.options.head > HEAD_SHORT || length_max > self.options.chunk_min() * self.options.splits();
        if alone { 1 } else { most.max(1) }
    }

    /// Parts of the longest row. Blocks without positions would end at once, but starting them takes time.
    fn splits_for(&self, length_max: usize) -> usize {
        length_max.div_ceil(self.options.chunk_min()).clamp(1, self.options.splits())
    }
}

//! Launching what narrows rows of logits down for a sampler.

use super::{Kernels, Module, room};
use crate::arguments::*;
use crate::blocks::*;
use crate::device::{Device, Function};
use crate::error::Error;
use kernels::shortlist::{LIST_MAX, RUN};

/// Warps of a block, each with a run of its own.
const WARPS: usize = 8;
/// Most runs of a row, as `RUNS_MAX` in `shortlist.cu`.
const RUNS_MAX: usize = 2048;
/// Words of a result before its list: how many tokens, whether they are all, the largest logit, nothing.
pub const SHORTLIST_HEAD: usize = 4;

/// The three kernels.
pub(super) struct ShortlistKernels {
    maxima: Function,
    shortlist: Function,
    weigh: Function,
}

impl ShortlistKernels {
    pub fn new(device: &Device, module: &Module) -> Result<ShortlistKernels, Error> {
        let function = |name| module.function(device, name, false);
        Ok(ShortlistKernels {
            maxima: function("maxima")?,
            shortlist: function("shortlist")?,
            weigh: function("weigh")?,
        })
    }
}

impl Kernels {
    /// Words of the result of one row of [`Kernels::narrow`]; nothing for a vocabulary it cannot do.
    pub fn shortlist_words(vocab: usize) -> Option<usize> {
        let runs = vocab.div_ceil(RUN);
        (runs <= RUNS_MAX).then(|| (SHORTLIST_HEAD + 2 * LIST_MAX + runs).next_multiple_of(4))
    }

    /// The likeliest tokens of rows of logits and the sums of their weights.
    pub fn shortlist(&self, call: &ShortlistCall<'_>) -> Result<(), Error> {
        let ShortlistCall { vocab, rows, .. } = *call;
        let stride = Kernels::shortlist_words(vocab).ok_or_else(|| Error::Unsupported(format!("{vocab} tokens")))?;
        let (runs, words) = (vocab.div_ceil(RUN), vocab.div_ceil(32));
        room(call.logits, rows * vocab, "logits");
        room(call.masks, rows * words, "masks");
        room(call.asks, rows * 4, "asks");
        room(call.maxima, rows * runs, "maxima");
        room(call.output, rows * stride, "shortlists");
        let block = |a: &mut Arguments| ShortlistBlock {
            logits: a.at(call.logits),
            masks: a.at(call.masks),
            asks: a.at(call.asks),
            maxima: a.at(call.maxima),
            output: a.at(call.output),
            vocab: vocab as u32,
            runs: runs as u32,
            words: words as u32,
            stride: stride as u32,
        };
        let (wide, threads) = ((runs.div_ceil(WARPS) as u32, rows as u32, 1), (WARPS * 32) as u32);
        let ShortlistKernels { maxima, shortlist, weigh } = &self.shortlist_kernels;
        let parts = [(maxima, wide, threads), (shortlist, (rows as u32, 1, 1), 1024), (weigh, wide, threads)];
        for (function, grid, threads) in parts {
            let mut a = Arguments::default();
            let params = block(&mut a);
            self.launch(function, grid, threads, 0, a, &params)?;
        }
        Ok(())
    }
}

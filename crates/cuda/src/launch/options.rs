//! What kernels are compiled for, and the definitions that follow from it.

use super::{job, persistent, product_batch, products};
use crate::arguments::QueryTile;
use crate::blocks::*;
use crate::compile::Source;
use crate::pack;
use kernels::Format;

/// Most parts the positions of a row are cut into by [`super::Kernels::attention`].
pub const SPLITS: usize = 72;
/// Longest head.
pub(super) const HEAD_MAX: usize = 256;
/// Longest head of which a warp has sixteen positions, and of which rows share a block; it has eight of longer ones.
pub(super) const HEAD_SHORT: usize = 128;
/// Most query heads in a block of attention: half of the rows of a tensor core's product.
pub(super) const GROUP_MAX: usize = 8;

/// What kernels are compiled for.
#[derive(Clone, Debug)]
pub struct KernelsOptions {
    /// Formats of all matrices.
    pub formats: Vec<Format>,
    /// Elements per head.
    pub head: usize,
    /// Query heads.
    pub heads: usize,
    /// KV heads.
    pub kv_heads: usize,
    /// Whether keys and values are kept in 8 bits, with a scale for each position, instead of half precision.
    pub kv8: bool,
    /// Elements of the residual stream.
    pub columns: usize,
    /// Whether there are mixtures of experts.
    pub experts: bool,
    /// Whether every token visits one more.
    pub shared: bool,
    /// Whether query heads come with gates.
    pub gated: bool,
    /// Whether there are Gated DeltaNet layers.
    pub delta: bool,
    /// Multiprocessors of the card: attention of one row is cut into at most so many pieces.
    pub multiprocessors: usize,
    /// Whether a [`super::PersistentStep`] notes when its phases begin and end.
    pub times: bool,
}

impl KernelsOptions {
    /// Query heads in a block of attention: the largest divisor of a KV head's share that fits.
    pub(super) fn group(&self) -> usize {
        let share = self.heads / self.kv_heads;
        (1..=GROUP_MAX).rev().find(|&group| share.is_multiple_of(group)).unwrap_or(1)
    }

    /// Fewest positions of a part of a row, as `CHUNK_MIN` in `attention.cuh`.
    pub(super) fn chunk_min(&self) -> usize {
        if self.head > HEAD_SHORT { 128 } else { 256 }
    }

    /// Heads of a row: queries, their gates, keys and values.
    pub fn row_heads(&self) -> usize {
        self.heads * if self.gated { 2 } else { 1 } + 2 * self.kv_heads
    }

    /// Bytes of a layer in a block of the cache.
    pub fn layer_bytes(&self) -> usize {
        let position = if self.kv8 { self.head + 4 } else { self.head * 2 };
        2 * self.kv_heads * kernels::kv::BLOCK * position
    }

    /// Blocks that have attention at any position.
    pub(super) fn attending(&self) -> usize {
        self.heads / self.group()
    }

    /// Most parts the positions of a row are cut into: one for each multiprocessor and group of heads. Whoever merges them has a
    /// thread for each part and head.
    pub(super) fn splits(&self) -> usize {
        (self.multiprocessors / self.attending()).clamp(1, SPLITS.min(512 / self.group()))
    }

    /// Copies of what attention leaves (`kernels/ready_bits.cuh`). Two are 733 tokens/s of the 7B where one is 725, four 1.5 % less of the
    /// 30B-A3B (H200, 2026-11-17). Of the 35B-A3B two are 806 where one is 800 and four are 785 (H200, 2026-11-19).
    pub(super) fn attended_copies(&self) -> usize {
        if self.experts && !self.delta { 1 } else { 2 }
    }

    /// Nanoseconds between two looks at what attention leaves.
    pub(super) fn attended_pause(&self) -> usize {
        if self.experts { 200 } else { 0 }
    }

    /// Whether blocks are launched in pairs, which share the work on down's input (`kernels/persistent_input.cuh`). All of them must be on the
    /// card at once; cards that have clusters have their multiprocessors in twos.
    pub(super) fn pairs(&self) -> bool {
        !self.experts && self.multiprocessors.is_multiple_of(2)
    }

    /// The definitions a source is compiled with; `tiles` of eight rows is for products of several rows.
    pub fn definitions(&self, source: Source, tiles: usize) -> Vec<String> {
        let mut definitions = self.own_definitions(source, tiles);
        definitions.extend(sizes().map(|(name, size)| format!("SIZEOF_{name}={size}")));
        definitions
    }

    fn own_definitions(&self, source: Source, tiles: usize) -> Vec<String> {
        let mut formats: Vec<_> = self.formats.iter().map(|format| format!("WITH_{}=1", format.name())).collect();
        formats.sort();
        formats.dedup();
        let (head, held) = (format!("HEAD={}", self.head), format!("KV8={}", u32::from(self.kv8)));
        let (group, bytes) = (self.group(), self.attention_bytes());
        let splits = format!("SPLITS={}", self.splits());
        let gated = self.gated.then(|| "OUTPUT_GATES=1".to_owned());
        let attention =
            [head.clone(), held.clone(), format!("GROUP={group}"), splits, format!("ATTENTION_BYTES={bytes}")];
        let attention = attention.into_iter().chain(gated.clone());
        match source {
            Source::Product => {
                formats.extend(["ROWS=1".to_owned(), format!("DEPTH={}", products::DEPTH)]);
                formats
            }
            Source::ProductBatch => {
                let depth = format!("DEPTH={}", product_batch::depth(tiles));
                formats.extend(["ROWS=1".to_owned(), format!("TILES={tiles}"), depth]);
                formats
            }
            Source::Rows | Source::Gemm | Source::GemmPacked => formats,
            Source::Floats => vec!["ROWS=1".to_owned()],
            Source::Attention => {
                let rows = format!("ROWS_BYTES={}", self.rows_bytes());
                let queries = format!("QUERIES_BYTES={}", self.queries_bytes());
                attention.chain([rows, queries]).collect()
            }
            Source::Heads | Source::Flash => [head, held].into_iter().chain(gated).collect(),
            Source::Delta => vec!["ROWS=1".to_owned()],
            Source::DecodePersistent => {
                formats.extend(["ROWS=1".to_owned(), format!("FEEDERS={}", persistent::FEEDERS)]);
                formats.extend(job::Ring::new(self.experts).definitions(self.columns));
                formats.push(format!("PAIRS={}", u32::from(self.pairs())));
                formats.push(format!("ATTENDED_COPIES={}", self.attended_copies()));
                formats.push(format!("ATTENDED_PAUSE={}", self.attended_pause()));
                formats.extend(self.times.then(|| "TIMES=1".to_owned()));
                // What a model has no use for costs the others registers and room in the instruction cache.
                formats.push(format!("MIXED={}", u32::from(self.experts)));
                formats.extend(self.shared.then(|| "SHARED_EXPERT=1".to_owned()));
                formats.extend(self.delta.then(|| "WITH_DELTA=1".to_owned()));
                let wide = self.columns > products::WARPS * pack::CHUNK_COLUMNS;
                formats.extend(wide.then(|| "WIDE_NORM=1".to_owned()));
                formats.into_iter().chain(attention).collect()
            }
        }
    }
}

/// Structures that kernels declare as well, by their names there: `MIRRORED` in `kernels/common.cuh` compares the sizes.
fn sizes() -> impl Iterator<Item = (&'static str, usize)> {
    [
        ("Segment", size_of::<SegmentBlock>()),
        ("Product", size_of::<ProductBlock>()),
        ("ProductBatch", size_of::<ProductBatchBlock>()),
        ("Ready", size_of::<ReadyBlock>()),
        ("Floats", size_of::<FloatsBlock>()),
        ("Route", size_of::<RouteBlock>()),
        ("Mixture", size_of::<MixtureBlock>()),
        ("ResidualNormQuant", size_of::<ResidualNormQuantBlock>()),
        ("Heads", size_of::<HeadsBlock>()),
        ("Attention", size_of::<AttentionBlock>()),
        ("Store", size_of::<StoreBlock>()),
        ("Flash", size_of::<FlashBlock>()),
        ("QueryTile", size_of::<QueryTile>()),
        ("Embed", size_of::<EmbedBlock>()),
        ("Pick", size_of::<PickBlock>()),
        ("Shortlist", size_of::<ShortlistBlock>()),
        ("Plain", size_of::<PlainBlock>()),
        ("Token", size_of::<persistent::PersistentBlock>()),
        ("Norm", size_of::<NormBlock>()),
        ("Random", size_of::<RandomBlock>()),
        ("Expand", size_of::<ExpandBlock>()),
        ("Gemm", size_of::<GemmBlock>()),
        ("PackedPart", size_of::<PackedPartBlock>()),
        ("GemmPacked", size_of::<GemmPackedBlock>()),
        ("Choose", size_of::<ChooseBlock>()),
        ("Sort", size_of::<SortBlock>()),
        ("AddParts", size_of::<AddPartsBlock>()),
        ("Delta", size_of::<DeltaBlock>()),
        ("DeltaRun", 4 * crate::arguments::DELTA_RUN_WORDS),
        ("DeltaRows", size_of::<DeltaRowsBlock>()),
        ("DeltaSettle", size_of::<DeltaSettleBlock>()),
        ("DeltaPhase", size_of::<DeltaPhaseBlock>()),
        ("DeltaSlots", size_of::<DeltaSlotsBlock>()),
        ("ScaleRows", size_of::<ScaleRowsBlock>()),
        ("Job", size_of::<job::JobBlock>()),
        ("Stretch", size_of::<job::StretchBlock>()),
    ]
    .into_iter()
}

//! What each kernel is given, as callers say it. `blocks.rs` has what the kernel reads.
//!
//! Addresses are put into those blocks through [`Arguments`], which notes the allocation behind each, so that recorded
//! graphs keep it alive.

mod delta;
mod prompts;

use crate::memory::{Buffer, Keep, Mailbox, Matrix, Slice};
use std::sync::Arc;

pub use delta::*;
pub use prompts::*;

/// Addresses for a parameter block, and what must stay alive for them.
#[derive(Default)]
pub(crate) struct Arguments {
    pub held: Vec<Arc<dyn Keep>>,
}

impl Arguments {
    pub fn at<T>(&mut self, slice: Slice<'_, T>) -> u64 {
        let allocation: Arc<dyn Keep> = slice.allocation.clone();
        self.held.push(allocation);
        slice.address
    }

    pub fn mailbox(&mut self, mailbox: &Mailbox) -> u64 {
        let memory: Arc<dyn Keep> = mailbox.0.clone();
        self.held.push(memory);
        mailbox.address()
    }

    pub fn optional<T>(&mut self, slice: Option<Slice<'_, T>>) -> u64 {
        slice.map_or(0, |slice| self.at(slice))
    }
}

/// One matrix of a product.
#[derive(Clone, Copy)]
pub struct Part<'a> {
    /// Weights.
    pub matrix: &'a Matrix,
    /// Added to the result.
    pub bias: Option<Slice<'a, f32>>,
    /// Place of its first result in an output row.
    pub output: usize,
}

/// What becomes of the sums of a product.
#[derive(Clone, Copy)]
pub enum Then<'a> {
    /// They are the output.
    Store,
    /// They are added to the output.
    Add,
    /// The one part is a gate; the matrix here is its up, and the output is `silu(gate) * up`.
    Gate(&'a Matrix),
    /// They are the output, and the best of each row and block goes here, multiprocessors per row.
    Logits(Slice<'a, u64>),
}

/// Matrix times few rows.
pub struct ProductCall<'a> {
    /// One to three matrices over the same input.
    pub parts: &'a [Part<'a>],
    /// Rows of the input.
    pub rows: usize,
    /// Input rows, as long as the matrices are wide.
    pub input: Slice<'a, f32>,
    /// Norm applied to the input first, and its epsilon.
    pub norm: Option<(&'a Buffer<f32>, f32)>,
    /// Output rows, `stride` apart.
    pub output: Slice<'a, f32>,
    /// See `output`.
    pub stride: usize,
    /// What becomes of the sums.
    pub then: Then<'a>,
}

/// Rows that [`ProductBatchCall`] multiplies.
#[derive(Clone, Copy)]
pub enum Rows<'a> {
    /// From [`ResidualNormQuantCall`], for these matrices' format.
    Quantised(Slice<'a, u8>),
    /// As they are; only with [`Then::Add`].
    Plain(Slice<'a, f32>),
}

/// Matrix times several rows.
pub struct ProductBatchCall<'a> {
    /// One to three matrices over the same input.
    pub parts: &'a [Part<'a>],
    /// Rows of the input.
    pub rows: usize,
    /// See there.
    pub input: Rows<'a>,
    /// Output rows, `stride` apart; with [`Then::Add`] sums to be added by a [`ResidualNormQuantCall`], `[super][row][stride]`.
    pub output: Slice<'a, f32>,
    /// See `output`.
    pub stride: usize,
    /// What becomes of the sums.
    pub then: Then<'a>,
}

/// Matrices of floats times one or several rows.
pub struct FloatsCall<'a> {
    /// One to three matrices of the same format over the same input.
    pub parts: &'a [Part<'a>],
    /// Rows of the input.
    pub rows: usize,
    /// Input rows, as long as the matrices are wide.
    pub input: Slice<'a, f32>,
    /// Scratch, two numbers for each of the input.
    pub ready: Slice<'a, u16>,
    /// Scratch, one for each row.
    pub scales: Slice<'a, f32>,
    /// Output rows, `stride` apart.
    pub output: Slice<'a, f32>,
    /// See `output`.
    pub stride: usize,
    /// What becomes of the sums; nothing is added here.
    pub then: Then<'a>,
}

/// The residual made ready for [`ProductBatchCall`].
pub struct ResidualNormQuantCall<'a> {
    /// `[row][columns]`.
    pub x: Slice<'a, f32>,
    /// Number of rows.
    pub rows: usize,
    /// What is added to it first.
    pub partial: Option<Partial<'a>>,
    /// Norm and its epsilon.
    pub norm: (&'a Buffer<f32>, f32),
    /// Scratch, one per row and super-block.
    pub squares: Slice<'a, f32>,
    /// Counters, one per row, zero.
    pub arrived: Slice<'a, u32>,
    /// Format of the matrices they will meet.
    pub format: kernels::Format,
    /// As large as [`crate::quantised_bytes`] says.
    pub output: Slice<'a, u8>,
    /// The normalised rows as floats too.
    pub normed: Option<Slice<'a, f32>>,
}

/// Which experts rows visit.
pub struct RouteCall<'a> {
    /// `[row][columns]`.
    pub input: Slice<'a, f32>,
    /// Number of rows.
    pub rows: usize,
    /// Norm applied to them, and its epsilon.
    pub norm: (&'a Buffer<f32>, f32),
    /// `[expert][columns]`, and the gate of a shared one where there is one.
    pub router: &'a Buffer<f32>,
    /// Number of experts.
    pub count: usize,
    /// Experts a row visits.
    pub used: usize,
    /// Whether all rows visit one more, the last of their shares.
    pub shared: bool,
    /// Scratch, `[row][count + shared]`.
    pub scores: Slice<'a, f32>,
    /// Counters, one per row, zero.
    pub arrived: Slice<'a, u32>,
    /// `[row][used]`, in the order of their numbers.
    pub chosen: Slice<'a, u32>,
    /// `[row][used + shared]`: the share of each in the result.
    pub shares: Slice<'a, f32>,
}

/// Rows through the experts they visit.
pub struct ExpertsCall<'a> {
    /// The matrices of all experts, one behind the other.
    pub matrix: &'a Matrix,
    /// The ups, where `matrix` is the gates.
    pub up: Option<&'a Matrix>,
    /// Number of experts.
    pub count: usize,
    /// From [`RouteCall`].
    pub chosen: Slice<'a, u32>,
    /// Experts a row visits.
    pub used: usize,
    /// Number of rows.
    pub rows: usize,
    /// `[row][columns]` for gates, `[visit][columns]` else.
    pub input: Slice<'a, f32>,
    /// `silu(gate) * up`, `[visit][rows of an expert]`; or sums to be added, `[slot][super][row][rows of an expert]`.
    pub output: Slice<'a, f32>,
}

/// A row through the experts it visits, as part of a persistent step.
pub struct MixtureCall<'a> {
    /// The residual; what the experts say is added to it.
    pub x: Slice<'a, f32>,
    /// Norm applied to it first, and its epsilon.
    pub norm: (&'a Buffer<f32>, f32),
    /// `[expert][columns]`, and the gate of a shared one where there is one.
    pub router: &'a Buffer<f32>,
    /// Number of experts.
    pub count: usize,
    /// Experts a row visits.
    pub used: usize,
    /// Gate, up and down of an expert that every row visits besides, in the formats of the others.
    pub shared: Option<[&'a Matrix; 3]>,
    /// The gates of all experts, one behind the other.
    pub gate: &'a Matrix,
    /// Their ups.
    pub up: &'a Matrix,
    /// Their downs.
    pub down: &'a Matrix,
    /// Scratch, `[used and shared][rows of a gate]`.
    pub gated: Slice<'a, f32>,
}

/// Sums a product left to be added.
#[derive(Clone, Copy)]
pub struct Partial<'a> {
    /// From [`ProductBatchCall`] with [`Then::Add`].
    pub sums: Slice<'a, f32>,
    /// Columns of the matrix they come from.
    pub columns: usize,
    /// Added to them.
    pub bias: Option<Slice<'a, f32>>,
    /// They come from experts: shares of the visits, `[row][used]`, and how many there are.
    pub visits: Option<(Slice<'a, f32>, usize)>,
}

/// Where rows stand in their sequences, and how heads are finished.
#[derive(Clone, Copy)]
pub struct HeadsCall<'a> {
    /// `[row][heads + 2 kv_heads][head]`.
    pub rows: Slice<'a, f32>,
    /// Position of each row.
    pub positions: Slice<'a, u32>,
    /// Sequence of each row.
    pub sequences: Slice<'a, u32>,
    /// Block numbers, `table_stride` per sequence.
    pub tables: Slice<'a, u32>,
    /// See `tables`.
    pub table_stride: usize,
    /// The KV cache.
    pub cache: Slice<'a, u8>,
    /// Bytes of a block over all layers.
    pub block_bytes: usize,
    /// The layer.
    pub layer: usize,
    /// Norm of each query head.
    pub q_norm: Option<&'a Buffer<f32>>,
    /// Norm of each key head.
    pub k_norm: Option<&'a Buffer<f32>>,
    /// Epsilon of these norms.
    pub epsilon: f32,
    /// Cosine and sine, `[position][dimensions / 2]`.
    pub angles: &'a Buffer<[f32; 2]>,
    /// Elements of a head that are rotated.
    pub dimensions: usize,
    /// Whether pairs are neighbours.
    pub neighbours: bool,
}

/// Attention of single rows.
pub struct AttentionCall<'a> {
    /// Where the rows stand.
    pub heads: HeadsCall<'a>,
    /// Number of rows.
    pub rows: usize,
    /// No row has more positions to attend to.
    pub length_max: usize,
    /// Whether the rows' own keys and values are written first; every row must have its own sequence then.
    pub store: bool,
    /// Rows that share a block. Where it is more than one, at most [`Kernels::rows_together`](crate::Kernels::rows_together), all
    /// rows are of one sequence and follow each other, and their keys and values are written already.
    pub together: usize,
    /// `[row][heads * head]`.
    pub output: Slice<'a, f32>,
    /// Partial results, `[row][heads][SPLITS][head + 2]`.
    pub partial: Slice<'a, f32>,
    /// Counters, `[row][heads]`, zero.
    pub arrived: Slice<'a, u32>,
}

/// Keys and values into the cache; queries made ready.
pub struct StoreCall<'a> {
    /// Where the rows stand.
    pub heads: HeadsCall<'a>,
    /// Number of rows.
    pub rows: usize,
    /// Queries in half precision, `[row][heads * head]`.
    pub queries: Option<Slice<'a, u16>>,
}

/// Embeddings of tokens.
pub struct EmbedCall<'a> {
    /// The table.
    pub table: &'a Matrix,
    /// Tokens, one per row.
    pub tokens: Slice<'a, u32>,
    /// `[row][columns]`.
    pub output: Slice<'a, f32>,
}

/// Rows of logits narrowed down for a sampler: see [`kernels::shortlist`].
#[derive(Clone, Copy)]
pub struct ShortlistCall<'a> {
    /// `[row][vocab]`.
    pub logits: Slice<'a, f32>,
    /// Number of rows.
    pub rows: usize,
    /// Entries of a row.
    pub vocab: usize,
    /// `[row][words of 32 tokens]`: bits of the tokens that are allowed.
    pub masks: Slice<'a, u32>,
    /// `[row]`: one over the temperature, the floor, 1 where there is a mask, nothing.
    pub asks: Slice<'a, f32>,
    /// Room for the largest logit of each run.
    pub maxima: Slice<'a, f32>,
    /// `[row][crate::Kernels::shortlist_words]`: head, tokens and logits, sums of the runs.
    pub output: Slice<'a, u32>,
}

/// The most likely token of each row.
pub struct PickCall<'a> {
    /// From [`Then::Logits`].
    pub candidates: Slice<'a, u64>,
    /// Number of rows, at most [`crate::PICK_ROWS_MAX`].
    pub rows: usize,
    /// Entries of a row of logits.
    pub vocab: usize,
    /// Tokens and positions of the step after this one.
    pub next: Option<(Slice<'a, u32>, Slice<'a, u32>)>,
    /// Picks made so far, per row.
    pub tickets: Slice<'a, u32>,
    /// Where ticket and token go.
    pub mailbox: &'a Mailbox,
}

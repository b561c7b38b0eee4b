//! What the kernels of prompts are given: products and attention of many rows, and many rows through experts.

use super::{HeadsCall, Part};
use crate::memory::{Buffer, Matrix, Slice};

/// Query rows of one sequence that follow each other; at most 64.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct QueryTile {
    /// First row.
    pub row: u32,
    /// Number of rows.
    pub count: u32,
    /// Position of the first.
    pub position: u32,
    /// Nothing.
    pub padding: u32,
}

// SAFETY: four numbers without padding.
unsafe impl crate::memory::Plain for QueryTile {}

/// Attention of many rows.
pub struct FlashCall<'a> {
    /// Where the rows stand.
    pub heads: HeadsCall<'a>,
    /// Queries from [`super::StoreCall`].
    pub queries: Slice<'a, u16>,
    /// Which rows belong together.
    pub tiles: Slice<'a, QueryTile>,
    /// `[row][heads * head]` in half precision.
    pub output: Slice<'a, u16>,
}

/// Norm of rows into half precision.
pub struct NormCall<'a> {
    /// `[row][columns]`.
    pub input: Slice<'a, f32>,
    /// As long as a row.
    pub weight: &'a Buffer<f32>,
    /// Added to the mean square.
    pub epsilon: f32,
    /// `[row][columns]`.
    pub output: Slice<'a, u16>,
}

/// A matrix written out in half precision.
pub struct ExpandCall<'a> {
    /// The matrix.
    pub matrix: &'a Matrix,
    /// Row `r` goes to row `r * step + offset`.
    pub step: usize,
    /// See `step`.
    pub offset: usize,
    /// Output rows, as long as the matrix is wide.
    pub output: Slice<'a, u16>,
}

/// Matrix times many rows, in half precision.
pub struct GemmCall<'a> {
    /// `[m][k]`.
    pub input: Slice<'a, u16>,
    /// `[n][k]`.
    pub weights: Slice<'a, u16>,
    /// Rows, outputs, inputs.
    pub shape: (usize, usize, usize),
    /// Added to the result.
    pub bias: Option<&'a Buffer<f32>>,
    /// Where the result goes.
    pub output: GemmOutput<'a>,
    /// Parts that rows are cut into, so that a narrow matrix keeps a card busy: the output is `[m][part][n]` then, and only stored.
    pub cuts: usize,
}

/// Where the result of a [`GemmCall`] goes, `[m][n]`.
pub enum GemmOutput<'a> {
    /// Here.
    Store(Slice<'a, f32>),
    /// It is added to what is here.
    Add(Slice<'a, f32>),
    /// Even outputs are gates and odd ones ups: `silu(gate) * up` goes here, `[m][n / 2]`.
    Gate(Slice<'a, u16>),
}

/// Matrix times many rows, in half precision, from packed weights: the bits of [`ExpandCall`] and [`GemmCall`].
pub struct GemmPackedCall<'a> {
    /// One to three matrices of quantised formats over the same input. With visits one: those of all experts, one behind the other.
    pub parts: &'a [Part<'a>],
    /// Input rows, as long as the matrices are wide.
    pub input: Slice<'a, u16>,
    /// Number of rows, or of visits.
    pub rows: usize,
    /// What becomes of the sums.
    pub then: GemmPackedThen<'a>,
    /// Where output rows begin, apart from each other.
    pub stride: usize,
    /// Which rows meet which expert.
    pub visits: Option<&'a ExpertRowsCall<'a>>,
    /// Parts that rows are cut into, so that narrow matrices keep a card busy: the output is `[row][part][stride]` then.
    pub cuts: usize,
}

/// Rows that several blocks or experts have parts of.
pub struct AddPartsCall<'a> {
    /// `[row][part][columns]`.
    pub parts: Slice<'a, f32>,
    /// Number of rows.
    pub rows: usize,
    /// Parts of a row.
    pub each: usize,
    /// `[row][part]`; without, all are the same.
    pub shares: Option<Slice<'a, f32>>,
    /// `[row][columns]`: they are added to this, in order.
    pub x: Slice<'a, f32>,
    /// Whether what stands there does not count.
    pub anew: bool,
}

/// What becomes of the sums of a [`GemmPackedCall`].
#[derive(Clone, Copy)]
pub enum GemmPackedThen<'a> {
    /// They go here. With visits the input stands by places and this by visits.
    Store(Slice<'a, f32>),
    /// They are added to what is here.
    Add(Slice<'a, f32>),
    /// The one part is a gate and the matrix here its up: `silu(gate) * up` goes here. With visits the input stands by rows and this
    /// by places.
    Gate(&'a Matrix, Slice<'a, u16>),
}

/// Prefill rows through experts. Each visits some; a visit is a row's number times `used` and the number among its own, and visits have
/// places in the order of experts.
#[derive(Clone, Copy)]
pub struct ExpertRowsCall<'a> {
    /// Number of rows.
    pub rows: usize,
    /// Number of experts.
    pub count: usize,
    /// Experts a row visits.
    pub used: usize,
    /// `[row][part][count]`: what the router says, as the sum of so many parts.
    pub scores: (Slice<'a, f32>, usize),
    /// `[visit]`: the expert.
    pub chosen: Slice<'a, u32>,
    /// `[visit]`: its share in the result.
    pub shares: Slice<'a, f32>,
    /// `[place]`: the visit.
    pub slots: Slice<'a, u32>,
    /// As many as [`crate::visit_tiles`] says.
    pub tiles: Slice<'a, [u32; 4]>,
}

/// Rows of an expert that all visit, each times the sigmoid of its input's product with a gate.
#[derive(Clone, Copy)]
pub struct ScaleRowsCall<'a> {
    /// `[row][columns]`.
    pub input: Slice<'a, u16>,
    /// `[columns]`.
    pub gate: Slice<'a, f32>,
    /// `[row][width]`.
    pub x: Slice<'a, u16>,
    /// Number of rows.
    pub rows: usize,
    /// See `x`.
    pub width: usize,
}

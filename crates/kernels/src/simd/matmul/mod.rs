//! Matrix products on tiles of sixteen rows, for one to many activation rows at a time.
//!
//! `out[m][n] = sum over k of weight[n][k] * x[m][k]`, weights in the layout of [`crate::pack`], activations 8-bit.
//!
//! Per tile and super-block: the quants of 32 columns are unpacked into eight registers, then every activation row takes
//! eight dot-product instructions with them, one integer multiply-add for the group's scale, and once per super-block
//! two float multiply-adds. One dot product does 64 multiply-adds, so the ceiling is 64 per cycle; unpacking is shared by
//! the rows of a pass.
//!
//! The sum of one output is formed in an order that does not depend on how many rows are computed together: integers
//! inside a block, then block after block in floats. That makes a step over several rows equal to one-by-one steps.

mod floats;
mod k_blocks;
mod small_blocks;

use super::vector::Vector;
use crate::activations::Activations;
use crate::format::{Format, Precision, SMALL, SUPER};
use crate::pack::{Matrix, TILE};
use floats::Floats;
use k_blocks::{IQ4_XS, Super};
use small_blocks::Small;
use std::ops::Range;

/// Activation rows computed together: eight running sums, eight sums in progress and eight unpacked weights fit 32
/// registers. Twelve rows gained 8 % on Q6_K and lost 3 % on Q4_K.
const ROWS: usize = 8;

/// One product: which activation rows meet the matrix and where the results go.
pub(crate) struct Product<'a> {
    pub(crate) matrix: &'a Matrix,
    pub(crate) input: &'a Activations,
    /// Row `input_rows[i]` of the activations gives row `output_rows[i]` of the output.
    pub(crate) input_rows: &'a [u32],
    pub(crate) output_rows: &'a [u32],
    pub(crate) output: *mut f32,
    /// Floats from one output row to the next; at least the matrix's rows rounded up to whole tiles.
    pub(crate) output_stride: usize,
}

// SAFETY: threads that share a product write disjoint tiles of its output and only read the rest.
unsafe impl Sync for Product<'_> {}

/// Computes the given tiles for all rows.
///
/// # Safety
///
/// The CPU has the features of `V`; `output` is valid for every output row and nobody else touches these tiles' columns
/// of it; row numbers are inside the activations, which have been quantised as the format asks.
#[inline(always)]
pub(crate) unsafe fn product<V: Vector>(p: &Product<'_>, tiles: Range<usize>) {
    // SAFETY: passed on from the caller.
    unsafe {
        match p.matrix.format {
            Format::F32 => each_tile::<V, Floats<0>>(p, tiles),
            Format::F16 => each_tile::<V, Floats<1>>(p, tiles),
            Format::BF16 => each_tile::<V, Floats<2>>(p, tiles),
            Format::Q4_0 => each_tile::<V, Small<0>>(p, tiles),
            Format::Q4_1 => each_tile::<V, Small<1>>(p, tiles),
            Format::Q5_0 => each_tile::<V, Small<2>>(p, tiles),
            Format::Q5_1 => each_tile::<V, Small<3>>(p, tiles),
            Format::Q8_0 => each_tile::<V, Small<4>>(p, tiles),
            Format::Q2_K => each_tile::<V, Super<2>>(p, tiles),
            Format::Q3_K => each_tile::<V, Super<3>>(p, tiles),
            Format::Q4_K => each_tile::<V, Super<4>>(p, tiles),
            Format::Q5_K => each_tile::<V, Super<5>>(p, tiles),
            Format::Q6_K => each_tile::<V, Super<6>>(p, tiles),
            Format::IQ4_NL => each_tile::<V, Small<5>>(p, tiles),
            Format::MXFP4 => each_tile::<V, Small<6>>(p, tiles),
            Format::IQ4_XS => each_tile::<V, Super<IQ4_XS>>(p, tiles),
        }
    }
}

/// How far ahead of use weights are asked for, in bytes, in a pass of `rows` rows.
///
/// At one row it depends on the machine ([`Vector::AHEAD`]). With more rows the stream pauses while they are computed, and far is
/// best: a step of 8 rows of the 1.5B ran at 97 tokens/s without, 119 with 512 bytes, 151 with 2048 on two Genoa cores.
const fn ahead<V: Vector>(rows: usize) -> usize {
    if rows <= 2 { V::AHEAD } else { 2048 }
}

/// Asks for part `i` of `parts` of the `bytes` that follow `at` by the distance for a pass of `M` rows.
#[inline(always)]
unsafe fn prefetch<V: Vector, const M: usize>(at: *const u8, bytes: usize, i: usize, parts: usize) {
    let lines = bytes / 64;
    for line in i * lines / parts..(i + 1) * lines / parts {
        // SAFETY: a prefetch never faults, wherever it points; the CPU has the features of `V`.
        unsafe { V::prefetch(at.wrapping_add(ahead::<V>(M) + line * 64)) };
    }
}

/// One activation row as the kernels see it.
#[derive(Clone, Copy)]
struct Row {
    values: *const f32,
    quants: *const i8,
    scales: *const f32,
    negated_sums: *const i32,
    scaled_sums: *const f32,
    sums_16: *const i16,
    sums_32: *const i16,
}

/// A family of formats that shares its inner loop.
trait Tile {
    /// How the activations are read.
    const PRECISION: Precision;

    /// Sixteen outputs for each of `M` rows. A `fresh` tile comes from memory and is asked for ahead of use.
    ///
    /// # Safety
    ///
    /// As for [`product`]; `tile` points to a whole packed tile.
    unsafe fn rows<V: Vector, const M: usize>(
        tile: *const u8,
        columns: usize,
        fresh: bool,
        x: [Row; M],
    ) -> [V::Float; M];
}

/// Tiles that share a run over the activation rows: their weights stay in the second-level cache, and the activations,
/// which do not fit there when there are many, are brought in once for all of them.
const TILES: usize = 4;

#[inline(always)]
unsafe fn each_tile<V: Vector, T: Tile>(p: &Product<'_>, tiles: Range<usize>) {
    for first in tiles.clone().step_by(TILES) {
        for (i, (input, output)) in p.input_rows.chunks(ROWS).zip(p.output_rows.chunks(ROWS)).enumerate() {
            for tile in first..tiles.end.min(first + TILES) {
                macro_rules! pass_of {
                    ($($rows:literal)*) => {
                        match input.len() {
                            $($rows => pass::<V, T, $rows>(p, tile, i == 0, input, output),)*
                            _ => pass::<V, T, ROWS>(p, tile, i == 0, input, output),
                        }
                    };
                }
                // SAFETY: passed on from the caller; the slices have the length that the constant says.
                unsafe { pass_of!(1 2 3 4 5 6 7) }
            }
        }
    }
}

#[inline(always)]
unsafe fn pass<V: Vector, T: Tile, const M: usize>(
    p: &Product<'_>,
    tile: usize,
    fresh: bool,
    input: &[u32],
    output: &[u32],
) {
    // SAFETY: row numbers are inside the activations and the output, as the caller of `product` promised.
    unsafe {
        let x: [Row; M] = std::array::from_fn(|m| row::<T>(p, input[m] as usize));
        let bytes = p.matrix.bytes().as_ptr().add(tile * p.matrix.shape().tile_bytes());
        let sums = T::rows::<V, M>(bytes, p.matrix.columns, fresh, x);
        for m in 0..M {
            V::store(p.output.add(output[m] as usize * p.output_stride + tile * TILE), sums[m]);
        }
    }
}

/// The parts of activation row `row` that formats of this precision read. Constants, so that no division is left.
#[inline(always)]
fn row<T: Tile>(p: &Product<'_>, row: usize) -> Row {
    let (x, k) = (p.input, p.matrix.columns);
    let (form, block, group) = match T::PRECISION {
        Precision::Super => (&x.wide, SUPER, 16),
        _ => (&x.small, SMALL, SMALL),
    };
    // Forms that a format does not read may be empty; their pointers are never followed.
    let at = row * k;
    Row {
        values: x.values.as_ptr().wrapping_add(at),
        quants: form.quants.as_ptr().wrapping_add(at),
        scales: form.scales.as_ptr().wrapping_add(at / block),
        negated_sums: form.negated_sums.as_ptr().wrapping_add(at / group),
        scaled_sums: form.scaled_sums.as_ptr().wrapping_add(at / block),
        sums_16: form.sums_16.as_ptr().wrapping_add(at / 16),
        sums_32: form.sums_32.as_ptr().wrapping_add(at / 32),
    }
}

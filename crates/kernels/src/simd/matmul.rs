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

use super::vector::Vector;
use crate::activations::Activations;
use crate::format::{Format, Precision, SMALL, SUPER};
use crate::pack::{Matrix, SmallLayout, SuperLayout, TILE};
use std::ops::Range;

/// Activation rows computed together: sixteen running sums and eight unpacked weights nearly fill 32 registers.
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
        }
    }
}

/// How far ahead of use weights are asked for, in bytes, in a pass of `rows` rows.
///
/// At one row near is best: it only keeps the hardware's own stream from falling behind. Share of read bandwidth on two
/// Genoa cores (Q4_K / Q6_K / Q5_0): none 93 / 77 / 84 %, 512 bytes 92 / 86 / 91 %, 4096 bytes 87 / 78 / 85 %. With
/// more rows the stream pauses while they are computed, and far is best: a step of 8 rows of the 1.5B ran at 97 tokens/s
/// without, 119 with 512 bytes, 151 with 2048.
const fn ahead(rows: usize) -> usize {
    if rows <= 2 { 512 } else { 2048 }
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

/// The K formats, by their number of bits.
struct Super<const BITS: u32>;

impl<const BITS: u32> Super<BITS> {
    const LAYOUT: SuperLayout = SuperLayout::of(match BITS {
        2 => Format::Q2_K,
        3 => Format::Q3_K,
        4 => Format::Q4_K,
        5 => Format::Q5_K,
        _ => Format::Q6_K,
    });
    /// Whether a scale covers 16 columns rather than 32.
    const HALVES: bool = matches!(BITS, 2 | 3 | 6);
    /// Whether quants stand for quant minus a power of two, rather than having minimums of their own.
    const OFFSET_SHIFT: Option<u32> = match BITS {
        3 => Some(2),
        6 => Some(5),
        _ => None,
    };

    /// The quants of columns `32 j .. 32 j + 32`, four columns to a vector. Layouts as in [`crate::blocks`].
    #[inline(always)]
    unsafe fn unpack<V: Vector>(chunk: *const u8, j: usize) -> [V::Int; 8] {
        // SAFETY: all offsets are inside the chunk whose layout is `LAYOUT`.
        unsafe {
            let low = |w: usize| V::load_bytes(chunk.add(Self::LAYOUT.low(w)));
            let high = |w: usize| V::load_bytes(chunk.add(Self::LAYOUT.high(w)));
            let (half, run) = (j / 4, (j % 4) as u32);
            let mut w = [V::splat_int(0); 8];
            for g in 0..8 {
                w[g] = match BITS {
                    2 | 3 => V::bits(low(half * 8 + g), 2 * run, 3),
                    4 | 5 => V::bits(low(j / 2 * 8 + g), j as u32 % 2 * 4, 15),
                    _ => V::bits(low(half * 16 + run as usize % 2 * 8 + g), run / 2 * 4, 15),
                };
                w[g] = match BITS {
                    3 => V::join(w[g], V::bits(high(g), j as u32, 1), 2),
                    5 => V::join(w[g], V::bits(high(g), j as u32, 1), 4),
                    6 => V::join(w[g], V::bits(high(half * 8 + g), 2 * run, 3), 4),
                    _ => w[g],
                };
            }
            w
        }
    }

    /// Scaled sum of quants times activations over one super-block.
    #[inline(always)]
    unsafe fn quants<V: Vector, const M: usize>(chunk: *const u8, b: usize, fresh: bool, x: &[Row; M]) -> [V::Int; M] {
        // SAFETY: block `b` exists in every row and `chunk` is its packed weights.
        unsafe {
            let mut sums = [V::splat_int(0); M];
            for j in 0..8 {
                if fresh {
                    let lines = Self::LAYOUT.chunk_bytes() / 64;
                    for line in j * lines / 8..(j + 1) * lines / 8 {
                        V::prefetch(chunk.wrapping_add(ahead(M) + line * 64));
                    }
                }
                let w = Self::unpack::<V>(chunk, j);
                let scales = chunk.add(Self::LAYOUT.scales());
                for m in 0..M {
                    let q = x[m].quants.add(b * SUPER + j * 32);
                    let start = |g: usize| match Self::OFFSET_SHIFT {
                        Some(5) => V::splat_int(*x[m].negated_sums.add(b * 16 + g)),
                        Some(shift) => V::splat_int(*x[m].negated_sums.add(b * 16 + g) >> (5 - shift)),
                        None => V::splat_int(0),
                    };
                    let (mut first, mut second) = if Self::HALVES {
                        (start(2 * j), start(2 * j + 1))
                    } else {
                        (V::splat_int(0), V::splat_int(0))
                    };
                    for g in 0..4 {
                        first = V::dot(first, w[g], q.add(4 * g));
                        if M > CHAINED && !Self::HALVES {
                            first = V::dot(first, w[g + 4], q.add(4 * g + 16));
                        } else {
                            second = V::dot(second, w[g + 4], q.add(4 * g + 16));
                        }
                    }
                    sums[m] = if Self::HALVES {
                        let sum = V::multiply_add_int(sums[m], V::widen_i8(scales.add(2 * j * TILE)), first);
                        V::multiply_add_int(sum, V::widen_i8(scales.add((2 * j + 1) * TILE)), second)
                    } else {
                        let both = if M > CHAINED { first } else { V::add_int(first, second) };
                        V::multiply_add_int(sums[m], V::widen_i8(scales.add(j * TILE)), both)
                    };
                }
            }
            sums
        }
    }

    /// Sum of minimums times activation sums over one super-block.
    #[inline(always)]
    unsafe fn mins<V: Vector, const M: usize>(chunk: *const u8, b: usize, x: &[Row; M]) -> [V::Int; M] {
        // SAFETY: as in `quants`.
        unsafe {
            let mut sums = [V::splat_int(0); M];
            for pair in 0..if Self::HALVES { 8 } else { 4 } {
                let mins = V::widen_u8_pairs(chunk.add(Self::LAYOUT.mins() + pair * 2 * TILE));
                for m in 0..M {
                    let activation_sums = if Self::HALVES {
                        x[m].sums_16.add(b * 16 + 2 * pair)
                    } else {
                        x[m].sums_32.add(b * 8 + 2 * pair)
                    };
                    sums[m] = V::dot_pairs(sums[m], mins, activation_sums);
                }
            }
            sums
        }
    }
}

/// With more rows than this the rows themselves hide the latency of a chain of dot products; with fewer, a group of
/// columns is summed in two chains.
const CHAINED: usize = 3;

impl<const BITS: u32> Tile for Super<BITS> {
    const PRECISION: Precision = Precision::Super;

    #[inline(always)]
    unsafe fn rows<V: Vector, const M: usize>(
        tile: *const u8,
        columns: usize,
        fresh: bool,
        x: [Row; M],
    ) -> [V::Float; M] {
        // SAFETY: the tile has `columns / SUPER` chunks and every row as many blocks.
        unsafe {
            let mut sums = [V::splat(0.0); M];
            for b in 0..columns / SUPER {
                let chunk = tile.add(b * Self::LAYOUT.chunk_bytes());
                let d = V::load_f16(chunk.cast());
                let quants = Self::quants::<V, M>(chunk, b, fresh, &x);
                for m in 0..M {
                    let scale = V::multiply(d, V::splat(*x[m].scales.add(b)));
                    sums[m] = V::multiply_add(scale, V::to_float(quants[m]), sums[m]);
                }
                if Self::OFFSET_SHIFT.is_none() {
                    let dmin = V::load_f16(chunk.add(2 * TILE).cast());
                    let mins = Self::mins::<V, M>(chunk, b, &x);
                    for m in 0..M {
                        let scale = V::multiply(dmin, V::splat(*x[m].scales.add(b)));
                        sums[m] = V::multiply_subtract(scale, V::to_float(mins[m]), sums[m]);
                    }
                }
            }
            sums
        }
    }
}

/// The formats with blocks of 32, in the order Q4_0, Q4_1, Q5_0, Q5_1, Q8_0.
struct Small<const KIND: usize>;

impl<const KIND: usize> Small<KIND> {
    const FORMAT: Format = [Format::Q4_0, Format::Q4_1, Format::Q5_0, Format::Q5_1, Format::Q8_0][KIND];
    const LAYOUT: SmallLayout = SmallLayout::of(Self::FORMAT);
    const HAS_MIN: bool = matches!(Self::FORMAT, Format::Q4_1 | Format::Q5_1);
    const FIVE_BITS: bool = matches!(Self::FORMAT, Format::Q5_0 | Format::Q5_1);
    /// Quants stand for quant minus two to this power.
    const OFFSET_SHIFT: u32 = match Self::FORMAT {
        Format::Q4_0 => 3,
        Format::Q5_0 => 4,
        _ => 7,
    };

    /// The quants of one block of 32 columns, four columns to a vector.
    #[inline(always)]
    unsafe fn unpack<V: Vector>(quants: *const u8) -> [V::Int; 8] {
        // SAFETY: all offsets are inside the block whose layout is `LAYOUT`.
        unsafe {
            let mut w = [V::splat_int(0); 8];
            for g in 0..8 {
                w[g] = match Self::FORMAT {
                    Format::Q8_0 => V::load_bytes(quants.add(g * 64)),
                    _ => V::bits(V::load_bytes(quants.add(g % 4 * 64)), g as u32 / 4 * 4, 15),
                };
                if Self::FIVE_BITS {
                    let high = V::load_bytes(quants.add(Self::LAYOUT.high()));
                    w[g] = V::join(w[g], V::bits(high, g as u32, 1), 4);
                }
            }
            w
        }
    }

    #[inline(always)]
    unsafe fn block<V: Vector>(w: &[V::Int; 8], x: &Row, b: usize) -> V::Int {
        // SAFETY: block `b` exists in the row.
        unsafe {
            let mut first = V::splat_int(0);
            if !Self::HAS_MIN {
                first = V::splat_int(*x.negated_sums.add(b) << Self::OFFSET_SHIFT);
            }
            let mut second = V::splat_int(0);
            let q = x.quants.add(b * SMALL);
            for g in 0..4 {
                if KIND == 4 {
                    first = V::dot_wide(first, w[g], q.add(4 * g));
                    second = V::dot_wide(second, w[g + 4], q.add(4 * g + 16));
                } else {
                    first = V::dot(first, w[g], q.add(4 * g));
                    second = V::dot(second, w[g + 4], q.add(4 * g + 16));
                }
            }
            V::add_int(first, second)
        }
    }
}

impl<const KIND: usize> Tile for Small<KIND> {
    const PRECISION: Precision = Precision::Small;

    #[inline(always)]
    unsafe fn rows<V: Vector, const M: usize>(
        tile: *const u8,
        columns: usize,
        fresh: bool,
        x: [Row; M],
    ) -> [V::Float; M] {
        // SAFETY: the tile has a group for every two blocks and every row `columns / SMALL` blocks.
        unsafe {
            let mut sums = [V::splat(0.0); M];
            for b in 0..columns / SMALL {
                let group = tile.add(b / 2 * Self::LAYOUT.group_bytes());
                let d = V::load_f16(group.add(b % 2 * 2 * TILE).cast());
                if fresh {
                    let lines = Self::LAYOUT.group_bytes() / 64;
                    for line in b % 2 * lines / 2..(b % 2 + 1) * lines / 2 {
                        V::prefetch(group.wrapping_add(ahead(M) + line * 64));
                    }
                }
                let w = Self::unpack::<V>(group.add(Self::LAYOUT.quants() + b % 2 * Self::LAYOUT.block_bytes()));
                for m in 0..M {
                    let scale = V::multiply(d, V::splat(*x[m].scales.add(b)));
                    sums[m] = V::multiply_add(scale, V::to_float(Self::block::<V>(&w, &x[m], b)), sums[m]);
                    if Self::HAS_MIN {
                        let min = V::load_f16(group.add(Self::LAYOUT.mins() + b % 2 * 2 * TILE).cast());
                        sums[m] = V::multiply_add(min, V::splat(*x[m].scaled_sums.add(b)), sums[m]);
                    }
                }
            }
            sums
        }
    }
}

/// Unquantised weights, in the order F32, F16, BF16.
struct Floats<const KIND: usize>;

impl<const KIND: usize> Tile for Floats<KIND> {
    const PRECISION: Precision = Precision::Float;

    #[inline(always)]
    unsafe fn rows<V: Vector, const M: usize>(tile: *const u8, columns: usize, _: bool, x: [Row; M]) -> [V::Float; M] {
        // SAFETY: the tile has sixteen values per column and every row `columns` floats.
        unsafe {
            // Two chains hide the latency of the multiply-add.
            let mut sums = [[V::splat(0.0); 2]; M];
            for c in 0..columns {
                let w = match KIND {
                    0 => V::load(tile.cast::<f32>().add(c * TILE)),
                    1 => V::load_f16(tile.cast::<u16>().add(c * TILE)),
                    _ => V::load_bf16(tile.cast::<u16>().add(c * TILE)),
                };
                for m in 0..M {
                    sums[m][c % 2] = V::multiply_add(w, V::splat(*x[m].values.add(c)), sums[m][c % 2]);
                }
            }
            let mut totals = [V::splat(0.0); M];
            for m in 0..M {
                totals[m] = V::add(sums[m][0], sums[m][1]);
            }
            totals
        }
    }
}

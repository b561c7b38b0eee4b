//! Products with the K formats: super-blocks of 256 columns, integer scales for groups of 16 or 32.

use super::{Row, Tile, Vector, prefetch};
use crate::format::{Format, IQ4_VALUES, Precision, SUPER};
use crate::pack::{SuperLayout, TILE};

/// Stands for the number of bits of IQ4_XS, which are four and not those of Q4_K.
pub(super) const IQ4_XS: u32 = 8;

/// The K formats, by their number of bits.
pub(super) struct Super<const BITS: u32>;

impl<const BITS: u32> Super<BITS> {
    const LAYOUT: SuperLayout = SuperLayout::of(match BITS {
        2 => Format::Q2_K,
        3 => Format::Q3_K,
        4 => Format::Q4_K,
        5 => Format::Q5_K,
        IQ4_XS => Format::IQ4_XS,
        _ => Format::Q6_K,
    });
    /// Whether a scale covers 16 columns rather than 32.
    const HALVES: bool = matches!(BITS, 2 | 3 | 6);
    /// Whether quants stand for quant minus a power of two, rather than having minimums of their own.
    const OFFSET_SHIFT: Option<u32> = match BITS {
        3 => Some(2),
        6 => Some(5),
        IQ4_XS => Some(7),
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
                    IQ4_XS => V::bits(low(j * 4 + g % 4), g as u32 / 4 * 4, 15),
                    4 | 5 => V::bits(low(j / 2 * 8 + g), j as u32 % 2 * 4, 15),
                    _ => V::bits(low(half * 16 + run as usize % 2 * 8 + g), run / 2 * 4, 15),
                };
                w[g] = match BITS {
                    3 => V::join(w[g], V::bits(high(g), j as u32, 1), 2),
                    5 => V::join(w[g], V::bits(high(g), j as u32, 1), 4),
                    IQ4_XS => V::lookup(&IQ4_VALUES, w[g]),
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
                    prefetch::<V, M>(chunk, Self::LAYOUT.chunk_bytes(), j, 8);
                }
                let w = Self::unpack::<V>(chunk, j);
                let scales = chunk.add(Self::LAYOUT.scales());
                for m in 0..M {
                    let q = x[m].quants.add(b * SUPER + j * 32);
                    let start = |g: usize| match Self::OFFSET_SHIFT {
                        Some(5) => V::splat_int(*x[m].negated_sums.add(b * 16 + g)),
                        Some(7) => V::splat_int(*x[m].negated_sums.add(b * 16 + g) << 2),
                        Some(shift) => V::splat_int(*x[m].negated_sums.add(b * 16 + g) >> (5 - shift)),
                        None => V::splat_int(0),
                    };
                    let (mut first, mut second) = if Self::HALVES {
                        (start(2 * j), start(2 * j + 1))
                    } else if Self::OFFSET_SHIFT.is_some() {
                        (V::add_int(start(2 * j), start(2 * j + 1)), V::splat_int(0))
                    } else {
                        (V::splat_int(0), V::splat_int(0))
                    };
                    let [low, high] = [[w[0], w[1], w[2], w[3]], [w[4], w[5], w[6], w[7]]];
                    first = V::dot_16(first, low, q, BITS);
                    if M > CHAINED && !Self::HALVES {
                        first = V::dot_16(first, high, q.add(16), BITS);
                    } else {
                        second = V::dot_16(second, high, q.add(16), BITS);
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

//! Products with the formats that have one scale for 32 columns.

use super::{Row, Tile, Vector, prefetch};
use crate::format::{Format, IQ4_VALUES, MXFP4_VALUES, Precision, SMALL};
use crate::pack::{SmallLayout, TILE};

/// The formats with blocks of 32, in the order Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL, MXFP4.
pub(super) struct Small<const KIND: usize>;

impl<const KIND: usize> Small<KIND> {
    const FORMAT: Format =
        [Format::Q4_0, Format::Q4_1, Format::Q5_0, Format::Q5_1, Format::Q8_0, Format::IQ4_NL, Format::MXFP4][KIND];
    const LAYOUT: SmallLayout = SmallLayout::of(Self::FORMAT);
    const HAS_MIN: bool = matches!(Self::FORMAT, Format::Q4_1 | Format::Q5_1);
    const BITS: u32 = match Self::FORMAT {
        Format::Q8_0 | Format::IQ4_NL => 8,
        Format::Q5_0 | Format::Q5_1 | Format::MXFP4 => 5,
        _ => 4,
    };
    /// Quants stand for quant minus two to this power.
    const OFFSET_SHIFT: u32 = match Self::FORMAT {
        Format::Q4_0 => 3,
        Format::Q5_0 | Format::MXFP4 => 4,
        _ => 7,
    };
    /// What the quants stand for, where they are the numbers of values.
    const VALUES: Option<&'static [u8; 16]> = match Self::FORMAT {
        Format::IQ4_NL => Some(&IQ4_VALUES),
        Format::MXFP4 => Some(&MXFP4_VALUES),
        _ => None,
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
                if let Some(values) = Self::VALUES {
                    w[g] = V::lookup(values, w[g]);
                }
                if Self::LAYOUT.has_fifth_bit() {
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
            let q = x.quants.add(b * SMALL);
            let [low, high] = [[w[0], w[1], w[2], w[3]], [w[4], w[5], w[6], w[7]]];
            let second = V::dot_16(V::splat_int(0), high, q.add(16), Self::BITS);
            V::add_int(V::dot_16(first, low, q, Self::BITS), second)
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
                let d = group.add(b % 2 * 2 * TILE).cast();
                let d = if matches!(Self::FORMAT, Format::MXFP4) { V::load_bf16(d) } else { V::load_f16(d) };
                if fresh {
                    prefetch::<V, M>(group, Self::LAYOUT.group_bytes(), b % 2, 2);
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

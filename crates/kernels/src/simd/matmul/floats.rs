//! Products with weights that are not quantised.

use super::{Row, Tile, Vector};
use crate::format::Precision;
use crate::pack::TILE;

/// Unquantised weights, in the order F32, F16, BF16.
pub(super) struct Floats<const KIND: usize>;

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

//! Row-wise operations: normalisation, quantisation of activations, the gated activation.
//!
//! Each touches a row once or twice and is bound by instruction count, not memory: a row is at most a few tens of KiB.

use super::vector::{Vector, exp};
use crate::activations::{QuantisedRow, finish_small, set_sum_16};
use crate::format::{SMALL, SUPER};

/// `out = x / rms(x) * weight`; lengths are equal and multiples of sixteen.
///
/// # Safety
///
/// The CPU has the features of `V`.
#[inline(always)]
pub(crate) unsafe fn rms_norm<V: Vector>(x: &[f32], weight: &[f32], epsilon: f32, out: &mut [f32]) {
    assert!(x.len().is_multiple_of(16) && weight.len() == x.len() && out.len() == x.len());
    // SAFETY: every access is below the common length.
    unsafe {
        let mut squares = [V::splat(0.0); 2];
        for (i, part) in x.chunks_exact(16).enumerate() {
            let v = V::load(part.as_ptr());
            squares[i % 2] = V::multiply_add(v, v, squares[i % 2]);
        }
        let mean = V::sum(V::add(squares[0], squares[1])) / x.len() as f32;
        let scale = V::splat(1.0 / (mean + epsilon).sqrt());
        for i in (0..x.len()).step_by(16) {
            let v = V::multiply(V::load(x.as_ptr().add(i)), scale);
            V::store(out.as_mut_ptr().add(i), V::multiply(v, V::load(weight.as_ptr().add(i))));
        }
    }
}

/// `gate = silu(gate) * up`; lengths are equal and multiples of sixteen.
///
/// # Safety
///
/// The CPU has the features of `V`.
#[inline(always)]
pub(crate) unsafe fn silu_multiply<V: Vector>(gate: &[f32], up: &[f32], out: &mut [f32]) {
    assert!(gate.len().is_multiple_of(16) && up.len() == gate.len() && out.len() == gate.len());
    // SAFETY: every access is below the common length.
    unsafe {
        let one = V::splat(1.0);
        for i in (0..gate.len()).step_by(16) {
            let g = V::load(gate.as_ptr().add(i));
            let sigmoid = V::divide(g, V::add(one, exp::<V>(V::subtract(V::splat(0.0), g))));
            V::store(out.as_mut_ptr().add(i), V::multiply(sigmoid, V::load(up.as_ptr().add(i))));
        }
    }
}

/// `out = sigmoid(gate) * up`; lengths are equal and multiples of sixteen.
///
/// # Safety
///
/// The CPU has the features of `V`.
#[inline(always)]
pub(crate) unsafe fn sigmoid_multiply<V: Vector>(gate: &[f32], up: &[f32], out: &mut [f32]) {
    assert!(gate.len().is_multiple_of(16) && up.len() == gate.len() && out.len() == gate.len());
    // SAFETY: every access is below the common length.
    unsafe {
        let one = V::splat(1.0);
        for i in (0..gate.len()).step_by(16) {
            let g = V::load(gate.as_ptr().add(i));
            let divisor = V::add(one, exp::<V>(V::subtract(V::splat(0.0), g)));
            V::store(out.as_mut_ptr().add(i), V::divide(V::load(up.as_ptr().add(i)), divisor));
        }
    }
}

/// Largest magnitude of a block.
#[inline(always)]
unsafe fn largest<V: Vector>(block: &[f32]) -> f32 {
    // SAFETY: chunks are sixteen floats long.
    unsafe {
        let mut largest = V::splat(0.0);
        for part in block.chunks_exact(16) {
            largest = V::maximum(largest, V::magnitude(V::load(part.as_ptr())));
        }
        V::largest(largest)
    }
}

/// Quantises sixteen values and returns the sum of the quants.
#[inline(always)]
unsafe fn quantize_16<V: Vector>(values: &[f32], inverse: V::Float, quants: &mut [i8]) -> i32 {
    // SAFETY: both are sixteen long.
    unsafe {
        V::store_i8(quants.as_mut_ptr(), V::round(V::multiply(V::load(values.as_ptr()), inverse)));
        V::sum_i8(quants.as_ptr())
    }
}

/// See [`crate::activations::quantize_small`].
///
/// # Safety
///
/// The CPU has the features of `V`.
#[inline(always)]
pub(crate) unsafe fn quantize_small<V: Vector>(values: &[f32], row: &mut QuantisedRow<'_>) {
    assert!(values.len().is_multiple_of(SMALL) && row.quants.len() == values.len());
    for (b, block) in values.chunks_exact(SMALL).enumerate() {
        // SAFETY: blocks are 32 long in both.
        unsafe {
            let largest = largest::<V>(block);
            let inverse = V::splat(if largest == 0.0 { 0.0 } else { 127.0 / largest });
            let quants = &mut row.quants[b * SMALL..][..SMALL];
            let first = quantize_16::<V>(&block[..16], inverse, &mut quants[..16]);
            let second = quantize_16::<V>(&block[16..], inverse, &mut quants[16..]);
            finish_small(largest, first + second, b, row);
        }
    }
}

/// See [`crate::activations::quantize_super`].
///
/// # Safety
///
/// The CPU has the features of `V`.
#[inline(always)]
pub(crate) unsafe fn quantize_super<V: Vector>(values: &[f32], row: &mut QuantisedRow<'_>) {
    assert!(values.len().is_multiple_of(SUPER) && row.quants.len() == values.len());
    for (b, block) in values.chunks_exact(SUPER).enumerate() {
        // SAFETY: blocks are 256 long in both.
        unsafe {
            let largest = largest::<V>(block);
            let inverse = if largest == 0.0 { 0.0 } else { 127.0 / largest };
            row.scales[b] = if largest == 0.0 { 0.0 } else { 1.0 / inverse };
            for (g, part) in block.chunks_exact(16).enumerate() {
                let quants = &mut row.quants[b * SUPER + g * 16..][..16];
                let sum = quantize_16::<V>(part, V::splat(inverse), quants);
                set_sum_16(b * 16 + g, sum, row);
            }
        }
    }
}

//! The arithmetic of a Gated DeltaNet: a short convolution, then a matrix per head that every token decays and corrects.
//!
//! A state stands `[key element][value element]`, so sixteen value elements are computed side by side and the sums over key
//! elements run in the order of their numbers, without any sum across lanes. Applying a correction again ([`correct`]) gives
//! the bits that the token itself gave ([`recur`]): both compute `decay * s`, then `+ key * d` rounded once.

use super::vector::{Vector, exp};

/// One token at one head.
pub(crate) struct Recurrence<'a> {
    pub(crate) query: &'a [f32],
    pub(crate) key: &'a [f32],
    pub(crate) value: &'a [f32],
    /// What the state is multiplied with first.
    pub(crate) decay: f32,
    /// How much of the difference between the value and what the state holds for the key is corrected.
    pub(crate) beta: f32,
}

/// What a token did to the state of one head.
pub(crate) struct Correction<'a> {
    pub(crate) key: &'a [f32],
    pub(crate) decay: f32,
    pub(crate) d: &'a [f32],
}

/// `out = silu(sum over taps of weight * row)`, channel by channel; `weights` has a row of channels for every tap.
///
/// # Safety
///
/// The CPU has the features of `V`.
#[inline(always)]
pub(crate) unsafe fn convolve<V: Vector>(rows: &[&[f32]], weights: &[f32], out: &mut [f32]) {
    let channels = out.len();
    assert!(channels.is_multiple_of(16) && weights.len() == rows.len() * channels);
    assert!(rows.iter().all(|row| row.len() == channels));
    // SAFETY: every access is below the number of channels of a row.
    unsafe {
        for c in (0..channels).step_by(16) {
            let mut sum = V::splat(0.0);
            for (tap, row) in rows.iter().enumerate() {
                let weight = V::load(weights.as_ptr().add(tap * channels + c));
                sum = V::multiply_add(V::load(row.as_ptr().add(c)), weight, sum);
            }
            let divisor = V::add(V::splat(1.0), exp::<V>(V::subtract(V::splat(0.0), sum)));
            V::store(out.as_mut_ptr().add(c), V::divide(sum, divisor));
        }
    }
}

/// Divides every head by its length, or by `least` where it is shorter, and multiplies it by `scale`.
///
/// # Safety
///
/// The CPU has the features of `V`.
#[inline(always)]
pub(crate) unsafe fn unit_heads<V: Vector>(x: &mut [f32], head: usize, least: f32, scale: f32) {
    assert!(head.is_multiple_of(16) && x.len().is_multiple_of(head));
    for head in x.chunks_exact_mut(head) {
        // SAFETY: every access is inside the head.
        unsafe {
            let mut squares = V::splat(0.0);
            for part in head.chunks_exact(16) {
                let v = V::load(part.as_ptr());
                squares = V::multiply_add(v, v, squares);
            }
            let factor = V::splat(scale / V::sum(squares).sqrt().max(least));
            for part in head.chunks_exact_mut(16) {
                V::store(part.as_mut_ptr(), V::multiply(V::load(part.as_ptr()), factor));
            }
        }
    }
}

/// One token of the recurrence: `state *= decay; d = beta (value - state' key); state += key d'; out = state' query`.
///
/// # Safety
///
/// The CPU has the features of `V`.
#[inline(always)]
pub(crate) unsafe fn recur<V: Vector>(r: &Recurrence<'_>, state: &mut [f32], d: &mut [f32], out: &mut [f32]) {
    let head = r.key.len();
    assert!(head.is_multiple_of(16) && state.len() == head * head && r.query.len() == head);
    assert!(r.value.len() == head && d.len() == head && out.len() == head);
    let mut first = 0;
    while first < head {
        // SAFETY: columns `first .. first + 16 W` are inside the head, and so are those of the other slices.
        unsafe {
            match head - first {
                64.. => first += recur_columns::<V, 4>(r, first, state, d, out),
                32.. => first += recur_columns::<V, 2>(r, first, state, d, out),
                _ => first += recur_columns::<V, 1>(r, first, state, d, out),
            }
        }
    }
}

/// Sixteen times `W` columns; gives their number.
#[inline(always)]
unsafe fn recur_columns<V: Vector, const W: usize>(
    r: &Recurrence<'_>,
    first: usize,
    state: &mut [f32],
    d: &mut [f32],
    out: &mut [f32],
) -> usize {
    let head = r.key.len();
    // SAFETY: see `recur`.
    unsafe {
        let decay = V::splat(r.decay);
        let state = state.as_mut_ptr().add(first);
        let mut known = [V::splat(0.0); W];
        for (i, &key) in r.key.iter().enumerate() {
            let key = V::splat(key);
            for w in 0..W {
                let s = V::multiply(V::load(state.add(i * head + 16 * w)), decay);
                known[w] = V::multiply_add(s, key, known[w]);
            }
        }
        let mut correction = [V::splat(0.0); W];
        for w in 0..W {
            let missing = V::subtract(V::load(r.value.as_ptr().add(first + 16 * w)), known[w]);
            correction[w] = V::multiply(missing, V::splat(r.beta));
            V::store(d.as_mut_ptr().add(first + 16 * w), correction[w]);
        }
        let mut read = [V::splat(0.0); W];
        for i in 0..head {
            let (key, query) = (V::splat(r.key[i]), V::splat(r.query[i]));
            for w in 0..W {
                let at = state.add(i * head + 16 * w);
                let s = V::multiply_add(key, correction[w], V::multiply(V::load(at), decay));
                V::store(at, s);
                read[w] = V::multiply_add(s, query, read[w]);
            }
        }
        for w in 0..W {
            V::store(out.as_mut_ptr().add(first + 16 * w), read[w]);
        }
    }
    16 * W
}

/// Does to a state what a token did: `state = decay * state + key d'`.
///
/// # Safety
///
/// The CPU has the features of `V`.
#[inline(always)]
pub(crate) unsafe fn correct<V: Vector>(c: &Correction<'_>, state: &mut [f32]) {
    let head = c.key.len();
    assert!(head.is_multiple_of(16) && state.len() == head * head && c.d.len() == head);
    // SAFETY: every access is inside a row of the state.
    unsafe {
        let decay = V::splat(c.decay);
        for (row, &key) in state.chunks_exact_mut(head).zip(c.key) {
            for at in (0..head).step_by(16) {
                let s = V::multiply(V::load(row.as_ptr().add(at)), decay);
                let d = V::load(c.d.as_ptr().add(at));
                V::store(row.as_mut_ptr().add(at), V::multiply_add(V::splat(key), d, s));
            }
        }
    }
}

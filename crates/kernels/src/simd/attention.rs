//! Attention over blocks of cached keys and values.
//!
//! For up to eight query rows that share a KV head, one span of positions at a time:
//! `score = q . k`, running softmax, `out += p * v`. Keys stand column-wise, sixteen positions side by side, so a score
//! needs no sum across lanes; values stand row-wise. A key or value is read and widened once for all query rows.
//!
//! The result of a query row does not depend on which other rows are computed with it: positions it may not see get
//! probability zero, and adding zero changes nothing. Spans are cut at fixed positions and merged in order, so the
//! result does not depend on how many threads shared the work either.

use super::vector::{Vector, exp};
use crate::kv::{BLOCK, KvLayout, KvType, SPAN};

/// Query rows that are computed together.
pub const QUERIES: usize = 8;

/// One or more query rows against one span of the cache.
pub(crate) struct Span<'a> {
    pub(crate) layout: &'a KvLayout,
    /// Scaled query rows, `head` floats each.
    pub(crate) queries: &'a [*const f32],
    /// Number of positions each query may see, counted from the sequence's start.
    pub(crate) limits: &'a [usize],
    /// First byte of this layer's and KV head's part of each block of the sequence.
    pub(crate) blocks: &'a dyn Fn(usize) -> *const u8,
    /// First position; a multiple of [`SPAN`].
    pub(crate) start: usize,
}

/// Running softmax of one query row: the output is `sum / weight`.
pub(crate) struct Partial<'a> {
    pub(crate) largest: &'a mut f32,
    pub(crate) weight: &'a mut f32,
    pub(crate) sum: &'a mut [f32],
}

/// Computes the partial results of one span, overwriting `partials`.
///
/// # Safety
///
/// The CPU has the features of `V`; query pointers are valid for `head` floats; every block up to the largest limit
/// exists and has been written there.
#[inline(always)]
pub(crate) unsafe fn span<V: Vector>(s: &Span<'_>, partials: &mut [Partial<'_>]) {
    // SAFETY: passed on from the caller; the constant equals the number of queries.
    unsafe {
        match s.queries.len() {
            1 => span_of::<V, 1>(s, partials),
            2 => span_of::<V, 2>(s, partials),
            3 => span_of::<V, 3>(s, partials),
            4 => span_of::<V, 4>(s, partials),
            5 => span_of::<V, 5>(s, partials),
            6 => span_of::<V, 6>(s, partials),
            7 => span_of::<V, 7>(s, partials),
            _ => span_of::<V, QUERIES>(s, partials),
        }
    }
}

/// Longest head: sizes the buffers on the stack.
pub const HEAD_MAX: usize = 256;

#[inline(always)]
unsafe fn span_of<V: Vector, const R: usize>(s: &Span<'_>, partials: &mut [Partial<'_>]) {
    let head = s.layout.head;
    assert!(head <= HEAD_MAX && head.is_multiple_of(16) && partials.len() == R && s.limits.len() == R);
    // Queries stand column by column, so that the inner loop walks one pointer instead of one per row.
    let mut queries = [0.0f32; QUERIES * HEAD_MAX];
    let mut sums = [0.0f32; QUERIES * HEAD_MAX];
    for r in 0..R {
        for c in 0..head {
            // SAFETY: the caller promised `head` floats per query.
            queries[c * R + r] = unsafe { *s.queries[r].add(c) };
        }
        (*partials[r].largest, *partials[r].weight) = (f32::NEG_INFINITY, 0.0);
    }
    let visible = s.limits.iter().copied().max().unwrap_or(0).min(s.start + SPAN);
    let mut probabilities = [[0.0f32; R]; BLOCK];
    let mut corrections = [1.0f32; R];
    for first in (s.start..visible).step_by(BLOCK) {
        let block = (s.blocks)(first / BLOCK);
        let count = (visible - first).min(BLOCK);
        // SAFETY: the block is written up to `count` positions; the buffers hold `R` rows of `head` floats.
        unsafe {
            let scores = scores::<V, R>(s.layout, block, queries.as_ptr());
            for r in 0..R {
                let seen = s.limits[r].saturating_sub(first).min(BLOCK);
                let mut row = [0.0; BLOCK];
                corrections[r] = match seen {
                    0 => 1.0,
                    _ => soften::<V>(s.layout, block, scores[r], seen, &mut partials[r], &mut row),
                };
                (0..BLOCK).for_each(|i| probabilities[i][r] = row[i]);
            }
            accumulate::<V, R>(s.layout, block, count, &probabilities, &corrections, sums.as_mut_ptr());
        }
    }
    for (r, partial) in partials.iter_mut().enumerate() {
        partial.sum.copy_from_slice(&sums[r * head..][..head]);
    }
}

/// Raw scores of the 32 positions of a block for each query row. Positions never written give garbage, which is masked.
#[inline(always)]
unsafe fn scores<V: Vector, const R: usize>(
    layout: &KvLayout,
    block: *const u8,
    queries: *const f32,
) -> [[V::Float; 2]; R] {
    let head = layout.head;
    // SAFETY: a block holds two groups of `head` columns of sixteen keys; there are `head` columns of `R` queries.
    unsafe {
        let mut sums = [[V::splat(0.0); 2]; R];
        for c in 0..head {
            let k = match layout.kind {
                KvType::F16 => {
                    let keys = block.cast::<u16>().add(c * 16);
                    [V::load_f16(keys), V::load_f16(keys.add(head * 16))]
                }
                KvType::Q8 => {
                    let keys = block.add(c * 16);
                    [V::to_float(V::widen_i8(keys)), V::to_float(V::widen_i8(keys.add(head * 16)))]
                }
            };
            for r in 0..R {
                let q = V::splat(*queries.add(c * R + r));
                sums[r][0] = V::multiply_add(k[0], q, sums[r][0]);
                sums[r][1] = V::multiply_add(k[1], q, sums[r][1]);
            }
        }
        if layout.kind == KvType::Q8 {
            let scales = block.add(layout.key_scales()).cast::<f32>();
            let scales = [V::load(scales), V::load(scales.add(16))];
            for sum in &mut sums {
                *sum = [V::multiply(sum[0], scales[0]), V::multiply(sum[1], scales[1])];
            }
        }
        sums
    }
}

/// Turns scores into probabilities relative to the running maximum; returns what earlier sums must be multiplied with.
#[inline(always)]
unsafe fn soften<V: Vector>(
    layout: &KvLayout,
    block: *const u8,
    scores: [V::Float; 2],
    seen: usize,
    partial: &mut Partial<'_>,
    probabilities: &mut [f32; BLOCK],
) -> f32 {
    // SAFETY: lane-wise operations on registers and on an array of 32; scales lie inside the block.
    unsafe {
        let scores = [V::first(scores[0], seen), V::first(scores[1], seen.saturating_sub(16))];
        let largest = V::largest(V::maximum(scores[0], scores[1])).max(*partial.largest);
        // The maximum settles after a few blocks, and most corrections are exactly one.
        let correction = if largest == *partial.largest { 1.0 } else { (*partial.largest - largest).exp() };
        // No closure here: one that is not inlined would turn every instruction into a call.
        let shift = V::splat(largest);
        let p = [exp::<V>(V::subtract(scores[0], shift)), exp::<V>(V::subtract(scores[1], shift))];
        *partial.weight = *partial.weight * correction + V::sum(V::add(p[0], p[1]));
        *partial.largest = largest;
        let p = match layout.kind {
            KvType::F16 => p,
            KvType::Q8 => {
                // The scale of a value row is folded into its probability.
                let scales = block.add(layout.value_scales()).cast::<f32>();
                [V::multiply(p[0], V::load(scales)), V::multiply(p[1], V::load(scales.add(16)))]
            }
        };
        V::store(probabilities.as_mut_ptr(), p[0]);
        V::store(probabilities.as_mut_ptr().add(16), p[1]);
        correction
    }
}

/// `sum = sum * correction + p * v` for every query row, a few vectors of the head at a time.
#[inline(always)]
unsafe fn accumulate<V: Vector, const R: usize>(
    layout: &KvLayout,
    block: *const u8,
    count: usize,
    probabilities: &[[f32; R]; BLOCK],
    corrections: &[f32; R],
    sums: *mut f32,
) {
    let vectors = layout.head / 16;
    let mut first = 0;
    while first < vectors {
        // SAFETY: columns `16 first .. 16 (first + width)` are inside the head; positions below `count` are written.
        unsafe {
            // Sums, values and a broadcast must fit the 32 registers: 7 * 4 + 4.
            if R <= 6 && vectors - first >= 4 {
                columns::<V, R, 4>(layout, block, first, count, probabilities, corrections, sums);
                first += 4;
            } else if vectors - first >= 2 {
                columns::<V, R, 2>(layout, block, first, count, probabilities, corrections, sums);
                first += 2;
            } else {
                columns::<V, R, 1>(layout, block, first, count, probabilities, corrections, sums);
                first += 1;
            }
        }
    }
}

#[inline(always)]
unsafe fn columns<V: Vector, const R: usize, const W: usize>(
    layout: &KvLayout,
    block: *const u8,
    first: usize,
    count: usize,
    probabilities: &[[f32; R]; BLOCK],
    corrections: &[f32; R],
    out: *mut f32,
) {
    // SAFETY: see `accumulate`.
    unsafe {
        let place = |r: usize, w: usize| out.add(r * layout.head + (first + w) * 16);
        let mut sums = [[V::splat(0.0); W]; R];
        for r in 0..R {
            for w in 0..W {
                sums[r][w] = V::multiply(V::load(place(r, w)), V::splat(corrections[r]));
            }
        }
        let values = block.add(layout.values());
        for i in 0..count {
            let at = i * layout.head + first * 16;
            let v: [V::Float; W] = std::array::from_fn(|w| match layout.kind {
                KvType::F16 => V::load_f16(values.cast::<u16>().add(at + w * 16)),
                KvType::Q8 => V::to_float(V::widen_i8(values.add(at + w * 16))),
            });
            for r in 0..R {
                let p = V::splat(probabilities[i][r]);
                for w in 0..W {
                    sums[r][w] = V::multiply_add(v[w], p, sums[r][w]);
                }
            }
        }
        for r in 0..R {
            for w in 0..W {
                V::store(place(r, w), sums[r][w]);
            }
        }
    }
}

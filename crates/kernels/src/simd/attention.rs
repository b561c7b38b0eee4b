//! Attention over blocks of cached keys and values.
//!
//! For up to eight query rows that share a KV head, one span of positions at a time:
//! `score = q . k`, running softmax, `out += p * v`. Keys stand column-wise, positions side by side, so a score needs
//! no sum across lanes; values stand row-wise. A key or value is read and widened once for all query rows.
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
    pub(crate) queries: &'a [&'a [f32]],
    /// Number of positions each query may see, counted from the sequence's start.
    pub(crate) limits: &'a [usize],
    /// First byte of this layer's and KV head's part of each block of the sequence.
    pub(crate) blocks: &'a dyn Fn(usize) -> *const u8,
    /// First position; a multiple of [`SPAN`].
    pub(crate) start: usize,
}

/// Floats before the sum in a row of partial results: the largest score and the weight.
pub(crate) const PARTIAL_HEAD: usize = 2;

/// Computes the partial results of one span: per query a row of the largest score, the weight, and the weighted sum of
/// values, so that the finished output is `sum / weight`.
///
/// # Safety
///
/// The CPU has the features of `V`; every block up to the largest limit exists and has been written there.
#[inline(always)]
pub(crate) unsafe fn span<V: Vector>(s: &Span<'_>, partials: &mut [f32]) {
    let count = s.queries.len();
    // Sums, a key or value and half a vector for a broadcast: where they do not fit the registers, halves are faster.
    let at_once = if 2 * count + 3 <= 2 * V::REGISTERS { count } else { count.div_ceil(2) };
    let partials = partials.chunks_mut(at_once * (s.layout.head + PARTIAL_HEAD));
    for ((queries, limits), partials) in s.queries.chunks(at_once).zip(s.limits.chunks(at_once)).zip(partials) {
        let part = Span { queries, limits, ..*s };
        // SAFETY: passed on from the caller; the constant equals the number of queries.
        unsafe {
            match queries.len() {
                1 => span_of::<V, 1>(&part, partials),
                2 => span_of::<V, 2>(&part, partials),
                3 => span_of::<V, 3>(&part, partials),
                4 => span_of::<V, 4>(&part, partials),
                5 => span_of::<V, 5>(&part, partials),
                6 => span_of::<V, 6>(&part, partials),
                7 => span_of::<V, 7>(&part, partials),
                _ => span_of::<V, QUERIES>(&part, partials),
            }
        }
    }
}

/// The running softmax of one query.
#[derive(Clone, Copy)]
struct Softmax {
    largest: f32,
    weight: f32,
}

/// Longest head: sizes the buffers on the stack.
pub const HEAD_MAX: usize = 256;
/// Positions whose scores are turned into probabilities together. Sums across lanes and the exponential of the
/// correction are paid once per group: with groups of one block they were a quarter of the time.
const GROUP: usize = 128;

/// One row of queries, scores or sums per query, a fixed distance apart so that a row is a constant offset.
type Rows<const R: usize, const N: usize> = [[f32; N]; R];

#[inline(always)]
unsafe fn span_of<V: Vector, const R: usize>(s: &Span<'_>, partials: &mut [f32]) {
    let head = s.layout.head;
    assert!(head <= HEAD_MAX && head.is_multiple_of(16) && s.queries.len() == R && s.limits.len() == R);
    let mut softmax = [Softmax { largest: f32::NEG_INFINITY, weight: 0.0 }; R];
    let mut queries: Rows<R, HEAD_MAX> = [[0.0; HEAD_MAX]; R];
    let mut sums: Rows<R, HEAD_MAX> = [[0.0; HEAD_MAX]; R];
    let mut scores: Rows<R, GROUP> = [[0.0; GROUP]; R];
    for r in 0..R {
        queries[r][..head].copy_from_slice(s.queries[r]);
    }
    let visible = s.limits.iter().copied().max().unwrap_or(0).min(s.start + SPAN);
    for first in (s.start..visible).step_by(GROUP) {
        let count = (visible - first).min(GROUP);
        let used = count.div_ceil(BLOCK);
        // This group's and what is asked for meanwhile, of the next one; past the end, the last there is.
        let mut blocks = [std::ptr::null(); 2 * GROUP / BLOCK];
        for b in 0..if V::SPREAD { blocks.len() } else { used + 1 } {
            let exists = first + b * BLOCK < visible;
            blocks[b] = if exists { (s.blocks)(first / BLOCK + b) } else { blocks[b - 1] };
        }
        let mut corrections = [1.0; R];
        // SAFETY: the blocks are written up to `count` positions, and the buffers hold a group.
        unsafe {
            for b in 0..used {
                let fetched = [blocks[b + 1], if V::SPREAD { blocks[b] } else { blocks[b + 1] }];
                score_block::<V, R>(s.layout, blocks[b], fetched, &queries, b * BLOCK, &mut scores);
            }
            for r in 0..R {
                let seen = s.limits[r].saturating_sub(first).min(GROUP);
                corrections[r] = soften::<V>(used * BLOCK, seen, &mut softmax[r], &mut scores[r]);
            }
            accumulate::<V, R>(s.layout, &blocks, count, &scores, &corrections, &mut sums);
        }
    }
    for (r, row) in partials.chunks_exact_mut(head + PARTIAL_HEAD).take(R).enumerate() {
        (row[0], row[1]) = (softmax[r].largest, softmax[r].weight);
        row[PARTIAL_HEAD..].copy_from_slice(&sums[r][..head]);
    }
}

/// Scores of the 32 positions of a block for each query row, written from column `at` on. Positions never written give
/// garbage, which is masked later.
///
/// Blocks of a sequence lie apart, so the hardware does not foresee the next one: each column asks for a line of keys and one
/// of values of the blocks in `fetched`, which is all of them by the end. Into the second-level cache: at 4,096 positions of
/// the 1.5B on two Genoa cores a token's attention took 6.8 ms without, 9.4 ms into the first level, 4.5 ms into the second
/// (4.2 ms when nothing comes from memory). Asking for the next matrices too, two lines with each column, made tokens there 6 % slower
/// (two Zen 3 cores, 2026-11-17).
#[inline(always)]
unsafe fn score_block<V: Vector, const R: usize>(
    layout: &KvLayout,
    block: *const u8,
    fetched: [*const u8; 2],
    queries: &Rows<R, HEAD_MAX>,
    at: usize,
    scores: &mut Rows<R, GROUP>,
) {
    // SAFETY: passed on from the caller.
    unsafe {
        // Sums, keys and a broadcast must fit the registers. Halves of a block share no keys, so nothing is read twice.
        if 2 * R + 3 <= V::REGISTERS {
            score_parts::<V, R, 2>(layout, block, fetched, queries, 0, at, scores);
        } else {
            score_parts::<V, R, 1>(layout, block, fetched, queries, 0, at, scores);
            score_parts::<V, R, 1>(layout, block, fetched, queries, 1, at, scores);
        }
    }
}

/// The same for `N` times sixteen positions, from part `first` on.
#[inline(always)]
unsafe fn score_parts<V: Vector, const R: usize, const N: usize>(
    layout: &KvLayout,
    block: *const u8,
    [keys, values]: [*const u8; 2],
    queries: &Rows<R, HEAD_MAX>,
    first: usize,
    at: usize,
    scores: &mut Rows<R, GROUP>,
) {
    let head = layout.head;
    // SAFETY: a block holds `head` columns of 32 keys; queries have at least `head` columns.
    unsafe {
        let mut sums = [[V::splat(0.0); N]; R];
        for c in 0..head {
            if first == 0 {
                V::prefetch_l2(keys.wrapping_add(c * 64));
            }
            if first + N == 2 {
                V::prefetch_l2(values.wrapping_add(layout.values() + c * 64));
            }
            let mut k = [V::splat(0.0); N];
            for n in 0..N {
                let place = c * BLOCK + 16 * (first + n);
                k[n] = match layout.kind {
                    KvType::F16 => V::load_f16(block.cast::<u16>().add(place)),
                    KvType::Q8 => V::to_float(V::widen_i8(block.add(place))),
                };
            }
            for r in 0..R {
                let q = V::splat(*queries[r].as_ptr().add(c));
                for n in 0..N {
                    sums[r][n] = V::multiply_add(k[n], q, sums[r][n]);
                }
            }
        }
        for r in 0..R {
            for n in 0..N {
                let (part, mut sum) = (16 * (first + n), sums[r][n]);
                if layout.kind == KvType::Q8 {
                    let scales = block.add(layout.key_scales()).cast::<f32>();
                    sum = V::multiply(sum, V::load(scales.add(part)));
                }
                V::store(scores[r].as_mut_ptr().add(at + part), sum);
            }
        }
    }
}

/// Turns the first `width` scores into probabilities relative to the running maximum, zero past the `seen` ones; returns
/// what earlier sums must be multiplied with.
#[inline(always)]
unsafe fn soften<V: Vector>(width: usize, seen: usize, softmax: &mut Softmax, scores: &mut [f32; GROUP]) -> f32 {
    if seen == 0 {
        scores.fill(0.0);
        return 1.0;
    }
    // SAFETY: `width` is a multiple of sixteen within the group.
    unsafe {
        let mut largest = V::splat(softmax.largest);
        for i in (0..width).step_by(16) {
            let score = V::first(V::load(scores.as_ptr().add(i)), seen.saturating_sub(i));
            V::store(scores.as_mut_ptr().add(i), score);
            largest = V::maximum(largest, score);
        }
        let largest = V::largest(largest);
        let shift = V::splat(largest);
        let mut weight = V::splat(0.0);
        for i in (0..width).step_by(16) {
            // No closure here: one that is not inlined would turn every instruction into a call.
            let p = exp::<V>(V::subtract(V::load(scores.as_ptr().add(i)), shift));
            V::store(scores.as_mut_ptr().add(i), p);
            weight = V::add(weight, p);
        }
        // The maximum settles after a few groups, and most corrections are exactly one.
        let correction = if largest == softmax.largest { 1.0 } else { (softmax.largest - largest).exp() };
        softmax.weight = softmax.weight * correction + V::sum(weight);
        softmax.largest = largest;
        correction
    }
}

/// `sum = sum * correction + p * v` for every query row, a few vectors of the head at a time.
#[inline(always)]
unsafe fn accumulate<V: Vector, const R: usize>(
    layout: &KvLayout,
    blocks: &[*const u8; 2 * GROUP / BLOCK],
    count: usize,
    probabilities: &Rows<R, GROUP>,
    corrections: &[f32; R],
    sums: &mut Rows<R, HEAD_MAX>,
) {
    let vectors = layout.head / 16;
    let mut first = 0;
    while first < vectors {
        // SAFETY: columns `16 first .. 16 (first + width)` are inside the head; positions below `count` are written.
        unsafe {
            // Sums, values and a broadcast must fit the registers.
            if 4 * R + 5 <= V::REGISTERS && vectors - first >= 4 {
                columns::<V, R, 4>(layout, blocks, first, count, probabilities, corrections, sums);
                first += 4;
            } else if 2 * R + 3 <= V::REGISTERS && vectors - first >= 2 {
                columns::<V, R, 2>(layout, blocks, first, count, probabilities, corrections, sums);
                first += 2;
            } else {
                columns::<V, R, 1>(layout, blocks, first, count, probabilities, corrections, sums);
                first += 1;
            }
        }
    }
}

#[inline(always)]
unsafe fn columns<V: Vector, const R: usize, const W: usize>(
    layout: &KvLayout,
    blocks: &[*const u8; 2 * GROUP / BLOCK],
    first: usize,
    count: usize,
    probabilities: &Rows<R, GROUP>,
    corrections: &[f32; R],
    out: &mut Rows<R, HEAD_MAX>,
) {
    // SAFETY: see `accumulate`.
    unsafe {
        let mut sums = [[V::splat(0.0); W]; R];
        for r in 0..R {
            for w in 0..W {
                let old = V::load(out[r].as_ptr().add((first + w) * 16));
                sums[r][w] = V::multiply(old, V::splat(corrections[r]));
            }
        }
        // A position's values are a fixed distance from the last one's. Worked out for each anew, the multiplication makes the
        // compiler load all probabilities first and keep the sums in memory.
        let start = layout.value_at(0, first * 16);
        let stride = layout.value_at(1, first * 16) - start;
        for (b, &block) in blocks.iter().enumerate().take(count.div_ceil(BLOCK)) {
            let (values, scales) = (block.add(layout.values()), block.add(layout.value_scales()).cast::<f32>());
            let (next, mut at) = (blocks[GROUP / BLOCK + b], start);
            for i in 0..BLOCK.min(count - b * BLOCK) {
                let mut v = [V::splat(0.0); W];
                for w in 0..W {
                    v[w] = match layout.kind {
                        KvType::F16 => V::load_f16(values.cast::<u16>().add(at + w * 16)),
                        KvType::Q8 => {
                            let value = V::to_float(V::widen_i8(values.add(at + w * 16)));
                            V::multiply(value, V::splat(*scales.add(i)))
                        }
                    };
                }
                at += stride;
                if V::SPREAD {
                    // The next group's keys, a part in each pass over the values.
                    for line in 0..W.div_ceil(2) {
                        V::prefetch_l2(next.wrapping_add((first * 16 + i * W / 2 + line) * 64));
                    }
                }
                for r in 0..R {
                    let p = V::splat(*probabilities[r].as_ptr().add(b * BLOCK + i));
                    for w in 0..W {
                        sums[r][w] = V::multiply_add(v[w], p, sums[r][w]);
                    }
                }
            }
        }
        for r in 0..R {
            for w in 0..W {
                V::store(out[r].as_mut_ptr().add((first + w) * 16), sums[r][w]);
            }
        }
    }
}

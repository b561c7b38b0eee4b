//! [`Vector`] on AVX2 with FMA and F16C: two 256-bit registers stand for one vector.
#![allow(unsafe_op_in_unsafe_fn)] // Every body is the instructions its name says; the trait states the contract.

use super::vector::Vector;
use std::arch::x86_64::*;

/// Proof by construction that kernels use the right registers; see [`super::Kernels::avx2`] for the CPU check.
#[derive(Clone, Copy)]
pub(crate) struct Avx2;

type Int = [__m256i; 2];
type Float = [__m256; 2];

/// Applies an operation to both halves.
macro_rules! both {
    ($operation:expr, $($a:expr),+) => {
        [$operation($($a[0]),+), $operation($($a[1]),+)]
    };
}

/// Sum of 16 signed bytes: made unsigned, summed by the instruction for absolute differences, and the offset taken back.
#[inline(always)]
pub(super) unsafe fn sum_16(at: *const i8) -> i32 {
    let unsigned = _mm_xor_si128(_mm_loadu_si128(at.cast()), _mm_set1_epi8(-128));
    let sums = _mm_sad_epu8(unsigned, _mm_setzero_si128());
    _mm_cvtsi128_si32(_mm_add_epi32(sums, _mm_unpackhi_epi64(sums, sums))) - 16 * 128
}

/// Sixteen products per lane of bytes with up to five bits. They add up in 16 bits: 8 * 31 * 127 = 31,496.
#[inline(always)]
unsafe fn four_low(sum: __m256i, w: [__m256i; 4], x: [__m256i; 4]) -> __m256i {
    let pairs: [__m256i; 4] = std::array::from_fn(|g| _mm256_maddubs_epi16(w[g], x[g]));
    let pairs = _mm256_add_epi16(_mm256_add_epi16(pairs[0], pairs[1]), _mm256_add_epi16(pairs[2], pairs[3]));
    _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
}

/// The same with six bits, of which four products fit: 4 * 63 * 127 = 32,004.
#[inline(always)]
unsafe fn four_middle(sum: __m256i, w: [__m256i; 4], x: [__m256i; 4]) -> __m256i {
    let pairs: [__m256i; 4] = std::array::from_fn(|g| _mm256_maddubs_epi16(w[g], x[g]));
    let ones = _mm256_set1_epi16(1);
    let first = _mm256_madd_epi16(_mm256_add_epi16(pairs[0], pairs[1]), ones);
    _mm256_add_epi32(_mm256_add_epi32(sum, first), _mm256_madd_epi16(_mm256_add_epi16(pairs[2], pairs[3]), ones))
}

/// The same for any bytes. Even and odd ones are widened apart, since already two products may not fit.
#[inline(always)]
unsafe fn four_wide(mut sum: __m256i, w: [__m256i; 4], x: [__m256i; 4]) -> __m256i {
    for g in 0..4 {
        let even_x = _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(x[g]));
        let even = _mm256_madd_epi16(_mm256_and_si256(w[g], _mm256_set1_epi16(0xff)), even_x);
        let odd = _mm256_madd_epi16(_mm256_srli_epi16::<8>(w[g]), _mm256_srai_epi16::<8>(x[g]));
        sum = _mm256_add_epi32(sum, _mm256_add_epi32(even, odd));
    }
    sum
}

impl Vector for Avx2 {
    const REGISTERS: usize = 8;
    // Far: the stream alone does not keep two Zen 3 cores busy. Tokens/s of the 1.5B at 27 to 37 GB/s,
    // the better of two rounds, twice: none 19 to 22, 512 bytes 21 to 23, 2,048 25 to 27, 4,096 26 to 30, 8,192 28 to 29, 16,384 28 to 29.
    const AHEAD: usize = 8192;
    const SPREAD: bool = true;
    type Int = Int;
    type Float = Float;

    #[inline(always)]
    unsafe fn splat_int(value: i32) -> Int {
        [_mm256_set1_epi32(value); 2]
    }
    #[inline(always)]
    unsafe fn load_bytes(at: *const u8) -> Int {
        [_mm256_loadu_si256(at.cast()), _mm256_loadu_si256(at.add(32).cast())]
    }
    #[inline(always)]
    unsafe fn widen_i8(at: *const u8) -> Int {
        [_mm256_cvtepi8_epi32(_mm_loadl_epi64(at.cast())), _mm256_cvtepi8_epi32(_mm_loadl_epi64(at.add(8).cast()))]
    }
    #[inline(always)]
    unsafe fn widen_u8_pairs(at: *const u8) -> Int {
        [_mm256_cvtepu8_epi16(_mm_loadu_si128(at.cast())), _mm256_cvtepu8_epi16(_mm_loadu_si128(at.add(16).cast()))]
    }
    #[inline(always)]
    unsafe fn bits(a: Int, count: u32, mask: u8) -> Int {
        let (count, mask) = (_mm_cvtsi32_si128(count as i32), _mm256_set1_epi8(mask as i8));
        let one = |v| _mm256_and_si256(_mm256_srl_epi16(v, count), mask);
        both!(one, a)
    }
    #[inline(always)]
    unsafe fn join(low: Int, high: Int, count: u32) -> Int {
        let count = _mm_cvtsi32_si128(count as i32);
        let one = |l, h| _mm256_or_si256(l, _mm256_sll_epi16(h, count));
        both!(one, low, high)
    }
    #[inline(always)]
    unsafe fn lookup(table: &[u8; 16], index: Int) -> Int {
        let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
        let one = |index| _mm256_shuffle_epi8(table, index);
        both!(one, index)
    }
    #[inline(always)]
    unsafe fn dot_16(sum: Int, w: [Int; 4], x: *const i8, bits: u32) -> Int {
        let x: [__m256i; 4] = std::array::from_fn(|g| _mm256_set1_epi32(x.cast::<i32>().add(g).read_unaligned()));
        match bits {
            0..=5 => [four_low(sum[0], w.map(|w| w[0]), x), four_low(sum[1], w.map(|w| w[1]), x)],
            6 => [four_middle(sum[0], w.map(|w| w[0]), x), four_middle(sum[1], w.map(|w| w[1]), x)],
            _ => [four_wide(sum[0], w.map(|w| w[0]), x), four_wide(sum[1], w.map(|w| w[1]), x)],
        }
    }
    #[inline(always)]
    unsafe fn dot_pairs(sum: Int, a: Int, b: *const i16) -> Int {
        let b = _mm256_set1_epi32(b.cast::<i32>().read_unaligned());
        let one = |s, a| _mm256_add_epi32(s, _mm256_madd_epi16(a, b));
        both!(one, sum, a)
    }
    #[inline(always)]
    unsafe fn multiply_add_int(sum: Int, a: Int, b: Int) -> Int {
        let one = |s, a, b| _mm256_add_epi32(s, _mm256_mullo_epi32(a, b));
        both!(one, sum, a, b)
    }
    #[inline(always)]
    unsafe fn add_int(a: Int, b: Int) -> Int {
        both!(_mm256_add_epi32, a, b)
    }
    #[inline(always)]
    unsafe fn sum_i8(at: *const i8) -> i32 {
        sum_16(at)
    }
    #[inline(always)]
    unsafe fn to_float(a: Int) -> Float {
        both!(_mm256_cvtepi32_ps, a)
    }
    #[inline(always)]
    unsafe fn store_i8(at: *mut i8, a: Int) {
        // The 256-bit pack works inside 128-bit halves; the permutation puts the quarters back in order.
        let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi32(a[0], a[1]));
        let bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words));
        _mm_storeu_si128(at.cast(), bytes)
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> Float {
        [_mm256_set1_ps(value); 2]
    }
    #[inline(always)]
    unsafe fn load(at: *const f32) -> Float {
        [_mm256_loadu_ps(at), _mm256_loadu_ps(at.add(8))]
    }
    #[inline(always)]
    unsafe fn load_f16(at: *const u16) -> Float {
        [_mm256_cvtph_ps(_mm_loadu_si128(at.cast())), _mm256_cvtph_ps(_mm_loadu_si128(at.add(8).cast()))]
    }
    #[inline(always)]
    unsafe fn load_bf16(at: *const u16) -> Float {
        let one = |at: *const u16| {
            let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(at.cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
        };
        [one(at), one(at.add(8))]
    }
    #[inline(always)]
    unsafe fn store(at: *mut f32, a: Float) {
        _mm256_storeu_ps(at, a[0]);
        _mm256_storeu_ps(at.add(8), a[1]);
    }
    #[inline(always)]
    unsafe fn add(a: Float, b: Float) -> Float {
        both!(_mm256_add_ps, a, b)
    }
    #[inline(always)]
    unsafe fn subtract(a: Float, b: Float) -> Float {
        both!(_mm256_sub_ps, a, b)
    }
    #[inline(always)]
    unsafe fn multiply(a: Float, b: Float) -> Float {
        both!(_mm256_mul_ps, a, b)
    }
    #[inline(always)]
    unsafe fn divide(a: Float, b: Float) -> Float {
        both!(_mm256_div_ps, a, b)
    }
    #[inline(always)]
    unsafe fn maximum(a: Float, b: Float) -> Float {
        both!(_mm256_max_ps, a, b)
    }
    #[inline(always)]
    unsafe fn magnitude(a: Float) -> Float {
        let sign = _mm256_set1_ps(-0.0);
        let one = |a| _mm256_andnot_ps(sign, a);
        both!(one, a)
    }
    #[inline(always)]
    unsafe fn multiply_add(a: Float, b: Float, c: Float) -> Float {
        both!(_mm256_fmadd_ps, a, b, c)
    }
    #[inline(always)]
    unsafe fn multiply_subtract(a: Float, b: Float, c: Float) -> Float {
        both!(_mm256_fnmadd_ps, a, b, c)
    }
    #[inline(always)]
    unsafe fn round(a: Float) -> Int {
        both!(_mm256_cvtps_epi32, a)
    }
    #[inline(always)]
    unsafe fn scale_by_power(a: Float, n: Int) -> Float {
        let one = |a, n| {
            let exponent = _mm256_slli_epi32::<23>(_mm256_add_epi32(n, _mm256_set1_epi32(127)));
            _mm256_mul_ps(a, _mm256_castsi256_ps(exponent))
        };
        both!(one, a, n)
    }
    #[inline(always)]
    unsafe fn zero_below(a: Float, test: Float, limit: f32) -> Float {
        let one = |a, test| _mm256_and_ps(a, _mm256_cmp_ps::<_CMP_GE_OQ>(test, _mm256_set1_ps(limit)));
        both!(one, a, test)
    }
    #[inline(always)]
    unsafe fn first(a: Float, count: usize) -> Float {
        let lanes = [_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15)];
        let count = _mm256_set1_epi32(count.min(16) as i32);
        let infinity = _mm256_set1_ps(f32::NEG_INFINITY);
        let one = |a, lane| _mm256_blendv_ps(infinity, a, _mm256_castsi256_ps(_mm256_cmpgt_epi32(count, lane)));
        both!(one, a, lanes)
    }
    #[inline(always)]
    unsafe fn sum(a: Float) -> f32 {
        let s = _mm256_add_ps(a[0], a[1]);
        let s = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps::<1>(s));
        let s = _mm_add_ps(s, _mm_movehl_ps(s, s));
        _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)))
    }
    #[inline(always)]
    unsafe fn largest(a: Float) -> f32 {
        let s = _mm256_max_ps(a[0], a[1]);
        let s = _mm_max_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps::<1>(s));
        let s = _mm_max_ps(s, _mm_movehl_ps(s, s));
        _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)))
    }
    #[inline(always)]
    unsafe fn prefetch(at: *const u8) {
        _mm_prefetch::<_MM_HINT_T0>(at.cast())
    }
    #[inline(always)]
    unsafe fn prefetch_l2(at: *const u8) {
        _mm_prefetch::<_MM_HINT_T1>(at.cast())
    }
}

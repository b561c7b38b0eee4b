//! [`Vector`] on AVX-512 with VNNI: one register each, one instruction for four multiply-adds per lane.
#![allow(unsafe_op_in_unsafe_fn)] // Every body is the instruction its name says; the trait states the contract.

use super::avx2::sum_16;
use super::vector::Vector;
use std::arch::x86_64::*;

/// Proof by construction that kernels use the right registers; see [`super::Kernels::avx512`] for the CPU check.
#[derive(Clone, Copy)]
pub(crate) struct Avx512;

impl Vector for Avx512 {
    const REGISTERS: usize = 32;
    // Near: it only keeps the hardware's own stream from falling behind. Share of read bandwidth on two Genoa cores
    // (Q4_K / Q6_K / Q5_0): none 93 / 77 / 84 %, 512 bytes 92 / 86 / 91 %, 4096 bytes 87 / 78 / 85 %.
    const AHEAD: usize = 512;
    const SPREAD: bool = false;
    type Int = __m512i;
    type Float = __m512;

    #[inline(always)]
    unsafe fn splat_int(value: i32) -> __m512i {
        _mm512_set1_epi32(value)
    }
    #[inline(always)]
    unsafe fn load_bytes(at: *const u8) -> __m512i {
        _mm512_loadu_si512(at.cast())
    }
    #[inline(always)]
    unsafe fn widen_i8(at: *const u8) -> __m512i {
        _mm512_cvtepi8_epi32(_mm_loadu_si128(at.cast()))
    }
    #[inline(always)]
    unsafe fn widen_u8_pairs(at: *const u8) -> __m512i {
        _mm512_cvtepu8_epi16(_mm256_loadu_si256(at.cast()))
    }
    #[inline(always)]
    unsafe fn bits(a: __m512i, count: u32, mask: u8) -> __m512i {
        let shifted = _mm512_srl_epi16(a, _mm_cvtsi32_si128(count as i32));
        _mm512_and_si512(shifted, _mm512_set1_epi8(mask as i8))
    }
    #[inline(always)]
    unsafe fn join(low: __m512i, high: __m512i, count: u32) -> __m512i {
        _mm512_or_si512(low, _mm512_sll_epi16(high, _mm_cvtsi32_si128(count as i32)))
    }
    #[inline(always)]
    unsafe fn lookup(table: &[u8; 16], index: __m512i) -> __m512i {
        _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast())), index)
    }
    #[inline(always)]
    unsafe fn dot_16(mut sum: __m512i, w: [__m512i; 4], x: *const i8, _: u32) -> __m512i {
        for g in 0..4 {
            sum = _mm512_dpbusd_epi32(sum, w[g], _mm512_set1_epi32(x.cast::<i32>().add(g).read_unaligned()));
        }
        sum
    }
    #[inline(always)]
    unsafe fn dot_pairs(sum: __m512i, a: __m512i, b: *const i16) -> __m512i {
        _mm512_dpwssd_epi32(sum, a, _mm512_set1_epi32(b.cast::<i32>().read_unaligned()))
    }
    #[inline(always)]
    unsafe fn multiply_add_int(sum: __m512i, a: __m512i, b: __m512i) -> __m512i {
        _mm512_add_epi32(sum, _mm512_mullo_epi32(a, b))
    }
    #[inline(always)]
    unsafe fn add_int(a: __m512i, b: __m512i) -> __m512i {
        _mm512_add_epi32(a, b)
    }
    #[inline(always)]
    unsafe fn sum_i8(at: *const i8) -> i32 {
        sum_16(at)
    }
    #[inline(always)]
    unsafe fn to_float(a: __m512i) -> __m512 {
        _mm512_cvtepi32_ps(a)
    }
    #[inline(always)]
    unsafe fn store_i8(at: *mut i8, a: __m512i) {
        _mm_storeu_si128(at.cast(), _mm512_cvtepi32_epi8(a))
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> __m512 {
        _mm512_set1_ps(value)
    }
    #[inline(always)]
    unsafe fn load(at: *const f32) -> __m512 {
        _mm512_loadu_ps(at)
    }
    #[inline(always)]
    unsafe fn load_f16(at: *const u16) -> __m512 {
        _mm512_cvtph_ps(_mm256_loadu_si256(at.cast()))
    }
    #[inline(always)]
    unsafe fn load_bf16(at: *const u16) -> __m512 {
        let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(at.cast()));
        _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
    }
    #[inline(always)]
    unsafe fn store(at: *mut f32, a: __m512) {
        _mm512_storeu_ps(at, a)
    }
    #[inline(always)]
    unsafe fn add(a: __m512, b: __m512) -> __m512 {
        _mm512_add_ps(a, b)
    }
    #[inline(always)]
    unsafe fn subtract(a: __m512, b: __m512) -> __m512 {
        _mm512_sub_ps(a, b)
    }
    #[inline(always)]
    unsafe fn multiply(a: __m512, b: __m512) -> __m512 {
        _mm512_mul_ps(a, b)
    }
    #[inline(always)]
    unsafe fn divide(a: __m512, b: __m512) -> __m512 {
        _mm512_div_ps(a, b)
    }
    #[inline(always)]
    unsafe fn maximum(a: __m512, b: __m512) -> __m512 {
        _mm512_max_ps(a, b)
    }
    #[inline(always)]
    unsafe fn magnitude(a: __m512) -> __m512 {
        _mm512_abs_ps(a)
    }
    #[inline(always)]
    unsafe fn multiply_add(a: __m512, b: __m512, c: __m512) -> __m512 {
        _mm512_fmadd_ps(a, b, c)
    }
    #[inline(always)]
    unsafe fn multiply_subtract(a: __m512, b: __m512, c: __m512) -> __m512 {
        _mm512_fnmadd_ps(a, b, c)
    }
    #[inline(always)]
    unsafe fn round(a: __m512) -> __m512i {
        _mm512_cvtps_epi32(a)
    }
    #[inline(always)]
    unsafe fn scale_by_power(a: __m512, n: __m512i) -> __m512 {
        _mm512_scalef_ps(a, _mm512_cvtepi32_ps(n))
    }
    #[inline(always)]
    unsafe fn zero_below(a: __m512, test: __m512, limit: f32) -> __m512 {
        let keep = _mm512_cmp_ps_mask::<_CMP_GE_OQ>(test, _mm512_set1_ps(limit));
        _mm512_maskz_mov_ps(keep, a)
    }
    #[inline(always)]
    unsafe fn first(a: __m512, count: usize) -> __m512 {
        let mask = ((1u32 << count.min(16)) - 1) as u16;
        _mm512_mask_blend_ps(mask, _mm512_set1_ps(f32::NEG_INFINITY), a)
    }
    #[inline(always)]
    unsafe fn sum(a: __m512) -> f32 {
        _mm512_reduce_add_ps(a)
    }
    #[inline(always)]
    unsafe fn largest(a: __m512) -> f32 {
        _mm512_reduce_max_ps(a)
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

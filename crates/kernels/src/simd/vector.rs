//! The few operations the kernels need from a machine, sixteen lanes at a time.
//!
//! The algorithms in this folder are written once over this trait; a machine that has 256-bit registers implements a
//! vector as two of them. Every method is one or a few instructions and is inlined into an entry point that carries the
//! matching `target_feature`.

/// Sixteen 32-bit lanes.
///
/// # Safety
///
/// Every method requires that the CPU has the features of the implementation, and that pointers are valid for the
/// bytes named in the method's comment. No alignment is required.
#[allow(missing_docs, clippy::missing_safety_doc)]
pub(crate) trait Vector: Copy {
    /// Vectors that fit the machine's registers.
    const REGISTERS: usize;
    /// How many bytes ahead of use the weights of a single row are asked for.
    const AHEAD: usize;
    /// Whether attention spreads its requests for keys and values over all its work, instead of asking for both while it works
    /// on keys.
    const SPREAD: bool;
    /// Sixteen integers, also seen as 64 bytes.
    type Int: Copy;
    /// Sixteen floats.
    type Float: Copy;

    // Integers.
    unsafe fn splat_int(value: i32) -> Self::Int;
    /// Loads 64 bytes.
    unsafe fn load_bytes(at: *const u8) -> Self::Int;
    /// Widens 16 signed bytes to lanes.
    unsafe fn widen_i8(at: *const u8) -> Self::Int;
    /// Widens 32 unsigned bytes to pairs of 16 bits.
    unsafe fn widen_u8_pairs(at: *const u8) -> Self::Int;
    /// Bytes shifted right by `count` and masked.
    unsafe fn bits(a: Self::Int, count: u32, mask: u8) -> Self::Int;
    /// Bytes masked, then shifted left by `count`, and joined with `low`.
    unsafe fn join(low: Self::Int, high: Self::Int, count: u32) -> Self::Int;
    /// The bytes of `table` that the bytes of `index`, below 16, name.
    unsafe fn lookup(table: &[u8; 16], index: Self::Int) -> Self::Int;
    /// Adds the product of sixteen unsigned bytes per lane, four in each of `w`, and sixteen signed bytes at `x`, the same for
    /// all lanes. The unsigned ones have at most `bits` bits; the signed ones are above -128.
    unsafe fn dot_16(sum: Self::Int, w: [Self::Int; 4], x: *const i8, bits: u32) -> Self::Int;
    /// Adds the product of two 16-bit numbers per lane and two 16-bit numbers at `b`.
    unsafe fn dot_pairs(sum: Self::Int, a: Self::Int, b: *const i16) -> Self::Int;
    /// `sum + a * b`.
    unsafe fn multiply_add_int(sum: Self::Int, a: Self::Int, b: Self::Int) -> Self::Int;
    unsafe fn add_int(a: Self::Int, b: Self::Int) -> Self::Int;
    /// Sum of 16 signed bytes.
    unsafe fn sum_i8(at: *const i8) -> i32;
    unsafe fn to_float(a: Self::Int) -> Self::Float;
    /// Stores the low byte of each lane, 16 bytes.
    unsafe fn store_i8(at: *mut i8, a: Self::Int);

    // Floats.
    unsafe fn splat(value: f32) -> Self::Float;
    unsafe fn load(at: *const f32) -> Self::Float;
    /// Loads 16 half-precision numbers.
    unsafe fn load_f16(at: *const u16) -> Self::Float;
    /// Loads 16 brain floats.
    unsafe fn load_bf16(at: *const u16) -> Self::Float;
    unsafe fn store(at: *mut f32, a: Self::Float);
    unsafe fn add(a: Self::Float, b: Self::Float) -> Self::Float;
    unsafe fn subtract(a: Self::Float, b: Self::Float) -> Self::Float;
    unsafe fn multiply(a: Self::Float, b: Self::Float) -> Self::Float;
    unsafe fn divide(a: Self::Float, b: Self::Float) -> Self::Float;
    unsafe fn maximum(a: Self::Float, b: Self::Float) -> Self::Float;
    unsafe fn magnitude(a: Self::Float) -> Self::Float;
    /// `a * b + c`, rounded once.
    unsafe fn multiply_add(a: Self::Float, b: Self::Float, c: Self::Float) -> Self::Float;
    /// `c - a * b`, rounded once.
    unsafe fn multiply_subtract(a: Self::Float, b: Self::Float, c: Self::Float) -> Self::Float;
    /// Nearest integers, ties to even.
    unsafe fn round(a: Self::Float) -> Self::Int;
    /// `a * 2^n` for `n` in -126..=127.
    unsafe fn scale_by_power(a: Self::Float, n: Self::Int) -> Self::Float;
    /// Zero in the lanes where `test < limit`, `a` elsewhere.
    unsafe fn zero_below(a: Self::Float, test: Self::Float, limit: f32) -> Self::Float;
    /// Keeps the first `count` lanes of `a`, minus infinity in the others.
    unsafe fn first(a: Self::Float, count: usize) -> Self::Float;
    unsafe fn sum(a: Self::Float) -> f32;
    unsafe fn largest(a: Self::Float) -> f32;
    /// Asks for the cache line at `at`, into the first-level cache.
    unsafe fn prefetch(at: *const u8);
    /// The same, into the second-level cache.
    unsafe fn prefetch_l2(at: *const u8);
}

/// e^x with a relative error below 2e-7; zero below -87.
///
/// # Safety
///
/// As for every method of [`Vector`].
#[inline(always)]
pub(crate) unsafe fn exp<V: Vector>(x: V::Float) -> V::Float {
    // SAFETY: only lane-wise operations, and the caller has the CPU features.
    unsafe {
        let bounded = V::maximum(x, V::splat(-87.0));
        let n = V::round(V::multiply(bounded, V::splat(std::f32::consts::LOG2_E)));
        let n_float = V::to_float(n);
        // ln 2 in two parts, so that the remainder keeps all its bits.
        let r = V::multiply_subtract(n_float, V::splat(0.693_359_4), bounded);
        let r = V::multiply_subtract(n_float, V::splat(-2.121_944_4e-4), r);
        let mut p = V::splat(1.987_569_1e-4);
        for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
            p = V::multiply_add(p, r, V::splat(c));
        }
        let p = V::multiply_add(V::multiply(p, r), r, V::add(r, V::splat(1.0)));
        V::zero_below(V::scale_by_power(p, n), x, -87.0)
    }
}

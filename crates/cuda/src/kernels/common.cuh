// What every kernel shares: rounding of what kernels pass on, sums of parts, sums and maxima of a warp.

#include "ptx.cuh"

// A parameter block stands in `blocks.rs` too: the host tells how large it is there.
#define MIRRORED(T) static_assert(sizeof(T) == SIZEOF_##T, "the host's " #T " has another size")

#define WARP 32
#define FULL 0xffffffffu
#define SUPER 256
#define KV_BLOCK 32

__device__ __forceinline__ float brain_to_float(u16 b) {
    return __uint_as_float((u32)b << 16);
}

__device__ __forceinline__ float2 unpack_halves(u32 both) {
    return make_float2(half_to_float((u16)both), half_to_float((u16)(both >> 16)));
}

// A result that a step hands on, without its two lowest bits: where blocks of one kernel hand it to each other these say
// which result it is (`ready_bits.cuh`). All kernels round alike, so they give the same bits.
__device__ __forceinline__ float rounded(float x) {
    u32 bits = __float_as_uint(x);
    // What is not a number stays so: one more would carry into the sign.
    bool is_number = (bits & 0x7fffffff) <= 0x7f800000;
    return __uint_as_float((is_number ? bits + 2 : bits | 0x00400000) & ~3u);
}

// The sum of a row's parts, one for each super-block: every fourth in order, then these four. Four lanes can share it.
template <typename Part>
__device__ __forceinline__ float sum_parts(u32 count, Part part) {
    float sums[4] = {};
    u32 s = 0;
#pragma unroll 2
    for (; s + 4 <= count; s += 4) {
#pragma unroll
        for (int i = 0; i < 4; i++) sums[i] += part(s + i);
    }
#pragma unroll
    for (int i = 0; i < 3; i++) {
        if (s + i < count) sums[i] += part(s + i);
    }
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

__device__ __forceinline__ float silu(float x) {
    return __fdividef(x, 1.0f + __expf(-x));
}

// The thread's number. In `decode_persistent.cu` it hides where it comes from: what is worked out from it would otherwise be kept through all
// phases, and registers are scarce.
__device__ __forceinline__ u32 this_thread() {
#ifdef FEEDERS
    return anew(threadIdx.x);
#else
    return threadIdx.x;
#endif
}

// All warps that compute wait for each other. Where others feed them (`decode_persistent.cu`) those are not waited for.
__device__ __forceinline__ void together() {
#ifdef FEEDERS
    wait_together(1, 512);
#else
    __syncthreads();
#endif
}

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(FULL, x, step);
    return x;
}

__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(FULL, x, step));
    return x;
}

// Orders floats as integers; what is not a number comes above everything, so that it is noticed.
__device__ __forceinline__ u64 candidate(float value, u32 index) {
    u32 bits = __float_as_uint(value);
    bits = value != value ? 0xffffffffu : bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return (u64)bits << 32 | (0xffffffffu - index);
}

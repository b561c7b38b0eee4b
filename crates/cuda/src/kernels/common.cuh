// What every kernel shares: number conversions, asynchronous copies, and the order between dependent kernels.
//
// NVRTC has no system headers, so half precision goes through PTX here and nothing is included.

typedef signed char i8;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define WARP 32
#define FULL 0xffffffffu
#define SUPER 256
#define KV_BLOCK 32

__device__ __forceinline__ float half_to_float(u16 h) {
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    return f;
}

__device__ __forceinline__ u16 float_to_half(float f) {
    u16 h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
    return h;
}

// Two halves in a word, `low` in the low half.
__device__ __forceinline__ u32 pack_halves(float low, float high) {
    u32 both;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

__device__ __forceinline__ float2 unpack_halves(u32 both) {
    return make_float2(half_to_float((u16)both), half_to_float((u16)(both >> 16)));
}

// A result that a step hands on, without its two lowest bits: where blocks of one kernel hand it to each other these say
// which result it is (`handed.cuh`). All ways of computing round alike, so they give the same bits.
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

// All warps that compute wait for each other. Where others feed them (`token.cu`) those are not waited for.
__device__ __forceinline__ void together() {
#ifdef FEEDERS
    asm volatile("bar.sync 1, 512;" ::: "memory");
#else
    __syncthreads();
#endif
}

// Waits until the kernel before this one has ended and its writes are visible. Whatever a kernel reads that an earlier
// kernel of the same step wrote must be read after this; weights may be read before. Pointers to such data are never
// `__restrict__`, because the compiler would then be free to read them earlier.
__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the next kernel's blocks start beside this kernel's: they fetch their first weights and wait.
__device__ __forceinline__ void let_next_start() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ __forceinline__ u32 shared_address(const void* p) {
    return (u32)__cvta_generic_to_shared(p);
}

__device__ __forceinline__ void copy_16(u32 to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

// The same, with zeros where there is nothing to copy.
__device__ __forceinline__ void copy_16_or_zero(u32 to, const void* from, bool exists) {
    int bytes = exists ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

__device__ __forceinline__ void copies_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most N of the committed groups are still under way.
template <int N>
__device__ __forceinline__ void copies_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
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

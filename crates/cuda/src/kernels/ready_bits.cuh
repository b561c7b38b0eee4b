// Vectors that say themselves whether they are there: how blocks of one kernel hand each other results.
//
// The two lowest bits of every float are its mark: how many times the vector was written, modulo four. A reader looks until
// it sees the mark it waits for and then has the value too. A counter that says "all are done" costs a fence, an addition, a
// look at the counter and only then the load: 1.2 us on an H200 where this is one store and one load. A mark of its own
// word (8 bytes per element, 2026-11-16) had every multiprocessor read 72 KB before the down projection of the 1.5B.
// The value is rounded to what the other bits hold (`rounded` in `common.cuh`), in every kernel alike.
//
// An element may be written again when every reader of the old value is known to be done. In a decoder that holds without
// a barrier: whoever writes the next value has seen results that were computed from all of the old ones. And a reader is
// never four writes behind: a persistent step is only made where every block reads the residual stream in every layer.

#include "common.cuh"

__device__ __forceinline__ void put(u32* to, float value, u32 mark) {
    store_relaxed(to, __float_as_uint(rounded(value)) | mark);
}

// A vector that all blocks read is there several times, `apart` elements from each other, and blocks read different ones: a part of
// the second-level cache gives what it holds to one multiprocessor after the other, and all ask at the same moment. Four lanes
// that have a sum write a copy each, at no cost. Of what attention leaves there are ATTENDED_COPIES, each written by the same thread.
#define COPIES 4

template <u32 N>
__device__ __forceinline__ void put_copies(u32* to, u32 apart, float value, u32 mark) {
#pragma unroll
    for (u32 i = 0; i < N; i++) put(to + i * apart, value, mark);
}

__device__ __forceinline__ float value_of(u32 word) {
    return __uint_as_float(word & ~3u);
}

// What was seen at `at`, or what is seen there later.
__device__ __forceinline__ float residual_norm_quant(u32 seen, const u32* at, u32 mark) {
    while ((seen & 3) != mark) seen = load_relaxed(at);
    return value_of(seen);
}

// A lane's eight elements of a super-block.
struct Eight {
    uint4 a, b;
};

__device__ __forceinline__ Eight poll_8(const u32* own) {
    return {load_relaxed_4(own), load_relaxed_4(own + 4)};
}

// Zero where all have their mark.
__device__ __forceinline__ u32 apart_from(const Eight& e, u32 mark) {
    u32 apart = (e.a.x ^ mark) | (e.a.y ^ mark) | (e.a.z ^ mark) | (e.a.w ^ mark);
    apart |= (e.b.x ^ mark) | (e.b.y ^ mark) | (e.b.z ^ mark) | (e.b.w ^ mark);
    return apart & 3;
}

__device__ __forceinline__ void values_of(const Eight& e, float* v) {
    v[0] = value_of(e.a.x), v[1] = value_of(e.a.y), v[2] = value_of(e.a.z), v[3] = value_of(e.a.w);
    v[4] = value_of(e.b.x), v[5] = value_of(e.b.y), v[6] = value_of(e.b.z), v[7] = value_of(e.b.w);
}

// Looks again until all eight are there, after a pause where the wait is long and others need what a look takes from them. Before
// there were copies a pause of 200 ns gave 2 to 5 % everywhere; now only where experts wait for attention (H200, 2026-11-17: 806
// tokens/s of the 30B-A3B instead of 784). Of the 1.5B, in many places each, 100 ns there cost 0.4 % and 50 ns anywhere else as much or
// more. Two looks in flight at once cost 6 %.
template <int PAUSE>
__device__ __forceinline__ void wait_ready_8(Eight e, const u32* own, u32 mark, float* v) {
    while (apart_from(e, mark)) {
        if (PAUSE) __nanosleep(PAUSE);
        e = poll_8(own);
    }
    values_of(e, v);
}

// Vectors that say themselves whether they are there: how blocks of one kernel hand each other results.
//
// Every element is 8 bytes, its value and the number of the phase that wrote it, stored and loaded as one. A reader looks
// until it sees the number it waits for and then has the value too. A counter that says "all are done" costs a fence, an
// addition, a look at the counter and only then the load: 1.2 us on an H200 where this is one store and one load.
//
// An element may be written again when every reader of the old value is known to be done. In a decoder that holds without
// a barrier: whoever writes the next value has seen results that were computed from all of the old ones.

// Where element `e` stands. A lane of a product takes eight elements; the first two of all lanes stand together, then the
// next two and so on, so that a warp reads whole lines.
__device__ __forceinline__ u32 slot_of(u32 e) {
    return (e & ~255u) | e % 8 / 2 * 64 | e % 256 / 8 * 2 | (e & 1);
}

__device__ __forceinline__ void put(u64* to, float value, u32 tag) {
    u64 both = (u64)tag << 32 | __float_as_uint(value);
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(both) : "memory");
}

__device__ __forceinline__ u64 look(const u64* at) {
    u64 both;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(both) : "l"(at) : "memory");
    return both;
}

__device__ __forceinline__ void look_2(const u64* at, u64* two) {
    asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];" : "=l"(two[0]), "=l"(two[1]) : "l"(at) : "memory");
}

__device__ __forceinline__ bool is_from(u64 both, u32 tag) {
    return (u32)(both >> 32) == tag;
}

__device__ __forceinline__ float value_of(u64 both) {
    return __uint_as_float((u32)both);
}

// What was seen at `at`, or what is seen there later.
__device__ __forceinline__ float settle(u64 seen, const u64* at, u32 tag) {
    while (!is_from(seen, tag)) seen = look(at);
    return value_of(seen);
}

// A lane's eight elements of a super-block.
struct Eight {
    u64 seen[8];
};

__device__ __forceinline__ void look_8(Eight& e, const u64* own, bool exists) {
#pragma unroll
    for (int k = 0; k < 4; k++) {
        e.seen[2 * k] = e.seen[2 * k + 1] = 0;
        if (exists) look_2(own + k * 64, e.seen + 2 * k);
    }
}

// Looks again until all eight are there. One lane looking for all of its warp would spare the memory and was 1 % slower.
__device__ __forceinline__ void settle_8(Eight& e, const u64* own, u32 tag, bool exists) {
    while (exists) {
        bool stale = false;
#pragma unroll
        for (int k = 0; k < 8; k++) stale |= !is_from(e.seen[k], tag);
        if (!stale) break;
        look_8(e, own, true);
    }
    __syncwarp();
}

// How packed weights stand in memory and what they mean. `pack.rs` writes this layout; the two belong together.
//
// A chunk holds 4 rows x 256 columns. Eight lanes share a row; lane j of them owns columns 32 j .. 32 j + 31, so one
// warp takes a whole chunk, and a chunk is one contiguous copy:
//
//   header   K formats with minimums: per row {d, dmin, 8 bytes: scale and the minimum's low two bits, 4 bytes: the other bits of the
//            minimums of blocks j and j + 4} (16 bytes)
//            Q6_K: per row 16 scales (16 bytes); then d of each row (2 bytes x 4) and 8 bytes of padding
//            others: per row d of eight blocks (16 bytes); then, where there are minimums, m likewise
//   low      16 bytes per lane: byte b holds element b in its low and element b + 16 in its high nibble
//            (Q8_0: 32 bytes per lane: 16 bytes of elements 0..15 of all lanes, then 16 bytes of 16..31)
//   high     fifth bits: 4 bytes per lane, bit g of byte b belongs to element 4 g + b
//            Q6_K: 8 bytes per lane, bits 2 g and 2 g + 1 of byte b of word h belong to element 16 h + 4 g + b
//
// Halves and brain floats stand row after row, as in a file.

#include "common.cuh"

#define F16 1
#define BF16 30
#define Q4_0 2
#define Q4_1 3
#define Q5_0 6
#define Q5_1 7
#define Q8_0 8
#define Q4_K 12
#define Q5_K 13
#define Q6_K 14

template <int F>
struct Layout {
    static constexpr bool with_min = F == Q4_1 || F == Q5_1 || F == Q4_K || F == Q5_K;
    static constexpr bool super_blocks = F == Q4_K || F == Q5_K || F == Q6_K;
    static constexpr bool fifth_bit = F == Q5_0 || F == Q5_1 || F == Q5_K;
    static constexpr int header = F == Q6_K ? 80 : (F == Q4_1 || F == Q5_1) ? 128 : 64;
    static constexpr int low = F == Q8_0 ? 1024 : 512;
    static constexpr int high = F == Q6_K ? 256 : fifth_bit ? 128 : 0;
    static constexpr int chunk = header + low + high;
    // Subtracted from the stored quant to make it the signed one.
    static constexpr int zero = F == Q4_0 ? 8 : F == Q5_0 ? 16 : F == Q6_K ? 32 : 0;
};

// One lane's 32 weights: element = d * scale[half] * (q - zero) + m, where m is -d_min * min in formats with super-blocks.
struct Block {
    int q[8];
    int scale[2];
    float d;
    float m;
    int min;
    float d_min;
};

// The minimums of a row's blocks as bytes, those of the first four and of the others.
__device__ __forceinline__ uint2 minimums(uint4 header) {
    u32 first = (header.y >> 6 & 0x03030303) | (header.w << 2 & 0x3c3c3c3c);
    return make_uint2(first, (header.z >> 6 & 0x03030303) | (header.w >> 2 & 0x3c3c3c3c));
}

// What a lane reads of a chunk, as it stands there, for who asks long before it is needed: four words each of the header, of `low` and of
// the rest.
struct Raw {
    __align__(16) u32 words[12];
};

// A part of a chunk: from memory, or as it was read before.
template <typename T>
__device__ __forceinline__ T part(const u8* chunk, int first, int at, int) {
    return *(const T*)(chunk + first + at);
}

template <typename T>
__device__ __forceinline__ T part(const Raw& raw, int, int, int word) {
    return *(const T*)(raw.words + word);
}

template <int F>
__device__ __forceinline__ Raw read_raw(const u8* chunk, int lane) {
    typedef Layout<F> L;
    Raw raw;
    int row = lane / 8, j = lane % 8;
    const u8 *head = chunk + row * 16, *low = chunk + L::header;
    if (F == Q4_K || F == Q5_K) *(uint4*)raw.words = *(const uint4*)head;
    else raw.words[0] = *(const u16*)(head + j * 2);
    if (F == Q6_K) raw.words[1] = *(const u16*)(chunk + 64 + row * 2);
    if (F == Q4_1 || F == Q5_1) raw.words[1] = *(const u16*)(head + 64 + j * 2);
    *(uint4*)(raw.words + 4) = *(const uint4*)(low + lane * 16);
    if (F == Q8_0) *(uint4*)(raw.words + 8) = *(const uint4*)(low + 512 + lane * 16);
    if (L::fifth_bit) raw.words[8] = *(const u32*)(low + 512 + lane * 4);
    if (F == Q6_K) *(uint2*)(raw.words + 8) = *(const uint2*)(low + 512 + lane * 8);
    return raw;
}

// RAISED leaves the high nibbles of formats with four bits where they stand, sixteen times too large.
template <int F, bool RAISED = false, typename Chunk>
__device__ __forceinline__ Block read_block(Chunk chunk, int lane) {
    typedef Layout<F> L;
    Block b;
    int row = lane / 8, j = lane % 8;
    b.scale[0] = b.scale[1] = 1;
    b.m = b.d_min = 0.0f, b.min = 0;
    if (F == Q4_K || F == Q5_K) {
        uint4 h = part<uint4>(chunk, 0, row * 16, 0);
        u32 low = ((j < 4 ? h.y : h.z) >> (8 * (j & 3))) & 0xff;
        b.scale[0] = b.scale[1] = low & 63;
        b.min = low >> 6 | ((h.w >> (8 * (j & 3) + j / 4 * 4)) & 15) << 2;
        b.d = half_to_float((u16)h.x), b.d_min = half_to_float((u16)(h.x >> 16));
        b.m = -__fmul_rn(b.d_min, (float)b.min);
    } else if (F == Q6_K) {
        u32 both = part<u16>(chunk, row * 16, j * 2, 0);
        b.scale[0] = (i8)(both & 0xff);
        b.scale[1] = (i8)(both >> 8);
        b.d = half_to_float(part<u16>(chunk, 64, row * 2, 1));
    } else {
        b.d = half_to_float(part<u16>(chunk, row * 16, j * 2, 0));
        if (L::with_min) b.m = half_to_float(part<u16>(chunk, 64 + row * 16, j * 2, 1));
    }
    uint4 w = part<uint4>(chunk, L::header, lane * 16, 4);
    u32 words[4] = {w.x, w.y, w.z, w.w};
    if (F == Q8_0) {
        uint4 v = part<uint4>(chunk, L::header + 512, lane * 16, 8);
        b.q[0] = w.x, b.q[1] = w.y, b.q[2] = w.z, b.q[3] = w.w;
        b.q[4] = v.x, b.q[5] = v.y, b.q[6] = v.z, b.q[7] = v.w;
        return b;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        b.q[i] = words[i] & 0x0f0f0f0f;
        b.q[i + 4] = RAISED ? words[i] & 0xf0f0f0f0 : (words[i] >> 4) & 0x0f0f0f0f;
    }
    if (L::fifth_bit) {
        u32 bits = part<u32>(chunk, L::header + 512, lane * 4, 8);
#pragma unroll
        for (int g = 0; g < 8; g++) b.q[g] |= ((bits >> g) & 0x01010101) << 4;
    }
    if (F == Q6_K) {
        uint2 bits = part<uint2>(chunk, L::header + 512, lane * 8, 8);
#pragma unroll
        for (int g = 0; g < 4; g++) {
            b.q[g] |= ((bits.x >> (2 * g)) & 0x03030303) << 4;
            b.q[g + 4] |= ((bits.y >> (2 * g)) & 0x03030303) << 4;
        }
    }
    return b;
}

// Element i of a lane's block. The order of operations is that of the plain definition on the CPU. A quant becomes a float as the last
// byte of 2^23, which is then taken away: a conversion takes four times as long.
template <int F>
__device__ __forceinline__ float element(const Block& b, int i) {
    constexpr int raised = F == Q8_0 ? 128 : 0;
    float scale = __fmul_rn(b.d, (float)b.scale[i / 16]);
    u32 q = __byte_perm(b.q[i / 4] ^ (u32)raised * 0x01010101u, 0x4b000000, 0x7440 | i % 4);
    float value = __fsub_rn(__uint_as_float(q), (float)(8388608 + raised + Layout<F>::zero));
    return __fadd_rn(__fmul_rn(scale, value), b.m);
}

// The same in two operations, for what becomes a half: a quant is the second byte of 2^7, whose 128 times the scale are taken away from
// `m`. In 32 bits that is 2^-17 of a scale from the above.
template <int F>
__device__ __forceinline__ float near_element(const Block& b, int i) {
    if (F == Q8_0) return element<F>(b, i);
    float scale = __fmul_rn(b.d, (float)b.scale[i / 16]);
    float q = __uint_as_float(__byte_perm(b.q[i / 4], 0x43000000, 0x7044 | i % 4 << 8));
    return __fmaf_rn(scale, q, __fmaf_rn(scale, -(float)(128 + Layout<F>::zero), b.m));
}

// Elements i .. i + 7 in half precision.
template <int F>
__device__ __forceinline__ uint4 eight_halves(const Block& b, int i) {
    u32 w[4];
#pragma unroll
    for (int k = 0; k < 4; k++) w[k] = pack_halves(near_element<F>(b, i + 2 * k), near_element<F>(b, i + 2 * k + 1));
    return make_uint4(w[0], w[1], w[2], w[3]);
}

__device__ __forceinline__ bool is_float(u32 format) {
    return format == F16 || format == BF16;
}

// What a half or brain float means.
__device__ __forceinline__ float float_value(u16 bits, u32 format) {
    return format == BF16 ? brain_to_float(bits) : half_to_float(bits);
}

// WORK(F) for the quantised formats the module was compiled for: for that which a matrix has, or for each.
#ifdef WITH_Q4_0
#define CASE_Q4_0(WORK) case Q4_0: WORK(Q4_0); break;
#define EACH_Q4_0(WORK) WORK(Q4_0)
#else
#define CASE_Q4_0(WORK)
#define EACH_Q4_0(WORK)
#endif
#ifdef WITH_Q4_1
#define CASE_Q4_1(WORK) case Q4_1: WORK(Q4_1); break;
#define EACH_Q4_1(WORK) WORK(Q4_1)
#else
#define CASE_Q4_1(WORK)
#define EACH_Q4_1(WORK)
#endif
#ifdef WITH_Q5_0
#define CASE_Q5_0(WORK) case Q5_0: WORK(Q5_0); break;
#define EACH_Q5_0(WORK) WORK(Q5_0)
#else
#define CASE_Q5_0(WORK)
#define EACH_Q5_0(WORK)
#endif
#ifdef WITH_Q5_1
#define CASE_Q5_1(WORK) case Q5_1: WORK(Q5_1); break;
#define EACH_Q5_1(WORK) WORK(Q5_1)
#else
#define CASE_Q5_1(WORK)
#define EACH_Q5_1(WORK)
#endif
#ifdef WITH_Q8_0
#define CASE_Q8_0(WORK) case Q8_0: WORK(Q8_0); break;
#define EACH_Q8_0(WORK) WORK(Q8_0)
#else
#define CASE_Q8_0(WORK)
#define EACH_Q8_0(WORK)
#endif
#ifdef WITH_Q4_K
#define CASE_Q4_K(WORK) case Q4_K: WORK(Q4_K); break;
#define EACH_Q4_K(WORK) WORK(Q4_K)
#else
#define CASE_Q4_K(WORK)
#define EACH_Q4_K(WORK)
#endif
#ifdef WITH_Q5_K
#define CASE_Q5_K(WORK) case Q5_K: WORK(Q5_K); break;
#define EACH_Q5_K(WORK) WORK(Q5_K)
#else
#define CASE_Q5_K(WORK)
#define EACH_Q5_K(WORK)
#endif
#ifdef WITH_Q6_K
#define CASE_Q6_K(WORK) case Q6_K: WORK(Q6_K); break;
#define EACH_Q6_K(WORK) WORK(Q6_K)
#else
#define CASE_Q6_K(WORK)
#define EACH_Q6_K(WORK)
#endif
#define FOR_FORMAT(format, WORK) \
    switch (format) { \
        CASE_Q4_0(WORK) CASE_Q4_1(WORK) CASE_Q5_0(WORK) CASE_Q5_1(WORK) CASE_Q8_0(WORK) \
        CASE_Q4_K(WORK) CASE_Q5_K(WORK) CASE_Q6_K(WORK) \
    }
#define FOR_EACH_FORMAT(WORK) \
    EACH_Q4_0(WORK) EACH_Q4_1(WORK) EACH_Q5_0(WORK) EACH_Q5_1(WORK) EACH_Q8_0(WORK) EACH_Q4_K(WORK) EACH_Q5_K(WORK) EACH_Q6_K(WORK)

// Chunks of one row as `decode_persistent.cu` multiplies them: a lane's columns in registers, its share of a chunk, and how the eight lanes of a row
// add up theirs.
//
// Super-blocks whose scales are integers are added up as integers and made floats once, as in `product.cuh` and `supers.cuh`, bit for bit.

#include "persistent_input.cuh"

// What a lane multiplies a chunk with: 32 columns of the input, in registers.
struct Columns {
    uint4 low, high;       // Elements 0 .. 15 and 16 .. 31.
    float scale, sum;
    u32 halves;            // The sums of both halves as two 16-bit numbers.
};

__device__ __forceinline__ Columns columns_at(const i8* quants, const i8* facts) {
    uint4 f = *(const uint4*)facts;
    return {*(const uint4*)quants, *(const uint4*)(quants + 128), __uint_as_float(f.x), __uint_as_float(f.y), f.z};
}

// Where a lane finds what it has of a chunk of four bits, from its row's header on. Kept in registers: worked out for every stage
// it was a tenth of all instructions.
struct Spots {
    u32 words, low, high, shift;
};

__device__ __forceinline__ u32 header_of(u32 lane) {
    return lane / 8 * 16;
}

__device__ __forceinline__ Spots spots_of(u32 lane) {
    u32 j = lane % 8;
    return {anew(Layout<Q4_K>::header + lane * 16 - header_of(lane)), anew(4 + j), anew(12 + j % 4), anew(2 + j / 4 * 28)};
}

// A lane's share of a chunk of four bits and super-blocks, 32 columns of one row with their scale: an integer. `chunk` is where its row's
// header is.
__device__ __forceinline__ int four_bits(const u8* chunk, const Spots& at, const Columns& x) {
    uint4 a = x.low, c = x.high, w = *(const uint4*)(chunk + at.words);
    // Dividing a sum by sixteen is cheaper than shifting every word.
    int first = __dp4a((int)(w.x & 0x0f0f0f0f), (int)a.x, 0);
    int second = dp4a_unsigned(w.x & 0xf0f0f0f0, c.x, 0);
    first = __dp4a((int)(w.y & 0x0f0f0f0f), (int)a.y, first);
    second = dp4a_unsigned(w.y & 0xf0f0f0f0, c.y, second);
    first = __dp4a((int)(w.z & 0x0f0f0f0f), (int)a.z, first);
    second = dp4a_unsigned(w.z & 0xf0f0f0f0, c.z, second);
    first = __dp4a((int)(w.w & 0x0f0f0f0f), (int)a.w, first);
    second = dp4a_unsigned(w.w & 0xf0f0f0f0, c.w, second);
    return (int)(chunk[at.low] & 63) * (first + (second >> 4));
}

// The same of any format, with the block it was read from.
template <int F>
__device__ __forceinline__ int any_bits(const u8* chunk, u32 lane, const Columns& x, Block& b) {
    constexpr bool RAISED = F == Q4_0 || F == Q4_1;
    b = read_block<F, RAISED>(chunk, lane);
    int2 sum = multiply_halves<RAISED>(b, x.low, x.high);
    if (Layout<F>::zero) {
        int sum_0 = (short)(x.halves & 0xffff), sum_1 = (short)(x.halves >> 16);
        sum.x -= Layout<F>::zero * sum_0, sum.y -= Layout<F>::zero * sum_1;
    }
    return b.scale[0] * sum.x + b.scale[1] * sum.y;
}

// A lane's share of a chunk added to what was before. The same as `advance`, bit for bit, where super-blocks are not kept apart.
template <int F>
__device__ __forceinline__ float chunk_sum(const u8* chunk, u32 lane, const Spots& at, const Columns& x, float before) {
    if (F == Q4_K) {
        u32 d = *(const u32*)chunk, high = chunk[at.high];
        u32 min = (__funnelshift_l(high, high, at.shift) & 0x3c) | chunk[at.low] >> 6;
        float d_min = half_to_float((u16)(d >> 16));
        // Below 2^22, so added to the bits of 1.5 * 2^23 they are added to its value.
        float m = -__fmul_rn(d_min, __uint_as_float(min | 0x4b400000) - 12582912.0f);
        float term = __fmul_rn(half_to_float((u16)d), __int_as_float(four_bits(chunk, at, x) + 0x4b400000) - 12582912.0f);
        return __fmaf_rn(x.scale, __fmaf_rn(m, x.sum, term), before);
    }
    Block b;
    float term = (float)any_bits<F>(chunk, lane, x, b);
    term = __fmul_rn(b.d, term);
    if (Layout<F>::with_min) term = __fmaf_rn(b.m, x.sum, term);
    return __fmaf_rn(x.scale, term, before);
}

// Which of up to four sums a lane ends up with.
__device__ __forceinline__ u32 dealt(u32 lane) {
    return lane % 4 / 2 + lane % 2 * 2;
}

// Of up to four sums, each over the eight lanes of a row, a lane ends up with one.
template <typename T>
__device__ __forceinline__ T deal_out(const T* v, u32 lane) {
    bool odd = lane & 1, upper = lane & 2;
    T a = (odd ? v[2] : v[0]) + __shfl_xor_sync(FULL, odd ? v[0] : v[2], 1);
    T b = (odd ? v[3] : v[1]) + __shfl_xor_sync(FULL, odd ? v[1] : v[3], 1);
    T mine = (upper ? b : a) + __shfl_xor_sync(FULL, upper ? a : b, 2);
    return mine + __shfl_xor_sync(FULL, mine, 4);
}

// What a lane needs of the super-block whose sum it ends up with (`dealt`).
struct Own {
    u32 header;            // Where its row's header is, from its first chunk on, or in Q6_K its d.
    float scale;           // That of the input,
    u32 sums[4];           // and the sums of its blocks, two 16-bit numbers each.
};

template <int F>
__device__ __forceinline__ u32 own_header(u32 own, u32 lane) {
    return own * Layout<F>::chunk + (F == Q6_K ? 64 + lane / 8 * 2 : F == Q4_K ? 0 : header_of(lane));
}

// Up to N chunks of a row that follow each other: a lane ends up with the sum of one.
template <int F, u32 N>
__device__ __forceinline__ float chunk_sums(const u8* chunk, u32 lane, const Spots& spots, const Columns* columns, const Own& own) {
    typedef Layout<F> L;
    if (!L::super_blocks) {
        float v[4] = {};
#pragma unroll
        for (u32 i = 0; i < N; i++) v[i] = chunk_sum<F>(chunk + i * L::chunk, lane, spots, columns[i], 0.0f);
        return deal_out(v, lane);
    }
    int sums[4] = {};
#pragma unroll
    for (u32 i = 0; i < N; i++) {
        Block b;
        const u8* at = chunk + i * L::chunk;
        sums[i] = F == Q4_K ? four_bits(at, spots, columns[i]) : any_bits<F>(at, lane, columns[i], b);
    }
    int less = 0;
    u32 d;
    if (L::with_min) {
        // All minimums of its row by one lane: eight of them, each with one, would have to be added up.
        uint4 header = *(const uint4*)(chunk + own.header);
        uint2 mins = minimums(header);
        less = __dp2a_lo((int)own.sums[0], (int)mins.x, __dp2a_hi((int)own.sums[1], (int)mins.x, 0));
        less = __dp2a_lo((int)own.sums[2], (int)mins.y, __dp2a_hi((int)own.sums[3], (int)mins.y, less));
        d = header.x;
    } else {
        d = *(const u16*)(chunk + own.header);
    }
    float d_min = half_to_float((u16)(d >> 16));
    return super_value<L::with_min>(half_to_float((u16)d), deal_out(sums, lane), d_min, less, own.scale);
}

// What the two kernels for products of few rows share: the parameter block, quantised input, one chunk's arithmetic.

#include "formats.cuh"

#define PRODUCT_WARPS 16
#define PRODUCT_THREADS (PRODUCT_WARPS * WARP)

struct Segment {
    const u8* weights;
    const u8* second;     // The up matrix where `weights` is the gate.
    const float* bias;
    u32 format;
    u32 rows;
    u32 tiles;
    u32 first_block;
    u32 blocks;
    u32 output;           // Place of the first row's result.
};
MIRRORED(Segment);

// The matrix this block works on.
__device__ __forceinline__ const Segment& own_segment(const Segment* segments) {
    int which = 0;
    if (blockIdx.x >= segments[1].first_block) which = 1;
    if (blockIdx.x >= segments[2].first_block) which = 2;
    return segments[which];
}

struct Product {
    Segment segments[3];
    const float* input;
    const float* norm;
    float* output;
    u64* candidates;      // Logits only: the best entry of each block, [row][block].
    float epsilon;
    u32 columns;
    u32 supers;           // Columns in whole super-blocks, rounded up.
    u32 slices;
    u32 rows;             // Rows in use, at most ROWS.
    u32 input_stride;
    u32 output_stride;
};
MIRRORED(Product);

// Shared memory: quantised rows, then their scales and sums, then partial results, then the chunks in flight.
struct Quantised {
    i8* quants;           // [row][super][half][8 lanes][16]
    uint2* facts;         // [row][super * 8]: scale, and the sums of both halves as two 16-bit numbers
};

__device__ __forceinline__ void load_8(const float* x, u32 at, u32 columns, float* v) {
    if (at < columns) {
        // Past the first-level cache: other multiprocessors wrote this, perhaps while this kernel ran.
        float4 a = __ldcg((const float4*)(x + at)), b = __ldcg((const float4*)(x + at + 4));
        v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] = 0.0f;
    }
}

// What a lane has of a quantised super-block: eight values, and in the first lane of each block of 32 its facts.
struct Quants {
    u32 words[2];
    float scale;
    int sums[2];          // Of the block's halves.
};

// One scale per 256 columns, or a half-precision one per 32, as on the CPU.
__device__ __forceinline__ Quants quantise_8(const float* v, bool wide) {
    float largest = 0.0f;
#pragma unroll
    for (int i = 0; i < 8; i++) largest = fmaxf(largest, fabsf(v[i]));
    if (wide) {
        // Floats without a sign are ordered as integers are.
        largest = __uint_as_float(__reduce_max_sync(FULL, __float_as_uint(largest)));
    } else {
        largest = fmaxf(largest, __shfl_xor_sync(FULL, largest, 1));
        largest = fmaxf(largest, __shfl_xor_sync(FULL, largest, 2));
    }
    // The reciprocal may be a bit off in its last place; the number it is multiplied with rounds to 127 all the same.
    float inverse = largest == 0.0f ? 0.0f : __fdividef(127.0f, largest);
    Quants own;
    int sum = 0;
#pragma unroll
    for (int w = 0; w < 2; w++) {
        u32 bits[4];
        // Added to 1.5 * 2^23 a number is rounded to an integer, to even as on the CPU, which then stands in the lowest bits.
#pragma unroll
        for (int i = 0; i < 4; i++) bits[i] = __float_as_uint(__fadd_rn(__fmul_rn(v[4 * w + i], inverse), 12582912.0f));
        own.words[w] = __byte_perm(__byte_perm(bits[0], bits[1], 0x0040), __byte_perm(bits[2], bits[3], 0x0040), 0x5410);
        sum = __dp4a((int)own.words[w], 0x01010101, sum);
    }
    sum += __shfl_xor_sync(FULL, sum, 1);
    own.sums[0] = sum;
    own.sums[1] = __shfl_xor_sync(FULL, sum, 2);
    own.scale = __fmul_rn(largest, 1.0f / 127.0f);
    if (!wide) own.scale = half_to_float(float_to_half(own.scale));
    return own;
}

__device__ __forceinline__ void quantise_super(const float* v, int lane, bool wide, i8* quants, uint2* facts) {
    Quants own = quantise_8(v, wide);
    int j = lane / 4, part = lane % 4;
    *(uint2*)(quants + part / 2 * 128 + j * 16 + part % 2 * 8) = make_uint2(own.words[0], own.words[1]);
    if (part == 0) {
        facts[j] = make_uint2(__float_as_uint(own.scale), (u32)(own.sums[0] & 0xffff) | (u32)own.sums[1] << 16);
    }
}

// A norm, in three pieces that every kernel calls, because their bits must be equal. A warp's eight elements per
// lane of one super-block, squared; the row's scale from the squares of all; the elements with it.
__device__ __forceinline__ float super_square(const float* x) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 8; i++) sum = __fmaf_rn(x[i], x[i], sum);
    return warp_sum(sum);
}

__device__ __forceinline__ float row_scale(float squares, u32 columns, float epsilon) {
    return rsqrtf(__fdividef(squares, (float)columns) + epsilon);
}

__device__ __forceinline__ void normalise_8(float* v, float scale, const float* weights) {
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = __fmul_rn(__fmul_rn(v[i], scale), weights[i]);
}

// Normalises and quantises all rows into shared memory. Ends with a barrier.
__device__ __forceinline__ void prepare(const Product& p, bool wide, Quantised x, float* squares) {
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    u32 items = p.rows * p.supers;
    if (p.norm) {
        for (u32 item = warp; item < items; item += PRODUCT_WARPS) {
            u32 row = item / p.supers, s = item % p.supers;
            float v[8];
            load_8(p.input + (u64)row * p.input_stride, s * SUPER + lane * 8, p.columns, v);
            float sum = super_square(v);
            if (lane == 0) squares[item] = sum;
        }
        __syncthreads();
    }
    for (u32 item = warp; item < items; item += PRODUCT_WARPS) {
        u32 row = item / p.supers, s = item % p.supers;
        u32 at = s * SUPER + lane * 8;
        float v[8];
        load_8(p.input + (u64)row * p.input_stride, at, p.columns, v);
        if (p.norm) {
            float total = 0.0f;
            for (u32 i = lane; i < p.supers; i += WARP) total += squares[row * p.supers + i];
            float w[8];
            load_8(p.norm, at, p.columns, w);
            normalise_8(v, row_scale(warp_sum(total), p.columns, p.epsilon), w);
        }
        quantise_super(v, lane, wide, x.quants + (u64)item * SUPER, x.facts + item * 8);
    }
    __syncthreads();
}

// The sums of a block's halves, elements 0 .. 15 times `a` and 16 .. 31 times `c`.
template <bool RAISED>
__device__ __forceinline__ int2 multiply_halves(const Block& b, uint4 a, uint4 c) {
    int first = __dp4a(b.q[0], (int)a.x, 0), second = 0;
    first = __dp4a(b.q[1], (int)a.y, first);
    first = __dp4a(b.q[2], (int)a.z, first);
    first = __dp4a(b.q[3], (int)a.w, first);
    if (RAISED) {
        second = dp4a_unsigned(b.q[4], c.x, 0);
        second = dp4a_unsigned(b.q[5], c.y, second);
        second = dp4a_unsigned(b.q[6], c.z, second);
        second = dp4a_unsigned(b.q[7], c.w, second) >> 4;
    } else {
        second = __dp4a(b.q[4], (int)c.x, 0);
        second = __dp4a(b.q[5], (int)c.y, second);
        second = __dp4a(b.q[6], (int)c.z, second);
        second = __dp4a(b.q[7], (int)c.w, second);
    }
    return make_int2(first, second);
}

// What a super-block is worth, from the sum of its blocks with their scales and of its minimums with the sums of the row's blocks, both
// integers. Every kernel calls it, because bits must be equal.
template <bool WITH_MIN>
__device__ __forceinline__ float super_value(float d, int whole, float d_min, int less, float scale) {
    float term = __fmul_rn(d, (float)whole);
    if (WITH_MIN) term = __fmaf_rn(-d_min, (float)less, term);
    return __fmul_rn(scale, term);
}

// The sum over the eight lanes that share a row.
template <typename T>
__device__ __forceinline__ T row_sum(T x) {
    x += __shfl_xor_sync(FULL, x, 1);
    x += __shfl_xor_sync(FULL, x, 2);
    return x + __shfl_xor_sync(FULL, x, 4);
}

// Adds a chunk to the sums of this lane. Super-blocks that are kept APART are summed up for the row at once.
template <int F, bool APART>
__device__ __forceinline__ void advance(const u8* chunk, u32 super, int lane, u32 supers, Quantised x, float* sums) {
    // Dividing a sum by sixteen is cheaper than shifting every word.
    constexpr bool RAISED = F == Q4_0 || F == Q4_1 || F == Q4_K;
    Block b = read_block<F, RAISED>(chunk, lane);
    int j = lane % 8;
#pragma unroll
    for (int m = 0; m < ROWS; m++) {
        const i8* quants = x.quants + (u64)(m * supers + super) * SUPER + j * 16;
        uint4 a = *(const uint4*)quants, c = *(const uint4*)(quants + 128);
        uint2 facts = x.facts[(m * supers + super) * 8 + j];
        int2 sum = multiply_halves<RAISED>(b, a, c);
        int sum_0 = (short)(facts.y & 0xffff), sum_1 = (short)(facts.y >> 16);
        int whole = b.scale[0] * (sum.x - Layout<F>::zero * sum_0) + b.scale[1] * (sum.y - Layout<F>::zero * sum_1);
        float scale = __uint_as_float(facts.x);
        if (Layout<F>::super_blocks && APART) {
            int less = Layout<F>::with_min ? row_sum(b.min * (sum_0 + sum_1)) : 0;
            sums[m] = super_value<Layout<F>::with_min>(b.d, row_sum(whole), b.d_min, less, scale);
            continue;
        }
        float term = __fmul_rn(b.d, (float)whole);
        if (Layout<F>::with_min) term = __fmaf_rn(b.m, (float)(sum_0 + sum_1), term);
        sums[m] = __fmaf_rn(scale, term, sums[m]);
    }
}

// The sum over slices of one row of one tile place.
__device__ __forceinline__ float collected(const float* partial, u32 slot, u32 r, u32 m, u32 slices) {
    return sum_parts(slices, [&](u32 s) { return partial[((slot * slices + s) * 4 + r) * ROWS + m]; });
}

#define STORE 0
#define ADD 1
#define GATE 2
#define LOGITS 3

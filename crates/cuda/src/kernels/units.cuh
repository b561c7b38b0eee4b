// One unit of a product of several rows: sixteen weight rows by one super-block of columns; see `product_batch.cu`.
//
// How it comes into shared memory, how quantised rows stand beside it, and its arithmetic on tensor cores.

#include "product.cuh"

#define WARPS 12
#define THREADS (WARPS * WARP)
#define SCALES_BYTES 1024
// Floats between the results of two rows in partial results: a quarter more than there are, against bank conflicts.
#define PARTIAL_STRIDE 20

// Quantised input of a tile and super-block: [block][lane] {first, second half of the block's columns}; then the sum of each block
// and row and the scale of each block and row, or, of super-blocks, both digits of each sum and the scale of each row.
__device__ constexpr u32 input_bytes(bool wide) { return 2048 + (wide ? 128 + 32 : 256 + 256); }

// The sum of a block of a row in two digits that are bytes, as tensor cores want them: four blocks' low ones, then their high ones.
#define DIGIT 128
#define DIGITS_BYTES 16
__device__ __forceinline__ u32 digits_offset(u32 row, u32 block) { return row * DIGITS_BYTES + block / 4 * 8 + block % 4; }

__device__ __forceinline__ float sum_of_digits(const u8* digits, u32 row, u32 block) {
    const i8* own = (const i8*)digits + digits_offset(row, block);
    return (float)(own[0] + DIGIT * own[4]);
}

// How a unit stands in shared memory: 128 bytes of quants for each of sixteen rows, their pieces of sixteen exchanged so
// that eight rows can be read without conflict; then headers, then high bits.
template <int F>
struct Stage {
    static constexpr u32 quants = F == Q8_0 ? 4096 : 2048;
    static constexpr u32 high = quants + 4 * Layout<F>::header;
    static constexpr u32 bytes = high + 4 * Layout<F>::high;
};

// Where a lane's copies of any unit begin and end: everything that does not depend on the unit.
template <int F, bool GATED>
struct Copies {
    typedef Layout<F> L;
    static constexpr u32 HEADERS = L::header / 16;
    const u8* quants[2];       // Of a tile of the matrix, and of the gate's up.
    const u8* header;
    const u8* high;
    u64 tile_bytes;
    u32 tiles, header_tile;
    u32 to[2];                 // Of an even and of an odd tile.
    bool has_header;

    __device__ __forceinline__ Copies(const Segment& s, u32 supers, int lane) {
        quants[0] = s.weights + L::header + lane * 16, quants[1] = s.second + L::header + lane * 16;
        tile_bytes = (u64)supers * L::chunk, tiles = s.tiles;
#pragma unroll
        for (int odd = 0; odd < 2; odd++) {
            u32 row = lane / 8 + odd * 4;
            to[odd] = row * 128 + ((lane ^ row) & 7) * 16;
        }
        has_header = lane < 4 * HEADERS;
        header_tile = lane / HEADERS;
        header = (GATED && header_tile >= 2 ? s.second : s.weights) + lane % HEADERS * 16;
        if (GATED) header_tile %= 2;
        // High bits of all four tiles are 32 pieces, of Q6_K twice that.
        high = (GATED && F != Q6_K && lane >= 16 ? s.second : s.weights) + L::header + L::low;
        high += lane % (L::high ? L::high / 16 : 1) * 16;
    }

    // A tile past the end is the last one again; its results are not used.
    __device__ __forceinline__ u64 tile(u32 group, u32 i, u32 super) const {
        u32 tile = group * (GATED ? 2 : 4) + i;
        return min(tile, tiles - 1) * tile_bytes + super * L::chunk;
    }

    __device__ __forceinline__ void start(u32 group, u32 super, u32 stage, int lane) const {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const u8* from = quants[GATED ? i / 2 : 0] + tile(group, GATED ? i % 2 : i, super);
            u32 at = stage + to[i % 2] + i / 2 * 1024;
            copy_16(at, from);
            if (F == Q8_0) copy_16(at + 2048, from + 512);
        }
        if (has_header) copy_16(stage + Stage<F>::quants + lane * 16, header + tile(group, header_tile, super));
        if (L::fifth_bit) {
            u32 i = lane / 8;
            copy_16(stage + Stage<F>::high + lane * 16, high + tile(group, GATED ? i % 2 : i, super));
        }
        if (F == Q6_K) {
            u32 i = lane / 16;
            u64 second = GATED ? quants[1] - quants[0] : 0;
            copy_16(stage + Stage<F>::high + lane * 16, high + tile(group, i, super));
            copy_16(stage + Stage<F>::high + 512 + lane * 16, high + second + tile(group, GATED ? i : i + 2, super));
        }
    }
};

// Writes what belongs to each row and block: {d * scale, m}, or the two scales of Q6_K. [pair of blocks][row][2 x 2].
template <int F>
__device__ __forceinline__ void unpack_scales(const u8* stage, float4* scales, int lane) {
    typedef Layout<F> L;
    int row = lane / 2, half = lane % 2;
    const u8* header = stage + Stage<F>::quants + row / 4 * L::header + row % 4 * 16;
    float v[8];
    if (F == Q4_K || F == Q5_K) {
        uint4 h = *(const uint4*)header;
        u32 low = half ? h.z : h.y, high = h.w >> (4 * half);
        float d = half_to_float((u16)h.x), d_min = half_to_float((u16)(h.x >> 16));
#pragma unroll
        for (int b = 0; b < 4; b++) {
            u32 l = low >> (8 * b), h = high >> (8 * b);
            // Exact: eleven bits times six.
            v[2 * b] = __fmul_rn(d, (float)(l & 63));
            v[2 * b + 1] = -__fmul_rn(d_min, (float)((l >> 6 & 3) | (h & 15) << 2));
        }
    } else if (F == Q6_K) {
        uint2 h = *(const uint2*)(header + half * 8);
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] = __int_as_float((i8)((i < 4 ? h.x : h.y) >> (8 * (i % 4))));
    } else {
        uint2 d = *(const uint2*)(header + half * 8), m = make_uint2(0, 0);
        if (L::with_min) m = *(const uint2*)(header + 64 + half * 8);
#pragma unroll
        for (int b = 0; b < 4; b++) {
            v[2 * b] = half_to_float((u16)((b < 2 ? d.x : d.y) >> (16 * (b % 2))));
            v[2 * b + 1] = half_to_float((u16)((b < 2 ? m.x : m.y) >> (16 * (b % 2))));
        }
    }
    scales[(2 * half) * 16 + row] = make_float4(v[0], v[1], v[2], v[3]);
    scales[(2 * half + 1) * 16 + row] = make_float4(v[4], v[5], v[6], v[7]);
}

// A float whose lowest bits count: integers below 2^22 added to its bits are added to its value.
#define COUNTING 0x4b400000
#define COUNTING_VALUE 12582912.0f

// The sixteen rows' 32 weights of one block as signed bytes, from nibbles and this lane's share of their high bits.
template <int F>
__device__ __forceinline__ void unpack_weights(u32* a, u32 first, u32 second, uint2 high_first, uint2 high_second, int t) {
    a[0] = first & 0x0f0f0f0f, a[1] = second & 0x0f0f0f0f;
    a[2] = first >> 4 & 0x0f0f0f0f, a[3] = second >> 4 & 0x0f0f0f0f;
    if (Layout<F>::fifth_bit) {
        a[0] |= (high_first.x >> t & 0x01010101) << 4, a[1] |= (high_second.x >> t & 0x01010101) << 4;
        a[2] |= (high_first.x >> (t + 4) & 0x01010101) << 4, a[3] |= (high_second.x >> (t + 4) & 0x01010101) << 4;
    }
    if (F == Q6_K) {
        a[0] |= (high_first.x >> (2 * t) & 0x03030303) << 4, a[1] |= (high_second.x >> (2 * t) & 0x03030303) << 4;
        a[2] |= (high_first.y >> (2 * t) & 0x03030303) << 4, a[3] |= (high_second.y >> (2 * t) & 0x03030303) << 4;
    }
    if (Layout<F>::zero) {
#pragma unroll
        // Less its zero point in each byte, without a borrow between them.
        for (int i = 0; i < 4; i++) a[i] = ((a[i] | 0x80808080) - Layout<F>::zero * 0x01010101u) ^ 0x80808080;
    }
}

// The same for two blocks that follow each other, from a unit in shared memory.
template <int F>
__device__ __forceinline__ void load_pair(const u8* stage, int pair, int lane, u32 (*a)[4]) {
    u32 words[4], more[4];
    u32 slot = shared_address(stage) + lane % 16 * 128 + ((2 * pair + lane / 16) ^ (lane % 8)) * 16;
    load_matrices(words, slot);
    if (F == Q8_0) {
        load_matrices(more, slot + 2048);
#pragma unroll
        for (int b = 0; b < 2; b++) a[b][0] = words[2 * b], a[b][1] = words[2 * b + 1], a[b][2] = more[2 * b], a[b][3] = more[2 * b + 1];
        return;
    }
    uint4 high[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        u32 row = lane / 4 + 8 * r;
        const u8* from = stage + Stage<F>::high;
        if (Layout<F>::fifth_bit) {
            uint2 two = *(const uint2*)(from + row * 32 + pair * 8);
            high[r] = make_uint4(two.x, 0, two.y, 0);
        }
        if (F == Q6_K) high[r] = *(const uint4*)(from + row * 64 + pair * 16);
    }
#pragma unroll
    for (int b = 0; b < 2; b++) {
        uint2 first = b ? make_uint2(high[0].z, high[0].w) : make_uint2(high[0].x, high[0].y);
        uint2 second = b ? make_uint2(high[1].z, high[1].w) : make_uint2(high[1].x, high[1].y);
        unpack_weights<F>(a[b], words[2 * b], words[2 * b + 1], first, second, lane % 4);
    }
}

// A block of a tile's rows, and what belongs to these rows behind them.
__device__ __forceinline__ uint2 load_rows(const u8* tile, int block, int lane) {
    return *(const uint2*)(tile + (block * 32 + lane) * 8);
}

__device__ __forceinline__ const u8* facts_of(const u8* tile) { return tile + 2048; }

// One unit, block by block: adds to `sums`, which a lane has for rows lane / 4 and lane / 4 + 8 and columns 2 (lane % 4) and the
// next of each tile. WHOLE keeps the eight blocks apart.
template <int F, bool WHOLE>
__device__ __forceinline__ void
multiply_blocks(const u8* stage, const u8* input, u32 tile_bytes, float4* scales, int lane, float (*sums)[TILES][4]) {
    constexpr bool WIDE = Layout<F>::super_blocks;
    unpack_scales<F>(stage, scales, lane);
    __syncwarp();
    int g = lane / 4, t = lane % 4;
    float d[2];
    if (F == Q6_K) {
        // Behind the sixteen scales of each of four rows.
        const u8* own = stage + Stage<F>::quants + g / 4 * 80 + 64 + g % 4 * 2;
        d[0] = half_to_float(*(const u16*)own), d[1] = half_to_float(*(const u16*)(own + 160));
    }
    float before[TILES][4], low[TILES][4], upper[TILES][4];
#pragma unroll
    for (int pair = 0; pair < 4; pair++) {
        u32 a[2][4];
        load_pair<F>(stage, pair, lane, a);
        float4 scale[2] = {scales[pair * 16 + g], scales[pair * 16 + g + 8]};
#pragma unroll
        for (int b = 0; b < 2; b++) {
            int j = 2 * pair + b;
#pragma unroll
            for (int n = 0; n < TILES; n++) {
                const u8 *own_input = input + n * tile_bytes, *facts = facts_of(own_input);
                uint2 x = load_rows(own_input, j, lane);
                u32 row = 2 * t;
                float2 x_sum, factor = *(const float2*)(facts + (WIDE ? 128 : (8 + j) * 32) + row * 4);
                if (WIDE && Layout<F>::with_min) x_sum = make_float2(sum_of_digits(facts, row, j), sum_of_digits(facts, row + 1, j));
                else if (Layout<F>::with_min) x_sum = *(const float2*)(facts + j * 32 + row * 4);
                int c[4], e[4];
#pragma unroll
                for (int i = 0; i < 4; i++) c[i] = F == Q6_K ? 0 : COUNTING, e[i] = 0;
                if (F == Q6_K) multiply_16(c, a[b][0], a[b][1], x.x), multiply_16(e, a[b][2], a[b][3], x.y);
                else multiply_32(c, a[b], x);
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    float4 own = scale[i / 2];
                    float s0 = b ? own.z : own.x, s1 = b ? own.w : own.y, term;
                    // Seventeen bits times two are exact, so this rounds once, like the product with the integer.
                    float before_counting = __fmul_rn(s0, -COUNTING_VALUE);
                    if (F == Q6_K) {
                        int whole = __float_as_int(s0) * c[i] + __float_as_int(s1) * e[i];
                        term = __fmul_rn(d[i / 2], (float)whole);
                    } else {
                        term = __fmaf_rn(s0, __int_as_float(c[i]), before_counting);
                        if (Layout<F>::with_min) term = __fmaf_rn(s1, i % 2 ? x_sum.y : x_sum.x, term);
                    }
                    float f = i % 2 ? factor.y : factor.x;
                    if (WHOLE) {
                        sums[j][n][i] = __fmaf_rn(f, term, sums[j][n][i]);
                    } else {
                        float own_sum = __fmul_rn(f, term);
                        if (b == 0) before[n][i] = own_sum;
                        else own_sum = before[n][i] + own_sum;
                        if (b == 1 && pair == 0) low[n][i] = own_sum;
                        if (b == 1 && pair == 1) low[n][i] += own_sum;
                        if (b == 1 && pair == 2) upper[n][i] = own_sum;
                        if (b == 1 && pair == 3) sums[0][n][i] = low[n][i] + (upper[n][i] + own_sum);
                    }
                }
            }
        }
    }
}

// Puts one lane's eight values of a super-block where products read them.
__device__ __forceinline__ void store_8(const float* v, u8* output, u32 row, u32 super, u32 supers, bool wide) {
    Quants own = quantise_8(v, wide);
    int lane = threadIdx.x % WARP, block = lane / 4, part = lane % 4;
    u32 m = row % 8;
    u8* base = output + ((u64)(row / 8) * supers + super) * input_bytes(wide);
#pragma unroll
    for (int w = 0; w < 2; w++) {
        u32 to = (block * 32 + m * 4 + part % 2 * 2 + w) * 8 + part / 2 * 4;
        *(u32*)(base + to) = own.words[w];
    }
    u8* facts = base + 2048;
    int sum = own.sums[0] + own.sums[1];
    if (wide) {
        // Both digits of two blocks in a word, then those of four in two.
        int high = (sum + DIGIT / 2) >> 7;
        u32 two = ((u32)(sum - high * DIGIT) & 0xff | ((u32)high & 0xff) << 16) << block % 2 * 8;
        two |= __shfl_xor_sync(FULL, two, 4);
        u32 next = __shfl_xor_sync(FULL, two, 8);
        uint2 four = make_uint2(two & 0xffff | next << 16, two >> 16 | next & 0xffff0000);
        if (lane % 16 == 0) *(uint2*)(facts + digits_offset(m, block)) = four;
        if (lane == 0) *(float*)(facts + 128 + m * 4) = own.scale;
    } else if (part == 0) {
        float* floats = (float*)facts + m;
        floats[block * 8] = (float)sum, floats[(8 + block) * 8] = own.scale;
    }
}

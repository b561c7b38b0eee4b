// One unit of a product of several rows: sixteen weight rows by one super-block of columns; see `several.cu`.
//
// How it comes into shared memory, how quantised rows stand beside it, and its arithmetic on tensor cores.

#define WARPS 8
#define THREADS (WARPS * WARP)
// Tiles whose rows stand together in the quantised input, and how many such halves a step has.
#define PAIR (TILES >= 2 ? 2 : 1)
#define HALVES (TILES / PAIR)
#define SCALES_BYTES 1024
// Floats between the results of two rows in partial results: a quarter more than there are, against bank conflicts.
#define PARTIAL_STRIDE 20
#define PARTIAL_FLOATS (8 * TILES * PARTIAL_STRIDE)

// Quantised input of a half and super-block: [block][lane] {first, second half of the block's columns} per tile; the sum of
// each block and row; the scale of each row, or of each block and row.
__device__ constexpr u32 input_bytes(bool wide) { return PAIR * (2048 + 256 + (wide ? 32 : 256)); }

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
        u32 low = half ? h.z : h.y, high = h.w >> (16 * half);
        float d = half_to_float((u16)h.x), d_min = half_to_float((u16)(h.x >> 16));
#pragma unroll
        for (int b = 0; b < 4; b++) {
            u32 l = low >> (8 * b), h = high >> (4 * b);
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

// One unit: adds to `sums`, which a lane has for rows lane / 4 and lane / 4 + 8 and columns 2 (lane % 4) and the next of
// each tile. WHOLE keeps the eight blocks apart.
template <int F, bool WHOLE>
__device__ __forceinline__ void
multiply(const u8* stage, const u8* input, u32 half_bytes, float4* scales, int lane, float (*sums)[TILES][4]) {
    constexpr bool WIDE = Layout<F>::super_blocks;
    unpack_scales<F>(stage, scales, lane);
    __syncwarp();
    int g = lane / 4, t = lane % 4;
    u32 quants = shared_address(stage) + (lane % 16) * 128;
    float2 x_scale[TILES];
    float d[2];
#pragma unroll
    for (int n = 0; n < TILES; n++) {
        const float* facts = (const float*)(input + n / PAIR * half_bytes + 2048 * PAIR) + n % PAIR * 8 + 2 * t;
        if (WIDE) x_scale[n] = *(const float2*)(facts + 64 * PAIR);
    }
    if (F == Q6_K) {
        // Behind the sixteen scales of each of four rows.
        const u8* own = stage + Stage<F>::quants + g / 4 * 80 + 64 + g % 4 * 2;
        d[0] = half_to_float(*(const u16*)own), d[1] = half_to_float(*(const u16*)(own + 160));
    }
    float before[TILES][4], low[TILES][4], upper[TILES][4];
#pragma unroll
    for (int pair = 0; pair < 4; pair++) {
        u32 words[4], more[4];
        u32 place = ((2 * pair + lane / 16) ^ (lane % 8)) * 16;
        load_matrices(words, quants + place);
        if (F == Q8_0) load_matrices(more, quants + 2048 + place);
        uint4 high[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const u8* from = stage + Stage<F>::high;
            if (Layout<F>::fifth_bit) {
                uint2 two = *(const uint2*)(from + (g + 8 * r) * 32 + pair * 8);
                high[r] = make_uint4(two.x, 0, two.y, 0);
            }
            if (F == Q6_K) high[r] = *(const uint4*)(from + (g + 8 * r) * 64 + pair * 16);
        }
        float4 scale[2] = {scales[pair * 16 + g], scales[pair * 16 + g + 8]};
#pragma unroll
        for (int b = 0; b < 2; b++) {
            int j = 2 * pair + b;
            u32 a[4];
            if (F == Q8_0) {
                a[0] = words[2 * b], a[1] = words[2 * b + 1], a[2] = more[2 * b], a[3] = more[2 * b + 1];
            } else {
                uint2 first = b ? make_uint2(high[0].z, high[0].w) : make_uint2(high[0].x, high[0].y);
                uint2 second = b ? make_uint2(high[1].z, high[1].w) : make_uint2(high[1].x, high[1].y);
                unpack_weights<F>(a, words[2 * b], words[2 * b + 1], first, second, t);
            }
            uint2 x[TILES];
#pragma unroll
            for (int half = 0; half < HALVES; half++) {
                const u8* from = input + half * half_bytes + (j * 32 + lane) * 8 * PAIR;
                if (PAIR == 1) {
                    x[half] = *(const uint2*)from;
                } else {
                    uint4 both = *(const uint4*)from;
                    x[half * PAIR] = make_uint2(both.x, both.y), x[half * PAIR + PAIR - 1] = make_uint2(both.z, both.w);
                }
            }
#pragma unroll
            for (int n = 0; n < TILES; n++) {
                const float* facts = (const float*)(input + n / PAIR * half_bytes + 2048 * PAIR) + n % PAIR * 8 + 2 * t;
                float2 x_sum, factor = x_scale[n];
                if (Layout<F>::with_min) x_sum = *(const float2*)(facts + j * 8 * PAIR);
                if (!WIDE) factor = *(const float2*)(facts + (8 + j) * 8 * PAIR);
                int c[4], e[4];
#pragma unroll
                for (int i = 0; i < 4; i++) c[i] = F == Q6_K ? 0 : COUNTING, e[i] = 0;
                if (F == Q6_K) multiply_16(c, a[0], a[1], x[n].x), multiply_16(e, a[2], a[3], x[n].y);
                else multiply_32(c, a, x[n]);
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
    u32 m = row % (8 * PAIR);
    u8* base = output + ((u64)(row / (8 * PAIR)) * supers + super) * input_bytes(wide);
#pragma unroll
    for (int w = 0; w < 2; w++) {
        u32 to = ((block * 32 + m % 8 * 4 + part % 2 * 2 + w) * PAIR + m / 8) * 8 + part / 2 * 4;
        *(u32*)(base + to) = own.words[w];
    }
    if (part == 0) {
        float* facts = (float*)(base + 2048 * PAIR) + m;
        facts[block * 8 * PAIR] = (float)(own.sums[0] + own.sums[1]);
        if (!wide || block == 0) facts[(8 + block) * 8 * PAIR] = own.scale;
    }
}

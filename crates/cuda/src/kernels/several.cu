// Matrix times 2 to 32 rows, on tensor cores.
//
//   out[m][n] = sum_k W[n][k] * x[m][k]     m < 8 * TILES (compiled for 1, 2 or 4 tiles of eight rows)
//
// Bytes: the packed weights, once, whatever the number of rows; quantised rows once per block, from the cache.
// Work: one 16 x 8 x 32 integer product per sixteen weight rows, block of 32 columns and tile; what costs is turning its 128
// sums into floats, four instructions each. At sixteen rows that is as long as reading the weights (H200, counted): 549
// instructions a unit, one every two cycles with eight warps. Twelve or sixteen warps a block were no faster (2026-11-16),
// because then no other kernel fits beside.
//
// A unit is sixteen weight rows (a group: four tiles of the packed layout, or two of a gate and two of its up) by one
// super-block of columns, one warp's work. Rows are quantised into the order in which lanes feed them to the tensor cores:
// once for all, by `settle`, where every block needs all of them. The sums of `product.cu`, bit for bit: integers inside a block of 32 are exact,
// and floats are added in the same order: eight blocks in a tree, then super-blocks in order; or, where a product has
// one slice, super-blocks in order for each of the eight, then the tree (`WHOLE`).
//
// Matrices whose result is added to the residual are cut along the columns too, or every block would read all of a long
// row: `several_partial` quantises its columns of the rows itself and leaves one sum per super-block, and the `settle` of
// whoever reads the residual next adds them.

#ifndef WARPS
#define WARPS 8
#endif
#define THREADS (WARPS * WARP)
// Tiles whose rows stand together in the quantised input, and how many such halves a step has.
#define PAIR (TILES >= 2 ? 2 : 1)
#define HALVES (TILES / PAIR)
#define SCALES_BYTES 1024
// Floats between the results of two rows in partial results: a quarter more than there are, against bank conflicts.
#define PARTIAL_STRIDE 20
#define PARTIAL_FLOATS (8 * TILES * PARTIAL_STRIDE)

#define PARTIAL 4

extern __shared__ __align__(128) u8 shared[];

struct Several {
    Segment segments[3];
    const u8* input;      // From `settle`; `several_partial`: floats, [row][columns].
    float* output;
    u64* candidates;      // Logits only: the best entry of each block, [row][block].
    u32 supers;
    u32 rows;             // Rows in use.
    u32 output_stride;
    u32 splits;           // Parts the columns are cut into; `several_partial` only.
    u32 wave;             // Groups whose partial results fit.
    u32 columns;
    const u32* chosen;    // Experts only: which each row visits, [row][used].
    u32 slice_rows;       // Rows of a slice of `several_partial`'s output.
    u32 used;
};

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
            v[2 * b] = __fmul_rn(d, (float)((l & 15) | (h & 3) << 4));
            v[2 * b + 1] = -__fmul_rn(d_min, (float)((l >> 4 & 15) | (h >> 2 & 3) << 4));
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

__device__ __forceinline__ void multiply_32(int* c, const u32* a, uint2 b) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.x), "r"(b.y));
}

__device__ __forceinline__ void multiply_16(int* c, u32 a0, u32 a1, u32 b) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a0), "r"(a1), "r"(b));
}

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

// What a block has to do: groups of rows by super-blocks of columns.
struct Share {
    u32 first_group, groups;
    u32 first_super, supers;
};

template <int KIND>
__device__ __forceinline__ Share share_of(const Several& p, const Segment& s) {
    u32 block = blockIdx.x - s.first_block, splits = KIND == PARTIAL ? p.splits : 1;
    u32 split = block % splits, blocks = s.blocks / splits;
    u32 tiles = KIND == GATE ? 2 : 4, groups = (s.tiles + tiles - 1) / tiles;
    Share share;
    block /= splits;
    bool works = block < blocks;
    share.first_group = works ? (u64)groups * block / blocks : 0;
    share.groups = works ? (u64)groups * (block + 1) / blocks - share.first_group : 0;
    share.first_super = split * p.supers / splits;
    share.supers = (split + 1) * p.supers / splits - share.first_super;
    return share;
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

// Waits for the rows of this share and copies them into shared memory.
__device__ __forceinline__ void take_input(const Several& p, const Share& share, bool wide, u8* input) {
    wait_for_previous();
    u32 bytes = share.supers * input_bytes(wide);
#pragma unroll
    for (int half = 0; half < HALVES; half++) {
        const u8* from = p.input + (u64)(half * p.supers + share.first_super) * input_bytes(wide);
        u32 to = shared_address(input) + half * bytes;
        for (u32 at = threadIdx.x * 16; at < bytes; at += THREADS * 16) copy_16(to + at, from + at);
    }
    copies_commit();
    copies_wait<0>();
    __syncthreads();
}

// The same for rows that are not quantised yet.
__device__ __forceinline__ void quantise_input(const Several& p, const Share& share, bool wide, u8* input) {
    constexpr int LOADS = 4;
    u32 items = share.supers * p.rows, lane = threadIdx.x % WARP;
    wait_for_previous();
    for (u32 first = threadIdx.x / WARP; first < items; first += LOADS * WARPS) {
        float v[LOADS][8];
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            u32 item = first + i * WARPS, super = share.first_super + item / p.rows;
            // Past the end of a row there are zeros.
            u32 column = item < items ? super * SUPER + lane * 8 : p.columns;
            load_8((const float*)p.input + (u64)(item % p.rows) * p.columns, column, p.columns, v[i]);
        }
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            u32 item = first + i * WARPS;
            if (item < items) store_8(v[i], input, item % p.rows, item / p.rows, share.supers, wide);
        }
    }
    __syncthreads();
}

// Stores a result, or notes a candidate too.
template <int KIND>
__device__ __forceinline__ void finish(const Several& p, const Segment& s, u32 m, u32 row, float value, float up, u64* best) {
    if (row >= s.rows || m >= p.rows) return;
    float* out = p.output + (u64)m * p.output_stride + s.output + row;
    if (KIND == GATE) {
        *out = value / (1.0f + expf(-value)) * up;
        return;
    }
    if (s.bias) value += s.bias[row];
    *out = value;
    if (KIND == LOGITS) {
        u64 own = candidate(value, row);
        if (own > *best) *best = own;
    }
}

// The units a warp takes, in order: every eighth; or, where groups are added up as a whole, all of every eighth group.
struct Walk {
    u32 group, super, group_step, super_step;

    __device__ __forceinline__ Walk(u32 warp, u32 supers, bool whole) {
        u32 units = whole ? 1 : supers;
        group = warp / units, super = warp % units;
        group_step = WARPS / units, super_step = whole ? 1 : WARPS % units;
    }

    __device__ __forceinline__ void next(u32 supers, bool whole) {
        super += super_step;
        if (whole) {
            if (super == supers) super = 0, group += WARPS;
            return;
        }
        group += group_step;
        if (super >= supers) super -= supers, group++;
    }
};

template <int F, int KIND, bool WHOLE, bool PLAIN>
__device__ __forceinline__ void run(const Several& p, const Segment& s, u64* best) {
    constexpr bool WIDE = Layout<F>::super_blocks;
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    Share share = share_of<KIND>(p, s);
    u32 supers = share.supers, half_bytes = supers * input_bytes(WIDE);
    float4* scales = (float4*)(shared + HALVES * half_bytes) + warp * SCALES_BYTES / 16;
    float* partial = (float*)(shared + HALVES * half_bytes + WARPS * SCALES_BYTES);
    u32 kept = KIND == PARTIAL || WHOLE ? 0 : p.wave * supers * PARTIAL_FLOATS * 4;
    u8* ring = (u8*)partial + kept + warp * DEPTH * Stage<F>::bytes;
    u32 ring_address = shared_address(ring);
    Copies<F, KIND == GATE> copies(s, p.supers, lane);
    Walk ahead(warp, supers, WHOLE), now = ahead;
    auto issue = [&](int slot) {
        if (ahead.group < share.groups) {
            u32 group = share.first_group + ahead.group, super = share.first_super + ahead.super;
            copies.start(group, super, ring_address + slot * Stage<F>::bytes, lane);
            ahead.next(supers, WHOLE);
        }
        copies_commit();
    };
#pragma unroll
    for (int slot = 0; slot < DEPTH - 1; slot++) issue(slot);
    if (PLAIN) quantise_input(p, share, WIDE, shared);
    else take_input(p, share, WIDE, shared);
    int slot = 0;
    auto next = [&]() {
        copies_wait<DEPTH - 2>();
        __syncwarp();
        // The slot refilled here is the one read in the step before; all lanes are done with it.
        issue(slot == 0 ? DEPTH - 1 : slot - 1);
    };
    if (WHOLE) {
        u64 own[2 * TILES] = {};
        for (u32 group = warp; group < share.groups; group += WARPS) {
            float sums[8][TILES][4] = {};
            for (u32 super = 0; super < supers; super++) {
                next();
                const u8* input = shared + super * input_bytes(WIDE);
                multiply<F, true>(ring + slot * Stage<F>::bytes, input, half_bytes, scales, lane, sums);
                slot = slot == DEPTH - 1 ? 0 : slot + 1;
            }
#pragma unroll
            for (int n = 0; n < TILES; n++) {
                float v[4];
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    v[i] = ((sums[0][n][i] + sums[1][n][i]) + (sums[2][n][i] + sums[3][n][i])) +
                           ((sums[4][n][i] + sums[5][n][i]) + (sums[6][n][i] + sums[7][n][i]));
                }
                u32 row = (share.first_group + group) * (KIND == GATE ? 8 : 16) + g, m = n * 8 + 2 * t;
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    finish<KIND>(p, s, m + i, row, v[i], v[i + 2], &own[2 * n + i]);
                    if (KIND != GATE) finish<KIND>(p, s, m + i, row + 8, v[i + 2], 0.0f, &own[2 * n + i]);
                }
            }
        }
        if (KIND == LOGITS) {
#pragma unroll
            for (int i = 0; i < 2 * TILES; i++) atomicMax(&best[i / 2 * 8 + 2 * t + i % 2], own[i]);
        }
        return;
    }
    for (u32 wave = 0; wave < share.groups; wave += p.wave) {
        u32 groups = min(p.wave, share.groups - wave);
        for (; now.group < wave + groups; now.next(supers, false)) {
            next();
            float sums[1][TILES][4];
            u32 group = now.group, super = now.super;
            const u8* input = shared + super * input_bytes(WIDE);
            multiply<F, false>(ring + slot * Stage<F>::bytes, input, half_bytes, scales, lane, sums);
            slot = slot == DEPTH - 1 ? 0 : slot + 1;
            float* own = partial + ((group - wave) * supers + super) * PARTIAL_FLOATS + g;
#pragma unroll
            for (int at = 0; at < 4 * TILES; at++) {
                int n = at / 4, i = at % 4;
                u32 m = n * 8 + 2 * t + i % 2, row = (share.first_group + group) * 16 + g + i / 2 * 8;
                if (KIND == PARTIAL) {
                    float* out = p.output + ((u64)(share.first_super + super) * p.slice_rows + m) * p.output_stride + row;
                    if (m < p.rows && row < s.rows) *out = sums[0][n][i];
                } else {
                    own[m * PARTIAL_STRIDE + i / 2 * 8] = sums[0][n][i];
                }
            }
        }
        if (KIND == PARTIAL) continue;
        __syncthreads();
        constexpr u32 EACH = KIND == GATE ? 8 : 16;
        for (u32 at = threadIdx.x; at < groups * EACH * p.rows; at += THREADS) {
            u32 r = at % EACH, m = at / EACH % p.rows, group = at / EACH / p.rows;
            const float* own = partial + group * supers * PARTIAL_FLOATS + m * PARTIAL_STRIDE + r;
            float value = 0.0f, up = 0.0f;
#pragma unroll 4
            for (u32 super = 0; super < supers; super++) {
                value += own[super * PARTIAL_FLOATS];
                if (KIND == GATE) up += own[super * PARTIAL_FLOATS + 8];
            }
            u64 found = 0;
            finish<KIND>(p, s, m, (share.first_group + wave + group) * EACH + r, value, up, &found);
            if (KIND == LOGITS) atomicMax(&best[m], found);
        }
        if (wave + p.wave < share.groups) __syncthreads();
    }
}

template <int KIND, bool WHOLE>
__device__ __forceinline__ void several(const Several& p) {
    __shared__ u64 best[8 * TILES];
    let_next_start();
    if (threadIdx.x < 8 * TILES) best[threadIdx.x] = 0;
    int which = 0;
    if (blockIdx.x >= p.segments[1].first_block) which = 1;
    if (blockIdx.x >= p.segments[2].first_block) which = 2;
    const Segment& s = p.segments[which];
#define WORK(F) run<F, KIND, WHOLE, KIND == PARTIAL>(p, s, best)
    FOR_FORMAT(s.format, WORK)
#undef WORK
    if (KIND == LOGITS) {
        __syncthreads();
        if (threadIdx.x < p.rows) p.candidates[threadIdx.x * gridDim.x + blockIdx.x] = best[threadIdx.x];
    }
}

#define KERNEL(name, kind, whole, blocks) \
    extern "C" __global__ void __launch_bounds__(THREADS, blocks) name(const __grid_constant__ Several p) { \
        several<kind, whole>(p); \
    }
KERNEL(several_store, STORE, false, 2)
KERNEL(several_partial, PARTIAL, false, 2)
KERNEL(several_gate, GATE, false, 2)
KERNEL(several_gate_whole, GATE, true, 1)
KERNEL(several_logits, LOGITS, false, 2)
KERNEL(several_logits_whole, LOGITS, true, 1)

#if TILES == 1
// The products of a mixture of experts: blockIdx.y is a row's visit to an expert, one row through that expert's matrices,
// which stand behind each other. Input and output are floats: [row] or [visit][columns], and [visit][stride] or slices.
template <int KIND>
__device__ __forceinline__ void experts(const Several& p) {
    let_next_start();
    // Which expert it is the kernel before says, or one before that.
    wait_for_previous();
    u32 visit = blockIdx.y, row = visit / p.used, slot = visit % p.used, expert = __ldcg(p.chosen + visit);
    Several own = p;
    Segment s = p.segments[0];
    u64 bytes = 0;
#define WORK(F) bytes = (u64)s.tiles * p.supers * Layout<F>::chunk
    FOR_FORMAT(s.format, WORK)
#undef WORK
    s.weights += expert * bytes, s.second += KIND == GATE ? expert * bytes : 0;
    own.rows = 1;
    own.input += (u64)(KIND == GATE ? row : visit) * p.columns * 4;
    own.output += (KIND == GATE ? (u64)visit : (u64)slot * p.supers * p.slice_rows + row) * p.output_stride;
#define WORK(F) run<F, KIND, false, true>(own, s, 0)
    FOR_FORMAT(s.format, WORK)
#undef WORK
}

extern "C" __global__ void __launch_bounds__(THREADS, 2) experts_gate(const __grid_constant__ Several p) {
    experts<GATE>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS, 2) experts_partial(const __grid_constant__ Several p) {
    experts<PARTIAL>(p);
}

// Which experts a row visits: the likeliest of a softmax over all, with their shares scaled to sum to one, in the order of
// their numbers. A warp has one expert's score; the last block of a row chooses.
struct Route {
    const float* input;    // [row][columns], normalised
    const float* router;   // [expert][columns]
    float* scores;         // [row][count]
    u32* arrived;          // [row], zero between kernels
    u32* chosen;           // [row][used]
    float* shares;         // [row][used]
    u32 columns;
    u32 count;             // At most 256.
    u32 used;              // At most 32.
    u32 padding;
};

extern "C" __global__ void __launch_bounds__(SUPER) route(const __grid_constant__ Route p) {
    __shared__ u32 is_last;
    u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, row = blockIdx.y, expert = blockIdx.x * 8 + warp;
    const float* router = p.router + (u64)expert * p.columns;
    let_next_start();
    if (expert < p.count) {
        for (u32 c = lane * 32; c < p.columns; c += WARP * 32) asm volatile("prefetch.global.L2 [%0];" ::"l"(router + c));
    }
    wait_for_previous();
    if (expert < p.count) {
        const float* x = p.input + (u64)row * p.columns;
        float sum = 0.0f;
#pragma unroll 8
        for (u32 c = lane * 4; c < p.columns; c += WARP * 4) {
            float4 a = __ldcg((const float4*)(x + c)), b = *(const float4*)(router + c);
            sum = __fmaf_rn(a.x, b.x, sum), sum = __fmaf_rn(a.y, b.y, sum);
            sum = __fmaf_rn(a.z, b.z, sum), sum = __fmaf_rn(a.w, b.w, sum);
        }
        sum = warp_sum(sum);
        if (lane == 0) p.scores[row * p.count + expert] = sum;
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        is_last = atomicAdd(p.arrived + row, 1) == gridDim.x - 1;
        if (is_last) p.arrived[row] = 0;
        __threadfence();
    }
    __syncthreads();
    if (!is_last || warp != 0) return;
    u64 keys[8];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        u32 e = lane + i * WARP;
        keys[i] = e < p.count ? candidate(__ldcg(p.scores + row * p.count + e), e) : 0;
    }
    u32 own = 0;
    float share = 0.0f, largest = 0.0f, total = 0.0f;
    for (u32 k = 0; k < p.used; k++) {
        u64 best = 0;
#pragma unroll
        for (int i = 0; i < 8; i++) best = keys[i] > best ? keys[i] : best;
        for (int step = 16; step > 0; step /= 2) {
            u64 other = __shfl_xor_sync(FULL, best, step);
            best = other > best ? other : best;
        }
#pragma unroll
        for (int i = 0; i < 8; i++) keys[i] = keys[i] == best ? 0 : keys[i];
        u32 found = 0xffffffffu - (u32)best;
        float score = __ldcg(p.scores + row * p.count + found);
        if (k == 0) largest = score;
        float here = expf(score - largest);
        total += here;
        if (lane == k) own = found, share = here;
    }
    u32 place = 0;
    for (u32 k = 0; k < p.used; k++) place += __shfl_sync(FULL, own, k) < own;
    if (lane < p.used) p.chosen[row * p.used + place] = own, p.shares[row * p.used + place] = share / total;
}
#endif

// Adds what `several_partial` left to the residual, then normalises and quantises it. The super-blocks of a row are dealt
// out to the blocks of gridDim.x, which tell each other the sums of their squares: through each other's shared memory, or,
// on cards that cannot, the last one to arrive does the rest of the row. At sixteen rows of the 1.5B (H200, by leaving it out)
// that way took 5.4 us, and the first one 4.7 while the loads of what is added still waited for each other.
struct Settle {
    float* x;              // [row][columns]
    const float* partial;  // [slice][row][columns]; null when there is nothing to add
    const float* bias;
    const float* norm;
    float* squares;        // [row][super]
    u32* arrived;          // [row], zero between kernels
    u8* output;
    float epsilon;
    u32 columns;
    u32 supers;
    u32 slices;
    u32 rows;
    u32 wide;
    float* normed;         // [row][columns], where the normalised row is wanted too.
    const float* shares;   // [row][visit]: slices are those of visits to experts, each with its share.
    u32 visits;
    u32 padding;
};

// Super-blocks of a row that one block may have.
#define OWN_MAX 8
#define SUPERS_MAX (8 * OWN_MAX)

// One element of the residual, with what is added to it. All slices are copied into shared memory at once: loads into
// registers wait for each other, because the sum is in their order.
__device__ __forceinline__ float settled(const Settle& p, u32 row, u32 super, float (*slices)[SUPER]) {
    u32 column = super * SUPER + threadIdx.x, piece = threadIdx.x % 64;
    float* x = p.x + (u64)row * p.columns + column;
    float value = column < p.columns ? __ldcg(x) : 0.0f;
    if (!p.partial) return value;
    if (super * SUPER + piece * 4 < p.columns) {
        const float* from = p.partial + (u64)row * p.columns + super * SUPER + piece * 4;
        for (u32 s = threadIdx.x / 64; s < p.slices; s += SUPER / 64) {
            copy_16(shared_address(&slices[s][piece * 4]), from + (u64)s * p.rows * p.columns);
        }
    }
    copies_commit();
    copies_wait<0>();
    __syncthreads();
    if (column < p.columns) {
        u32 each = p.slices / p.visits;
        for (u32 visit = 0; visit < p.visits; visit++) {
            float sum = 0.0f;
#pragma unroll 16
            for (u32 s = visit * each; s < (visit + 1) * each; s++) sum += slices[s][threadIdx.x];
            if (p.bias) sum += p.bias[column];
            if (p.shares) sum = __fmul_rn(__ldcg(p.shares + row * p.visits + visit), sum);
            value = sum + value;
        }
        *x = value;
    }
    __syncthreads();
    return value;
}

__device__ __forceinline__ float norm_scale(const Settle& p, float total) {
    total = warp_sum(total);
    return __fdiv_rn(1.0f, __fsqrt_rn(__fdiv_rn(total, (float)p.columns) + p.epsilon));
}

__device__ __forceinline__ void finish_super(const Settle& p, u32 row, u32 super, float* v, float scale, const float* w) {
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = __fmul_rn(__fmul_rn(v[i], scale), w[i]);
    u32 column = super * SUPER + threadIdx.x % WARP * 8;
    if (p.normed && column < p.columns) {
        float4* out = (float4*)(p.normed + (u64)row * p.columns + column);
        out[0] = make_float4(v[0], v[1], v[2], v[3]), out[1] = make_float4(v[4], v[5], v[6], v[7]);
    }
    store_8(v, p.output, row, super, p.supers, p.wide);
}

extern "C" __global__ void __launch_bounds__(SUPER) settle(const __grid_constant__ Settle p) {
    __shared__ __align__(16) float staged[OWN_MAX][SUPER];
    __shared__ float squares[SUPERS_MAX];
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    u32 row = blockIdx.y, blocks = gridDim.x, own = blockIdx.x + warp * blocks;
    float v[8], w[8], sum = 0.0f, total = 0.0f;
    let_next_start();
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.relaxed.aligned;");
#endif
    load_8(p.norm, own * SUPER + lane * 8, p.columns, w);
    wait_for_previous();
    for (u32 super = blockIdx.x, k = 0; super < p.supers; super += blocks, k++) {
        staged[k][threadIdx.x] = settled(p, row, super, (float(*)[SUPER])shared);
    }
    __syncthreads();
    if (own < p.supers) {
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] = staged[warp][lane * 8 + i], sum = __fmaf_rn(v[i], v[i], sum);
        sum = warp_sum(sum);
    }
#if __CUDA_ARCH__ >= 900
    // All blocks have begun; now each writes into the shared memory of all.
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
    if (own < p.supers && lane < blocks) {
        u32 there;
        asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(squares + own)), "r"(lane));
        asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(there), "f"(sum) : "memory");
    }
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
    if (own >= p.supers) return;
    for (u32 i = lane; i < p.supers; i += WARP) total += squares[i];
    finish_super(p, row, own, v, norm_scale(p, total), w);
#else
    __shared__ u32 is_last;
    if (lane == 0 && own < p.supers) p.squares[row * p.supers + own] = sum;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        is_last = atomicAdd(p.arrived + row, 1) == blocks - 1;
        if (is_last) p.arrived[row] = 0;
        __threadfence();
    }
    __syncthreads();
    if (!is_last) return;
    for (u32 i = lane; i < p.supers; i += WARP) total += __ldcg(p.squares + row * p.supers + i);
    float scale = norm_scale(p, total);
    for (u32 super = warp; super < p.supers; super += SUPER / WARP) {
        load_8(p.x + (u64)row * p.columns, super * SUPER + lane * 8, p.columns, v);
        load_8(p.norm, super * SUPER + lane * 8, p.columns, w);
        finish_super(p, row, super, v, scale, w);
    }
#endif
}

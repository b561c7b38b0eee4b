// Attention of single rows over the cache, split along the positions, on tensor cores.
//
//   out[row][head] = softmax(q . k) v     over positions 0 ..= position of the row
//
// Bytes: keys and values of all positions once per KV head. The query heads that share them, up to eight, are the rows
// of a 16 x 8 x 16 product; the other eight rows hold what rounding a query (or a weight) to half precision left over,
// times 2048. So keys and values go from memory into the registers the tensor cores read, unchanged, and the result is
// as good as one in 32-bit floats. A warp takes 16 positions at a time, a block 256.
//
// A row's positions are cut into at most 64 chunks, whose length depends on the position alone, so the result of a row
// does not depend on what else is in the batch. Partial results are merged in the order of the chunks.
//
// Compiled for HEAD elements per head and GROUP query heads per block.

#define SPLITS 64
#define UNIT 16
#define ATTENTION_WARPS 16
#define CHUNK_MIN (ATTENTION_WARPS * UNIT)
#define LEFT_OVER 2048.0f
// A lane's pieces of eight elements of a key, and of a value.
#define KEY_PIECES ((HEAD + 31) / 32)
#define VALUE_PIECES ((HEAD + 63) / 64)

struct Attention {
    Heads heads;
    float* output;         // [row][heads * HEAD]
    float* partial;        // [row][head][SPLITS][HEAD + 2]: largest score, sum of weights, sums
    u32* arrived;          // [row][blockIdx.y], zero between kernels
    u32 store;             // Write this row's key and value first: only where every row has its own sequence.
};

struct AttentionShared {
    uint4 queries[2 * KEY_PIECES][WARP];      // As the tensor cores read them.
    u16 fresh[2][HEAD];                       // This row's own key and value.
    float largest[8][ATTENTION_WARPS];        // of each head and warp
    float total[8][ATTENTION_WARPS];
    float factor[8][ATTENTION_WARPS];
    float all_largest[8];
    float all_total[8];
    union {
        float staged[GROUP + 2][HEAD];
        float sums[ATTENTION_WARPS][GROUP][HEAD];
        struct {
            float weights[GROUP][SPLITS];
            float totals[GROUP][SPLITS];
            float values[GROUP * HEAD + SPLITS];
        } merge;
    };
    u32 is_last;
};
static_assert(sizeof(AttentionShared) <= ATTENTION_BYTES, "the host gives attention enough shared memory");

// The chunk of positions a block works on.
struct Span {
    u32 start, end;        // of this chunk
    u32 length;            // of the whole row
    u32 split, splits;
    u32 part, kv_head;
};

__device__ __forceinline__ u32 chunk_of(u32 length) {
    u32 chunk = CHUNK_MIN;
    while (chunk * SPLITS < length) chunk *= 2;
    return chunk;
}

__device__ __forceinline__ Span span_of(const Heads& s, u32 position, u32 split, u32 part) {
    u32 length = position + 1, chunk = chunk_of(length), start = split * chunk;
    return {start, min(start + chunk, length), length, split, (length + chunk - 1) / chunk, part,
            part * GROUP / (s.heads / s.kv_heads)};
}

// Of sixteen positions a lane has the keys of 8 i + lane / 4, and the values of 2 t, 2 t + 1, 2 t + 8 and 2 t + 9 with
// t = lane % 4.
__device__ __forceinline__ u32 value_place(int i, int lane) {
    return lane % 4 * 2 + i % 2 + i / 2 * 8;
}

// The keys of eight positions.
__device__ __forceinline__ void load_keys(const u16* base, int lane, uint4* keys) {
#pragma unroll
    for (int j = 0; j < KEY_PIECES; j++) {
        int piece = lane % 4 + 4 * j;
        keys[j] = make_uint4(0, 0, 0, 0);
        if (piece * 8 < HEAD) keys[j] = __ldcg((const uint4*)(base + lane / 4 * HEAD + piece * 8));
    }
}

// Sixteen positions come into the second-level cache.
__device__ __forceinline__ void foresee(const u16* base, int lane) {
    for (int at = lane * 64; at < UNIT * HEAD; at += WARP * 64) asm volatile("prefetch.global.L2 [%0];" ::"l"(base + at));
}

__device__ __forceinline__ void load_values(const u16* base, int lane, uint4 (*values)[VALUE_PIECES]) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
#pragma unroll
        for (int j = 0; j < VALUE_PIECES; j++) {
            int piece = lane / 4 + 8 * j;
            values[i][j] = make_uint4(0, 0, 0, 0);
            if (piece * 8 < HEAD) values[i][j] = __ldcg((const uint4*)(base + value_place(i, lane) * HEAD + piece * 8));
        }
    }
}

// The row's own key comes from shared memory, where `fresh` is given. `first` is the first of the eight positions.
__device__ __forceinline__ void patch_keys(uint4* keys, u32 first, u32 position, const u16 (*fresh)[HEAD], int lane) {
    if (!fresh || first + lane / 4 != position) return;
#pragma unroll
    for (int j = 0; j < KEY_PIECES; j++) {
        int piece = lane % 4 + 4 * j;
        if (piece * 8 < HEAD) keys[j] = *(const uint4*)(fresh[0] + piece * 8);
    }
}

// So does its value; and what is past the end of the row may be anything and becomes zero.
__device__ __forceinline__ void
patch_values(uint4 (*values)[VALUE_PIECES], u32 first, u32 position, const u16 (*fresh)[HEAD], int lane) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        u32 at = first + value_place(i, lane);
        bool own = fresh && at == position;
        if (!own && at <= position) continue;
#pragma unroll
        for (int j = 0; j < VALUE_PIECES; j++) {
            int piece = lane / 4 + 8 * j;
            values[i][j] = make_uint4(0, 0, 0, 0);
            if (own && piece * 8 < HEAD) values[i][j] = *(const uint4*)(fresh[1] + piece * 8);
        }
    }
}

// Two numbers in half precision, and what that leaves over.
__device__ __forceinline__ uint2 with_left_over(float a, float b) {
    u32 both = pack_halves(a, b);
    float2 rounded = unpack_halves(both);
    return make_uint2(both, pack_halves((a - rounded.x) * LEFT_OVER, (b - rounded.y) * LEFT_OVER));
}

// A warp's running result: head lane / 4, and of each piece the elements 16 (lane % 4) and following.
struct Running {
    float largest, total;
    float sums[8 * VALUE_PIECES][4];
};

// Queries times the keys of eight positions: two sums that are added up later, to halve the chain.
__device__ __forceinline__ void score(const AttentionShared& shared, const uint4* keys, int lane, float (*c)[4]) {
#pragma unroll
    for (int j = 0; j < KEY_PIECES; j++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint4 q = shared.queries[j * 2 + half][lane];
            u32 a[4] = {q.x, q.y, q.z, q.w};
            u32 b[2] = {half ? keys[j].z : keys[j].x, half ? keys[j].w : keys[j].y};
            multiply_add(c[half], a, b);
        }
    }
}

// From scores to weights: of head lane / 4, positions 8 i + 2 (lane % 4) and the next. Gives the factor for what was summed
// before.
__device__ __forceinline__ float
weigh(float (*c)[2][4], u32 first, u32 length, int lane, Running& r, u32* weights) {
    float scores[2][2], largest = r.largest;
#pragma unroll
    for (int i = 0; i < 2; i++) {
#pragma unroll
        for (int e = 0; e < 2; e++) {
            float rest = c[i][0][e + 2] + c[i][1][e + 2];
            float score = __fmaf_rn(rest, 1.0f / LEFT_OVER, c[i][0][e] + c[i][1][e]);
            scores[i][e] = first + i * 8 + lane % 4 * 2 + e < length ? score : -INFINITY;
            largest = fmaxf(largest, scores[i][e]);
        }
    }
    largest = fmaxf(largest, __shfl_xor_sync(FULL, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(FULL, largest, 2));
    float factor = expf(r.largest - largest);
    r.total *= factor;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float p0 = expf(scores[i][0] - largest), p1 = expf(scores[i][1] - largest);
        r.total += p0 + p1;
        uint2 both = with_left_over(p0, p1);
        weights[2 * i] = both.x, weights[2 * i + 1] = both.y;
    }
    r.largest = largest;
    return factor;
}

__device__ __forceinline__ void sum_values(const uint4 (*values)[VALUE_PIECES], const u32* weights, Running& r) {
#pragma unroll
    for (int j = 0; j < VALUE_PIECES; j++) {
        u32 words[4][4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint4 v = values[i][j];
            words[i][0] = v.x, words[i][1] = v.y, words[i][2] = v.z, words[i][3] = v.w;
        }
#pragma unroll
        for (int e = 0; e < 8; e++) {
            // The same element of two positions that follow each other.
            u32 pick = e % 2 ? 0x7632 : 0x5410;
            u32 b[2] = {__byte_perm(words[0][e / 2], words[1][e / 2], pick),
                        __byte_perm(words[2][e / 2], words[3][e / 2], pick)};
            multiply_add(r.sums[j * 8 + e], weights, b);
        }
    }
}

// Sixteen positions; the first ones have their keys loaded already and nothing summed before.
template <bool FIRST>
__device__ __forceinline__ void
take_unit(const Heads& s, const u16* base, u32 first, u32 length, const AttentionShared& shared, bool own_fresh, uint4 (*keys)[KEY_PIECES], Running& r) {
    int lane = threadIdx.x % WARP;
    const u16 (*fresh)[HEAD] = own_fresh ? shared.fresh : 0;
    bool last = first + UNIT >= length;
    float c[2][2][4] = {};
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (!FIRST) load_keys(base + i * 8 * HEAD, lane, keys[i]);
        if (last) patch_keys(keys[i], first + i * 8, length - 1, fresh, lane);
        score(shared, keys[i], lane, c[i]);
    }
    uint4 values[4][VALUE_PIECES];
    load_values(base + s.kv_heads * KV_BLOCK * HEAD, lane, values);
    u32 weights[4];
    float factor = weigh(c, first, length, lane, r, weights);
    if (last) patch_values(values, first, length - 1, fresh, lane);
    if (!FIRST) {
#pragma unroll
        for (int n = 0; n < 8 * VALUE_PIECES; n++) {
#pragma unroll
            for (int c = 0; c < 4; c++) r.sums[n][c] *= factor;
        }
    }
    sum_values(values, weights, r);
}

// A warp's positions of the chunk. `keys` holds those of the first sixteen already. The next sixteen are brought near while
// these are worked on; more in registers would not fit beside the sums.
__device__ __forceinline__ Running
walk(const Heads& s, const u32* table, const Span& span, const AttentionShared& shared, bool fresh, uint4 (*keys)[KEY_PIECES]) {
    int lane = threadIdx.x % WARP;
    u32 first = span.start + threadIdx.x / WARP * UNIT, next = first + CHUNK_MIN;
    Running r = {-INFINITY, 0.0f, {}};
    if (first >= span.end) return r;
    auto near = [&](u32 at) {
        const u16* base = cached(s, table, at, 0, span.kv_head);
        foresee(base, lane), foresee(base + s.kv_heads * KV_BLOCK * HEAD, lane);
    };
    if (next < span.end) near(next);
    take_unit<true>(s, cached(s, table, first, 0, span.kv_head), first, span.length, shared, fresh, keys, r);
#pragma unroll 1
    for (; next < span.end; next += CHUNK_MIN) {
        if (next + CHUNK_MIN < span.end) near(next + CHUNK_MIN);
        take_unit<false>(s, cached(s, table, next, 0, span.kv_head), next, span.length, shared, fresh, keys, r);
    }
    return r;
}

// Asks for a warp's first keys, and for its first values to come near.
__device__ __forceinline__ void ask(const Heads& s, const u16* base, uint4 (*keys)[KEY_PIECES]) {
    int lane = threadIdx.x % WARP;
#pragma unroll
    for (int i = 0; i < 2; i++) load_keys(base + i * 8 * HEAD, lane, keys[i]);
    foresee(base + s.kv_heads * KV_BLOCK * HEAD, lane);
}

// A finished query as the tensor cores read it: row `head` of the first operand. One warp; zeros where there is no head.
__device__ __forceinline__ void place_query(AttentionShared& shared, const float* query, int head) {
    int lane = threadIdx.x % WARP;
    for (int at = lane; at < 8 * KEY_PIECES; at += WARP) {
        uint2 low = make_uint2(0, 0), high = low;
        if (query && at * 4 < HEAD) {
            low = with_left_over(query[at * 4], query[at * 4 + 1]);
            high = with_left_over(query[at * 4 + 2], query[at * 4 + 3]);
        }
        shared.queries[at / 8 * 2 + at % 2][head * 4 + at / 2 % 4] = make_uint4(low.x, low.y, high.x, high.y);
    }
}

// Where an element of a head stands in a row of sums: pieces of four moved so that the lanes of a warp write to different
// banks.
__device__ __forceinline__ u32 sum_place(u32 head, u32 element) {
    u32 piece = element / 4, moved = piece ^ (piece / 4 & 3) ^ (HEAD % 32 ? 0 : (head & 1) * 4);
    return moved * 4 + element % 4;
}

// Puts the warps' results together: afterwards `sums`, `factor` and the statistics are those of the block.
__device__ __forceinline__ void gather(AttentionShared& shared, Running& r) {
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, head = lane / 4;
    r.total += __shfl_xor_sync(FULL, r.total, 1);
    r.total += __shfl_xor_sync(FULL, r.total, 2);
    if (lane % 4 == 0) shared.largest[head][warp] = r.largest, shared.total[head][warp] = r.total;
    if (head < GROUP) {
        float* row = shared.sums[warp][head];
#pragma unroll
        for (int j = 0; j < VALUE_PIECES; j++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                // Elements 16 t .. 16 t + 7 are the first of each pair of columns, the next eight the second.
                int element = 64 * j + 16 * (lane % 4) + 4 * i;
                float x[4];
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const float* c = r.sums[j * 8 + i % 2 * 4 + e];
                    x[e] = __fmaf_rn(c[i / 2 + 2], 1.0f / LEFT_OVER, c[i / 2]);
                }
                if (element < HEAD) *(float4*)(row + sum_place(head, element)) = make_float4(x[0], x[1], x[2], x[3]);
            }
        }
    }
    __syncthreads();
    if (warp < GROUP) {
        int w = lane % ATTENTION_WARPS;
        float own = shared.largest[warp][w], largest = own;
#pragma unroll
        for (int step = 8; step > 0; step /= 2) largest = fmaxf(largest, __shfl_xor_sync(FULL, largest, step));
        float factor = expf(own - largest), total = shared.total[warp][w] * factor;
#pragma unroll
        for (int step = 8; step > 0; step /= 2) total += __shfl_xor_sync(FULL, total, step);
        if (lane < ATTENTION_WARPS) shared.factor[warp][w] = factor;
        if (lane == 0) shared.all_largest[warp] = largest, shared.all_total[warp] = total;
    }
    __syncthreads();
}

// Element `c` of head `h` of a block's result, not yet divided by the sum of the weights.
__device__ __forceinline__ float gathered(const AttentionShared& shared, u32 h, u32 c) {
    float x = 0.0f;
    u32 place = sum_place(h, c);
#pragma unroll
    for (int w = 0; w < ATTENTION_WARPS; w++) x = __fmaf_rn(shared.sums[w][h][place], shared.factor[h][w], x);
    return x;
}

// The share of each chunk in the result of a head, from `largest[s]` in `weights` and `totals`. One warp.
__device__ __forceinline__ void share_out(AttentionShared& shared, u32 h, u32 splits) {
    int lane = threadIdx.x % WARP;
    float* weights = shared.merge.weights[h];
    float largest = -INFINITY, total = 0.0f;
    for (u32 s = lane; s < splits; s += WARP) largest = fmaxf(largest, weights[s]);
    largest = warp_max(largest);
    for (u32 s = lane; s < splits; s += WARP) {
        float w = expf(weights[s] - largest);
        total = __fmaf_rn(shared.merge.totals[h][s], w, total);
        weights[s] = w;
    }
    total = warp_sum(total);
    for (u32 s = lane; s < splits; s += WARP) weights[s] /= total;
}

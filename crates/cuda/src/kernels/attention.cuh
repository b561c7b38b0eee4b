// Attention of single rows over the cache, split along the positions, on tensor cores.
//
//   out[row][head] = softmax(q . k) v     over positions 0 ..= position of the row
//
// Bytes: keys and values of all positions once per KV head. The query heads that share them, up to eight, are the rows
// of a 16 x 8 x 16 product; the other eight rows hold what rounding a query (or a weight) to half precision left over,
// times 2048. So keys and values go from memory into the registers the tensor cores read, unchanged, and the result is
// as good as one in 32-bit floats.
//
// A block takes 256 positions at a time, four warps 64 of them: each scores 16, tells the others its weights, and sums a
// quarter of the elements over all 64. So a warp's sums take 16 registers and leave room for the next keys and values on
// their way, and only four results have to be put together at the end. With 16 positions and all elements per warp
// that end alone was 1.6 us of the 6 attention took in a layer of the 1.5B, and at 32k positions it read 1.7 TB/s (H200,
// 2026-11-16).
//
// A row's positions are cut into at most SPLITS chunks, whose length depends on the position alone, so the result of a row
// does not depend on what else is in the batch. Partial results are merged in the order of the chunks.
//
// Compiled for HEAD elements per head, GROUP query heads per block and at most SPLITS chunks, no more blocks in all than there
// are multiprocessors.

#include "kv_load.cuh"

#define ATTENTION_WARPS 16
#define QUADS 4
#define CHUNK_MIN (ATTENTION_WARPS * UNIT)
// Sums are put together by so many elements of a head at a time.
#define GATHERED (HEAD / VALUE_ROUNDS)
// Weights of sixteen positions each: of one warp's, or of two whose units are half as long.
#define WEIGHTS (ATTENTION_WARPS * KEY_GROUPS / 2)
#define LEFT_OVER 2048.0f

struct Attention {
    Heads heads;
    float* output;         // [row][heads * HEAD]
    float* partial;        // [row][head][SPLITS][HEAD + 2]: largest score, sum of weights, sums
    u32* arrived;          // [row][blockIdx.y], zero between kernels
    u32 store;             // Write this row's key and value first: only where every row has its own sequence.
    u32 rows;              // Where blocks have several (`attention_rows.cu`).
};
MIRRORED(Attention);

// Numbers of the first blocks of a chunk, in shared memory: a load that waits for a load before it costs twice.
#define NEAR 128
struct Near {
    u32 blocks[NEAR];
};

struct AttentionShared {
    uint4 queries[2 * KEY_PIECES][WARP];      // As the tensor cores read them.
    Element fresh[2][HEAD];                   // This row's own key and value.
    uint4 weights[2][WEIGHTS][WARP];  // As the tensor cores read them; twice, for every other pass.
    float peaks[2][ATTENTION_WARPS][8];       // The largest score of each warp and head.
    float4 largest[8];                        // of each head and four warps
    float4 total[8][QUADS];                   // of each head and warp
    union {
        float staged[GROUP + 2][HEAD];
        float sums[QUADS][GROUP][GATHERED];
        struct {
            float weights[GROUP][SPLITS];
            float totals[GROUP][SPLITS];
            float values[GROUP * HEAD + SPLITS];
        } merge;
    };
    u32 is_last;
    Near near;                                // Where attention is a kernel of its own.
    float fresh_scales[2];                    // Of `fresh`, where there are scales.
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
    return (length + CHUNK_MIN * SPLITS - 1) / (CHUNK_MIN * SPLITS) * CHUNK_MIN;
}

__device__ __forceinline__ Span span_of(const Heads& s, u32 position, u32 split, u32 part) {
    u32 length = position + 1, chunk = chunk_of(length), start = split * chunk;
    return {start, min(start + chunk, length), length, split, (length + chunk - 1) / chunk, part,
            part * GROUP / (s.heads / s.kv_heads)};
}

__device__ __forceinline__ void fill_near(Near& near, const u32* table, const Span& span) {
    u32 first = span.start / KV_BLOCK, count = (span.end - span.start + KV_BLOCK - 1) / KV_BLOCK;
    if (this_thread() < min(count, NEAR)) near.blocks[this_thread()] = table[first + this_thread()];
}

// The cache's block that has a position of the chunk.
__device__ __forceinline__ u32 block_at(const u32* table, const Near& near, const Span& span, u32 position) {
    u32 at = (position - span.start) / KV_BLOCK;
    return at < NEAR ? near.blocks[at] : table[position / KV_BLOCK];
}

// Where a position of the chunk stands in the cache.
__device__ __forceinline__ Element*
near_by(const Heads& s, const u32* table, const Near& near, const Span& span, u32 position, u32 side) {
    return cached_in(s, block_at(table, near, span, position), position, side, span.kv_head);
}

// The row's own key or value, as the cache stores them; one warp.
__device__ __forceinline__ void keep_fresh(AttentionShared& shared, u32 side, const float* x) {
#if KV8
    keep_head(shared.fresh[side], shared.fresh_scales + side, x);
#else
    store_half_head(shared.fresh[side], x);
#endif
}

// Two numbers in half precision, and what that leaves over.
__device__ __forceinline__ uint2 with_left_over(float a, float b) {
    u32 both = pack_halves(a, b);
    float2 rounded = unpack_halves(both);
    return make_uint2(both, pack_halves((a - rounded.x) * LEFT_OVER, (b - rounded.y) * LEFT_OVER));
}

// A warp's running result of head lane / 4: of its own positions the weights' sum, and of all four warps' the elements 8 (lane % 4) and
// following of its quarter, in rounds. The largest score is that of the four warps.
struct Running {
    float largest, total;
    float sums[VALUE_ROUNDS][4][4];
};

// Four warps wait for each other.
__device__ __forceinline__ void quad_together() {
    wait_together(2 + this_thread() / 128, 128);
}

// Queries times a warp's keys: of each eight positions a lane gets the scores of 2 (lane % 4) and the next. Two sums for each
// eight, to halve the chain.
__device__ __forceinline__ void score(const uint4 (*queries)[WARP], const Key (*cached)[KEY_PIECES], const Scales& scales, u32 first,
                                      u32 length, int lane, float (*scores)[2]) {
    float c[KEY_GROUPS][2][4] = {};
#pragma unroll
    for (int j = 0; j < KEY_PIECES; j++) {
        uint4 keys[KEY_GROUPS];
#pragma unroll
        for (int i = 0; i < KEY_GROUPS; i++) keys[i] = halves_of(cached[i][j]);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint4 q = queries[j * 2 + half][lane];
            u32 a[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
            for (int i = 0; i < KEY_GROUPS; i++) {
                u32 b[2] = {half ? keys[i].z : keys[i].x, half ? keys[i].w : keys[i].y};
                multiply_add(c[i][half], a, b);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < KEY_GROUPS; i++) {
#pragma unroll
        for (int e = 0; e < 2; e++) {
            float rest = c[i][0][e + 2] + c[i][1][e + 2];
            float score = __fmaf_rn(rest, 1.0f / LEFT_OVER, c[i][0][e] + c[i][1][e]);
            score = scaled<0>(score, scales, i, e);
            scores[i][e] = first + i * 8 + lane % 4 * 2 + e < length ? score : -INFINITY;
        }
    }
}

__device__ __forceinline__ float largest_of(const float (*scores)[2]) {
    float largest = fmaxf(scores[0][0], scores[0][1]);
#pragma unroll
    for (int i = 1; i < KEY_GROUPS; i++) largest = fmaxf(largest, fmaxf(scores[i][0], scores[i][1]));
    return largest;
}

// The largest of a head: its scores are with four lanes that follow each other.
__device__ __forceinline__ float head_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(FULL, x, 1));
    return fmaxf(x, __shfl_xor_sync(FULL, x, 2));
}

__device__ __forceinline__ float head_sum(float x) {
    x += __shfl_xor_sync(FULL, x, 1);
    return x + __shfl_xor_sync(FULL, x, 2);
}

// Weights as the tensor cores read them: of head lane / 4, positions 8 i + 2 (lane % 4) and the next. Adds them to `total`.
#if HEAD > 128
typedef uint2 Weights;
#else
typedef uint4 Weights;
#endif
__device__ __forceinline__ Weights weights_of(const float (*scores)[2], const Scales& scales, float largest, float& total) {
    u32 weights[2 * KEY_GROUPS];
#pragma unroll
    for (int i = 0; i < KEY_GROUPS; i++) {
        float p0 = expf(scores[i][0] - largest), p1 = expf(scores[i][1] - largest);
        total += p0 + p1;
        uint2 both = with_left_over(scaled<1>(p0, scales, i, 0), scaled<1>(p1, scales, i, 1));
        weights[2 * i] = both.x, weights[2 * i + 1] = both.y;
    }
#if HEAD > 128
    return make_uint2(weights[0], weights[1]);
#else
    return make_uint4(weights[0], weights[1], weights[2], weights[3]);
#endif
}

// Where a warp's weights stand among those of all.
__device__ __forceinline__ Weights* weights_at(uint4 (*weights)[WARP], u32 warp, u32 lane) {
    return (Weights*)&weights[warp * KEY_GROUPS / 2][lane] + (KEY_GROUPS == 1 ? warp % 2 : 0);
}

// From scores to weights, in `shared` for the four warps. Gives the factor for what was summed before.
__device__ __forceinline__ float
weigh(const float (*scores)[2], const Scales& scales, int lane, u32 pass, AttentionShared& shared, Running& r) {
    float largest = head_max(largest_of(scores));
    u32 warp = this_thread() / WARP, side = pass & 1;
    if (lane % 4 == 0) shared.peaks[side][warp][lane / 4] = largest;
    quad_together();
    largest = r.largest;
#pragma unroll
    for (int m = 0; m < 4; m++) largest = fmaxf(largest, shared.peaks[side][warp / 4 * 4 + m][lane / 4]);
    float factor = expf(r.largest - largest);
    r.total *= factor;
    *weights_at(shared.weights[side], warp, lane) = weights_of(scores, scales, largest, r.total);
    quad_together();
    r.largest = largest;
    return factor;
}

__device__ __forceinline__ void scale_sums(Running& r, float factor) {
#pragma unroll
    for (int k = 0; k < VALUE_ROUNDS; k++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
#pragma unroll
            for (int i = 0; i < 4; i++) r.sums[k][e][i] *= factor;
        }
    }
}

// Sixteen positions' values times their weights.
__device__ __forceinline__ void sum_values(const Value* cached, uint4 own, Running& r, u32 round = 0) {
    u32 weights[4] = {own.x, own.y, own.z, own.w};
    uint2 values[4] = {halves_of(cached[0]), halves_of(cached[1]), halves_of(cached[2]), halves_of(cached[3])};
#pragma unroll
    for (int e = 0; e < 4; e++) {
        // The same element of two positions that follow each other.
        u32 pick = e % 2 ? 0x7632 : 0x5410;
        u32 b[2] = {__byte_perm(e / 2 ? values[0].y : values[0].x, e / 2 ? values[1].y : values[1].x, pick),
                    __byte_perm(e / 2 ? values[2].y : values[2].x, e / 2 ? values[3].y : values[3].x, pick)};
        multiply_add(r.sums[round][e], weights, b);
    }
}

// Keys and values in flight: a warp's own positions, and its quarter of all of its four warps.
struct Loads {
    Key keys[KEY_GROUPS][KEY_PIECES];
    Value values[2 * KEY_GROUPS][VALUE_ROUNDS][4];
    Scales scales;
};

// Asks for keys; `first` is the first position of the four warps. What is past the end is not looked at.
__device__ __forceinline__ void ask_keys(const Heads& s, const u32* table, const Near& near, const Span& span, u32 first, Loads& loads) {
    int lane = this_thread() % WARP;
    u32 own = first + this_thread() / WARP % 4 * UNIT;
    if (own >= span.end) return;
    const Element* base = near_by(s, table, near, span, own, 0);
#pragma unroll
    for (int i = 0; i < KEY_GROUPS; i++) load_keys<FromMemory>(base + i * 8 * HEAD, lane, loads.keys[i]);
    load_scales<FromMemory>(base, lane, 0, loads.scales);
#if KV8
    load_scales<FromMemory>(near_by(s, table, near, span, own, 1), lane, 1, loads.scales);
#endif
}

__device__ __forceinline__ void ask_values(const Heads& s, const u32* table, const Near& near, const Span& span, u32 first, Loads& loads) {
    int lane = this_thread() % WARP;
#pragma unroll
    for (int k = 0; k < 2 * KEY_GROUPS; k++) {
        u32 at = first + k * 16;
        if (at >= span.end) continue;
        const Element* base = near_by(s, table, near, span, at, 1);
        // The eight that follow stand behind these, or as the next unit in the same block.
        const Element* next = (const Element*)((const u8*)base + (KEY_GROUPS == 1 ? UNIT_BYTES : 8 * HEAD * sizeof(Element)));
#pragma unroll
        for (u32 round = 0; round < VALUE_ROUNDS; round++) load_values<FromMemory>(base, next, lane, loads.values[k][round], round);
    }
}

// The first position of this warp's four.
__device__ __forceinline__ u32 first_of(const Span& span) {
    return span.start + this_thread() / 128 * 4 * UNIT;
}

// A warp's part of the chunk. The first keys and values are in flight already.
__device__ __forceinline__ Running
walk(const Heads& s, const u32* table, const Near& near, const Span& span, AttentionShared& shared, bool own_fresh, Loads& loads) {
    int lane = this_thread() % WARP;
    Running r = {-INFINITY, 0.0f, {}};
    const Element (*fresh)[HEAD] = own_fresh ? shared.fresh : 0;
    u32 quad = this_thread() / 128 * 4, pass = 0;
#pragma unroll 1
    for (u32 first = first_of(span); first < span.end; first += CHUNK_MIN, pass++) {
        u32 own = first + this_thread() / WARP % 4 * UNIT, next = first + CHUNK_MIN;
        float scores[KEY_GROUPS][2];
        if (own + UNIT >= span.length) {
#pragma unroll
            for (int i = 0; i < KEY_GROUPS; i++) patch_keys(loads.keys[i], own + i * 8, span.length - 1, fresh, lane);
            patch_scales(loads.scales, own, span.length - 1, own_fresh ? shared.fresh_scales : 0, lane);
        }
        score(shared.queries, loads.keys, loads.scales, own, span.length, lane, scores);
        float factor = weigh(scores, loads.scales, lane, pass, shared, r);
        if (next < span.end) ask_keys(s, table, near, span, next, loads);
        scale_sums(r, factor);
#pragma unroll
        for (int k = 0; k < 2 * KEY_GROUPS; k++) {
            u32 at = first + k * 16;
            if (at >= span.end) continue;
#pragma unroll
            for (u32 round = 0; round < VALUE_ROUNDS; round++) {
                Value* values = loads.values[k][round];
                if (at + 16 >= span.length) patch_values(values, at, span.length - 1, fresh, lane, round);
                sum_values(values, shared.weights[pass & 1][quad * KEY_GROUPS / 2 + k][lane], r, round);
            }
        }
        if (next < span.end) ask_values(s, table, near, span, next, loads);
    }
    // Who has no positions in the last pass meets as often as the others: racecheck (2025.3) takes all 512 for unordered otherwise.
    if (pass * CHUNK_MIN < span.end - span.start) quad_together(), quad_together();
    return r;
}

// A finished query as the tensor cores read it: row `head` of the first operand. One warp; zeros where there is no head.
__device__ __forceinline__ void store_query(uint4 (*queries)[WARP], const float* query, int head) {
    int lane = this_thread() % WARP;
    for (int at = lane; at < 8 * KEY_PIECES; at += WARP) {
        uint2 low = make_uint2(0, 0), high = low;
        if (query && at * 4 < HEAD) {
            low = with_left_over(query[at * 4], query[at * 4 + 1]);
            high = with_left_over(query[at * 4 + 2], query[at * 4 + 3]);
        }
        queries[at / 8 * 2 + at % 2][head * 4 + at / 2 % 4] = make_uint4(low.x, low.y, high.x, high.y);
    }
}

// An element's sum with what was left over: element e of piece 2 (lane % 4) + i.
__device__ __forceinline__ float whole(const Running& r, int e, int i, u32 round = 0) {
    return __fmaf_rn(r.sums[round][e][i + 2], 1.0f / LEFT_OVER, r.sums[round][e][i]);
}

// Where an element of a head stands in a row of sums: pieces of four exchanged so that the lanes of a warp write to
// different banks.
__device__ __forceinline__ u32 sum_offset(u32 head, u32 element) {
    return (element / 4 ^ (head & 1)) * 4 + element % 4;
}

// Lays the warps' results out for `gathered`: of every quarter of a head the elements of one round. Ends with a barrier.
__device__ __forceinline__ void gather(AttentionShared& shared, Running& r, u32 round = 0) {
    int warp = this_thread() / WARP, lane = this_thread() % WARP, head = lane / 4, t = lane % 4;
    if (round == 0) {
        r.total = head_sum(r.total);
        // The largest is the same in all four warps; to have one of them write it would cost registers.
        if (t == 0) ((float*)shared.total[head])[warp] = r.total, ((float*)&shared.largest[head])[warp / 4] = r.largest;
    }
    if (head < GROUP) {
        float* row = shared.sums[warp / 4][head];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            // Columns 2 t and 2 t + 1 of the product are pieces of four elements.
            int piece = 2 * t + i;
            float4* to = (float4*)(row + sum_offset(head, warp % 4 * (GATHERED / 4) + piece * 4));
            if (piece + round * 8 >= VALUE_PIECES) continue;
            *to = make_float4(whole(r, 0, i, round), whole(r, 1, i, round), whole(r, 2, i, round), whole(r, 3, i, round));
        }
    }
    together();
}

// The element of a head that element c of a round is.
__device__ __forceinline__ u32 gathered_element(u32 c, u32 round) {
    return VALUE_ROUNDS == 1 ? c : c / (GATHERED / 4) * (HEAD / 4) + round * (GATHERED / 4) + c % (GATHERED / 4);
}

// A block's result of a head: two elements, not yet divided by the sum of the weights.
struct Gathered {
    float largest, total;
    float2 x;
};

// Every thread works out the weights of the four results for itself, which is faster than waiting for one that does.
__device__ __forceinline__ Gathered gathered(const AttentionShared& shared, u32 h, u32 c) {
    float4 peaks = shared.largest[h];
    float quads[QUADS] = {peaks.x, peaks.y, peaks.z, peaks.w};
    Gathered g = {fmaxf(fmaxf(peaks.x, peaks.y), fmaxf(peaks.z, peaks.w)), 0.0f, make_float2(0.0f, 0.0f)};
    u32 slot = sum_offset(h, c);
#pragma unroll
    for (int quad = 0; quad < QUADS; quad++) {
        float factor = expf(quads[quad] - g.largest);
        float4 t = shared.total[h][quad];
        float2 x = *(const float2*)&shared.sums[quad][h][slot];
        g.total = __fmaf_rn((t.x + t.y) + (t.z + t.w), factor, g.total);
        g.x = make_float2(__fmaf_rn(x.x, factor, g.x.x), __fmaf_rn(x.y, factor, g.x.y));
    }
    return g;
}

// The share of each chunk in the result of a head, from `largest[s]` in `weights` and `totals`. One warp.
__device__ __forceinline__ void share_out(float* weights, const float* totals, u32 splits) {
    int lane = this_thread() % WARP;
    float largest = -INFINITY, total = 0.0f;
    for (u32 s = lane; s < splits; s += WARP) largest = fmaxf(largest, weights[s]);
    largest = warp_max(largest);
    for (u32 s = lane; s < splits; s += WARP) {
        float w = expf(weights[s] - largest);
        total = __fmaf_rn(totals[s], w, total);
        weights[s] = w;
    }
    total = warp_sum(total);
    for (u32 s = lane; s < splits; s += WARP) weights[s] /= total;
}

// Attention of rows that follow each other in one sequence: a draft that is verified, the first tokens of a turn.
//
// They attend to the same positions but for the last few, so a block reads its 256 once, for several rows. With a block for every
// row (`attention`) most of the time is blocks that wait for their positions one after another: about 7 us each on an H200.
//
// Keys and values come into shared memory as they stand in the cache while the queries of all rows are made ready. Then four
// warps, a crew, take a row at a time: each scores 64 positions, tells the others its weights, and sums a quarter of the elements
// over all 256. So the four results of 64 positions each meet in registers, and crews know nothing of each other.
//
// A row gets the bits that `attention` gives it: the same products in the same order, only other warps compute them. No row may
// have more than SPLITS times 256 positions, and all keys and values have been stored (`heads.cu`).
//
// Bytes: as `attention`, by blocks of rows instead of rows. What bounds the sums is reading shared memory: 36 KB for each row and 64 positions.

#include "attention.cuh"

// Longer heads attend each by themselves.
#if HEAD <= 128

#define CREWS (ATTENTION_WARPS / 4)
#define CREW_THREADS (4 * WARP)

struct Crew {
    union {
        float staged[4][HEAD];                    // A query of each warp, before all begins.
        uint4 weights[ATTENTION_WARPS][WARP];     // Of sixteen positions each, as the tensor cores read them.
        struct {
            float weights[GROUP][SPLITS];
            float totals[GROUP][SPLITS];
        } merge;
    };
    float2 quads[QUADS][8];                       // Largest score and sum of weights of each warp's positions and head.
    u32 is_last;
};

struct RowsShared {
    u8 cached[2][ATTENTION_WARPS][UNIT_BYTES];      // Keys and values of sixteen positions each.
    Crew crews[CREWS];
};

// Queries of a row as the tensor cores read them; those of all rows stand behind `RowsShared`.
typedef uint4 Queries[2 * KEY_PIECES][WARP];
static_assert(sizeof(RowsShared) <= ROWS_BYTES && sizeof(Queries) <= QUERIES_BYTES, "the host gives rows enough shared memory");

// The same chunk of another row, when chunks of both are as short as they get.
__device__ __forceinline__ Span span_of_row(Span span, u32 length) {
    span.end = min(span.start + CHUNK_MIN, length), span.length = length;
    span.splits = (length + CHUNK_MIN - 1) / CHUNK_MIN;
    return span;
}

// Asks for the chunk's keys and values: a warp for sixteen positions. `span` is that of the last row.
__device__ __forceinline__ void ask_kv(const Heads& s, const u32* table, const Span& span, RowsShared& shared) {
    u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, at = span.start + warp * UNIT;
    if (at < span.end) {
        u32 block = table[at / KV_BLOCK];
#pragma unroll
        for (u32 side = 0; side < 2; side++) {
            const u8* from = (const u8*)cached_in(s, block, at, side, span.kv_head);
            u32 to = shared_address(shared.cached[side][warp]);
            for (u32 piece = lane * 16; piece < UNIT_BYTES; piece += WARP * 16) copy_16(to + piece, from + piece);
        }
    }
    copies_commit();
}

// Makes the queries of `count` rows ready, the first of which is at `position`. A warp has one head of every other row; four are
// asked for before the first is worked on, because they are far away.
__device__ __forceinline__ void
begin_rows(const Heads& s, const Span& span, u32 first, u32 count, u32 position, RowsShared& shared, Queries* queries) {
    u32 warp = threadIdx.x / WARP, head = warp % 8;
    float* staged = shared.crews[warp / 4].staged[warp % 4];
    const float* heads = s.rows + (span.part * GROUP + head) * HEAD;
#pragma unroll 1
    for (u32 begin = warp / 8; begin < count; begin += 8) {
        HeadPart x[4];
        Turn turns[4];
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u32 row = begin + i * 2;
            if (head >= GROUP || row >= count) continue;
            x[i] = load_head(heads + (u64)(first + row) * HEADS_OF(s) * HEAD);
            turns[i] = load_turn(s, position + row);
        }
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u32 row = begin + i * 2;
            if (row >= count) continue;
            if (head < GROUP) finish_head(s, x[i], s.q_norm, turns[i], s.scale, staged);
            store_query(queries[row], head < GROUP ? staged : 0, head);
            __syncwarp();
        }
    }
}

// Whether a row ends before 64 positions do: only there is anything to leave out, and without branches loads overtake each other.
__device__ __forceinline__ bool ends_in(const Span& span, u32 quad) {
    return span.start + (quad + 1) * 4 * UNIT >= span.length;
}

// A lane's scales of sixteen positions.
template <bool ENDS>
__device__ __forceinline__ Scales scales_at(const RowsShared& shared, u32 unit, u32 at, const Span& span, int lane) {
    Scales scales;
    load_scales<FromShared>((const Element*)shared.cached[0][unit], lane, 0, scales);
    load_scales<FromShared>((const Element*)shared.cached[1][unit], lane, 1, scales);
    if (ENDS) patch_scales(scales, at, span.length - 1, 0, lane);
    return scales;
}

// A warp's 64 positions of a row: their weights, and what `sum_quads` must know of them. What is past the end has no part in it.
template <bool ENDS>
__device__ __forceinline__ void weigh_quad(const Span& span, const RowsShared& shared, const Queries& queries, Crew& crew) {
    int lane = threadIdx.x % WARP;
    u32 quad = threadIdx.x / WARP % 4;
    float scores[4][2][2], largest = -INFINITY, totals[4] = {};
#pragma unroll
    for (int k = 0; k < 4; k++) {
        u32 unit = quad * 4 + k, at = span.start + unit * UNIT;
        if (ENDS && at >= span.end) continue;
        // Keys of two at a time: for all four the compiler runs out of registers.
        if (k == 2) __syncwarp();
        const Element* rows = (const Element*)shared.cached[0][unit];
        Key keys[2][KEY_PIECES];
#pragma unroll
        for (int i = 0; i < 2; i++) load_keys<FromShared>(rows + i * 8 * HEAD, lane, keys[i]);
        score(queries, keys, scales_at<ENDS>(shared, unit, at, span, lane), at, span.length, lane, scores[k]);
        largest = fmaxf(largest, largest_of(scores[k]));
    }
    largest = head_max(largest);
#pragma unroll
    for (int k = 0; k < 4; k++) {
        u32 unit = quad * 4 + k, at = span.start + unit * UNIT;
        if (ENDS && at >= span.end) continue;
        Scales scales = scales_at<ENDS>(shared, unit, at, span, lane);
        crew.weights[unit][lane] = weights_of(scores[k], scales, largest, totals[k]);
    }
#pragma unroll
    for (int k = 0; k < 4; k++) totals[k] = head_sum(totals[k]);
    if (lane % 4 == 0) crew.quads[quad][lane / 4] = make_float2(largest, (totals[0] + totals[1]) + (totals[2] + totals[3]));
}

// A quarter of the elements, over 64 positions.
template <bool ENDS>
__device__ __forceinline__ Running sum_quad(const Span& span, u32 quad, const RowsShared& shared, const Crew& crew) {
    int lane = threadIdx.x % WARP;
    Running r = {};
#pragma unroll
    for (int k = 0; k < 4; k++) {
        u32 unit = quad * 4 + k, at = span.start + unit * UNIT;
        if (ENDS && at >= span.end) continue;
        const Element* rows = (const Element*)shared.cached[1][unit];
        Value values[4];
        load_values<FromShared>(rows, rows + 8 * HEAD, lane, values);
        if (ENDS) patch_values(values, at, span.length - 1, 0, lane);
        sum_values(values, crew.weights[unit][lane], r);
    }
    return r;
}

// A lane's result of head lane / 4 over the chunk, not yet divided by the sum of the weights: pieces 2 (lane % 4) and the next of
// its warp's quarter, four elements each.
struct Summed {
    float largest, total;
    float x[2][4];
};

// Four results of 64 positions, put together as `gathered` does.
__device__ __forceinline__ Summed sum_quads(const Span& span, const RowsShared& shared, const Crew& crew) {
    int head = threadIdx.x % WARP / 4;
    Summed g = {-INFINITY, 0.0f, {}};
#pragma unroll
    for (int quad = 0; quad < QUADS; quad++) g.largest = fmaxf(g.largest, crew.quads[quad][head].x);
#pragma unroll 1
    for (int quad = 0; quad < QUADS; quad++) {
        Running r = ends_in(span, quad) ? sum_quad<true>(span, quad, shared, crew) : sum_quad<false>(span, quad, shared, crew);
        float2 own = crew.quads[quad][head];
        float factor = expf(own.x - g.largest);
        g.total = __fmaf_rn(own.y, factor, g.total);
#pragma unroll
        for (int i = 0; i < 2; i++) {
#pragma unroll
            for (int e = 0; e < 4; e++) g.x[i][e] = __fmaf_rn(whole(r, e, i), factor, g.x[i][e]);
        }
    }
    return g;
}

// The output, where the chunk is all of the row, or what `merge` needs.
__device__ __forceinline__ void leave(const Attention& p, u32 row, const Span& span, const Summed& g) {
    u32 lane = threadIdx.x % WARP, quarter = threadIdx.x / WARP % 4, head = lane / 4, piece = lane % 4 * 2;
    if (head >= GROUP) return;
    u64 index = (u64)row * p.heads.heads + span.part * GROUP + head;
    float* output = p.output + index * HEAD;
    float* partial = p.partial + (index * SPLITS + span.split) * (HEAD + 2);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float* x = g.x[i];
        u32 c = quarter * (HEAD / 4) + (piece + i) * 4;
        if (piece + i >= VALUE_PIECES) continue;
        if (span.splits == 1) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                float own = x[e] / g.total;
#if OUTPUT_GATES
                own = with_gate(own, __ldcg(p.heads.rows + (u64)row * HEADS_OF(p.heads) * HEAD + gate_offset(p.heads, span.part * GROUP + head) + c + e));
#endif
                output[c + e] = rounded(own);
            }
        } else {
            *(float2*)(partial + 2 + c) = make_float2(x[0], x[1]);
            *(float2*)(partial + 4 + c) = make_float2(x[2], x[3]);
        }
    }
    if (span.splits > 1 && quarter == 0 && piece == 0) *(float2*)partial = make_float2(g.largest, g.total);
}

extern "C" __global__ void __launch_bounds__(512, 1) attention_rows(const __grid_constant__ Attention p) {
    extern __shared__ __align__(128) u8 bytes[];
    RowsShared& shared = *(RowsShared*)bytes;
    Queries* queries = (Queries*)(bytes + sizeof(RowsShared));
    let_next_start();
    wait_for_previous();
    const Heads& s = p.heads;
    u32 each = (p.rows + gridDim.z - 1) / gridDim.z, first = blockIdx.z * each;
    if (first >= p.rows) return;
    u32 count = min(each, p.rows - first), position = s.positions[first];
    Span last = span_of(s, position + count - 1, blockIdx.x, blockIdx.y);
    if (last.start >= last.length) return;
    ask_kv(s, table_of(s, first), last, shared);
    begin_rows(s, last, first, count, position, shared, queries);
    copies_wait<0>();
    __syncthreads();
    u32 own = threadIdx.x / CREW_THREADS, rounds = (count + CREWS - 1) / CREWS;
    Crew& crew = shared.crews[own];
#pragma unroll 1
    for (u32 i = 0; i < rounds; i++) {
        // Blocks begin with different rows. Otherwise the slowest would be the last with all of them, and merge them all.
        u32 row = (i + blockIdx.x) % rounds * CREWS + own;
        Span span = span_of_row(last, position + row + 1);
        if (row >= count || span.start >= span.length) continue;
        if (ends_in(span, threadIdx.x / WARP % 4)) weigh_quad<true>(span, shared, queries[row], crew);
        else weigh_quad<false>(span, shared, queries[row], crew);
        quad_together();
        leave(p, first + row, span, sum_quads(span, shared, crew));
        // What comes next takes the place of the weights.
        quad_together();
        if (span.splits == 1) continue;
        if (threadIdx.x % CREW_THREADS == 0) crew.is_last = is_last_of(p, first + row, span);
        quad_together();
        if (crew.is_last) merge<CREW_THREADS>(p, first + row, span, crew.merge.weights, crew.merge.totals, 2 + own);
        quad_together();
    }
}
#endif

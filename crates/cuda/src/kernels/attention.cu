// Attention of single rows as a kernel of its own; see `attention.cuh`.

#include "attention.cuh"

// Queries ready, the row's own key and value in the cache and in `fresh`.
__device__ __forceinline__ void begin(const Attention& p, const Span& span, u32 row, AttentionShared& shared) {
    const Heads& s = p.heads;
    int warp = threadIdx.x / WARP;
    u32 position = span.length - 1;
    const float* rows = s.rows + (u64)row * HEADS_OF(s) * HEAD;
    bool writes = p.store && span.end == span.length;
    if (warp < 8) {
        if (warp < GROUP) {
            float* staged = shared.staged[warp];
            Turn turn = load_turn(s, position);
            finish_head(s, load_head(rows + (span.part * GROUP + warp) * HEAD), s.q_norm, turn, s.scale, staged);
            store_query(shared.queries, staged, warp);
        } else {
            store_query(shared.queries, 0, warp);
        }
    } else if (warp < 10 && writes) {
        int side = warp - 8;
        float* staged = shared.staged[GROUP + side];
        HeadPart x = load_head(rows + (FIRST_KEY(s) + side * s.kv_heads + span.kv_head) * HEAD);
        if (side == 0) finish_head(s, x, s.k_norm, load_turn(s, position), 1.0f, staged);
        else store_head(x, staged);
        keep_fresh(shared, side, staged);
        cache_head(cached(s, table_of(s, row), position, side, span.kv_head), position, staged, side);
    }
    __syncthreads();
}

// Whether this is the last of a row's blocks, or crews of blocks, for its heads. One thread, when all have written their results.
__device__ __forceinline__ bool is_last_of(const Attention& p, u32 row, const Span& span) {
    __threadfence();
    u32* arrived = p.arrived + row * gridDim.y + span.part;
    bool is_last = atomicAdd(arrived, 1) == span.splits - 1;
    if (is_last) *arrived = 0;
    __threadfence();
    return is_last;
}

#if OUTPUT_GATES
// Two results of the heads from one on, with their gates.
__device__ __forceinline__ float2 gated_2(const Heads& s, u32 row, u32 first_head, u32 element, float2 x) {
    const float* gates = s.rows + (u64)row * HEADS_OF(s) * HEAD + gate_offset(s, first_head) + element;
    return make_float2(with_gate(x.x, __ldcg(gates)), with_gate(x.y, __ldcg(gates + 1)));
}
#endif

// The last merges what all have left: THREADS threads with a barrier of their own. A thread has all its elements in flight
// together.
template <int THREADS>
__device__ __forceinline__ void
merge(const Attention& p, u32 row, const Span& span, float (*weights)[SPLITS], float (*totals)[SPLITS], u32 barrier) {
    constexpr int PAIRS = GROUP * HEAD / 2, EACH = (PAIRS + THREADS - 1) / THREADS;
    u32 first_head = span.part * GROUP, splits = span.splits, own = threadIdx.x % THREADS;
    const float* base = p.partial + ((u64)row * p.heads.heads + first_head) * SPLITS * (HEAD + 2);
    for (u32 at = own; at < GROUP * splits; at += THREADS) {
        u32 h = at / splits, s = at % splits;
        float2 both = __ldcg((const float2*)(base + (h * SPLITS + s) * (HEAD + 2)));
        weights[h][s] = both.x, totals[h][s] = both.y;
    }
    wait_together(barrier, THREADS);
    for (u32 h = own / WARP; h < GROUP; h += THREADS / WARP) share_out(weights[h], totals[h], splits);
    wait_together(barrier, THREADS);
    float2 sums[EACH] = {};
#pragma unroll 4
    for (u32 s = 0; s < splits; s++) {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            u32 pair = own + i * THREADS, h = pair / (HEAD / 2), c = pair % (HEAD / 2) * 2;
            if (pair >= PAIRS) continue;
            float2 x = __ldcg((const float2*)(base + (h * SPLITS + s) * (HEAD + 2) + 2 + c));
            float weight = weights[h][s];
            sums[i] = make_float2(__fmaf_rn(x.x, weight, sums[i].x), __fmaf_rn(x.y, weight, sums[i].y));
        }
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        u32 pair = own + i * THREADS;
        float2* to = (float2*)(p.output + ((u64)row * p.heads.heads + first_head) * HEAD) + pair;
#if OUTPUT_GATES
        if (pair < PAIRS) sums[i] = gated_2(p.heads, row, first_head, pair * 2, sums[i]);
#endif
        if (pair < PAIRS) *to = make_float2(rounded(sums[i].x), rounded(sums[i].y));
    }
}

extern "C" __global__ void __launch_bounds__(512, 1) attention(const __grid_constant__ Attention p) {
    extern __shared__ __align__(128) u8 bytes[];
    AttentionShared& shared = *(AttentionShared*)bytes;
    let_next_start();
    wait_for_previous();
    u32 row = blockIdx.z;
    const Heads& s = p.heads;
    Span span = span_of(s, s.positions[row], blockIdx.x, blockIdx.y);
    if (span.start >= span.length) return;
    const u32* table = table_of(s, row);
    Near& near = shared.near;
    fill_near(near, table, span);
    __syncthreads();
    Loads loads = {};
    ask_keys(s, table, near, span, first_of(span), loads);
    ask_values(s, table, near, span, first_of(span), loads);
    begin(p, span, row, shared);
    Running r = walk(s, table, near, span, shared, p.store, loads);
#pragma unroll
    for (u32 round = 0; round < VALUE_ROUNDS; round++) {
        // What was staged is read no more; sums take its place.
        if (round > 0) __syncthreads();
        gather(shared, r, round);
        if (threadIdx.x >= GROUP * GATHERED / 2) continue;
        u32 h = threadIdx.x / (GATHERED / 2), own = threadIdx.x % (GATHERED / 2) * 2, c = gathered_element(own, round);
        u64 head = (u64)row * s.heads + span.part * GROUP + h;
        Gathered g = gathered(shared, h, own);
        if (span.splits == 1) {
            float* out = p.output + head * HEAD + c;
            float2 x = make_float2(g.x.x / g.total, g.x.y / g.total);
#if OUTPUT_GATES
            x = gated_2(s, row, span.part * GROUP + h, c, x);
#endif
            out[0] = rounded(x.x), out[1] = rounded(x.y);
        } else {
            float* own = p.partial + (head * SPLITS + span.split) * (HEAD + 2);
            own[2 + c] = g.x.x, own[3 + c] = g.x.y;
            if (c == 0) own[0] = g.largest, own[1] = g.total;
        }
    }
    if (span.splits == 1) return;
    __syncthreads();
    if (threadIdx.x == 0) shared.is_last = is_last_of(p, row, span);
    __syncthreads();
    if (shared.is_last) merge<512>(p, row, span, shared.merge.weights, shared.merge.totals, 0);
}

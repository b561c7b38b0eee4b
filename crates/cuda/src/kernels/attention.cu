// Attention of single rows as a kernel of its own; see `attention.cuh`.

// Queries ready, the row's own key and value in the cache and in `fresh`.
__device__ __forceinline__ void begin(const Attention& p, const Span& span, u32 row, AttentionShared& shared) {
    const Heads& s = p.heads;
    int warp = threadIdx.x / WARP;
    u32 position = span.length - 1;
    const float* rows = s.rows + (u64)row * (s.heads + 2 * s.kv_heads) * HEAD;
    bool writes = p.store && span.end == span.length;
    if (warp < 8) {
        if (warp < GROUP) {
            float* staged = shared.staged[warp];
            Turn turn = load_turn(s, position);
            finish_head(s, load_head(rows + (span.part * GROUP + warp) * HEAD), s.q_norm, turn, s.scale, staged);
            place_query(shared, staged, warp);
        } else {
            place_query(shared, 0, warp);
        }
    } else if (warp < 10 && writes) {
        int side = warp - 8;
        float* staged = shared.staged[GROUP + side];
        HeadPart x = load_head(rows + (s.heads + side * s.kv_heads + span.kv_head) * HEAD);
        if (side == 0) finish_head(s, x, s.k_norm, load_turn(s, position), 1.0f, staged);
        else store_head(x, staged);
        keep_fresh(shared, side, staged);
        cache_head(cached(s, table_of(s, row), position, side, span.kv_head), position, staged, side);
    }
    __syncthreads();
}

// The last block of a row and its heads merges what all have left.
__device__ __forceinline__ void merge(const Attention& p, u32 row, const Span& span, AttentionShared& shared) {
    u32 first_head = span.part * GROUP, splits = span.splits;
    const float* base = p.partial + ((u64)row * p.heads.heads + first_head) * SPLITS * (HEAD + 2);
    for (u32 at = threadIdx.x; at < GROUP * splits; at += 512) {
        u32 h = at / splits, s = at % splits;
        shared.merge.weights[h][s] = __ldcg(base + (h * SPLITS + s) * (HEAD + 2));
        shared.merge.totals[h][s] = __ldcg(base + (h * SPLITS + s) * (HEAD + 2) + 1);
    }
    __syncthreads();
    for (u32 h = threadIdx.x / WARP; h < GROUP; h += ATTENTION_WARPS) share_out(shared, h, splits);
    __syncthreads();
    for (u32 at = threadIdx.x; at < GROUP * HEAD; at += 512) {
        u32 h = at / HEAD, c = at % HEAD;
        const float* own = base + (u64)h * SPLITS * (HEAD + 2) + 2 + c;
        float sum = 0.0f;
#pragma unroll 4
        for (u32 s = 0; s < splits; s++) sum = __fmaf_rn(__ldcg(own + s * (HEAD + 2)), shared.merge.weights[h][s], sum);
        p.output[((u64)row * p.heads.heads + first_head + h) * HEAD + c] = rounded(sum);
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
    // What was staged is read no more; sums take its place.
    gather(shared, r);
    if (threadIdx.x < GROUP * HEAD / 2) {
        u32 h = threadIdx.x / (HEAD / 2), c = threadIdx.x % (HEAD / 2) * 2;
        u64 head = (u64)row * s.heads + span.part * GROUP + h;
        Gathered g = gathered(shared, h, c);
        if (span.splits == 1) {
            float* out = p.output + head * HEAD + c;
            out[0] = rounded(g.x.x / g.total), out[1] = rounded(g.x.y / g.total);
        } else {
            float* own = p.partial + (head * SPLITS + span.split) * (HEAD + 2);
            own[2 + c] = g.x.x, own[3 + c] = g.x.y;
            if (c == 0) own[0] = g.largest, own[1] = g.total;
        }
    }
    if (span.splits == 1) return;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        u32* arrived = p.arrived + row * gridDim.y + blockIdx.y;
        shared.is_last = atomicAdd(arrived, 1) == span.splits - 1;
        if (shared.is_last) *arrived = 0;
        __threadfence();
    }
    __syncthreads();
    if (shared.is_last) merge(p, row, span, shared);
}

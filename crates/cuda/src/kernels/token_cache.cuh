// Keys and values of earlier positions, which come through the rings like weights: they are known before the step begins, so
// they are on their way while the queries are computed, and the memory is never without something to do.
//
// A warp has the keys of sixteen positions, then their values. Its keys it reads alone; the values of four warps are read by all
// four, each a quarter of the elements (`attention.cuh`), so they are let go together.

// Positions of a stage, and stages of a warp's keys or values.
#define KEPT_ROWS (HEAD > 64 ? 8 : 16)
#define KEPT_BYTES (KEPT_ROWS * HEAD * 2)
#define KEPT_STAGES (UNIT / KEPT_ROWS)
static_assert(KEPT_BYTES <= STAGE_BYTES, "keys fit a stage");
static_assert(2 * KEPT_STAGES <= DEPTH, "values stay while the next keys come");

// What attention needs that is the same in all layers.
struct Cache {
    Span span;             // of this block, if it is one of
    u32 items;
    const u32* table;
    u64 block_bytes;
    u32 side_bytes;        // From the keys of a head to its values.
    u64 placed;            // A barrier: all this is known.
    Near near;
};

// Needs what the step before wrote; called by all.
__device__ __forceinline__ void find_place(const Heads& s, Cache& cache) {
    u32 position = s.positions[0], parts = s.heads / GROUP;
    const u32* table = table_of(s, 0);
    Span span = span_of(s, position, blockIdx.x / parts, blockIdx.x % parts);
    u32 items = span.splits * parts;
    if (blockIdx.x < items) fill_near(cache.near, table, span);
    if (threadIdx.x != 0) return;
    cache.span = span, cache.table = table, cache.items = items;
    cache.block_bytes = s.block_bytes, cache.side_bytes = s.kv_heads * KV_BLOCK * HEAD * 2;
}

// Tells the feeders, after a barrier. What the step before wrote to the cache is there for the copy engine too.
__device__ __forceinline__ void tell_place(Cache& cache) {
    show_copy_engine();
    barrier_arrive(shared_address(&cache.placed));
}

// `tile` counts a warp's keys and values, sixteen and sixteen.
__device__ __forceinline__ bool next_kept(Feeder& f, u32 warp, const Stretch& s, const Cache& cache) {
    barrier_wait(shared_address(&cache.placed), 0);
    u32 position = cache.span.start + f.units.tile / 2 * CHUNK_MIN + warp * UNIT;
    if (blockIdx.x >= cache.items || position >= cache.span.end) return false;
    u32 row = cache.span.kv_head * KV_BLOCK + position % KV_BLOCK;
    u32 block = block_at(cache.table, cache.near, cache.span, position);
    f.from = s.weights + block * cache.block_bytes + f.units.tile % 2 * cache.side_bytes + row * HEAD * 2;
    f.left = UNIT * HEAD * 2, f.stage = KEPT_BYTES, f.units.tile++;
    return true;
}

// All warps' rings.
struct Rings {
    const u8* data;
    u32 full, empty;
};

// A stage of a warp's, counted from the first ever, when it is there.
__device__ __forceinline__ const u16* kept_stage(const Rings& rings, u32 warp, u32 stage) {
    u32 place = warp * DEPTH + stage % DEPTH;
    barrier_wait(rings.full + place * 8, stage / DEPTH & 1);
    return (const u16*)(rings.data + place * STAGE_BYTES);
}

// This warp's keys or values have been read by whoever reads them.
__device__ __forceinline__ void let_go(const Rings& rings, Saved& saved) {
    __syncwarp();
    if (own_lane() != 0) return;
    u32 stage = saved.held;
#pragma unroll
    for (int i = 0; i < KEPT_STAGES; i++, stage++) {
        barrier_arrive(rings.empty + (threadIdx.x / WARP * DEPTH + stage % DEPTH) * 8);
    }
    saved.held = stage;
}

// The same as `walk`, bit for bit. `taken` stays what it was before this phase, where the other warps read it.
__device__ __forceinline__ Running
walk_kept(const Span& span, AttentionShared& shared, const Rings& rings, Saved* all) {
    u32 warp = threadIdx.x / WARP, quad = warp / 4 * 4, stage = all[warp].taken, pass = 0;
    int lane = threadIdx.x % WARP;
    Running r = {-INFINITY, 0.0f, {}};
    if (lane == 0) all[warp].held = stage;
#pragma unroll 1
    for (u32 first = first_of(span); first < span.end; first += CHUNK_MIN, pass++) {
        u32 own = first + warp % 4 * UNIT, skipped = pass * 2 * KEPT_STAGES;
        float scores[2][2] = {{-INFINITY, -INFINITY}, {-INFINITY, -INFINITY}};
        if (own < span.end) {
            uint4 keys[2][KEY_PIECES];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const u16* rows = kept_stage(rings, warp, stage + skipped + i * 8 / KEPT_ROWS) + i * 8 % KEPT_ROWS * HEAD;
                load_keys<FromShared>(rows, lane, keys[i]);
                if (own + UNIT >= span.length) patch_keys(keys[i], own + i * 8, span.length - 1, shared.fresh, lane);
            }
            let_go(rings, all[warp]);
            score(shared, keys, own, span.length, lane, scores);
        }
        scale_sums(r, weigh(scores, lane, pass, shared, r));
#pragma unroll
        for (int k = 0; k < 4; k++) {
            u32 at = first + k * UNIT, begin = all[quad + k].taken + skipped + KEPT_STAGES;
            if (at >= span.end) break;
            uint2 values[4];
            const u16* low = kept_stage(rings, quad + k, begin);
            const u16* high = KEPT_STAGES == 1 ? low + 8 * HEAD : kept_stage(rings, quad + k, begin + 1);
            load_values<FromShared>(low, high, lane, values);
            if (at + UNIT >= span.length) patch_values(values, at, span.length - 1, shared.fresh, lane);
            sum_values(values, shared.weights[pass & 1][quad + k][lane], r);
        }
        if (first + CHUNK_MIN >= span.end) break;
        quad_together();
        let_go(rings, all[warp]);
    }
    return r;
}

// After a barrier: the last values may go.
__device__ __forceinline__ void finish_kept(const Rings& rings, Saved& saved) {
    // Where this warp had some of the last positions.
    if (((saved.held - saved.taken) / KEPT_STAGES) % 2) let_go(rings, saved);
    __syncwarp();
    if (own_lane() == 0) saved.taken = saved.held;
}

// Attention as a phase of `token.cu`: the blocks that have a chunk of positions, up to 64 per group of heads.
//
// At most 256 positions are one block's work per group and need no merging. Beyond, every block that had a chunk merges a
// few elements of all of them, because one block would have to read what all have left: 200 KB at 64 chunks.

__device__ __forceinline__ HeadPart take_head(const u64* head, u32 tag) {
    int lane = threadIdx.x % WARP;
    u64 seen[HEAD_EACH];
#pragma unroll
    for (int i = 0; i < HEAD_EACH; i++) seen[i] = i * WARP + lane < HEAD ? look(head + i * WARP + lane) : 0;
    HeadPart h;
#pragma unroll
    for (int i = 0; i < HEAD_EACH; i++) {
        h.v[i] = i * WARP + lane < HEAD ? settle(seen[i], head + i * WARP + lane, tag) : 0.0f;
    }
    return h;
}

// Queries ready, the row's own key and value in the cache and in `fresh`; as in `attention.cu`.
__device__ __forceinline__ void begin(const Heads& s, const Span& span, const u32* table, u32 tag, AttentionShared& shared) {
    int warp = threadIdx.x / WARP;
    u32 position = span.length - 1;
    const u64* rows = (const u64*)s.rows;
    if (warp < GROUP) {
        float* staged = shared.staged[warp];
        Turn turn = load_turn(s, position);
        finish_head(s, take_head(rows + (span.part * GROUP + warp) * HEAD, tag), s.q_norm, turn, s.scale, staged);
        place_query(shared, staged, warp);
    } else if (warp < 8) {
        place_query(shared, 0, warp);
    } else if (warp < 10 && span.end == span.length) {
        int side = warp - 8;
        float* staged = shared.staged[GROUP + side];
        Turn turn = load_turn(s, position);
        HeadPart x = take_head(rows + (s.heads + side * s.kv_heads + span.kv_head) * HEAD, tag);
        if (side == 0) finish_head(s, x, s.k_norm, turn, 1.0f, staged);
        else store_head(x, staged);
        store_half_head(shared.fresh[side], staged);
        store_half_head(cached(s, table, position, side, span.kv_head), staged);
    }
    __syncthreads();
}

// All blocks that had a chunk of these heads merge, each a few elements, in the order of the chunks.
__device__ __forceinline__ void merge(const Attention& p, const Span& span, u32 tag, AttentionShared& shared) {
    constexpr int EACH = (GROUP * HEAD + SPLITS + 511) / 512;
    u32 splits = span.splits, count = (GROUP * HEAD + splits - 1) / splits, first = span.split * count;
    const u64* base = (const u64*)p.partial + (u64)span.part * GROUP * SPLITS * (HEAD + 2);
    auto place = [&](u32 at) {
        u32 element = first + at % count;
        return base + ((u64)(element / HEAD) * SPLITS + at / count) * (HEAD + 2) + 2 + element % HEAD;
    };
    auto exists = [&](u32 at) { return at < count * splits && first + at % count < GROUP * HEAD; };
    u32 own = threadIdx.x, h = own / splits;
    const u64* statistics = base + ((u64)h * SPLITS + own % splits) * (HEAD + 2);
    u64 largest = 0, total = 0, seen[EACH];
    if (h < GROUP) largest = look(statistics), total = look(statistics + 1);
#pragma unroll
    for (int i = 0; i < EACH; i++) seen[i] = exists(own + i * 512) ? look(place(own + i * 512)) : 0;
    if (h < GROUP) {
        shared.merge.weights[h][own % splits] = settle(largest, statistics, tag);
        shared.merge.totals[h][own % splits] = settle(total, statistics + 1, tag);
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        u32 at = own + i * 512;
        if (exists(at)) shared.merge.values[at] = settle(seen[i], place(at), tag);
    }
    __syncthreads();
    if (threadIdx.x / WARP < GROUP) share_out(shared, threadIdx.x / WARP, splits);
    __syncthreads();
    for (u32 i = threadIdx.x; i < count && first + i < GROUP * HEAD; i += 512) {
        const float* weights = shared.merge.weights[(first + i) / HEAD];
        float sum = 0.0f;
#pragma unroll 8
        for (u32 s = 0; s < splits; s++) sum = __fmaf_rn(shared.merge.values[s * count + i], weights[s], sum);
        put((u64*)p.output + slot_of(span.part * GROUP * HEAD + first + i), sum, tag);
    }
    __syncthreads();
}

// What attention needs that is the same in all layers.
struct Place {
    Span span;             // of this block's first item
    const u32* table;
    u32 position, parts, items;
    // Where the keys of each warp's first positions stand in the cache, but for the layer.
    u64 units[PRODUCT_WARPS];
};

__device__ __forceinline__ void find_place(const Heads& s, Place& place) {
    u32 warp = threadIdx.x / WARP, position = s.positions[0], parts = s.heads / GROUP;
    const u32* table = table_of(s, 0);
    Span span = span_of(s, position, blockIdx.x / parts, blockIdx.x % parts);
    u32 first = span.start + warp * UNIT;
    if (first < span.end && blockIdx.x < span.splits * parts) {
        place.units[warp] = (u8*)cached(s, table, first, 0, span.kv_head) - s.cache - s.layer_offset;
    }
    if (threadIdx.x == 0) {
        place.span = span, place.table = table;
        place.position = position, place.parts = parts, place.items = span.splits * parts;
    }
}

__device__ __forceinline__ void
token_attention(const Attention& p, const Place& place, AttentionShared& shared, u32 input, u32 tag, u64* times) {
    const Heads& s = p.heads;
    u32 warp = threadIdx.x / WARP, parts = place.parts;
    bool alone = place.span.splits == 1;
#pragma unroll 1
    for (u32 item = blockIdx.x; item < place.items; item += gridDim.x) {
        bool is_first = item == blockIdx.x;
        Span span = is_first ? place.span : span_of(s, place.position, item / parts, item % parts);
        // Keys and values of earlier positions do not depend on this step: they are on their way before the wait.
        uint4 keys[2][KEY_PIECES];
        u32 first = span.start + warp * UNIT;
        if (first < span.end) {
            ask(s, is_first ? (const u16*)(s.cache + s.layer_offset + place.units[warp])
                            : cached(s, place.table, first, 0, span.kv_head), keys);
        }
        note(times, 1);
        begin(s, span, place.table, input, shared);
        note(times, 2);
        Running r = walk(s, place.table, span, shared, true, keys);
        note(times, 3);
        gather(shared, r);
#pragma unroll 1
        for (u32 at = threadIdx.x; at < GROUP * HEAD; at += 512) {
            u32 h = at / HEAD, c = at % HEAD, head = span.part * GROUP + h;
            float x = gathered(shared, h, c);
            if (alone) {
                put((u64*)p.output + slot_of(head * HEAD + c), x / shared.all_total[h], tag);
                continue;
            }
            u64* own = (u64*)p.partial + ((u64)head * SPLITS + span.split) * (HEAD + 2);
            put(own + 2 + c, x, tag);
            if (c == 0) put(own, shared.all_largest[h], tag), put(own + 1, shared.all_total[h], tag);
        }
        __syncthreads();
        note(times, 4);
    }
    if (alone) return;
#pragma unroll 1
    for (u32 item = blockIdx.x; item < place.items; item += gridDim.x) {
        merge(p, item == blockIdx.x ? place.span : span_of(s, place.position, item / parts, item % parts), tag, shared);
    }
}

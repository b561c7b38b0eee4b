// Attention as a phase of `decode_persistent.cu`: the blocks that have a chunk of positions of a group of heads.
//
// At most 256 positions are one block's work per group and need no merging. Beyond, every block that had a chunk merges a
// few elements of all of them, because one block would have to read what all have left: 200 KB at 64 chunks.

#include "tagged.cuh"
#include "persistent_kv.cuh"

// A head, when all of it is there. What is looked at again is looked at together: one after the other would wait for each.
__device__ __forceinline__ HeadPart take_head(const u32* head, u32 mark) {
    int lane = this_thread() % WARP;
    u32 seen[HEAD_EACH], apart;
    do {
        apart = 0;
#pragma unroll
        for (int i = 0; i < HEAD_EACH; i++) seen[i] = i * WARP + lane < HEAD ? load_relaxed(head + i * WARP + lane) : mark;
#pragma unroll
        for (int i = 0; i < HEAD_EACH; i++) apart |= (seen[i] ^ mark) & 3;
    } while (apart);
    __syncwarp();
    HeadPart h;
#pragma unroll
    for (int i = 0; i < HEAD_EACH; i++) h.v[i] = i * WARP + lane < HEAD ? value_of(seen[i]) : 0.0f;
    return h;
}

// Queries ready, the row's own key and value in the cache, in `fresh` and among the first values; as in `attention.cu`.
__device__ __forceinline__ void
begin(const Heads& s, const Cache& cache, u32 mark, AttentionShared& shared, const WholeRing& ring, const Saved* all) {
    const Span& span = cache.span;
    u32 warp = this_thread() / WARP, position = span.length - 1, side = warp - 8;
    bool is_query = warp < GROUP, is_own = side < 2 && span.end == span.length;
    if (is_query || is_own) {
        u32 head = is_query ? span.part * GROUP + warp : FIRST_KEY(s) + side * s.kv_heads + span.kv_head;
        float* staged = shared.staged[is_query ? warp : GROUP + side];
        Turn turn = load_turn(s, position);
        HeadPart x = take_head((const u32*)s.rows + head * HEAD, mark);
        if (side == 1) store_head(x, staged);
        else finish_head(s, x, is_query ? s.q_norm : s.k_norm, turn, is_query ? s.scale : 1.0f, staged);
        if (is_own) {
            keep_fresh(shared, side, staged);
            if (side == 1) store_value(span, ring, all, staged);
            cache_head(near_by(s, cache.table, cache.near, span, position, side), position, staged, side);
        }
    }
    if (side == 2 && span.end == span.length) clear_values(span, ring, all);
    if (warp < 8) store_query(shared.queries, is_query ? shared.staged[warp] : 0, warp);
    together();
}

#if OUTPUT_GATES
// A result with its gate, which came with the queries.
__device__ __forceinline__ float gated_result(const Heads& s, u32 first_head, u32 element, u32 mark, float x) {
    const u32* gate = (const u32*)s.rows + gate_offset(s, first_head) + element;
    return with_gate(x, residual_norm_quant(load_relaxed(gate), gate, mark));
}
#else
__device__ __forceinline__ float gated_result(const Heads&, u32, u32, u32, float x) {
    return x;
}
#endif

// All blocks that had a chunk of these heads merge, each a few elements, in the order of the chunks.
__device__ __forceinline__ void
merge(const Attention& p, const Span& span, u32 apart, u32 tag, u32 mark, u32 input, AttentionShared& shared) {
    constexpr int EACH = (GROUP * HEAD + SPLITS + 511) / 512;
    u32 splits = span.splits, count = (GROUP * HEAD + splits - 1) / splits, first = span.split * count;
    const u64* base = (const u64*)p.partial + (u64)span.part * GROUP * SPLITS * (HEAD + 2);
    auto slot = [&](u32 at) {
        u32 element = first + at % count;
        return base + ((u64)(element / HEAD) * SPLITS + at / count) * (HEAD + 2) + 2 + element % HEAD;
    };
    auto exists = [&](u32 at) { return at < count * splits && first + at % count < GROUP * HEAD; };
    u32 own = this_thread(), h = own / splits;
    const u64* statistics = base + ((u64)h * SPLITS + own % splits) * (HEAD + 2);
    u64 largest, total, seen[EACH];
    bool stale;
    do {
        u64 none = (u64)tag << 32;
        largest = h < GROUP ? load_relaxed(statistics) : none, total = h < GROUP ? load_relaxed(statistics + 1) : none;
#pragma unroll
        for (int i = 0; i < EACH; i++) seen[i] = exists(own + i * 512) ? load_relaxed(slot(own + i * 512)) : none;
        stale = !is_from(largest, tag) || !is_from(total, tag);
#pragma unroll
        for (int i = 0; i < EACH; i++) stale |= !is_from(seen[i], tag);
    } while (stale);
    if (h < GROUP) {
        shared.merge.weights[h][own % splits] = tagged_value(largest);
        shared.merge.totals[h][own % splits] = tagged_value(total);
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        u32 at = own + i * 512;
        if (exists(at)) shared.merge.values[at] = tagged_value(seen[i]);
    }
    together();
    if (u32 h = this_thread() / WARP; h < GROUP) share_out(shared.merge.weights[h], shared.merge.totals[h], splits);
    together();
    for (u32 i = this_thread(); i < count && first + i < GROUP * HEAD; i += 512) {
        const float* weights = shared.merge.weights[(first + i) / HEAD];
        float sum = 0.0f;
#pragma unroll 8
        for (u32 s = 0; s < splits; s++) sum = __fmaf_rn(shared.merge.values[s * count + i], weights[s], sum);
        sum = gated_result(p.heads, span.part * GROUP, first + i, input, sum);
        put_copies<ATTENDED_COPIES>((u32*)p.output + span.part * GROUP * HEAD + first + i, apart, sum, mark);
    }
    together();
}

__device__ __forceinline__ void token_attention(const Attention& p, const Job& job, const Cache& cache, AttentionShared& shared,
                                                const WholeRing& ring, Saved* all, u32 count, u64* times) {
    if (blockIdx.x >= cache.items) return;
    const Span& span = cache.span;
    Saved& saved = all[this_thread() / WARP];
    Taken taken;
    foresee_kv(span, ring, saved, taken);
    note(times, 1);
    // Whoever still reads what the phase before left in shared memory.
    together();
    begin(p.heads, cache, input_mark(job, keep(saved.launches)), shared, ring, all);
    note(times, 2);
    Running r = walk_kv(span, shared, ring, all, taken);
    note(times, 3);
    gather(shared, r);
    u32 launches = keep(saved.launches), mark = output_mark(job, launches), tag = launches * count + job.phase + 1;
    u32 own = this_thread(), input = OUTPUT_GATES ? input_mark(job, launches) : 0;
#pragma unroll
    for (u32 round = 0; round < VALUE_ROUNDS; round++) {
        if (round > 0) together(), gather(shared, r, round);
        if (own >= GROUP * GATHERED / 2) continue;
        u32 h = own / (GATHERED / 2), at = own % (GATHERED / 2) * 2, c = gathered_element(at, round), head = span.part * GROUP + h;
        Gathered g = gathered(shared, h, at);
        if (span.splits == 1) {
            u32* out = (u32*)p.output + head * HEAD + c;
            put_copies<ATTENDED_COPIES>(out, job.apart, gated_result(p.heads, head, c, input, g.x.x / g.total), mark);
            put_copies<ATTENDED_COPIES>(out + 1, job.apart, gated_result(p.heads, head, c + 1, input, g.x.y / g.total), mark);
        } else {
            u64* to = (u64*)p.partial + ((u64)head * SPLITS + span.split) * (HEAD + 2);
            put_tagged(to + 2 + c, g.x.x, tag), put_tagged(to + 3 + c, g.x.y, tag);
            if (c == 0) put_tagged(to, g.largest, tag), put_tagged(to + 1, g.total, tag);
        }
    }
    finish_kv(span, saved);
    note(times, 4);
    // What follows writes no further than where the queries were, and nobody reads those any more; merging writes over sums.
    if (span.splits == 1) return;
    together();
    merge(p, span, job.apart, tag, mark, input, shared);
}

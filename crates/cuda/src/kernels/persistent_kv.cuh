// Keys and values of earlier positions, which come through the ring like weights: they are known before the step begins, so
// they are in flight while the queries are computed, and the memory is never without something to do.
//
// A warp has the keys of sixteen positions (eight where heads are long), then their values. Its keys it reads alone; the values of four warps are read by all
// four, each a quarter of the elements (`attention.cuh`), so they are let go together.

#include "attention.cuh"
#include "ring.cuh"

// Slots of a stage: sixteen keys, or values.
#define KEPT_SLOTS slots_of(UNIT_BYTES)
static_assert(UNIT_BYTES <= KEPT_SLOTS * SLOT_BYTES, "keys fit a stage");
static_assert(2 * KEPT_SLOTS <= DEPTH, "values stay while the next keys come");

// What attention needs that is the same in all layers.
struct Cache {
    Span span;             // of this block, if it is one of
    u32 items;
    const u32* table;
    u64 block_bytes;
    u32 side_bytes;        // From the keys of a head to its values.
    u64 swizzled;            // A barrier: all this is known.
#ifdef WITH_DELTA
    u64 state_offset;      // Of this sequence's states, from a layer's first.
    u32 state_heads;
    u32 slot;
    u32 position;
#endif
    Near near;
};

// Where recurrent states are: `delta.cuh`.
struct DeltaRun;
struct DeltaSlots {
    const DeltaRun* runs;
    u64 slot_bytes;
    u32 heads;
    u32 padding;
};
MIRRORED(DeltaSlots);

// Needs what the step before wrote; called by all.
__device__ __forceinline__ void find_slot(const Heads& s, Cache& cache) {
    u32 position = s.positions[0], parts = s.heads / GROUP;
    const u32* table = table_of(s, 0);
    Span span = span_of(s, position, blockIdx.x / parts, blockIdx.x % parts);
    u32 items = span.splits * parts;
    if (blockIdx.x < items) fill_near(cache.near, table, span);
    if (this_thread() != 0) return;
    cache.span = span, cache.table = table, cache.items = items;
    cache.block_bytes = s.block_bytes, cache.side_bytes = s.kv_heads * (KV_BLOCK / UNIT) * UNIT_BYTES;
}

// Tells the feeder, after a barrier. What the step before wrote to the cache is there for the copy engine too.
__device__ __forceinline__ void tell_slot(Cache& cache) {
    show_copy_engine();
    barrier_arrive(shared_address(&cache.swizzled));
}

// Stages of keys and of values, by turns: sixteen positions of each warp that has them.
__device__ __forceinline__ void feed_kv(Feeder& f, const Stretch& s, const Cache& cache) {
    barrier_wait(shared_address(&cache.swizzled), 0);
    u32 end = cache.span.end, lane = own_lane();
    if (blockIdx.x >= cache.items) return;
#pragma unroll 1
    for (u32 first = cache.span.start; first < end; first += CHUNK_MIN) {
        u32 have = min((u32)ATTENTION_WARPS, (end - first + UNIT - 1) / UNIT), position = first + lane * UNIT;
        const u8* from = s.weights;
        if (lane < have) {
            u32 row = cache.span.kv_head * KV_BLOCK + position % KV_BLOCK;
            from += block_at(cache.table, cache.near, cache.span, position) * cache.block_bytes + row * (UNIT_BYTES / UNIT);
        }
#pragma unroll 1
        for (u32 side = 0; side < 2; side++, from += cache.side_bytes) {
            Coming c = make_room<KEPT_SLOTS>(f, have * UNIT_BYTES);
            if (lane < have) fetch(c.to + lane * KEPT_SLOTS * SLOT_BYTES, from, UNIT_BYTES, c.barrier, pass_through());
        }
    }
}

// The ring, as all warps see it.
struct WholeRing {
    const u8* data;
    u32 full;
};

// Where a warp's part of a stage is that begins with this slot.
__device__ __forceinline__ Element* kv_at(const WholeRing& ring, u32 warp, u32 slot) {
    return (Element*)(ring.data + slot % DEPTH * STAGE_BYTES + warp * KEPT_SLOTS * SLOT_BYTES);
}

// The same, when it is there.
__device__ __forceinline__ Element* kv_stage(const WholeRing& ring, u32 warp, u32 slot) {
    barrier_wait(ring.full + slot % DEPTH * 8, slot / DEPTH & 1);
    return kv_at(ring, warp, slot);
}

// This warp's keys or values have been read by whoever reads them.
__device__ __forceinline__ void let_go(Saved& saved) {
    __syncwarp();
    if (own_lane() == 0) {
        saved.held += KEPT_SLOTS;
        store_after_reads(shared_address(&saved.released), saved.held);
    }
    __syncwarp();
}

// A warp's keys in registers, and the scales of its positions, those of values too where they have come.
struct Taken {
    Key keys[KEY_GROUPS][KEY_PIECES];
    Scales scales;
};

__device__ __forceinline__ void take_keys(const WholeRing& ring, Saved& saved, u32 slot, Taken& taken) {
    const Element* rows = kv_stage(ring, this_thread() / WARP, slot);
#pragma unroll
    for (int i = 0; i < KEY_GROUPS; i++) load_keys<FromShared>(rows + i * 8 * HEAD, this_thread() % WARP, taken.keys[i]);
    load_scales<FromShared>(rows, this_thread() % WARP, 0, taken.scales);
    let_go(saved);
}

// Where this block's stages begin and end.
__device__ __forceinline__ u32 kv_begin(u32 taken) {
    return taken + ring_gap(taken, KEPT_SLOTS);
}

__device__ __forceinline__ u32 kv_end(const Span& span, u32 begin) {
    return begin + (span.end - span.start + CHUNK_MIN - 1) / CHUNK_MIN * 2 * KEPT_SLOTS;
}

// This warp reads no more of them.
__device__ __forceinline__ void let_all_go(const Span& span, Saved& saved) {
    __syncwarp();
    if (own_lane() == 0) {
        saved.held = kv_end(span, saved.taken);
        store_after_reads(shared_address(&saved.released), saved.held);
    }
    __syncwarp();
}

// All that attention can do before the queries are there: a warp's first keys go into registers, and its first values have come.
// From here on `taken` is where the first stage begins.
__device__ __forceinline__ void foresee_kv(const Span& span, const WholeRing& ring, Saved& saved, Taken& taken) {
    u32 warp = this_thread() / WARP, begin = kv_begin(saved.taken);
    __syncwarp();
    if (own_lane() == 0) saved.held = saved.taken = begin;
    __syncwarp();
    if (span.start + warp * UNIT >= span.end) return let_all_go(span, saved);
    take_keys(ring, saved, begin, taken);
    kv_stage(ring, warp, begin + KEPT_SLOTS);
}

// Puts the row's own value among the first ones, where it belongs there; one warp.
__device__ __forceinline__ void store_value(const Span& span, const WholeRing& ring, const Saved* all, const float* value) {
    u32 position = span.length - 1, warp = (position - span.start) / UNIT;
    if (warp >= ATTENTION_WARPS) return;
    Element* rows = kv_stage(ring, warp, all[warp].taken + KEPT_SLOTS);
    cache_head(rows + position % UNIT * HEAD, position, value, 1);
}

// Positions that are still to come may hold anything, which must not meet a weight of zero; one warp.
__device__ __forceinline__ void clear_values(const Span& span, const WholeRing& ring, const Saved* all) {
    u32 warp = (span.length - 1 - span.start) / UNIT, first = span.length % UNIT;
    if (warp >= ATTENTION_WARPS || first == 0) return;
    uint4* rows = (uint4*)kv_stage(ring, warp, all[warp].taken + KEPT_SLOTS);
    u32 each = 16 / sizeof(Element);
    for (u32 at = first * HEAD / each + own_lane(); at < UNIT * HEAD / each; at += WARP) rows[at] = make_uint4(0, 0, 0, 0);
}

// The same as `walk`, bit for bit, after `foresee_kv` and what comes into the first values. `taken` stays, where the other
// warps read it.
__device__ __forceinline__ Running
walk_kv(const Span& span, AttentionShared& shared, const WholeRing& ring, Saved* all, Taken& taken) {
    u32 warp = this_thread() / WARP, quad = warp / 4 * 4, skipped = 0;
    int lane = this_thread() % WARP;
    Running r = {-INFINITY, 0.0f, {}};
#pragma unroll 1
    for (u32 first = first_of(span); first < span.end; first += CHUNK_MIN, skipped += 2 * KEPT_SLOTS) {
        u32 own = first + warp % 4 * UNIT, pass = skipped / (2 * KEPT_SLOTS);
        float scores[KEY_GROUPS][2];
#pragma unroll
        for (int i = 0; i < KEY_GROUPS; i++) scores[i][0] = scores[i][1] = -INFINITY;
        if (own < span.end) {
            if (skipped) take_keys(ring, all[warp], all[warp].taken + skipped, taken);
#if KV8
            load_scales<FromShared>(kv_stage(ring, warp, all[warp].taken + skipped + KEPT_SLOTS), lane, 1, taken.scales);
#endif
            if (own + UNIT >= span.length) {
#pragma unroll
                for (int i = 0; i < KEY_GROUPS; i++) patch_keys(taken.keys[i], own + i * 8, span.length - 1, shared.fresh, lane);
                patch_scales(taken.scales, own, span.length - 1, shared.fresh_scales, lane);
            }
            score(shared.queries, taken.keys, taken.scales, own, span.length, lane, scores);
        }
        scale_sums(r, weigh(scores, taken.scales, lane, pass, shared, r));
#pragma unroll
        for (int k = 0; k < 2 * KEY_GROUPS; k++) {
            u32 at = first + k * 16, other = quad + k * 16 / UNIT, begin = all[other].taken + skipped + KEPT_SLOTS;
            if (at >= span.end) break;
            const Element* rows = skipped ? kv_stage(ring, other, begin) : kv_at(ring, other, begin);
            const Element* next = KEY_GROUPS == 1 ? kv_at(ring, other + 1, begin) : rows + 8 * HEAD;
#pragma unroll
            for (u32 round = 0; round < VALUE_ROUNDS; round++) {
                Value values[4];
                load_values<FromShared>(rows, next, lane, values, round);
                if ((KEY_GROUPS == 1 || skipped) && at + 16 >= span.length) {
                    patch_values(values, at, span.length - 1, skipped ? shared.fresh : 0, lane, round);
                }
                sum_values(values, shared.weights[pass & 1][quad * KEY_GROUPS / 2 + k][lane], r, round);
            }
        }
        if (span.start + (pass + 1) * CHUNK_MIN >= span.end) break;
        quad_together();
        let_go(all[warp]);
    }
    return r;
}

// After a barrier: the last values may go. Some were written into, which comes before what the copy engine puts there.
__device__ __forceinline__ void finish_kv(const Span& span, Saved& saved) {
    order_copy_engine();
    let_all_go(span, saved);
    if (own_lane() == 0) saved.taken = saved.held;
    __syncwarp();
}

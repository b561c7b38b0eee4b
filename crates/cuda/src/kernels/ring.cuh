// The stream of weights: fetched as far ahead as shared memory reaches, and phases do not matter to it.
//
// Which weights a block needs, and in which order, is known before anything is computed, and so are the keys and values of
// earlier positions, which come the same way (`token_cache.cuh`). So for every warp that computes, one
// lane of a warp that does nothing else asks the copy engine for stages of a few chunks through all phases, always as many
// as the warp's ring holds: 164 KB on every multiprocessor, 21 MB in all, most of a layer of the 1.5B. The memory never waits
// for a dependency between phases as long as the dependency takes less time than those bytes, 4 us on an H200.
//
// A ring is DEPTH slots. A stage takes as many as its bytes need, one to three, and begins at a multiple of that; slots before
// it are passed over. A slot has a barrier, which is told of what comes, and at once where nothing does: a slot that is passed over, or
// not the first of its stage. So every barrier changes once in a round. The other way a warp says how far it has read, in one word.
//
// The warps that compute only wait for a stage and say when they have read it. When they did the fetching themselves it was
// a seventh of all instructions, and stood between the phases (2026-11-16).

// What a phase has this block read; the host writes these. A tile is a row of chunks. Warps take the same columns of all their
// tiles, so that the input for these stays in registers: columns are cut into parts of `width` super-blocks, and the tiles
// dealt out in turn to the groups of warps that have all parts, so that what a block reads at a time stands together: with a run
// of tiles for each warp the logits of the 1.5B took 65 us instead of 41 (H200, 2026-11-16). With more parts than warps the
// parts of all tiles are counted, part after part, and every warp has a run of those.
struct Stretch {
    const u8* weights;
    const u8* second;      // The up matrix where `weights` is the gate.
    u16 tiles;             // of both matrices
    u16 matrix_tiles;      // of the first; none where `second` is a `List`
    u16 supers;
    u16 chunk;             // Bytes.
    u16 width;
    u16 parts;
    u16 groups;            // None where there are more parts than warps.
    u16 stage;             // Bytes: as many whole chunks as fit its slots.
};

// Attention has two sides instead of parts: keys and values of a layer, from `weights` on in every block of the cache.
__device__ __forceinline__ bool is_cache(const Stretch& s) {
    return s.tiles && !s.parts;
}

// Where the parts of a matrix begin whose columns stand apart from each other, and how many super-blocks each has.
struct List {
    const u8* starts[USED_MAX];
    u32 supers;
};

// A warp's units, parts of tiles: where it begins, how far the next tile is, and how many there are.
struct Units {
    u32 part, tile, stride, count;
};

// Of numbers far below 2^16.
__device__ __forceinline__ u32 quotient(u32 a, u32 b) {
    return (u32)__fdividef((float)a + 0.5f, (float)b);
}

__device__ __forceinline__ Units units_of(const Stretch& s, u32 warp) {
    u32 parts = s.parts, tiles = s.tiles, groups = s.groups;
    if (groups) {
        u32 group = quotient(warp, parts), count = quotient(tiles + groups - 1 - group, groups);
        return {warp - group * parts, group, groups, group < groups ? count : 0};
    }
    u32 all = parts * tiles, each = all / PRODUCT_WARPS, more = all % PRODUCT_WARPS, first = warp * each + min(warp, more);
    u32 part = quotient(first, tiles);
    return {part, first - part * tiles, 1, each + (warp < more)};
}

// Slots of stages with at most so many bytes.
__device__ __forceinline__ constexpr u32 slots_of(u32 bytes) {
    return bytes > 2 * SLOT_BYTES ? 3 : bytes > SLOT_BYTES ? 2 : 1;
}

// Slots to pass over before a stage of so many.
__device__ __forceinline__ u32 ring_gap(u32 slot, u32 slots) {
    u32 past = slots == 1 ? 0 : slots == 2 ? slot % 2 : slot % 3;
    return past ? slots - past : 0;
}

// Places in a ring are counted modulo two rounds, so that a full one is told from an empty one.
__device__ __forceinline__ u32 ring_sum(u32 a, u32 b) {
    return a + b >= 2 * DEPTH ? a + b - 2 * DEPTH : a + b;
}

// Where a ring's feeder stands: pieces of memory equally far from each other.
struct Feeder {
    const u8* from;
    u32 left;              // Bytes of this piece,
    u32 pieces;            // pieces after it,
    u32 piece, jump;       // their bytes, and those from the end of one to the next.
    u32 stage, slots;      // Most bytes to fetch at once, and what they take.
    u32 phase;
    Units units;           // What comes after these pieces.
};

// In `token_cache.cuh`: goes on to the next sixteen keys or values of a warp.
struct Cache;
__device__ __forceinline__ bool next_kept(Feeder& f, u32 warp, const Stretch& s, const Cache& cache);

// The same part of as many tiles as follow each other.
__device__ __forceinline__ void next_units(Feeder& f, const Stretch& s) {
    if (f.units.tile >= s.tiles) f.units.part++, f.units.tile = 0;
    u32 chunk = s.chunk, supers = s.supers, tile = f.units.tile, tiles = s.tiles, stride = f.units.stride;
    u32 first = f.units.part * s.width, width = min((u32)s.width, supers - first);
    const u8* start = s.weights;
    if (MIXED && s.matrix_tiles == 0) {
        const List& list = *(const List*)s.second;
        u32 which = first / list.supers;
        supers = list.supers, first -= which * supers, start = list.starts[which];
    } else if (tile >= s.matrix_tiles) {
        start = s.second, tile -= s.matrix_tiles, tiles -= s.matrix_tiles;
    } else {
        tiles = s.matrix_tiles;
    }
    u32 count = min(quotient(tiles - tile + stride - 1, stride), f.units.count);
    f.units.tile += count * stride, f.units.count -= count;
    f.pieces = count - 1, f.piece = f.left = width * chunk, f.jump = stride * supers * chunk - f.piece;
    f.from = start + (tile * supers + first) * chunk, f.stage = s.stage, f.slots = slots_of(s.stage);
}

// Goes on to what this warp reads next, through all phases that are known. The first phase reads nothing.
__device__ __forceinline__ bool
next_pieces(Feeder& f, u32 warp, const Stretch* stretches, u32 known, const Cache& cache) {
    while (true) {
        const Stretch& s = stretches[f.phase];
        if (f.units.count) {
            next_units(f, s);
            return true;
        }
        if (is_cache(s) && next_kept(f, warp, s, cache)) return true;
        if (f.phase + 1 >= known) return false;
        f.units = units_of(stretches[++f.phase], warp);
    }
}

// Warps that feed; each lane fills the ring of one warp that computes, dealt out so that few lanes are at it in each.
#define WEIGHT_FEEDERS 3

// One of them. `known` says of how many phases it is known what they read.
//
// Lanes take turns, and in a turn each asks for the stages of one piece: what stands together in memory is asked for together.
// One stage in a turn and the logits of the 7B took 156 us instead of 111; all that a ring has room for, and the first warps had
// theirs full long before the last: a layer of the 1.5B took 23 us instead of 20 (H200, 2026-11-16).
__device__ __forceinline__ void
feed(u32 feeder, const Stretch* stretches, u32 count, u32 known, const Cache& cache, u32 data, const Saved* saved) {
    u32 warp = own_lane() * WEIGHT_FEEDERS + feeder, filled = 0, slot = 0;
    Feeder f = {};
    bool more = warp < PRODUCT_WARPS;
    // Worked out once: how to get at shared memory takes longer than to keep it.
    data = anew(data + warp * DEPTH * SLOT_BYTES);
    u32 full = anew(shared_address(saved[warp].full)), released = anew(shared_address(&saved[warp].released));
    while (__any_sync(FULL, more)) {
        bool fed = false;
        if (more && !f.left) {
            u32 until = MIXED ? load_acquire_shared(known) : count;
            more = next_pieces(f, warp, stretches, until, cache) || until < count;
        }
        __syncwarp();
        while (f.left) {
            u32 held = ring_sum(filled, 2 * DEPTH - load_before_writes(released)), gap = 0;
            if (f.slots > 1) gap = ring_gap(slot, f.slots);
            if (held + gap + f.slots > DEPTH) break;
            fed = true;
            if (gap) {
                // Told at once, like all of a stage's slots but the first.
                for (u32 i = 0; i < gap; i++) barrier_arrive(full + (slot + i) * 8);
                slot += gap, filled += gap;
                if (slot == DEPTH) slot = 0;
            }
            u32 bytes = min(f.stage, f.left), barrier = full + slot * 8;
            barrier_expect(barrier, bytes);
            fetch(data + slot * SLOT_BYTES, f.from, bytes, barrier, pass_through());
            if (f.slots > 1) barrier_arrive(barrier + 8);
            if (f.slots > 2) barrier_arrive(barrier + 16);
            slot += f.slots, filled = ring_sum(filled, f.slots), f.from += bytes, f.left -= bytes;
            if (slot == DEPTH) slot = 0;
            if (f.left) continue;
            if (f.pieces) f.pieces--, f.from += f.jump, f.left = f.piece;
            break;
        }
        // Looking all the time would take instructions from the warps that compute: after 40 ns the 1.5B was 0.7 % slower.
        if (!__any_sync(FULL, fed)) __nanosleep(MIXED ? 150 : 200);
    }
}

// A warp's side of its ring.
struct Ring {
    const u8* data;        // Its first slot.
    u32 full;              // The barrier of that slot; that of a slot is 8 bytes further on.
    u32 released;          // Where it says how far it has read.
    u32 slot, parity;      // The next stage's.
};

__device__ __forceinline__ Ring ring_at(const u8* data, u32 full, u32 released, u32 taken) {
    u32 parity = taken >= DEPTH;
    return {data, full, released, taken - parity * DEPTH, parity};
}

// Slots taken, modulo two rounds.
__device__ __forceinline__ u32 ring_taken(const Ring& r) {
    return r.slot + r.parity * DEPTH;
}

__device__ __forceinline__ void ring_skip(Ring& r, u32 slots) {
    r.slot += slots;
    if (r.slot == DEPTH) r.slot = 0, r.parity ^= 1;
}

// The next stage will have N slots.
template <u32 N>
__device__ __forceinline__ void ring_align(Ring& r) {
    static_assert(DEPTH % N == 0, "stages follow each other in a ring");
    ring_skip(r, ring_gap(r.slot, N));
}

// The stage that is next.
__device__ __forceinline__ const u8* ring_wait(const Ring& r) {
    barrier_wait(r.full + r.slot * 8, r.parity);
    return r.data + r.slot * SLOT_BYTES;
}

// The warp has read that stage, of N slots.
template <u32 N>
__device__ __forceinline__ void ring_next(Ring& r, u32 lane) {
    ring_skip(r, N);
    __syncwarp();
    if (lane == 0) store_after_reads(r.released, ring_taken(r));
}

// The stream of weights: fetched as far ahead as shared memory reaches, and phases do not matter to it.
//
// Which weights a block needs, and in which order, is known before anything is computed, and so are the keys and values of
// earlier positions, which come the same way (`persistent_kv.cuh`). So a warp that does nothing else asks the copy engine for
// stage after stage through all phases, always as many as the ring holds: 162 KB on every multiprocessor, 21 MB in all, most of a
// layer of the 1.5B. The memory never waits for a dependency between phases as long as the dependency takes less time than those
// bytes, 4 us on an H200.
//
// A stage is what all warps work on at a time, a part of a tile each, and these follow each other in memory. When every warp had a
// ring of its own, filled in pieces of 1,728 bytes as that warp went on, a layer of the 7B took 48 us, and takes 45 now. Reading
// alone, with nothing else running, such pieces come at 2.7 to 4.2 TB/s and 8 KB at a time at 4.6 to 4.7 (H200, 2026-11-17).
//
// The ring is DEPTH slots. A stage takes one, or as many as its bytes need, and begins at a multiple of that; slots before it are
// passed over. A slot has a barrier, which is told of what comes, and at once where nothing does: a slot that is passed over, or
// not the first of its stage. So every barrier changes once in a round. The other way each warp says how far it has read, in one
// word. Slots are counted from the beginning of the launch, and are the same for all warps where a phase begins.

#include "route.cuh"
#include "product.cuh"
#include "persistent_phase.cuh"

// What a phase has this block read; the host writes these. A tile is a row of chunks. Warps take the same columns of many
// tiles, so that the input for these stays in registers: columns are cut into parts of `width` super-blocks. A stage has all parts
// of as many tiles as there are warps for. Where there are more parts than warps, as many parts as warps are taken first, of one tile
// after the other, and again, as often as there are so many (`rounds`); then the rest as if there were no more.
struct Stretch {
    const u8* weights;
    const u8* second;      // The up matrix where `weights` is the gate.
    u16 tiles;             // of both matrices
    u16 matrix_tiles;      // of the first; none where `second` is a `List`
    u16 supers;
    u16 chunk;             // Bytes.
    u16 width;
    u16 rounds;
    u16 rest;              // Parts after the rounds; none where a warp has tiles as a whole.
    u16 group;             // Tiles of a stage after the rounds.
};
MIRRORED(Stretch);

// Attention has two sides instead of parts: keys and values of a layer, from `weights` on in every block of the cache. A recurrent state
// is from there on in its slot, and has a chunk.
__device__ __forceinline__ bool is_cache(const Stretch& s) {
    return s.tiles && !s.supers;
}

// Where the parts of a matrix begin whose columns stand apart from each other, and how many super-blocks each has.
struct List {
    const u8* starts[USED_MAX];
    u32 supers;
};

// Of numbers far below 2^16.
__device__ __forceinline__ u32 quotient(u32 a, u32 b) {
    return (u32)__fdividef((float)a + 0.5f, (float)b);
}

#define STAGE_BYTES (PRODUCT_WARPS * SLOT_BYTES)
static_assert(STAGE_BYTES <= WARP * PIECE, "a lane asks for one piece of a stage");
// Between two looks at how far the warps have read. Looking all the time would take instructions from them; 20 to 200 ns are alike.
#define FEEDER_PAUSE 100

// Slots of stages with at most so many bytes of a warp.
__device__ __forceinline__ constexpr u32 slots_of(u32 bytes) {
    return bytes > 2 * SLOT_BYTES ? 3 : bytes > SLOT_BYTES ? 2 : 1;
}

// Slots to pass over before a stage of so many.
__device__ __forceinline__ u32 ring_gap(u32 slot, u32 slots) {
    u32 past = slots == 1 ? 0 : slots == 2 ? slot % 2 : slot % 3;
    return past ? slots - past : 0;
}

// The side that fills the ring.
struct Feeder {
    u32 data, full;        // The first slot, and its barrier.
    u32 released;          // Where the warp of this lane says how far it has read.
    u32 filled;
};

// A stage in flight.
struct Coming {
    u32 to, barrier;
};

// Waits until all warps have read what stood there; lane 0 says what will come. All lanes call it.
template <u32 SLOTS>
__device__ __forceinline__ Coming make_room(Feeder& f, u32 bytes) {
    static_assert(DEPTH % SLOTS == 0, "stages follow each other in a ring");
    u32 gap = ring_gap(f.filled, SLOTS), begin = f.filled + gap, slot = begin % DEPTH;
    while (__any_sync(FULL, (int)(begin + SLOTS - DEPTH - load_before_writes(f.released)) > 0)) __nanosleep(FEEDER_PAUSE);
    f.filled = begin + SLOTS;
    if (own_lane() == 0) {
        for (u32 i = 1; i <= gap; i++) barrier_arrive(f.full + (slot + DEPTH - i) % DEPTH * 8);
        barrier_expect(f.full + slot * 8, bytes);
#pragma unroll
        for (u32 i = 1; i < SLOTS; i++) barrier_arrive(f.full + (slot + i) * 8);
    }
    __syncwarp();
    return {f.data + slot * STAGE_BYTES, f.full + slot * 8};
}

// One stage that is a piece of memory, between two places in the matrices as if they followed each other.
__device__ __forceinline__ void feed_between(Feeder& f, const Stretch& s, u32 from, u32 to) {
    Coming c = make_room<1>(f, to - from);
    u32 lane = own_lane(), second = s.matrix_tiles * s.supers * s.chunk;
    // A piece for each lane, or one of each matrix where the stage is the end of one and the beginning of the other.
    bool both = from < second && second < to;
    u32 begin = both ? (lane ? second : from) : from + lane * PIECE;
    u32 end = both ? (lane ? to : second) : min(begin + PIECE, to);
    const u8* start = begin < second ? s.weights + begin : s.second + (begin - second);
    if (begin < end && (!both || lane < 2)) fetch(c.to + begin - from, start, end - begin, c.barrier, pass_through());
}

// One stage of parts that stand apart, from a super-block on: a lane asks for one.
__device__ __forceinline__ void feed_apart(Feeder& f, const Stretch& s, u32 first, u32 tile, u32 tiles, u32 parts) {
    u32 lane = own_lane(), own = quotient(lane, parts), bytes = s.width * s.chunk, all = bytes * parts;
    bool listed = MIXED && s.matrix_tiles == 0;
    // The ends of tiles, of which a lane asks for one, or parts of matrices that begin at different places.
    if (!listed) own = lane, all = bytes = (s.supers - first) * s.chunk;
    Coming c = make_room<1>(f, tiles * all);
    u32 at = tile + own, second = s.matrix_tiles;
    const u8* start = (at < second ? s.weights : s.second) + ((at < second ? at : at - second) * s.supers + first) * s.chunk;
    if (listed && own < tiles) {
        const List& list = *(const List*)s.second;
        u32 super = first + (lane - own * parts) * s.width, which = super / list.supers;
        start = list.starts[which] + (at * list.supers + super - which * list.supers) * s.chunk;
    }
    if (own < tiles) fetch(c.to + lane * bytes, start, bytes, c.barrier, pass_through());
}

// Stages of parts.
__device__ __forceinline__ void feed_parts(Feeder& f, const Stretch& s) {
    u32 first = 0, row = s.supers * s.chunk, jump = PRODUCT_WARPS * s.width;
    bool listed = MIXED && s.matrix_tiles == 0;
#pragma unroll 1
    for (u32 round = 0; round < s.rounds; round++, first += jump) {
        u32 from = first * s.chunk, to = min(first + jump, (u32)s.supers) * s.chunk;
#pragma unroll 1
        for (u32 tile = 0; tile < s.tiles; tile++) {
            if (listed) feed_apart(f, s, first, tile, 1, PRODUCT_WARPS);
            else feed_between(f, s, tile * row + from, tile * row + to);
        }
    }
#pragma unroll 1
    for (u32 tile = 0; s.rest && tile < s.tiles; tile += s.group) {
        u32 tiles = min((u32)s.group, s.tiles - tile);
        if (listed || first) feed_apart(f, s, first, tile, tiles, s.rest);
        else feed_between(f, s, tile * row, (tile + tiles) * row);
    }
}

// Tiles that one warp has as a whole: as many at a time as there are warps, in several stages.
__device__ __forceinline__ void feed_whole(Feeder& f, const Stretch& s) {
    u32 row = s.supers * s.chunk, stage = quotient(SLOT_BYTES, s.chunk) * s.chunk, lane = own_lane();
#pragma unroll 1
    for (u32 tile = 0; tile < s.tiles; tile += PRODUCT_WARPS) {
        u32 have = min((u32)PRODUCT_WARPS, s.tiles - tile), own = tile + lane, second = s.matrix_tiles;
        const u8* start = own < second ? s.weights + (u64)own * row : s.second + (u64)(own - second) * row;
#pragma unroll 1
        for (u32 at = 0; at < row; at += stage) {
            u32 bytes = min(stage, row - at);
            Coming c = make_room<1>(f, have * bytes);
            if (lane < have) fetch(c.to + lane * SLOT_BYTES, start + at, bytes, c.barrier, pass_through());
        }
    }
}

// In `persistent_kv.cuh`: keys and values of a layer.
struct Cache;
__device__ __forceinline__ void feed_kv(Feeder& f, const Stretch& s, const Cache& cache);
// In `persistent_delta.cuh`: the state of a layer.
__device__ __forceinline__ void feed_state(Feeder& f, const Stretch& s, const Cache& cache);

// One warp, through all phases. `known` says of how many it is known what they read. The first reads nothing.
__device__ __forceinline__ void feed(Feeder f, const Stretch* stretches, u32 count, u32 known, const Cache& cache) {
#pragma unroll 1
    for (u32 phase = 1; phase < count; phase++) {
        while (MIXED && phase >= load_acquire_shared(known)) __nanosleep(FEEDER_PAUSE);
        __syncwarp();
        const Stretch& s = stretches[phase];
#ifdef WITH_DELTA
        if (is_cache(s) && s.chunk) {
            feed_state(f, s, cache);
            continue;
        }
#endif
        if (is_cache(s)) feed_kv(f, s, cache);
        else if (s.rounds + s.rest) feed_parts(f, s);
        else if (s.tiles) feed_whole(f, s);
    }
}

// A warp's side of the ring.
struct Ring {
    const u8* data;        // Where this warp's part would stand in the first slot.
    u32 full;              // The barrier of that slot; that of a slot is 8 bytes further on.
    u32 released;          // Where it says how far it has read.
    u32 taken;             // Slots, ever.
};

// The stage that is next.
__device__ __forceinline__ const u8* ring_wait(const Ring& r) {
    u32 round = r.taken / DEPTH, slot = r.taken - round * DEPTH;
    barrier_wait(r.full + slot * 8, round & 1);
    return r.data + slot * STAGE_BYTES;
}

// The warp has read so many stages more. It need not have waited for them: a barrier is two rounds behind nobody, since all warps meet
// before the next phase, and whoever had a part of these has waited.
__device__ __forceinline__ void ring_next(Ring& r, u32 stages, u32 lane) {
    r.taken += stages;
    __syncwarp();
    if (lane == 0) store_after_reads(r.released, r.taken);
}

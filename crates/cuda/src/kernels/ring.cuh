// The stream of weights: fetched as far ahead as shared memory reaches, and phases do not matter to it.
//
// Which weights a block needs, and in which order, is known before anything is computed. So for every warp that computes, one
// lane of a warp that does nothing else asks the copy engine for stages of a few chunks through all phases, always as many
// as the warp's ring holds: 164 KB on every multiprocessor, 21 MB in all, most of a layer of the 1.5B. The memory never waits
// for a dependency between phases as long as the dependency takes less time than those bytes, 4 us on an H200.
//
// The warps that compute only wait for a stage and say when they have read it. When they did the fetching themselves it was
// a seventh of all instructions, and stood between the phases (2026-11-16).

// What a phase has this block read; the host writes these. A tile is a row of chunks. Warps take the same columns of all their
// tiles, so that the input for these stays in registers: columns are cut into parts of `width` super-blocks, and the tiles
// dealt out to the groups of warps that have all parts. With more parts than warps a warp goes on with another part.
struct Stretch {
    const u8* weights;
    const u8* second;      // The up matrix where `weights` is the gate.
    u16 tiles;             // of both matrices
    u16 matrix_tiles;      // of the first; none where `second` is a `List`
    u16 supers;
    u16 chunk;             // Bytes.
    u16 width;
    u16 parts;
    u16 groups;
    u16 inverse;           // 4096 / parts, rounded up: to divide the number of a warp.
};

// Where the parts of a matrix begin whose columns stand apart from each other, and how many super-blocks each has.
struct List {
    const u8* starts[USED_MAX];
    u32 supers;
};

// A warp's place: its part and its group. There is nothing to do for it where the group does not exist.
struct Share {
    u32 part, group;
};

__device__ __forceinline__ Share place_of(const Stretch& s, u32 warp) {
    u32 group = s.parts >= PRODUCT_WARPS ? 0 : warp * s.inverse >> 12;
    return {warp - group * s.parts, group};
}

// The lane's number, as something the compiler keeps instead of reading it from a slow register again and again.
__device__ __forceinline__ u32 own_lane() {
    u32 lane;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
}

// The thread's number, read anew: what is worked out from it is not kept from before, where registers are scarce.
__device__ __forceinline__ u32 own_thread() {
    u32 thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
}

__device__ __forceinline__ void barrier_init(u32 barrier, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

__device__ __forceinline__ void barrier_arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void barrier_expect(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// Whether the phase of this parity has passed. A barrier that is new has passed the phase of parity one.
__device__ __forceinline__ bool barrier_passed(u32 barrier, u32 parity) {
    u32 passed;
    asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(passed)
                 : "r"(barrier), "r"(parity)
                 : "memory");
    return passed;
}

__device__ __forceinline__ void barrier_wait(u32 barrier, u32 parity) {
    asm volatile("{\n.reg .pred p;\nWAIT:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra WAIT;\n}"
                 ::"r"(barrier), "r"(parity)
                 : "memory");
}

// Asks the copy engine; `full` is told how many bytes arrived.
__device__ __forceinline__ void fetch(u32 to, const void* from, u32 bytes, u32 full, u64 policy) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;"
                 ::"r"(to), "l"(from), "r"(bytes), "r"(full), "l"(policy)
                 : "memory");
}

// The same, no further than into the second-level cache.
__device__ __forceinline__ void foresee(const void* from, u32 bytes) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

// Weights pass through the second-level cache once; keys, values and results should stay there instead.
__device__ __forceinline__ u64 pass_through() {
    u64 policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

__device__ __forceinline__ u64 keep_near() {
    u64 policy;
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

// Where a ring's feeder stands: the next stage, before the end of its warp's part of a tile.
struct Feeder {
    const u8* from;
    const u8* end;
    u32 stage;             // Bytes: as many whole chunks as fit.
    u32 phase, part, tile; // The tile after this one.
};

// How many phases' weights are known; the rest depend on a choice. Written by whoever chooses, after what it wrote to
// their stretches.
__device__ __forceinline__ void know(u32 known, u32 count) {
    asm volatile("st.release.cta.shared.u32 [%0], %1;" ::"r"(known), "r"(count) : "memory");
}

__device__ __forceinline__ u32 is_known(u32 known) {
    u32 count;
    asm volatile("ld.acquire.cta.shared.u32 %0, [%1];" : "=r"(count) : "r"(known) : "memory");
    return count;
}

// Goes on to the next tile that has something for this warp, through all phases that are known. The first phase reads no
// weights.
__device__ __forceinline__ bool next_tile(Feeder& f, u32 warp, const Stretch* stretches, u32 known) {
    while (true) {
        const Stretch& s = stretches[f.phase];
        u32 group = place_of(s, warp).group, chunk = s.chunk;
        while (group < s.groups && f.part < s.parts) {
            if (f.tile >= s.tiles) {
                f.part += PRODUCT_WARPS, f.tile = group;
                if (s.parts <= PRODUCT_WARPS) break;
                continue;
            }
            u32 supers = s.supers, first = f.part * s.width, last = min(first + s.width, supers), tile = f.tile;
            f.tile += s.groups;
            const u8* start = s.weights;
            if (MIXED && s.matrix_tiles == 0) {
                const List& list = *(const List*)s.second;
                u32 which = first / list.supers;
                supers = list.supers, first -= which * supers, last -= which * supers, start = list.starts[which];
            } else if (tile >= s.matrix_tiles) start = s.second, tile -= s.matrix_tiles;
            start += (u64)(tile * supers) * chunk;
            f.from = start + first * chunk, f.end = start + last * chunk, f.stage = STAGE_BYTES / chunk * chunk;
            return true;
        }
        if (f.phase + 1 >= known) return false;
        Share place = place_of(stretches[++f.phase], warp);
        f.part = place.part, f.tile = place.group;
    }
}

// Warps that feed; each lane fills the ring of one warp that computes, dealt out so that few lanes are at it in each.
#define WEIGHT_FEEDERS 3

// One of them. `full` and `empty` are barriers of all slots.
__device__ __forceinline__ void
feed_weights(u32 feeder, const Stretch* stretches, u32 count, u32 data, u32 full, u32 empty) {
    u32 warp = own_lane() * WEIGHT_FEEDERS + feeder, slot = 0, parity = 1;
    u64 policy = pass_through();
    Feeder f = {};
    bool more = warp < PRODUCT_WARPS && next_tile(f, warp, stretches, count);
    while (__any_sync(FULL, more)) {
        u32 place = warp * DEPTH + slot;
        bool free = more && barrier_passed(empty + place * 8, parity);
        // Looking all the time would take instructions from the warps that compute.
        if (!__any_sync(FULL, free)) __nanosleep(40);
        if (!free) continue;
        u32 bytes = min(f.stage, (u32)(f.end - f.from));
        barrier_expect(full + place * 8, bytes);
        fetch(data + place * STAGE_BYTES, f.from, bytes, full + place * 8, policy);
        f.from += bytes;
        if (++slot == DEPTH) slot = 0, parity ^= 1;
        if (f.from == f.end) more = next_tile(f, warp, stretches, count);
    }
}

// The same where weights depend on a choice: `known` says of how many phases they are known.
__device__ __forceinline__ void
feed_chosen(u32 feeder, const Stretch* stretches, u32 count, u32 known, u32 data, u32 full, u32 empty) {
    u32 warp = own_lane() * WEIGHT_FEEDERS + feeder, slot = 0, parity = 1;
    u64 policy = pass_through();
    Feeder f = {};
    bool more = warp < PRODUCT_WARPS;
    while (__any_sync(FULL, more)) {
        bool fed = false;
        while (more) {
            if (f.from == f.end) {
                u32 until = is_known(known);
                bool found = next_tile(f, warp, stretches, until);
                more = found || until < count;
                if (!found) break;
            }
            u32 place = warp * DEPTH + slot;
            if (!barrier_passed(empty + place * 8, parity)) break;
            u32 bytes = min(f.stage, (u32)(f.end - f.from));
            barrier_expect(full + place * 8, bytes);
            fetch(data + place * STAGE_BYTES, f.from, bytes, full + place * 8, policy);
            f.from += bytes, fed = true;
            if (++slot == DEPTH) slot = 0, parity ^= 1;
        }
        if (!__any_sync(FULL, fed)) __nanosleep(40);
    }
}

// A warp's side of its ring.
struct Ring {
    const u8* data;        // Its first stage.
    u32 full, empty;       // The barriers of that stage; those of a slot are 8 bytes further on.
    u32 taken;             // Stages, ever.
};

__device__ __forceinline__ const u8* ring_wait(const Ring& r) {
    u32 slot = r.taken % DEPTH;
    barrier_wait(r.full + slot * 8, r.taken / DEPTH & 1);
    return r.data + slot * STAGE_BYTES;
}

// The warp has read the stage it waited for.
__device__ __forceinline__ void ring_next(Ring& r, u32 lane) {
    __syncwarp();
    if (lane == 0) barrier_arrive(r.empty + r.taken % DEPTH * 8);
    r.taken++;
}

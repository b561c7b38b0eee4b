// The stream of weights: each warp fetches its own, as far ahead as shared memory reaches, and phases do not matter to it.
//
// Which weights a block needs, and in which order, is known before anything is computed. So a warp asks the copy engine for
// stages of a few chunks through all phases, always as many as its ring holds: 147 KB on every multiprocessor, 19 MB in all,
// most of a layer of the 1.5B. The memory never waits for a dependency between phases as long as the dependency takes less
// time than those bytes, 4 us on an H200. A stage that was read makes room for the next one in the stream.
//
// A warp of its own for fetching would be the 17th and leave 96 registers to a thread instead of 128, too few for attention.

// What a phase has this block read; the host writes these. A run is what is contiguous: all chunks a block has of a matrix,
// of which every warp takes an equal part, or the chunks of one tile (`whole`), the tiles dealt out.
struct Stretch {
    const u8* weights;
    const u8* second;      // The up matrix where `weights` is the gate.
    u32 run;               // Chunks.
    u16 runs;              // of both matrices
    u16 matrix_runs;       // of the first
    u16 chunk;             // Bytes.
    u16 stage;             // Bytes: as many whole chunks as fit STAGE_BYTES.
    u32 whole;
};

// The lane's number, as something the compiler keeps instead of reading it from a slow register again and again.
__device__ __forceinline__ u32 own_lane() {
    u32 lane;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
}

__device__ __forceinline__ void barrier_init(u32 barrier, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

__device__ __forceinline__ bool barrier_passed(u32 barrier, u32 parity) {
    u32 passed;
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(passed)
                 : "r"(barrier), "r"(parity)
                 : "memory");
    return passed;
}

// Weights pass through the second-level cache once; keys, values and results should stay there instead.
__device__ __forceinline__ void fetch_stage(u32 to, const u8* from, u32 bytes, u32 full) {
    u64 policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(full), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;"
                 ::"r"(to), "l"(from), "r"(bytes), "r"(full), "l"(policy)
                 : "memory");
}

// A warp's ring and its place in the stream: what it reads next, and what it fetches next.
struct Ring {
    u32 data, full;            // Its first stage and that stage's barrier; those of a slot are 8 bytes further on.
    u32 warp, lane;
    u32 slot, parity;
    u32 owed;                  // Slots that were read and not filled again.
    u32 phase, at_run;         // The phase that is fetched, and the run after the one that is fetched.
    u32 stage;                 // Bytes.
    const u8* from;            // The next stage, if it is before the end of this warp's part of the run.
    const u8* end;
};

// The next run of the phase that has something for this warp.
__device__ __forceinline__ bool ring_run(Ring& r, const Stretch* stretches) {
    const Stretch& s = stretches[r.phase];
    while (r.at_run < s.runs) {
        u32 index = r.at_run, run = s.run, chunk = s.chunk, first = 0, last = run;
        r.at_run += s.whole ? PRODUCT_WARPS : 1;
        if (!s.whole) first = run * r.warp / PRODUCT_WARPS, last = run * (r.warp + 1) / PRODUCT_WARPS;
        if (first == last) continue;
        const u8* start = s.weights;
        if (index >= s.matrix_runs) start = s.second, index -= s.matrix_runs;
        start += (u64)(index * run) * chunk;
        r.from = start + first * chunk, r.end = start + last * chunk, r.stage = s.stage;
        return true;
    }
    return false;
}

// Fetches the next stage of the current run into a slot that nobody reads.
__device__ __forceinline__ void ring_fetch(Ring& r, u32 slot) {
    if (r.lane == 0) {
        fetch_stage(r.data + slot * STAGE_BYTES, r.from, min(r.stage, (u32)(r.end - r.from)), r.full + slot * 8);
    }
    r.from += r.stage;
}

// Fills what is owed, going on to the next phases. When all is fetched the rest stays owed.
__device__ __forceinline__ void ring_refill(Ring& r, const Stretch* stretches, u32 count) {
#pragma unroll 1
    while (r.owed > 0) {
        if (r.from >= r.end && !ring_run(r, stretches)) {
            if (r.phase + 1 >= count) return;
            r.at_run = stretches[++r.phase].whole ? r.warp : 0;
            continue;
        }
        ring_fetch(r, r.slot >= r.owed ? r.slot - r.owed : r.slot + DEPTH - r.owed);
        r.owed--;
    }
}

// Before the first phase everything is owed. The first phase reads no weights.
__device__ __forceinline__ Ring ring_begin(u32 data, u32 full) {
    Ring r = {};
    r.warp = threadIdx.x / WARP, r.lane = own_lane();
    r.data = data + r.warp * DEPTH * STAGE_BYTES, r.full = full + r.warp * DEPTH * 8, r.owed = DEPTH;
    return r;
}

__device__ __forceinline__ const u8* ring_wait(const Ring& r, const u8* data) {
    while (!barrier_passed(r.full + r.slot * 8, r.parity)) {}
    return data + r.slot * STAGE_BYTES;
}

// The warp has read the stage in the current slot: another one of the run that is fetched takes its place, if there is
// one. What is beyond is left to `ring_refill`, when nobody waits for this warp, unless the ring runs low.
__device__ __forceinline__ void ring_next(Ring& r, const Stretch* stretches, u32 count) {
    __syncwarp();
    if (r.owed == 0 && r.from < r.end) ring_fetch(r, r.slot);
    else r.owed++;
    if (++r.slot == DEPTH) r.slot = 0, r.parity ^= 1;
    if (r.owed > 1) ring_refill(r, stretches, count);
}

// The stream of weights: each warp fetches its own, as far ahead as shared memory reaches, and phases do not matter to it.
//
// Which weights a block needs, and in which order, is known before anything is computed. So a warp asks the copy engine for
// pairs of chunks through all phases, always as many as its ring holds: 160 KB on every multiprocessor, 21 MB in all, most
// of a layer of the 1.5B. The memory never waits for a dependency between phases as long as the dependency takes less time
// than those bytes, 4.6 us on an H200. A pair that was read makes room for the next one in the stream.
//
// A warp of its own for fetching (17 warps) was tried on paper: it leaves 96 registers to a thread instead of 128.

// What a phase has this block read; the host writes these. A run is what is contiguous: all chunks a block has of a matrix,
// its pairs dealt out to the warps, or the chunks of one tile (`whole`), the tiles dealt out. A run's last pair may be half.
struct Stretch {
    const u8* weights;
    const u8* second;      // The up matrix where `weights` is the gate.
    u32 run;               // Chunks.
    u16 pairs, runs;       // Pairs of a run; runs of both matrices.
    u16 matrix_runs;       // Runs of the first matrix.
    u16 whole;
    u32 chunk;             // Bytes.
};

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
__device__ __forceinline__ void fetch_pair(u32 to, const u8* from, u32 bytes, u32 full) {
    u64 policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(full), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;"
                 ::"r"(to), "l"(from), "r"(bytes), "r"(full), "l"(policy)
                 : "memory");
}

// A warp's ring and its place in the stream: what it reads next, and what it fetches next.
struct Ring {
    u32 data, full;            // Its first pair and that pair's barrier; those of a slot are 8 bytes further on.
    u32 slot, parity;
    u32 owed;                  // Slots that were read and not filled again.
    u32 phase, count;          // The phase that is fetched, and how many there are.
    u32 at_run, at_pair;
    u32 pair;                  // Bytes.
    const u8* from;            // The next pair, if it is before the end of its run.
    const u8* end;
};

// The next run of the phase that has something for this warp, beginning with the current one.
__device__ __forceinline__ bool ring_run(Ring& r, const Stretch* stretches) {
    const Stretch& s = stretches[r.phase];
    while (r.at_run < s.runs && r.at_pair >= s.pairs) {
        r.at_pair = s.whole ? 0 : r.at_pair - s.pairs;
        r.at_run += s.whole ? PRODUCT_WARPS : 1;
    }
    if (r.at_run >= s.runs) return false;
    bool up = r.at_run >= s.matrix_runs;
    const u8* start = (up ? s.second : s.weights) + (u64)(up ? r.at_run - s.matrix_runs : r.at_run) * s.run * s.chunk;
    r.pair = 2 * s.chunk;
    r.from = start + (u64)r.at_pair * r.pair, r.end = start + (u64)s.run * s.chunk;
    return true;
}

// Fetches the next pair of the current run into a slot that nobody reads.
__device__ __forceinline__ void ring_fetch(Ring& r, u32 slot, u32 step) {
    u32 bytes = min(r.pair, (u32)(r.end - r.from));
    if (threadIdx.x % WARP == 0) fetch_pair(r.data + slot * PAIR_BYTES, r.from, bytes, r.full + slot * 8);
    r.from += r.pair * step, r.at_pair += step;
}

// Between phases: fills what is owed, going on to the next phases. When all is fetched the rest stays owed.
__device__ __forceinline__ void ring_refill(Ring& r, const Stretch* stretches) {
    while (r.owed > 0) {
        if (r.from >= r.end && !ring_run(r, stretches)) {
            if (r.phase + 1 >= r.count) return;
            bool whole = stretches[++r.phase].whole;
            r.at_run = whole ? threadIdx.x / WARP : 0, r.at_pair = whole ? 0 : threadIdx.x / WARP;
            r.end = r.from;
            continue;
        }
        u32 slot = r.slot >= r.owed ? r.slot - r.owed : r.slot + DEPTH - r.owed;
        ring_fetch(r, slot, stretches[r.phase].whole ? 1 : PRODUCT_WARPS);
        r.owed--;
    }
}

// Before the first phase everything is owed. The first phase reads no weights.
__device__ __forceinline__ Ring ring_begin(u32 data, u32 full, u32 count) {
    u32 warp = threadIdx.x / WARP;
    Ring r = {};
    r.data = data + warp * DEPTH * PAIR_BYTES, r.full = full + warp * DEPTH * 8, r.count = count, r.owed = DEPTH;
    return r;
}

__device__ __forceinline__ const u8* ring_wait(const Ring& r, const u8* data) {
    while (!barrier_passed(r.full + r.slot * 8, r.parity)) {}
    return data + r.slot * PAIR_BYTES;
}

// The warp has read the pair in the current slot: another one of the phase that is fetched takes its place, if there is
// one. Going on to the next phase is left to `ring_refill`, when nobody waits for this warp, unless the ring runs low.
__device__ __forceinline__ void ring_next(Ring& r, const Stretch* stretches) {
    __syncwarp();
    if (r.owed == 0 && (r.from < r.end || ring_run(r, stretches))) {
        ring_fetch(r, r.slot, stretches[r.phase].whole ? 1 : PRODUCT_WARPS);
    } else {
        r.owed++;
    }
    if (++r.slot == DEPTH) r.slot = 0, r.parity ^= 1;
    if (r.owed > DEPTH / 2) ring_refill(r, stretches);
}

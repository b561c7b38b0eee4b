// The stream of weights: each warp fetches its own, as far ahead as shared memory reaches, and phases do not matter to it.
//
// Which weights a block needs, and in which order, is known before anything is computed. So a warp asks the copy engine for
// pairs of chunks through all phases, always as many as its ring holds: 160 KB on every multiprocessor, 21 MB in all, most
// of a layer of the 1.5B. The memory never waits for a dependency between phases as long as the dependency takes less time
// than those bytes, 4.6 us on an H200. A pair that was read makes room for the next one in the stream.
//
// A warp of its own for fetching (17 warps) was tried on paper: it leaves 96 registers to a thread instead of 128.

// What a phase has this block read. A run is what is contiguous: all chunks a block has of a matrix, its pairs dealt out to
// the warps, or the chunks of one tile (`whole`), the tiles dealt out. A run's last pair may be half.
struct Stretch {
    const u8* weights;
    const u8* second;      // The up matrix where `weights` is the gate.
    u32 run;               // Chunks.
    u16 runs, matrix_runs; // Of both matrices, and of the first.
    u32 chunk;             // Bytes.
    u32 whole;
};

// Which part of a product's work is this block's.
struct Share {
    const Segment* segment;
    u32 first_tile, tiles;
};

__device__ __forceinline__ Share share_of(const Product& p) {
    int which = 0;
    if (blockIdx.x >= p.segments[1].first_block) which = 1;
    if (blockIdx.x >= p.segments[2].first_block) which = 2;
    const Segment& s = p.segments[which];
    u32 block = blockIdx.x - s.first_block;
    if (block >= s.blocks) return {&s, 0, 0};
    u32 first = s.tiles * block / s.blocks;
    return {&s, first, s.tiles * (block + 1) / s.blocks - first};
}

__device__ __forceinline__ u32 chunk_bytes(u32 format) {
    u32 bytes = 0;
#define WORK(F) bytes = Layout<F>::chunk
    FOR_FORMAT(format, WORK)
#undef WORK
    return bytes;
}

__device__ __forceinline__ Stretch stretch_of(const Product& p) {
    Share share = share_of(p);
    const Segment& s = *share.segment;
    Stretch stretch;
    stretch.chunk = chunk_bytes(s.format), stretch.whole = p.slices == 1;
    u64 skipped = (u64)share.first_tile * p.supers * stretch.chunk;
    stretch.weights = s.weights + skipped, stretch.second = s.second + skipped;
    stretch.run = stretch.whole ? p.supers : share.tiles * p.supers;
    stretch.matrix_runs = stretch.whole ? share.tiles : share.tiles > 0;
    stretch.runs = stretch.matrix_runs * (s.second ? 2 : 1);
    return stretch;
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
__device__ __forceinline__ u64 once_policy() {
    u64 policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

__device__ __forceinline__ void fetch_pair(u32 to, const u8* from, u32 bytes, u32 full, u64 policy) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(full), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;"
                 ::"r"(to), "l"(from), "r"(bytes), "r"(full), "l"(policy)
                 : "memory");
}

// A warp's ring and its place in the stream: what it reads next, and what it fetches next.
struct Ring {
    const u8* data;            // Its first pair.
    u32 address, full;         // of that pair, and of its barrier; those of a slot are 8 bytes further on
    u32 slot, parity;
    const Stretch* stretches;  // of all phases
    u32 next, count;           // The phase after the one that is fetched, and how many there are.
    const u8* start;           // of the run that is fetched
    u32 run, chunk, at_run, at_pair;
    u64 policy;
};

// Goes to the next run that has something for this warp.
__device__ __forceinline__ void ring_enter(Ring& r) {
    u32 warp = threadIdx.x / WARP;
    while (r.next > 0) {
        const Stretch& s = r.stretches[r.next - 1];
        u32 pairs = (s.run + 1) / 2, runs = s.runs;
        while (r.at_run < runs && r.at_pair >= pairs) {
            r.at_pair = s.whole ? 0 : r.at_pair - pairs;
            r.at_run += s.whole ? PRODUCT_WARPS : 1;
        }
        if (r.at_run < runs) {
            bool up = r.at_run >= s.matrix_runs;
            r.start = (up ? s.second : s.weights) + (u64)(up ? r.at_run - s.matrix_runs : r.at_run) * s.run * s.chunk;
            r.run = s.run, r.chunk = s.chunk;
            return;
        }
        if (r.next == r.count) break;
        const Stretch& following = r.stretches[r.next++];
        r.at_run = following.whole ? warp : 0, r.at_pair = following.whole ? 0 : warp;
    }
    r.run = 0;
}

// Fetches the next pair into a slot that nobody reads. With the last pair of the last phase the stream ends.
__device__ __forceinline__ void ring_fetch(Ring& r, u32 slot) {
    if (r.run == 0) return;
    u32 bytes = 2 * r.at_pair + 1 < r.run ? 2 * r.chunk : r.chunk;
    if (threadIdx.x % WARP == 0) {
        fetch_pair(r.address + slot * PAIR_BYTES, r.start + (u64)r.at_pair * 2 * r.chunk, bytes, r.full + slot * 8, r.policy);
    }
    r.at_pair += r.stretches[r.next - 1].whole ? 1 : PRODUCT_WARPS;
    if (2 * r.at_pair >= r.run) ring_enter(r);
}

__device__ __forceinline__ Ring ring_begin(u8* data, u32 full, const Stretch* stretches, u32 count) {
    u32 warp = threadIdx.x / WARP;
    Ring r = {};
    r.data = data + warp * DEPTH * PAIR_BYTES, r.address = shared_address(r.data), r.full = full + warp * DEPTH * 8;
    r.stretches = stretches, r.next = 1, r.count = count, r.policy = once_policy();
    r.at_run = stretches[0].whole ? warp : 0, r.at_pair = stretches[0].whole ? 0 : warp;
    ring_enter(r);
    for (u32 slot = 0; slot < DEPTH; slot++) ring_fetch(r, slot);
    return r;
}

__device__ __forceinline__ const u8* ring_wait(const Ring& r) {
    while (!barrier_passed(r.full + r.slot * 8, r.parity)) {}
    return r.data + r.slot * PAIR_BYTES;
}

// The warp has read the pair in the current slot: another one takes its place.
__device__ __forceinline__ void ring_next(Ring& r) {
    __syncwarp();
    ring_fetch(r, r.slot);
    if (++r.slot == DEPTH) r.slot = 0, r.parity ^= 1;
}

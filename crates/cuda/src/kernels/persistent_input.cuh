// How a product of `decode_persistent.cu` gets its input: every block normalises and quantises the whole row for itself, down's with another.
//
// Whoever made it once for all would hand it on a second time, and a hand-over takes longer than this.

#include "tagged.cuh"
#include "ring.cuh"

// A quantised row in shared memory.
struct Input {
    i8* quants;            // [super][half][8 lanes][16]
    uint4* facts;          // [super * 8]: scale; the sum as a float; the sums of both halves as two 16-bit numbers; those of two blocks
};

// The other block of the cluster: how far its shared memory is from this block's, and its barrier for what is sent there.
struct Partner {
    u32 away, heard;
};

template <bool SENT>
__device__ __forceinline__ void store_super(const float* v, u32 lane, bool wide, i8* quants, uint4* facts, Partner partner) {
    Quants own = quantise_8(v, wide);
    u32 j = lane / 4, part = lane % 4;
    uint2* to = (uint2*)(quants + part / 2 * 128 + j * 16 + part % 2 * 8);
    uint2 words = make_uint2(own.words[0], own.words[1]);
    *to = words;
    if (SENT) cluster_send(shared_address(to) + partner.away, words, partner.heard);
    int sum = own.sums[0] + own.sums[1], next = __shfl_xor_sync(FULL, sum, 4);
    if (part == 0) {
        u32 halves = (u32)(own.sums[0] & 0xffff) | (u32)own.sums[1] << 16;
        uint4 all = make_uint4(__float_as_uint(own.scale), __float_as_uint((float)sum), halves, (u32)(sum & 0xffff) | (u32)next << 16);
        facts[j] = all;
        if (SENT) cluster_send(shared_address(facts + j) + partner.away, all, partner.heard);
    }
}

// The sum of the squares of at most 16 super-blocks: what `warp_sum` gives where lane i has the i-th.
__device__ __forceinline__ float sum_squares(const float* squares) {
    const float4* x = (const float4*)squares;
    float4 a = x[0], b = x[1], c = x[2], d = x[3];
    a = make_float4(a.x + c.x, a.y + c.y, a.z + c.z, a.w + c.w);
    b = make_float4(b.x + d.x, b.y + d.y, b.z + d.z, b.w + d.w);
    return ((a.x + b.x) + (a.z + b.z)) + ((a.y + b.y) + (a.w + b.w));
}

// A norm's weights in flight to shared memory, and how to wait for them. All blocks ask for them at the same moment, and from
// memory they take longer than everything else a norm does, so they come in the phases before.
struct Norm {
    const float* weights;
    u32 brought;           // A barrier.
};

// A thread's eight.
__device__ __forceinline__ void take_norm(const Norm& norm, const Job& job, float* w) {
    barrier_wait(norm.brought, job.turn);
    const float4* own = (const float4*)(norm.weights + this_thread() * 8);
    float4 a = make_float4(0.0f, 0.0f, 0.0f, 0.0f), b = a;
    if (this_thread() * 8 < job.columns) a = own[0], b = own[1];
    w[0] = a.x, w[1] = a.y, w[2] = a.z, w[3] = a.w, w[4] = b.x, w[5] = b.y, w[6] = b.z, w[7] = b.w;
}

// Normalises and quantises a row of at most 16 super-blocks, one for each warp. `squares` has room for 32, and so has `dots`. Ends with a
// barrier.
__device__ __forceinline__ void
prepare_normed(const Job& job, u32 mark, Input x, float* squares, float* dots, const Norm& norm, u64* times) {
    u32 warp = this_thread() / WARP, lane = own_lane(), columns = job.columns, at = warp * SUPER + lane * 8;
    const u32* own = job.input + at;
    float v[8] = {}, w[8];
    note(times, 1);
    if (at < columns) wait_ready_8<0>(poll_8(own), own, mark, v);
    __syncwarp();
    note(times, 2);
    float square = super_square(v);
    if (lane == 0) squares[warp] = square;
#ifdef WITH_DELTA
    if (job.dots) {
        // Near since its description came (`feed_entries`); asked for any earlier it would take registers from everybody.
        float r[8];
        load_8(job.dots, at, columns, r);
        take_norm(norm, job, w);
        float dot = super_score(v, w, r);
        if (lane == 0) dots[warp] = dot;
    }
#endif
    together();
    float total = sum_squares(squares);
    take_norm(norm, job, w);
    normalise_8(v, row_scale(total, columns, job.epsilon), w);
    if (warp < job.supers) store_super<false>(v, lane, job.wide, x.quants + warp * SUPER, x.facts + warp * 8, {});
    together();
}

// The same for a wider row, of which a warp has two super-blocks; weights of the norm come from memory.
#ifdef WIDE_NORM
__device__ __forceinline__ void prepare_normed_wide(const Job& job, u32 mark, Input x, float* squares, float* dots, u64* times) {
    u32 warp = this_thread() / WARP, lane = own_lane(), columns = job.columns;
    float v[2][8] = {}, w[2][8];
    Eight seen[2] = {};
#pragma unroll
    for (u32 i = 0; i < 2; i++) {
        u32 at = (warp + i * PRODUCT_WARPS) * SUPER + lane * 8;
        if (at < columns) seen[i] = poll_8(job.input + at);
    }
    note(times, 1);
#pragma unroll
    for (u32 i = 0; i < 2; i++) {
        u32 super = warp + i * PRODUCT_WARPS, at = super * SUPER + lane * 8;
        if (at < columns) wait_ready_8<0>(seen[i], job.input + at, mark, v[i]);
        __syncwarp();
        float square = super_square(v[i]);
        if (lane == 0) squares[super] = square;
    }
    note(times, 2);
    // Asked for any earlier they would wait in memory for registers.
#pragma unroll
    for (u32 i = 0; i < 2; i++) load_8(job.norm, (warp + i * PRODUCT_WARPS) * SUPER + lane * 8, columns, w[i]);
#ifdef WITH_DELTA
    if (job.dots) {
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            float r[8];
            load_8(job.dots, (warp + i * PRODUCT_WARPS) * SUPER + lane * 8, columns, r);
            float dot = super_score(v[i], w[i], r);
            if (lane == 0) dots[warp + i * PRODUCT_WARPS] = dot;
        }
    }
#endif
    together();
    float scale = row_scale(warp_sum(lane < job.supers ? squares[lane] : 0.0f), columns, job.epsilon);
#pragma unroll
    for (u32 i = 0; i < 2; i++) {
        u32 super = warp + i * PRODUCT_WARPS;
        normalise_8(v[i], scale, w[i]);
        if (super < job.supers) store_super<false>(v[i], lane, job.wide, x.quants + super * SUPER, x.facts + super * 8, {});
    }
    together();
}
#endif

// Quantises a row as it is. While one super-block is worked on the next AHEAD are in flight: what was looked at long before it was
// there is looked at again, and after that a look would be waited for in every turn. Ends with a barrier.
//
// Down's row is long, and all blocks need all of it: the two blocks of a cluster have every other super-block each and send it to the
// other (H200, 2026-11-18: the 7B decodes at 750 tokens/s instead of 729, the 1.5B at 1,880 instead of 1,845). What is sent may come
// while the other is still at gate, so it has a place behind gate's input (`Job::begin`). It cannot come before the other is done with
// attention, or with what was sent before: whoever sees a result of gate sees what was made of all rows of output, the other's too,
// and those of down in the layer before.
template <int PAUSE, bool SHARED>
__device__ __forceinline__ void prepare_plain(const Job& job, u32 mark, Input x, u32 heard, u64* times) {
    constexpr u32 WARPS = SHARED ? 2 * PRODUCT_WARPS : PRODUCT_WARPS, STEP = WARPS * SUPER;
    u32 lane = own_lane(), supers = job.supers, columns = job.columns, item = this_thread() / WARP;
    Partner partner = {};
    if (SHARED) {
        u32 rank = blockIdx.x % 2, there = cluster_address(heard, rank ^ 1);
        partner = {there - heard, there}, item = item * 2 + rank;
        if (this_thread() == 0) barrier_expect(heard, job.coming);
    }
    u32 at = item * SUPER + lane * 8;
    const u32* own = job.input + at;
    Eight seen[AHEAD + 1] = {};
#pragma unroll
    for (u32 i = 0; i < AHEAD; i++) {
        if (at + i * STEP < columns) seen[i] = poll_8(own + i * STEP);
    }
    note(times, 1);
#pragma unroll 3
    for (; item < supers; item += WARPS, at += STEP, own += STEP) {
        if (at + AHEAD * STEP < columns) seen[AHEAD] = poll_8(own + AHEAD * STEP);
        float v[8] = {};
        if (at < columns) wait_ready_8<PAUSE>(seen[0], own, mark, v);
        __syncwarp();
        note(times, 2);
        store_super<SHARED>(v, lane, job.wide, x.quants + item * SUPER, x.facts + item * 8, partner);
#pragma unroll
        for (u32 i = 0; i < AHEAD; i++) seen[i] = seen[i + 1];
    }
    together();
    if (SHARED) barrier_wait_cluster(heard, job.turn);
}

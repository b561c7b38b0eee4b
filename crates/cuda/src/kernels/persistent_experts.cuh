// A mixture of experts as three phases of `decode_persistent.cu`.
//
//   route     norm and scores: a block has one expert's score, or a few; the quantised row stays in its shared memory
//   experts   every block reads all scores and chooses for itself; then gate, up and silu of its part of one chosen expert
//   mix       down of all chosen experts for this block's rows, each with its share, added to the residual
//
// Which weights are read depends on the choice, so the feeder of the ring stops before `experts` (`known`) and goes on from
// there through `mix` and further the moment the choice is known: the weights of `mix` come while gate and up are computed.
//
// Sums and their order are those of `experts.cu` and `residual_norm_quant.cu`, bit for bit.

#include "route.cuh"
#include "persistent_product.cuh"

// Parameters of `route` and `experts`; a layer's.
struct Mixture {
    const float* router;   // [expert][columns]
    u64* scores;           // [expert], tagged
    u32 gate_bytes;        // of an expert's gate, or up
    u32 down_bytes;
    u32 count;             // At most 256.
    u32 used;              // At most 32.
    u32 known;             // Phases before the next choice, or all.
    u32 down_supers;
    const u8* down;        // Of the first expert,
    const u8* down_shared; // and of the one that every token visits: the last of its list, with the last score.
};
MIRRORED(Mixture);

// Experts that are visited without being chosen: one or none.
#ifndef SHARED_EXPERT
#define SHARED_EXPERT 0
#endif

#define SCORES_MAX 4

// A block's copy of the choice, in the order of expert numbers.
struct Choice {
    List down;                    // This block's part of their down matrices.
    uint2 list[LIST_MAX];         // Expert and ordered score.
    float shares[USED_MAX];
    u32 used;
    u32 known;                    // Phases before the next choice: for the feeder.
    float parts[SCORES_MAX * PRODUCT_WARPS];  // of this block's scores, by super-block
};

// What this block's first score needs comes near.
__device__ __forceinline__ void foresee_router(const Mixture& p, u32 columns) {
    const float* row = p.router + (u64)blockIdx.x * columns;
    if (blockIdx.x >= p.count + SHARED_EXPERT) return;
    foresee(row, columns * 4);
}

// Normalises the row, scores this block's experts and leaves the row quantised. At most one super-block for each warp.
__device__ __forceinline__ void
token_route(const Job& job, const Mixture& p, const Room& room, float* scores, u32 mark, u32 tag, u64* times) {
    if (job.tiles == 0) return;
    u32 warp = this_thread() / WARP, lane = own_lane(), supers = job.supers, columns = job.columns;
    u32 at = warp * SUPER + lane * 8;
    float v[8] = {}, w[8], r[8];
    // What a score needs is far away: it is asked for before the row is there.
    load_8(p.router + (u64)blockIdx.x * columns, blockIdx.x < p.count + SHARED_EXPERT ? at : columns, columns, r);
    note(times, 1);
    take_norm(room.norm, job, w);
    if (at < columns) wait_ready_8<0>(poll_8(job.input + at), job.input + at, mark, v);
    __syncwarp();
    note(times, 2);
    float square = super_square(v);
    if (lane == 0) room.squares[warp] = square;
    u32 each = 0;
#pragma unroll 1
    for (u32 expert = blockIdx.x; expert < p.count + SHARED_EXPERT; expert += gridDim.x, each++) {
        if (each > 0) load_8(p.router + (u64)expert * columns, at, columns, r);
        float score = super_score(v, w, r);
        if (lane == 0) scores[each * PRODUCT_WARPS + warp] = score;
    }
    together();
    float scale = row_scale(sum_squares(room.squares), columns, job.epsilon);
    note(times, 3);
    if (this_thread() < each) {
        float score = 0.0f;
#pragma unroll 8
        for (u32 s = 0; s < supers; s++) score += scores[this_thread() * PRODUCT_WARPS + s];
        put_tagged(p.scores + blockIdx.x + this_thread() * gridDim.x, __fmul_rn(scale, score), tag);
    }
    note(times, 4);
    normalise_8(v, scale, w);
    if (warp < supers) store_super<false>(v, lane, job.wide, room.x.quants + warp * SUPER, room.x.facts + warp * 8, {});
}

// One warp reads all scores and chooses; then it tells the feeder where the chosen experts' weights are.
template <int EACH>
__device__ __forceinline__ void
choose_tagged(const Job& job, const Mixture& p, Choice& choice, Stretch* stretch, u32 tag, u64* times) {
    u32 lane = own_lane(), count = p.count, used = p.used;
    const u64* own = p.scores + lane;
    u32 before[EACH];
    bool stale;
#if SHARED_EXPERT
    u64 last;
#endif
    note(times, 1);
    do {
        u64 seen[EACH];
        stale = false;
#if SHARED_EXPERT
        last = load_relaxed(p.scores + p.count);
        stale |= !is_from(last, tag);
#endif
#pragma unroll
        for (int i = 0; i < EACH; i++) seen[i] = lane + i * WARP < count ? load_relaxed(own + i * WARP) : (u64)tag << 32;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            stale |= !is_from(seen[i], tag);
            before[i] = lane + i * WARP < count ? ordered(tagged_value(seen[i])) : 0;
        }
    } while (stale);
    __syncwarp();
    note(times, 2);
    list_chosen<EACH>(choose<EACH>(before, used), before, choice.list);
    u32 expert = choice.list[lane].x;
    if (lane < used) {
        choice.down.starts[lane] = stretch[1].weights + (u64)expert * p.down_bytes;
        if (lane == job.slot) {
            u64 skipped = (u64)expert * p.gate_bytes;
            stretch[0].weights += skipped, stretch[0].second += skipped;
        }
    }
#if SHARED_EXPERT
    if (lane == used) choice.down.starts[lane] = stretch[1].weights + (p.down_shared - p.down);
#endif
    if (lane == 0) choice.used = used + SHARED_EXPERT, choice.down.supers = p.down_supers, stretch[1].second = (const u8*)&choice.down;
    __syncwarp();
    if (lane == 0) store_release_shared(shared_address(&choice.known), p.known);
    // Nobody needs the shares before the end of the next phase.
    float share = share_of(score_of(choice.list[lane].y), lane < used);
#if SHARED_EXPERT
    if (lane == used) share = shared_share(tagged_value(last));
#endif
    choice.shares[lane] = share;
}

// The first warp chooses for this block. The others meet it in the product that follows, which waits for its weights.
__device__ __forceinline__ void
token_choose(const Job& job, const Mixture& p, Choice& choice, Stretch* stretch, u32 tag, u64* times) {
    if (this_thread() >= WARP) return;
    if (!job.chooses) {
        if (this_thread() == 0) store_release_shared(shared_address(&choice.known), p.known);
    } else if (p.count <= 4 * WARP) {
        choose_tagged<4>(job, p, choice, stretch, tag, times);
    } else {
        choose_tagged<EXPERTS_MAX / WARP>(job, p, choice, stretch, tag, times);
    }
}

// The end of `mix`: each visit's sum with its share, four lanes for a row; then the visits in order onto the residual.
__device__ __forceinline__ void
finish_mix(const Job& job, float* partial, const Choice& choice, u32 own_before, u32 mark) {
    u32 own = this_thread(), rows = job.rows, used = choice.used, quarter = own % 4, fold = 32 - __clz((rows - 1) >> 3);
    float* weighted = partial + used * job.tiles * job.slices * 4;
    // A warp has eight rows of a visit.
#pragma unroll 1
    for (u32 group = own / WARP; group < used << fold; group += PRODUCT_WARPS) {
        u32 visit = group >> fold, row = (group & ((1 << fold) - 1)) * 8 + own % WARP / 4, tile = min(row, rows - 1) / 4;
        const float* parts = partial + ((tile * used + visit) * job.slices + quarter) * 4 + row % 4;
        float sum = collected_rows<1, 4>(parts, 0, job.slices, quarter).of[0];
        if (quarter == 0 && row < rows) weighted[visit * rows + row] = __fmul_rn(choice.shares[visit], sum);
    }
    together();
#pragma unroll 1
    for (u32 row = own / 4; row < rows; row += PRODUCT_THREADS / 4) {
        // Each lane has a copy.
        u32* out = job.output + job.first_row + row + quarter * job.apart;
        float value = residual_norm_quant(row == own / 4 ? own_before : load_relaxed(out), out, (mark + 3) & 3);
#pragma unroll 8
        for (u32 visit = 0; visit < used; visit++) value = weighted[visit * rows + row] + value;
        put(out, value, mark);
    }
}

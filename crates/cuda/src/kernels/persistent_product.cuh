// A product as a phase of `decode_persistent.cu`: one row's input made ready by every block for itself, then this block's chunks.
//
// The code of a phase runs once per phase, with nothing beside it to hide its latency, so its length counts as much as its
// arithmetic. There is no barrier at the end of a phase: the next one's input is written where this one's was read, all of
// which lies before the barrier in the middle, and its sums only after its own first barrier.

#include "persistent_chunk.cuh"

// A warp's share of a product, or of one of its rounds, worked out while its input is in flight: what comes after the input is there
// is waited for by all other blocks. The compiler would put it off.
struct Strip {
    u32 count;             // Tiles of which it has a part,
    u32 first;             // the super-block that begins with,
    u32 slot;             // and where the first stands in a stage.
    u32 quants, facts;     // Where a lane's columns stand, from the beginning of the input on,
    u32 out, step;         // its first sum, and how far the next is.
};

// `round` is one of those in which every warp has a part of every tile, or what is left after them. A warp that has tiles as a whole
// has a place of its own in a stage.
__device__ __forceinline__ Strip strip_of(const Stretch& s, u32 lane, u32 round) {
    u32 warp = this_thread() / WARP, supers = s.supers, before = round * PRODUCT_WARPS * s.width, tile = 0, part = warp, group = 1;
    if (round == s.rounds && s.rest) group = s.group, tile = quotient(warp, s.rest), part -= tile * s.rest;
    u32 first = before + part * s.width, slot = (tile * (supers - before) + part * s.width) * s.chunk, j = lane % 8;
    u32 count = tile < group ? quotient(max(s.tiles + group - 1, tile) - tile, group) : 0;
    if (!(s.rounds + s.rest)) first = 0, slot = warp * SLOT_BYTES;
    u32 out = (tile * supers + first + dealt(lane)) * 4 + lane / 8;
    u32 quants = first * SUPER + j * 16, facts = supers * SUPER + (first * 8 + j) * 16;
    return {count, first, slot, anew(quants), anew(facts), anew(out), anew(group * supers * 4)};
}

// Works through a warp's parts and leaves sums in `partial`: one per super-block and row. Two tiles at a time would fill more
// cycles and was no faster: the code is twice as long then.
template <int F>
__device__ __forceinline__ void
stream(Strip s, u32 end, const Stretch& stretch, u32 lane, const Input& x, float* partial, Ring& ring) {
    // A slot has room for no more.
    constexpr u32 MOST = SLOT_BYTES / Layout<F>::chunk < WIDTH ? SLOT_BYTES / Layout<F>::chunk : WIDTH;
    Spots spots = spots_of(lane);
    ring.data += F == Q4_K ? s.slot + header_of(lane) : s.slot;
    u32 mine = min(dealt(lane), MOST - 1);
    Own own = {anew(own_header<F>(mine, lane))};
#pragma unroll 1
    for (u32 round = 1;; round++) {
        bool keeps = lane % 8 < 4 && s.first + dealt(lane) < stretch.supers && dealt(lane) < stretch.width;
        // Where there are fewer, the columns and the sum of one that is not there are of whatever stands there, and are left.
        Columns columns[MOST];
#pragma unroll
        for (u32 i = 0; i < MOST; i++) columns[i] = columns_at(x.quants + s.quants + i * SUPER, x.quants + s.facts + i * 128);
        const uint4* facts = x.facts + (s.first + mine) * 8;
        own.scale = __uint_as_float(facts->x);
#pragma unroll
        for (u32 i = 0; i < 4; i++) own.sums[i] = facts[2 * i].w;
#pragma unroll 1
        for (; s.count > 0; s.count--, s.out += s.step) {
            const u8* chunk = ring_wait(ring);
            float sum = chunk_sums<F, MOST>(chunk, lane, spots, columns, own);
            if (keeps) partial[s.out] = sum;
            ring_next(ring, 1, lane);
        }
        if (ring.taken == end || round > stretch.rounds) break;
        ring.data -= s.slot;
        s = strip_of(stretch, lane, round);
        ring.data += s.slot;
    }
    // Others may have parts in the last stage.
    ring_next(ring, end - ring.taken, lane);
}

// The same for tiles that one warp has whole: a sum per tile and row.
template <int F>
__device__ __forceinline__ void
stream_whole(const Strip& s, u32 all, const Stretch& stretch, u32 lane, const Input& x, float* partial, Ring& ring) {
    constexpr u32 CHUNK = Layout<F>::chunk, STAGE = SLOT_BYTES / CHUNK;
    u32 supers = stretch.supers, tiles = stretch.tiles;
    Spots spots = spots_of(lane);
    ring.data += F == Q4_K ? s.slot + header_of(lane) : s.slot;
#pragma unroll 1
    for (u32 tile = this_thread() / WARP; tile < tiles; tile += PRODUCT_WARPS) {
        float sum = 0.0f;
#pragma unroll 1
        for (u32 super = 0; super < supers; super += STAGE) {
            const u8* chunk = ring_wait(ring);
            u32 end = min(super + STAGE, supers);
#pragma unroll 3
            for (u32 at = super; at < end; at++, chunk += CHUNK) {
                const i8* own = x.quants + at * SUPER;
                sum = chunk_sum<F>(chunk, lane, spots, columns_at(own + s.quants, x.quants + s.facts + at * 128), sum);
            }
            ring_next(ring, 1, lane);
        }
        sum = row_sum(sum);
        if (lane % 8 == 0) partial[tile * 4 + lane / 8] = sum;
    }
    ring_next(ring, all - ring.taken, lane);
}

// Sums of N rows whose parts stand `apart`: the gate's and up's, or one.
template <int N>
struct Sums {
    float of[N];
};

// The same as `collected`, by four lanes, all of which get it: every fourth part from `own` on. EACH at a time, zeros where
// there are none.
template <int N, u32 EACH>
__device__ __forceinline__ Sums<N> collected_rows(const float* own, u32 apart, u32 slices, u32 quarter) {
    Sums<N> sums = {};
    u32 s = quarter;
#pragma unroll 1
    do {
        float v[N][EACH];
#pragma unroll
        for (int n = 0; n < N; n++) {
#pragma unroll
            for (u32 i = 0; i < EACH; i++) v[n][i] = s + 4 * i < slices ? own[16 * i + n * apart] : 0.0f;
        }
#pragma unroll
        for (u32 i = 0; i < EACH; i++) {
#pragma unroll
            for (int n = 0; n < N; n++) sums.of[n] += v[n][i];
        }
        s += 4 * EACH, own += 16 * EACH;
    } while (s < slices + quarter);
#pragma unroll
    for (int n = 0; n < N; n++) sums.of[n] += __shfl_xor_sync(FULL, sums.of[n], 1);
#pragma unroll
    for (int n = 0; n < N; n++) sums.of[n] += __shfl_xor_sync(FULL, sums.of[n], 2);
    return sums;
}

// The best of a block's logits.
__device__ __forceinline__ void note_candidate(u64 best, u64* warps, u64* to) {
    together();
    for (int step = 16; step > 0; step /= 2) {
        u64 other = __shfl_xor_sync(FULL, best, step);
        if (other > best) best = other;
    }
    if (this_thread() % WARP == 0) warps[this_thread() / WARP] = best;
    together();
    if (this_thread() != 0) return;
    for (int w = 0; w < PRODUCT_WARPS; w++) {
        if (warps[w] > best) best = warps[w];
    }
    *to = best;
}

// Where a phase works in shared memory.
struct Room {
    Input x;
    float* squares;
    float* partial;
    Norm norm;
    u32 heard;             // A barrier: what the other block of the cluster sends has come.
    float* dots;           // Sums of super-blocks of the row times `Job::dots`.
};

#ifdef WITH_DELTA
// One warp adds up and hands on what the row times `Job::dots` is.
__device__ __forceinline__ void finish_dots(const Job& job, const Room& room, u32 mark) {
    u32 lane = own_lane();
    float squares = warp_sum(lane < job.supers ? room.squares[lane] : 0.0f), sum = 0.0f;
    for (u32 s = 0; s < job.supers; s++) sum += room.dots[s];
    float value = __fmul_rn(row_scale(squares, job.columns, job.epsilon), sum);
    if (lane == 0) put_copies<COPIES>(job.output + job.slot, job.apart, value, mark);
    __syncwarp();
}
#endif

// What the end of a product needs: where, which is worked out early, and what is read again when its sums are done, since
// registers are scarce meanwhile. Four lanes have a row, or one where it has one sum.
struct Ending {
    const float* parts;    // of this thread's row
    u32 before;            // What the residual was seen to be, or a bias.
};

struct Shape {
    u32* out;
    const float* bias;
    u32 kind, rows, slices, whole, mark;
    u32 second;            // From the gate's parts to those of up; else zero.
};

__device__ __forceinline__ Shape shape_of(const Job& job, const u32& launches) {
    u32 kind = keep(job.kind), slices = keep(job.slices), whole = keep(job.whole);
    bool gated = kind == OP_GATE || (MIXED && kind == OP_EXPERTS);
    u32* out = job.output + keep(job.first_row) + (whole ? this_thread() : this_thread() / 4 + this_thread() % 4 * keep(job.apart));
    return {out, job.bias, kind, keep(job.rows), slices, whole, output_mark(job, keep(launches)), gated ? keep(job.tiles) * slices * 4 : 0};
}

// What a row is added to: the residual, or its bias. Asked for before anything else.
__device__ __forceinline__ u32 before_of(const Job& job) {
    u32 kind = job.kind, row = this_thread() >> (job.whole ? 0 : 2);
    if (row >= job.rows) return 0;
    if (kind == OP_ADD || (MIXED && kind == OP_MIX)) return load_relaxed(job.output + job.first_row + row);
    return job.bias ? __float_as_uint(load_near(job.bias + row)) : 0;
}

__device__ __forceinline__ Ending ending_of(const Job& job, const float* partial, u32 before) {
    u32 rows = job.rows, slices = job.slices, whole = job.whole, row = this_thread() >> (whole ? 0 : 2);
    return {partial + (min(row, rows - 1) / 4 * slices + (whole ? 0 : this_thread() % 4)) * 4 + row % 4, before};
}

// The end of a product, where all its rows are. Whatever it is, it goes straight through to the first row's result, because all
// other blocks wait for it: one loop with a branch for each kind took 0.5 us of a phase's 3 (H200, 2026-11-17).
template <bool GATED, bool RANKED>
__device__ __forceinline__ void finish_rows(Ending e, Shape s, const Job& job, u64* squares) {
    bool adds = !GATED && !RANKED && s.kind == OP_ADD;
    u32 each = s.whole ? 0 : 2, row = this_thread() >> each, step = PRODUCT_THREADS >> each;
    u32 quarter = s.whole ? 0 : this_thread() % 4, others = s.whole ? 31 : 7;
    float bias = __uint_as_float(e.before);
    u64 best = 0;
    // Decode matrices have both.
    if (adds) bias = s.bias && row < s.rows ? load_near(s.bias + row) : 0.0f;
    // All lanes of a warp take part in the sums of its rows.
    bool more = (row & ~others) < s.rows;
#pragma unroll 1
    while (more) {
        constexpr int N = GATED ? 2 : 1;
        Sums<N> sums;
        if (s.whole) {
#pragma unroll
            for (int n = 0; n < N; n++) sums.of[n] = 0.0f + e.parts[n * s.second];
        } else if (!GATED && !RANKED && s.slices > 16) {
            // Down's, whose parts are many.
            sums = collected_rows<N, 12>(e.parts, 0, s.slices, quarter);
        } else {
            sums = collected_rows<N, 4>(e.parts, s.second, s.slices, quarter);
        }
        bool own = row < s.rows && (!RANKED || quarter == 0);
        float value = GATED ? silu(sums.of[0]) * sums.of[N - 1] : sums.of[0] + bias;
        // Nobody looks again where there is nothing to wait for.
        if (adds) value += residual_norm_quant(own ? e.before : s.mark + 3, s.out, (s.mark + 3) & 3);
        if (!RANKED) {
            // Four lanes that have a row have a copy each.
            if (own && s.whole) put_copies<COPIES>(s.out, job.apart, value, s.mark);
            else if (own) put(s.out, value, s.mark);
        } else if (own) {
            *(float*)s.out = value;
            u64 here = candidate(value, s.out - job.output);
            if (here > best) best = here;
        }
        row += step;
        more = (row & ~others) < s.rows;
        if (more) {
            s.out += step, e.parts += step * s.slices;
            bool exists = row < s.rows;
            if (!GATED && exists && job.bias) bias = load_near(job.bias + row);
            if (adds && exists) e.before = load_relaxed(s.out);
        }
    }
    if (RANKED) note_candidate(best, squares, job.candidates + blockIdx.x);
}

// In `persistent_experts.cuh`.
struct Choice;
__device__ __forceinline__ void
finish_mix(const Job& job, float* partial, const Choice& choice, u32 own_before, u32 mark);

__device__ __forceinline__ void token_product(const Job& job, const Stretch& stretch, const Room& room, Ring& ring,
                                              const Choice& choice, const u32& launches, u64* times) {
    // Whoever called has read where the ring is, and writes that next.
    if (job.tiles == 0) return __syncwarp();
    // What does not depend on the input comes before it.
    u32 input = input_mark(job, launches), format = job.format, whole = job.whole;
    u32 lane = own_lane(), before = before_of(job);
    Ending ending;
    if (!MIXED) ending = ending_of(job, room.partial, before);
    Strip strip = strip_of(stretch, lane, 0);
    u32 end = ring.taken + job.stages;
    if (MIXED && job.kind == OP_EXPERTS) {
        // Its input is ready since `token_route`.
    } else if (!job.norm && job.waits) prepare_plain<ATTENDED_PAUSE, false>(job, input, room.x, 0, times);  // See `wait_ready_8`.
    else if (PAIRS && job.coming) prepare_plain<0, true>(job, input, room.x, room.heard, times);
    else if (!job.norm) prepare_plain<0, false>(job, input, room.x, 0, times);
#ifdef WIDE_NORM
    else if (job.supers > PRODUCT_WARPS) prepare_normed_wide(job, input, room.x, room.squares, room.dots, times);
#endif
    else prepare_normed(job, input, room.x, room.squares, room.dots, room.norm, times);
#ifdef WITH_DELTA
    if (job.dots && this_thread() / WARP == PRODUCT_WARPS - 1) finish_dots(job, room, output_mark(job, launches));
#endif
    note(times, 3);
#define WORK(F) \
    if (whole) stream_whole<F>(strip, end, stretch, lane, room.x, room.partial, ring); \
    else stream<F>(strip, end, stretch, lane, room.x, room.partial, ring)
    FOR_FORMAT(format, WORK)
#undef WORK
    // Experts have more columns in registers.
    if (MIXED) ending = ending_of(job, room.partial, before);
    Shape shape = shape_of(job, launches);
    together();
    note(times, 4);
    if (MIXED && shape.kind == OP_MIX) finish_mix(job, room.partial, choice, before, shape.mark);
    else if (shape.second) finish_rows<true, false>(ending, shape, job, (u64*)room.squares);
    else if (shape.kind == OP_LOGITS) finish_rows<false, true>(ending, shape, job, (u64*)room.squares);
    else finish_rows<false, false>(ending, shape, job, (u64*)room.squares);
}

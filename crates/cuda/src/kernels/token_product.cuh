// A product as a phase of `token.cu`: one row's input made ready by every block for itself, then this block's chunks.
//
// Work per phase and block, and where it goes on an H200 (1.5B, 2026-11-16): the code of a phase runs once, so its length
// counts as much as its arithmetic. Input ready 0.3 us without a norm and 0.9 us with one; 0.9 us for two chunks per warp, 4.4 us
// for the 13 of gate and up; 0.5 to 1.2 us until the results are out.

#define OP_EMBED 0
#define OP_STORE 1
#define OP_ADD 2
#define OP_GATE 3
#define OP_LOGITS 4
#define OP_ATTENTION 5
#define OP_PICK 6
#define OP_PLAIN 7

// What a phase is for one block; the host writes these. Inputs and outputs are tagged vectors; the tag is the phase's
// number, counted over all launches.
struct Job {
    u32 kind;
    u32 format;
    u32 input_from;        // The phase of this launch that made the input, counted from 1.
    u32 before_from;       // The one that made what the result is added to.
    const u64* input;
    const float* norm;
    const float* bias;     // of this block's first row
    u64* output;           // Logits are plain floats.
    u64* candidates;
    u32 tiles;             // of this block
    u32 rows;              // of them that exist
    u32 place;             // of the first in the output
    u32 columns;
    u32 supers;
    u32 slices;
    float epsilon;
    u32 wide;              // How the input is quantised.
    u32 padding[2];
};

// Clock readings of a phase: begun, asked for the input, input seen, input ready, sums done, all done.
#ifdef TIMES
__device__ __forceinline__ void note(u64* times, u32 which) {
    if (threadIdx.x == 0) times[which] = clock64();
}
#else
__device__ __forceinline__ void note(u64*, u32) {}
#endif

// What the ring is filled from.
struct Weights {
    const u8* ring;        // of this warp
    const Stretch* stretches;
    u32 count;             // of phases
};

// The same as `prepare` for one row of at most AHEAD super-blocks per warp, or of any number without a norm.
template <int AHEAD, bool NORM>
__device__ __forceinline__ void
prepare_row(const Job& job, u32 tag, Quantised x, float* squares, const Weights& weights, Ring& ring, u64* times) {
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    u32 supers = job.supers, columns = job.columns;
    for (u32 first = warp; first < supers; first += AHEAD * PRODUCT_WARPS) {
        const u64* own = job.input + first * SUPER + lane * 2;
        u32 at = first * SUPER + lane * 8;
        constexpr u32 STEP = PRODUCT_WARPS * SUPER;
        Eight seen[AHEAD];
        float v[AHEAD][8], w[AHEAD][8];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            look_8(seen[i], own + i * STEP, at + i * STEP < columns);
            if (NORM) load_8(job.norm, at + i * STEP, columns, w[i]);
        }
        note(times, 1);
        // Time to fetch weights of later phases, while the input is on its way.
        ring_refill(ring, weights.stretches, weights.count);
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            settle_8(seen[i], own + i * STEP, tag, at + i * STEP < columns);
#pragma unroll
            for (int c = 0; c < 8; c++) v[i][c] = value_of(seen[i].seen[c]);
        }
        note(times, 2);
        if (NORM) {
#pragma unroll
            for (int i = 0; i < AHEAD; i++) {
                float sum = 0.0f;
#pragma unroll
                for (int c = 0; c < 8; c++) sum = __fmaf_rn(v[i][c], v[i][c], sum);
                sum = warp_sum(sum);
                if (lane == 0 && first + i * PRODUCT_WARPS < supers) squares[first + i * PRODUCT_WARPS] = sum;
            }
            __syncthreads();
            float total = 0.0f;
            for (u32 i = lane; i < supers; i += WARP) total += squares[i];
            total = warp_sum(total);
            float scale = __fdiv_rn(1.0f, __fsqrt_rn(__fdiv_rn(total, (float)columns) + job.epsilon));
#pragma unroll
            for (int i = 0; i < AHEAD; i++) {
#pragma unroll
                for (int c = 0; c < 8; c++) v[i][c] = __fmul_rn(__fmul_rn(v[i][c], scale), w[i][c]);
            }
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            u32 item = first + i * PRODUCT_WARPS;
            if (item < supers) quantise_super(v[i], lane, job.wide, x.quants + item * SUPER, x.facts + item * 8);
        }
    }
    if (warp >= supers) {
        ring_refill(ring, weights.stretches, weights.count);
        // A warp without items has to meet the barrier inside all the same.
        if (NORM) __syncthreads();
    }
    __syncthreads();
}

template <int F>
__device__ __forceinline__ float chunk_sum(const u8* chunk, u32 super, int lane, u32 supers, Quantised x) {
    float sum[1] = {0.0f};
    advance<F>(chunk, super, lane, supers, x, sum);
    return sum[0];
}

// Works through a block's chunks and leaves sums in `partial`: one per chunk and row, or one per tile and row (`WHOLE`).
template <int F, bool WHOLE>
__device__ __forceinline__ void stream(const Stretch& s, u32 supers, Quantised x, float* partial, const Weights& weights, Ring& ring) {
    constexpr u32 CHUNK = Layout<F>::chunk, STAGE = STAGE_BYTES / CHUNK;
    u32 run = s.run, runs = s.runs, lane = ring.lane;
    if (WHOLE) {
#pragma unroll 1
        for (u32 r = ring.warp; r < runs; r += PRODUCT_WARPS) {
            float sum[1] = {0.0f};
#pragma unroll 1
            for (u32 super = 0; super < supers; super += STAGE) {
                const u8* chunk = ring_wait(ring, weights.ring);
                if (super + STAGE <= supers) {
#pragma unroll
                    for (u32 i = 0; i < STAGE; i++) advance<F>(chunk + i * CHUNK, super + i, lane, supers, x, sum);
                } else {
#pragma unroll 1
                    for (u32 i = 0; super + i < supers; i++) advance<F>(chunk + i * CHUNK, super + i, lane, supers, x, sum);
                }
                ring_next(ring, weights.stretches, weights.count);
            }
            float whole = sum[0];
            whole += __shfl_xor_sync(FULL, whole, 1);
            whole += __shfl_xor_sync(FULL, whole, 2);
            whole += __shfl_xor_sync(FULL, whole, 4);
            if (lane % 8 == 0) partial[r * 4 + lane / 8] = whole;
        }
    } else {
        u32 first = run * ring.warp / PRODUCT_WARPS, last = run * (ring.warp + 1) / PRODUCT_WARPS;
        u32 super_first = first % supers;
        bool odd = lane & 1;
#pragma unroll 1
        for (u32 r = 0; r < runs; r++) {
            u32 super = super_first;
            float* out = partial + r * run * 4 + lane / 8;
#pragma unroll 1
            for (u32 stage = first; stage < last; stage += STAGE) {
                const u8* chunk = ring_wait(ring, weights.ring);
                u32 end = min(stage + STAGE, last);
#pragma unroll 1
                for (u32 at = stage; at < end; at += 2, chunk += 2 * CHUNK) {
                    u32 next = super + 1 == supers ? 0 : super + 1;
                    // Where there is no second chunk its sum is of whatever stands there, and is left.
                    float a = chunk_sum<F>(chunk, super, lane, supers, x);
                    float b = chunk_sum<F>(chunk + CHUNK, next, lane, supers, x);
                    // Even lanes go on with the first chunk and odd ones with the second: the same tree for each.
                    float mine = (odd ? b : a) + __shfl_xor_sync(FULL, odd ? a : b, 1);
                    mine += __shfl_xor_sync(FULL, mine, 2);
                    mine += __shfl_xor_sync(FULL, mine, 4);
                    if (lane % 8 < 2 && at + odd < end) out[(at + odd) * 4] = mine;
                    bool both = at + 1 < end;
                    super = both ? (next + 1 == supers ? 0 : next + 1) : next;
                }
                ring_next(ring, weights.stretches, weights.count);
            }
        }
    }
}

// The same as `collected`, with more loads ahead of the chain of sums.
__device__ __forceinline__ float collected_row(const float* partial, u32 place, u32 r, u32 slices) {
    const float* own = partial + place * slices * 4 + r;
    float sum = 0.0f;
    u32 s = 0;
#pragma unroll 1
    for (; s + 12 <= slices; s += 12) {
        float v[12];
#pragma unroll
        for (int i = 0; i < 12; i++) v[i] = own[(s + i) * 4];
#pragma unroll
        for (int i = 0; i < 12; i++) sum += v[i];
    }
#pragma unroll 6
    for (; s < slices; s++) sum += own[s * 4];
    return sum;
}

// The best of a block's logits. Called by all warps that compute.
__device__ __forceinline__ void note_candidate(u64 best, u64* warps, u64* to) {
    __syncthreads();
    for (int step = 16; step > 0; step /= 2) {
        u64 other = __shfl_xor_sync(FULL, best, step);
        if (other > best) best = other;
    }
    if (threadIdx.x % WARP == 0) warps[threadIdx.x / WARP] = best;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int w = 0; w < PRODUCT_WARPS; w++) {
        if (warps[w] > best) best = warps[w];
    }
    *to = best;
}

// `base` is the number of phases before this launch, `tag` this one's number.
__device__ __forceinline__ void
token_product(const Job& job, const Stretch& stretch, u8* shared, const Weights& weights, Ring& ring, u32 base, u32 tag, u64* times) {
    if (job.tiles == 0) return;
    Quantised x;
    x.quants = (i8*)shared;
    x.facts = (uint2*)(shared + job.supers * SUPER);
    float* partial = (float*)(shared + job.supers * (SUPER + 64));
    u32 input = base + job.input_from;
    if (job.norm) {
        if (job.supers <= PRODUCT_WARPS) prepare_row<1, true>(job, input, x, partial, weights, ring, times);
        else prepare_row<2, true>(job, input, x, partial, weights, ring, times);
    } else {
        if (job.supers <= PRODUCT_WARPS) prepare_row<1, false>(job, input, x, partial, weights, ring, times);
        else prepare_row<3, false>(job, input, x, partial, weights, ring, times);
    }
    note(times, 3);
    // What the end of the phase needs is asked for before the sums.
    u32 own = threadIdx.x, kind = job.kind;
    bool has_row = own < job.rows;
    float own_bias = has_row && job.bias ? __ldcg(job.bias + own) : 0.0f;
    u64 own_before = has_row && kind == OP_ADD ? look(job.output + slot_of(job.place + own)) : 0;
#define WORK(F) \
    if (stretch.whole) stream<F, true>(stretch, job.supers, x, partial, weights, ring); \
    else stream<F, false>(stretch, job.supers, x, partial, weights, ring)
    FOR_FORMAT(job.format, WORK)
#undef WORK
    __syncthreads();
    note(times, 4);
    u64 best = 0;
#pragma unroll 1
    for (u32 at = own; at < job.rows; at += PRODUCT_THREADS) {
        u32 tile = at / 4, r = at % 4, place = job.place + at;
        float value = collected_row(partial, tile, r, job.slices);
        if (kind == OP_GATE) {
            float up = collected_row(partial, job.tiles + tile, r, job.slices);
            put(job.output + slot_of(place), value / (1.0f + expf(-value)) * up, tag);
            continue;
        }
        if (job.bias) value += at == own ? own_bias : __ldcg(job.bias + at);
        if (kind == OP_ADD) {
            u64* out = job.output + slot_of(place);
            value += settle(at == own ? own_before : look(out), out, base + job.before_from);
            put(out, value, tag);
        } else if (kind == OP_STORE) {
            put(job.output + place, value, tag);
        } else {
            ((float*)job.output)[place] = value;
            u64 here = candidate(value, place);
            if (here > best) best = here;
        }
    }
    if (kind == OP_LOGITS) note_candidate(best, (u64*)shared, job.candidates + blockIdx.x);
}

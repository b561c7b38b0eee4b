// Gated DeltaNet as a phase of `decode_persistent.cu`: a block has a value head, all of whose S comes through the ring like keys and values
// and is there before the row. It does what `delta.cu` does, bit for bit.
//
// With a head in one block its result is normalised there; with a quarter of one, four blocks would have to tell each other squares.
// S is written after the result is out, since nobody waits for it.

#include "delta.cuh"
#include "tagged.cuh"
#include "persistent_kv.cuh"

// Parameters of the phase; a layer's.
struct DeltaPhase {
    Delta delta;
    u32* output;
};
MIRRORED(DeltaPhase);

// A warp has so many columns of S.
#define STATE_COLUMNS (DELTA / PRODUCT_WARPS)
#define STATE_BYTES (STATE_COLUMNS * DELTA * 4)
#define STATE_SLOTS slots_of(STATE_BYTES)
static_assert(STATE_BYTES <= STATE_SLOTS * SLOT_BYTES && STATE_SLOTS <= DEPTH, "a head fits the ring");

struct DeltaShared {
    float parts[3][DELTA]; // q, k and v after the convolution
    float z[DELTA], norm[DELTA], o[DELTA];
    float decay, beta;
};
static_assert(sizeof(DeltaShared) <= ATTENTION_BYTES, "it stands where attention does");

// What every layer's states have in common; needs what the step before wrote.
__device__ __forceinline__ void find_state(const DeltaSlots& s, Cache& cache) {
    if (this_thread() != 0) return;
    u32 slot = s.runs[0].read, position = cache.span.length - 1;
    cache.slot = slot, cache.position = position, cache.state_heads = s.heads;
    cache.state_offset = slot * s.slot_bytes + (u64)(position % 2 * s.heads) * DELTA_STATE * 4;
}

__device__ __forceinline__ void feed_state(Feeder& f, const Stretch& s, const Cache& cache) {
    barrier_wait(shared_address(&cache.swizzled), 0);
    u32 lane = own_lane();
#pragma unroll 1
    for (u32 head = blockIdx.x; head < cache.state_heads; head += gridDim.x) {
        Coming c = make_room<STATE_SLOTS>(f, PRODUCT_WARPS * STATE_BYTES);
        const u8* from = s.weights + cache.state_offset + (u64)head * DELTA_STATE * 4 + lane * STATE_BYTES;
        if (lane < PRODUCT_WARPS) fetch(c.to + lane * STATE_SLOTS * SLOT_BYTES, from, STATE_BYTES, c.barrier, pass_through());
    }
}

// Four elements from shared memory.
__device__ __forceinline__ void take_4(const float* from, float* x) {
    float4 a = *(const float4*)from;
    x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w;
}

// A lane's four elements of a column, zeros before the first token. They are read twice: in registers they would be too many.
__device__ __forceinline__ void take_state(const float4* from, bool exists, float* x) {
    float4 a = *from;
    x[0] = exists ? a.x : 0.0f, x[1] = exists ? a.y : 0.0f, x[2] = exists ? a.z : 0.0f, x[3] = exists ? a.w : 0.0f;
}

// A lane's four elements, when they are there.
__device__ __forceinline__ void wait_ready_4(const u32* own, u32 mark, float* x) {
    uint4 seen = load_relaxed_4(own);
    while (((seen.x ^ mark) | (seen.y ^ mark) | (seen.z ^ mark) | (seen.w ^ mark)) & 3) seen = load_relaxed_4(own);
    __syncwarp();
    x[0] = value_of(seen.x), x[1] = value_of(seen.y), x[2] = value_of(seen.z), x[3] = value_of(seen.w);
}

// The upper lanes take over the last COUNT of twice as many numbers, the lower ones the first, each with what the lane across has of
// them. At the end a lane has one number, of all lanes, as `warp_sum` adds up.
template <u32 COUNT, u32 BY>
struct SumLanes {
    static __device__ __forceinline__ void of(float* x, u32 lane) {
        bool upper = lane & BY;
#pragma unroll
        for (u32 i = 0; i < COUNT; i++) {
            float own = upper ? x[i + COUNT] : x[i], other = upper ? x[i] : x[i + COUNT];
            x[i] = own + __shfl_xor_sync(FULL, other, BY);
        }
        SumLanes<COUNT / 2, BY / 2>::of(x, lane);
    }
};
template <u32 BY>
struct SumLanes<0, BY> {
    static __device__ __forceinline__ void of(float* x, u32) {
#pragma unroll
        for (u32 by = BY; by > 0; by /= 2) x[0] += __shfl_xor_sync(FULL, x[0], by);
    }
};

// A quarter of a head's queries, keys or values, a lane for a channel.
__device__ __forceinline__ void
make_part(const Delta& s, const Job& job, const Cache& cache, u32 mark, u32 head, u32 part, DeltaShared& shared) {
    u32 e = this_thread() % DELTA, keys = s.key_heads * DELTA, own_key = key_head_of(s, head) * DELTA;
    u32 channel = (part == 2 ? 2 * keys + head * DELTA : part * keys + own_key) + e, position = cache.position;
    float taps[DELTA_TAPS], rows[DELTA_TAPS - 1];
    load_4(s.taps + channel * DELTA_TAPS, taps);
#pragma unroll
    for (u32 i = 0; i < DELTA_TAPS - 1; i++) {
        u32 back = DELTA_TAPS - 1 - i;
        rows[i] = position >= back ? __ldcg(row_at(s, cache.slot, position - back) + channel) : 0.0f;
    }
    const u32* at = (const u32*)job.input + channel;
    float own = residual_norm_quant(load_relaxed(at), at, mark);
    if (part == 2 || leads(s, head)) row_at(s, cache.slot, position)[channel] = own;
    shared.parts[part][e] = convolve_1(taps, rows[0], rows[1], rows[2], own);
}

__device__ __forceinline__ void token_delta(const DeltaPhase& p, const Job& job, const Cache& cache, DeltaShared& shared,
                                            const WholeRing& ring, Saved& saved, u64* times) {
    const Delta& s = p.delta;
    if (blockIdx.x >= s.value_heads) return;
    u32 warp = this_thread() / WARP, lane = own_lane(), e = lane * 4, launches = keep(saved.launches);
    u32 mark = input_mark(job, launches), taken = saved.taken, channels = delta_channels(s);
    note(times, 1);
#pragma unroll 1
    for (u32 head = blockIdx.x; head < s.value_heads; head += gridDim.x) {
        u32 begin = taken + ring_gap(taken, STATE_SLOTS);
        barrier_wait(ring.full + begin % DEPTH * 8, begin / DEPTH & 1);
        const float4* stage = (const float4*)(ring.data + begin % DEPTH * STAGE_BYTES + warp * STATE_SLOTS * SLOT_BYTES) + lane;
        bool exists = cache.position > 0;
        // Whoever still reads what the phase before left in shared memory, or the head before.
        together();
        if (warp < 3 * DELTA / WARP) {
            make_part(s, job, cache, mark, head, warp / (DELTA / WARP), shared);
        } else if (warp == 12) {
            float z[4];
            wait_ready_4((const u32*)job.input + channels + head * DELTA + e, mark, z);
            store_4(shared.z + e, z);
        } else if (warp == 13) {
            float norm[4];
            load_4(s.norm + e, norm), store_4(shared.norm + e, norm);
        } else if (warp == 14 && lane < 2) {
            const u32* at = (const u32*)job.input + channels + s.value_heads * DELTA + lane * s.value_heads + head;
            float x = residual_norm_quant(load_relaxed(at), at, mark);
            if (lane == 0) shared.decay = decay_of(s, head, x);
            else shared.beta = beta_of(x);
        }
        note(times, 2);
        together();
        float q[4], k[4], sums[2 * STATE_COLUMNS];
        take_4(shared.parts[0] + e, q), take_4(shared.parts[1] + e, k);
        to_length(q, QUERY_SCALE), to_length(k, 1.0f);
#pragma unroll
        for (u32 c = 0; c < STATE_COLUMNS; c++) {
            float state[4];
            take_state(stage + c * WARP, exists, state);
            sums[c] = dot_4(k, state), sums[STATE_COLUMNS + c] = dot_4(q, state);
        }
        float qk = warp_sum(dot_4(q, k)), decay = shared.decay;
        SumLanes<STATE_COLUMNS, WARP / 2>::of(sums, lane);
        // The lower half of the warp has sums with k, the upper one those with q.
        float other = __shfl_xor_sync(FULL, sums[0], WARP / 2);
        float ks = lane < WARP / 2 ? sums[0] : other, qs = lane < WARP / 2 ? other : sums[0];
        u32 column = warp * STATE_COLUMNS + lane / 2 % STATE_COLUMNS;
        Change change = change_of(decay, shared.beta, qk, shared.parts[2][column], ks, qs);
        if (lane < WARP / 2 && lane % 2 == 0) shared.o[column] = change.o;
        together();
        note(times, 3);
        if (warp == 12) {
            float o[4], norm[4], z[4];
            take_4(shared.o + e, o), take_4(shared.norm + e, norm), take_4(shared.z + e, z);
            gate_head(s, o, norm, z);
            u32* out = p.output + head * DELTA + e;
#pragma unroll
            for (u32 i = 0; i < 4; i++) put_copies<ATTENDED_COPIES>(out + i, job.apart, o[i], output_mark(job, launches));
        }
        float* to = state_at(s, cache.slot, cache.position + 1, head) + warp * STATE_COLUMNS * DELTA + e;
#pragma unroll
        for (u32 c = 0; c < STATE_COLUMNS; c++) {
            float state[4], d = __shfl_sync(FULL, change.d, c * 2);
            take_state(stage + c * WARP, exists, state);
#pragma unroll
            for (u32 i = 0; i < 4; i++) state[i] = updated(state[i], decay, k[i], d);
            store_4(to + c * DELTA, state);
        }
        taken = begin + STATE_SLOTS;
        __syncwarp();
        if (lane == 0) store_after_reads(shared_address(&saved.released), taken);
    }
    // What follows writes where this was.
    together();
    if (lane == 0) saved.taken = taken;
    __syncwarp();
    note(times, 4);
}

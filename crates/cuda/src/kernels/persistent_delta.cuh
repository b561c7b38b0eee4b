// Gated DeltaNet as a phase of `decode_persistent.cu`: a block has a value head, all of whose S comes through the ring like keys and values,
// and stands in registers before the row is there. It does what `delta.cu` does, bit for bit.
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
    float q[DELTA], k[DELTA], v[DELTA], o[DELTA];
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

// A lane's four elements, when they are there.
__device__ __forceinline__ void wait_ready_4(const u32* own, u32 mark, float* x) {
    uint4 seen = load_relaxed_4(own);
    while (((seen.x ^ mark) | (seen.y ^ mark) | (seen.z ^ mark) | (seen.w ^ mark)) & 3) seen = load_relaxed_4(own);
    __syncwarp();
    x[0] = value_of(seen.x), x[1] = value_of(seen.y), x[2] = value_of(seen.z), x[3] = value_of(seen.w);
}

// Sums over all lanes of 2 N numbers, of which a lane gets the (lane / 2 % N)-th of the first N and of the last: every number is added
// up as `warp_sum` does.
template <u32 N>
__device__ __forceinline__ void sum_pairs(float* x, u32 lane, float& first, float& second) {
#pragma unroll
    for (u32 by = WARP / 2, count = N; count > 0; by /= 2, count /= 2) {
        bool upper = lane & by;
#pragma unroll
        for (u32 i = 0; i < count; i++) {
            float own = upper ? x[i + count] : x[i], other = upper ? x[i] : x[i + count];
            x[i] = own + __shfl_xor_sync(FULL, other, by);
        }
    }
#pragma unroll
    for (u32 by = WARP / 4 / N; by > 0; by /= 2) x[0] += __shfl_xor_sync(FULL, x[0], by);
    float other = __shfl_xor_sync(FULL, x[0], WARP / 2);
    first = lane & (WARP / 2) ? other : x[0], second = lane & (WARP / 2) ? x[0] : other;
}

// The part of a row that a warp makes ready: the queries, the keys or the values of a head.
__device__ __forceinline__ void
make_part(const Delta& s, const Job& job, const Cache& cache, u32 mark, u32 head, u32 part, DeltaShared& shared) {
    u32 e = own_lane() * 4, keys = s.key_heads * DELTA, own_key = key_head_of(s, head) * DELTA;
    u32 channel = (part == 2 ? 2 * keys + head * DELTA : part * keys + own_key) + e;
    Past past;
    load_taps(s, channel, past);
    load_past(s, cache.slot, cache.position, channel, past);
    float x[4];
    wait_ready_4((const u32*)job.input + channel, mark, x);
    if (part == 2 || leads(s, head)) store_4(row_at(s, cache.slot, cache.position) + channel, x);
    convolve(past, x);
    if (part < 2) to_length(x, part == 0 ? QUERY_SCALE : 1.0f);
    store_4((part == 0 ? shared.q : part == 1 ? shared.k : shared.v) + e, x);
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
        const u8* stage = ring.data + begin % DEPTH * STAGE_BYTES + warp * STATE_SLOTS * SLOT_BYTES;
        float state[STATE_COLUMNS][4];
#pragma unroll
        for (u32 c = 0; c < STATE_COLUMNS; c++) {
            float4 a = ((const float4*)stage)[c * WARP + lane];
            bool exists = cache.position > 0;
            state[c][0] = exists ? a.x : 0.0f, state[c][1] = exists ? a.y : 0.0f;
            state[c][2] = exists ? a.z : 0.0f, state[c][3] = exists ? a.w : 0.0f;
        }
        taken = begin + STATE_SLOTS;
        __syncwarp();
        if (lane == 0) store_after_reads(shared_address(&saved.released), taken);
        // Whoever still reads what the phase before left in shared memory, or the head before.
        together();
        float z[4], norm[4];
        if (warp < 3) {
            make_part(s, job, cache, mark, head, warp, shared);
        } else if (warp == 3) {
            load_4(s.norm + e, norm);
            wait_ready_4((const u32*)job.input + channels + head * DELTA + e, mark, z);
        } else if (warp == 4 && lane < 2) {
            const u32* at = (const u32*)job.input + channels + s.value_heads * DELTA + lane * s.value_heads + head;
            float x = residual_norm_quant(load_relaxed(at), at, mark);
            if (lane == 0) shared.decay = decay_of(s, head, x);
            else shared.beta = beta_of(x);
        }
        note(times, 2);
        together();
        float4 a = *(const float4*)(shared.k + e), b = *(const float4*)(shared.q + e);
        float k[4] = {a.x, a.y, a.z, a.w}, q[4] = {b.x, b.y, b.z, b.w}, sums[2 * STATE_COLUMNS];
#pragma unroll
        for (u32 c = 0; c < STATE_COLUMNS; c++) sums[c] = dot_4(k, state[c]), sums[STATE_COLUMNS + c] = dot_4(q, state[c]);
        float qk = warp_sum(dot_4(q, k)), decay = shared.decay, ks, qs;
        sum_pairs<STATE_COLUMNS>(sums, lane, ks, qs);
        u32 column = warp * STATE_COLUMNS + lane / 2 % STATE_COLUMNS;
        Change change = change_of(decay, shared.beta, qk, shared.v[column], ks, qs);
        if (lane < WARP / 2 && lane % 2 == 0) shared.o[column] = change.o;
        together();
        note(times, 3);
        if (warp == 3) {
            float4 c = *(const float4*)(shared.o + e);
            float o[4] = {c.x, c.y, c.z, c.w};
            gate_head(s, o, norm, z);
            u32* out = p.output + head * DELTA + e;
#pragma unroll
            for (u32 i = 0; i < 4; i++) put_copies<ATTENDED_COPIES>(out + i, job.apart, o[i], output_mark(job, launches));
        }
        float* to = state_at(s, cache.slot, cache.position + 1, head) + warp * STATE_COLUMNS * DELTA + e;
#pragma unroll
        for (u32 c = 0; c < STATE_COLUMNS; c++) {
            float d = __shfl_sync(FULL, change.d, c * 2);
#pragma unroll
            for (u32 i = 0; i < 4; i++) state[c][i] = updated(state[c][i], decay, k[i], d);
            store_4(to + c * DELTA, state[c]);
        }
    }
    // What follows writes where this was.
    together();
    if (lane == 0) saved.taken = taken;
    __syncwarp();
    note(times, 4);
}

// Gated DeltaNet (Yang, Kautz, Hatamizadeh 2024, as Qwen3-Next and Qwen3.5 have it): the arithmetic of a token, in one order for all
// kernels, so that a state has the same bits however tokens came.
//
//   y = silu(four taps over the last four rows of q k v), q and k divided by their length, q by sqrt(DELTA) too
//   d = beta (v - decay k'S);  o = decay q'S + (q'k) d;  S = decay S + k d'
//
// The result is that of S after the update, written so that both sums are of S before it and neither waits for the other. A sum over a
// head is a lane's four elements in order, then the tree of a warp. Updates have no sums, so they can be replayed from k, d and decay.
//
// A state slot has, for each such layer, S of all value heads twice, then four rows of q k v. S after n tokens stands in copy n % 2:
// a step that is thrown away has not touched what it began with. The row of position p stands in place p % 4.

#include "common.cuh"

// Elements of a head.
#define DELTA 128
#define DELTA_TAPS 4

struct Delta {
    u8* states;
    const float* taps;     // [channel][DELTA_TAPS], oldest first
    const float* dt;       // [value head]
    const float* a;        // [value head]: minus exp(A_log)
    const float* norm;     // [DELTA]
    u64 slot_bytes;
    u64 layer_offset;      // of this layer in a slot
    float epsilon;
    u32 key_heads;
    u32 value_heads;
    u32 grouped;           // Value heads of a key head follow each other; otherwise every key_heads-th is one.
};
MIRRORED(Delta);

// What a step is told of a sequence: its rows; the slot it reads; after how many rows the state goes to which slot, the sequence's own
// last; and how many rows are certain. Those after them are logged, and the state is written after certain ones only.
#define WRITES_MAX 8
struct DeltaRun {
    u32 first, count;
    u32 certain;
    u32 read;
    u32 log;               // Row of the log for the first row that is not certain.
    u32 writes;
    u32 padding[2];
    u32 after[WRITES_MAX];
    u32 slots[WRITES_MAX];
};
MIRRORED(DeltaRun);

// A row of the input is q, k, v, then the gate z of the result; alpha and beta of each value head are rates, behind it or elsewhere.
__device__ __forceinline__ u32 delta_channels(const Delta& p) {
    return (2 * p.key_heads + p.value_heads) * DELTA;
}

__device__ __forceinline__ u32 key_head_of(const Delta& p, u32 head) {
    return p.grouped ? head / (p.value_heads / p.key_heads) : head % p.key_heads;
}

// Whether this is the first value head of its key head.
__device__ __forceinline__ bool leads(const Delta& p, u32 head) {
    return p.grouped ? head % (p.value_heads / p.key_heads) == 0 : head < p.key_heads;
}

#define DELTA_STATE (DELTA * DELTA)

// S of a head after so many tokens, [column][DELTA].
__device__ __forceinline__ float* state_at(const Delta& p, u32 slot, u32 tokens, u32 head) {
    u8* layer = p.states + slot * p.slot_bytes + p.layer_offset;
    return (float*)layer + ((u64)(tokens % 2) * p.value_heads + head) * DELTA_STATE;
}

// The row of q k v at a position.
__device__ __forceinline__ float* row_at(const Delta& p, u32 slot, u32 position) {
    u8* layer = p.states + slot * p.slot_bytes + p.layer_offset;
    return (float*)layer + (u64)2 * p.value_heads * DELTA_STATE + position % DELTA_TAPS * delta_channels(p);
}

__device__ __forceinline__ void store_4(float* to, const float* x) {
    *(float4*)to = make_float4(x[0], x[1], x[2], x[3]);
}

__device__ __forceinline__ void load_4(const float* from, float* x) {
    float4 a = __ldcg((const float4*)from);
    x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w;
}

// Four channels' taps, and their rows before this one, oldest first.
struct Past {
    float taps[4][DELTA_TAPS];
    float rows[DELTA_TAPS - 1][4];
};

__device__ __forceinline__ void load_taps(const Delta& p, u32 channel, Past& past) {
#pragma unroll
    for (u32 i = 0; i < 4; i++) load_4(p.taps + (channel + i) * DELTA_TAPS, past.taps[i]);
}

// Rows before `position` that a slot has; before the first there are zeros.
__device__ __forceinline__ void load_past(const Delta& p, u32 slot, u32 position, u32 channel, Past& past) {
#pragma unroll
    for (u32 i = 0; i < DELTA_TAPS - 1; i++) {
        u32 back = DELTA_TAPS - 1 - i;
        bool exists = position >= back;
        load_4(row_at(p, slot, exists ? position - back : 0) + channel, past.rows[i]);
#pragma unroll
        for (u32 e = 0; e < 4; e++) past.rows[i][e] = exists ? past.rows[i][e] : 0.0f;
    }
}

// One channel's rows, oldest first, after the convolution.
__device__ __forceinline__ float convolve_1(const float* taps, float a, float b, float c, float own) {
    float sum = __fmul_rn(taps[0], a);
    sum = __fmaf_rn(taps[1], b, sum);
    sum = __fmaf_rn(taps[2], c, sum);
    return silu(__fmaf_rn(taps[3], own, sum));
}

__device__ __forceinline__ void convolve(const Past& past, float* x) {
#pragma unroll
    for (u32 e = 0; e < 4; e++) x[e] = convolve_1(past.taps[e], past.rows[0][e], past.rows[1][e], past.rows[2][e], x[e]);
}

// A lane's part of a sum over a head.
__device__ __forceinline__ float dot_4(const float* a, const float* b) {
    return __fmaf_rn(a[3], b[3], __fmaf_rn(a[2], b[2], __fmaf_rn(a[1], b[1], __fmul_rn(a[0], b[0]))));
}

// One warp divides a head by its length, and by what else is said.
__device__ __forceinline__ void to_length(float* x, float scale) {
    float length = __fsqrt_rn(warp_sum(dot_4(x, x)));
    float factor = __fmul_rn(__fdiv_rn(1.0f, fmaxf(length, 1e-6f)), scale);
#pragma unroll
    for (u32 e = 0; e < 4; e++) x[e] = __fmul_rn(x[e], factor);
}
#define QUERY_SCALE 0.08838834764831845f

__device__ __forceinline__ float decay_of(const Delta& p, u32 head, float alpha) {
    float x = __fadd_rn(alpha, p.dt[head]);
    float soft = x > 20.0f ? x : logf(__fadd_rn(1.0f, expf(x)));
    return expf(__fmul_rn(p.a[head], soft));
}

__device__ __forceinline__ float beta_of(float x) {
    return __fdiv_rn(1.0f, __fadd_rn(1.0f, expf(-x)));
}

// What a token does to one column of S.
struct Change {
    float d, o;
};

__device__ __forceinline__ Change change_of(float decay, float beta, float qk, float v, float ks, float qs) {
    float d = __fmul_rn(beta, __fmaf_rn(-decay, ks, v));
    return {d, __fmaf_rn(qk, d, __fmul_rn(decay, qs))};
}

__device__ __forceinline__ float updated(float s, float decay, float k, float d) {
    return __fmaf_rn(k, d, __fmul_rn(decay, s));
}

// One warp: a head's result, normalised and gated. A lane has four elements.
__device__ __forceinline__ void gate_head(const Delta& p, float* o, const float* norm, const float* z) {
    float factor = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(warp_sum(dot_4(o, o)) / DELTA, p.epsilon)));
#pragma unroll
    for (u32 e = 0; e < 4; e++) o[e] = __fmul_rn(__fmul_rn(o[e], __fmul_rn(factor, norm[e])), silu(z[e]));
}

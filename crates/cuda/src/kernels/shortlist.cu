// What a sampler needs of rows of logits: the likeliest tokens, and what the tokens of each run of ids weigh.
//
//   maxima     largest logit of each run of 256 ids                 warp per run, all multiprocessors
//   shortlist  largest of all; ids of all logits that reach the 128th largest of the maxima     block per row
//   weigh      sum of exp((logit - largest) / temperature) of each run                          warp per run
//
// Bytes: a row (600 KB of a real vocabulary) read twice, from the cache it was just written to; 7 KB go to the host.
//
// The host goes on from here with the CPU's sampler and must arrive at the very token it would pick from the row, so weights
// and sums repeat `kernels/shortlist.rs` operation by operation: nothing is fused, and sums run in its order.

#include "formats.cuh"

#define RUN 256
#define RUNS_LISTED 128
#define RUNS_MAX 2048
#define LIST_MAX 512
#define SHORTLIST_WARPS 8

struct Shortlist {
    const float* logits;   // [row][vocab]
    const u32* masks;      // [row][words]; bits of allowed tokens
    const float4* asks;    // [row] {1 / temperature, floor, whether there is a mask, -}
    float* maxima;         // [row][runs]
    u32* output;           // [row][stride] {count, complete, largest, -}, {id, logit} x LIST_MAX, sums of runs
    u32 vocab;
    u32 runs;
    u32 words;
    u32 stride;
};
MIRRORED(Shortlist);

#define MINUS_INFINITY __int_as_float(0xff800000)

// The logit of token `at`, minus infinity where it is not allowed or does not exist.
__device__ __forceinline__ float allowed_logit(const Shortlist& p, u32 row, u32 at, bool masked) {
    if (at >= p.vocab) return MINUS_INFINITY;
    if (masked && !(__ldcg(p.masks + (u64)row * p.words + at / 32) >> (at % 32) & 1)) return MINUS_INFINITY;
    return __ldcg(p.logits + (u64)row * p.vocab + at);
}

extern "C" __global__ void __launch_bounds__(SHORTLIST_WARPS * WARP) maxima(const __grid_constant__ Shortlist p) {
    let_next_start();
    wait_for_previous();
    u32 run = blockIdx.x * SHORTLIST_WARPS + threadIdx.x / WARP, row = blockIdx.y, lane = threadIdx.x % WARP;
    if (run >= p.runs) return;
    bool masked = p.asks[row].z != 0.0f, broken = false;
    float largest = MINUS_INFINITY;
#pragma unroll
    for (int i = 0; i < RUN / WARP; i++) {
        float own = allowed_logit(p, row, run * RUN + i * WARP + lane, masked);
        broken |= own != own;
        largest = fmaxf(largest, own);
    }
    largest = warp_max(largest);
    if (__any_sync(FULL, broken)) largest = __int_as_float(0x7fc00000);
    if (lane == 0) p.maxima[row * p.runs + run] = largest;
}

extern "C" __global__ void __launch_bounds__(1024) shortlist(const __grid_constant__ Shortlist p) {
    __shared__ float maxima[RUNS_MAX];
    __shared__ float bar, largest;
    __shared__ u32 count;
    let_next_start();
    wait_for_previous();
    u32 row = blockIdx.x, own = threadIdx.x, lane = own % WARP;
    bool masked = p.asks[row].z != 0.0f;
    for (u32 run = own; run < p.runs; run += 1024) maxima[run] = __ldcg(p.maxima + row * p.runs + run);
    if (own == 0) bar = MINUS_INFINITY, count = 0;
    __syncthreads();
    // Each finds its rank; equal ones are told apart by their place.
    for (u32 run = own; run < p.runs; run += 1024) {
        float value = maxima[run];
        u32 rank = 0;
        for (u32 other = 0; other < p.runs; other++) {
            float beside = maxima[other];
            rank += beside > value || (beside == value && other < run);
        }
        if (rank == RUNS_LISTED - 1) bar = value;
    }
    if (own < WARP) {
        float most = MINUS_INFINITY;
        bool broken = false;
        for (u32 run = lane; run < p.runs; run += WARP) {
            broken |= maxima[run] != maxima[run];
            most = fmaxf(most, maxima[run]);
        }
        most = warp_max(most);
        if (__any_sync(FULL, broken)) most = __int_as_float(0x7fc00000);
        if (lane == 0) largest = most;
    }
    __syncthreads();
    u32* out = p.output + (u64)row * p.stride;
    for (u32 run = own / WARP; run < p.runs; run += 1024 / WARP) {
        if (!(maxima[run] >= bar) || maxima[run] == MINUS_INFINITY) continue;
#pragma unroll
        for (int i = 0; i < RUN / WARP; i++) {
            u32 at = run * RUN + i * WARP + lane;
            float value = allowed_logit(p, row, at, masked);
            if (value >= bar && value > MINUS_INFINITY) {
                u32 slot = atomicAdd(&count, 1);
                if (slot < LIST_MAX) *(uint2*)(out + 4 + 2 * slot) = make_uint2(at, __float_as_uint(value));
            }
        }
    }
    __syncthreads();
    if (own == 0) *(uint4*)out = make_uint4(count, bar == MINUS_INFINITY, __float_as_uint(largest), 0);
}

// `exp` of `kernels/shortlist.rs`, for x <= 0.
__device__ __forceinline__ float plain_exp(float x) {
    const float ROUND = 12582912.0f;
    float t = __fmul_rn(fmaxf(x, -87.0f), 1.44269504088896340736f);
    float rounded = __fadd_rn(t, ROUND);
    float f = __fmul_rn(__fsub_rn(t, __fsub_rn(rounded, ROUND)), 0.69314718055994530942f);
    float power = __fadd_rn(1.0f / 120.0f, __fdiv_rn(f, 720.0f));
    power = __fadd_rn(1.0f / 24.0f, __fmul_rn(f, power));
    power = __fadd_rn(1.0f / 6.0f, __fmul_rn(f, power));
    power = __fadd_rn(0.5f, __fmul_rn(f, power));
    power = __fadd_rn(1.0f, __fmul_rn(f, power));
    power = __fadd_rn(1.0f, __fmul_rn(f, power));
    u32 n = __float_as_uint(rounded) - __float_as_uint(ROUND);
    return x < -87.0f ? 0.0f : __fmul_rn(power, __uint_as_float((n + 127) << 23));
}

__device__ __forceinline__ float weight_of(const Shortlist& p, u32 row, u32 at, float largest, float4 ask) {
    float logit = allowed_logit(p, row, at, ask.z != 0.0f);
    float weight = plain_exp(__fmul_rn(__fsub_rn(logit, largest), ask.x));
    return weight < ask.y ? 0.0f : weight;
}

extern "C" __global__ void __launch_bounds__(SHORTLIST_WARPS * WARP) weigh(const __grid_constant__ Shortlist p) {
    let_next_start();
    wait_for_previous();
    u32 run = blockIdx.x * SHORTLIST_WARPS + threadIdx.x / WARP, row = blockIdx.y, lane = threadIdx.x % WARP;
    if (run >= p.runs) return;
    float4 ask = p.asks[row];
    u32* out = p.output + (u64)row * p.stride;
    float largest = __uint_as_float(__ldcg(out + 2)), sum = 0.0f;
    u32 first = run * RUN, end = min(first + RUN, p.vocab), whole = end - end % 16;
#pragma unroll
    for (int i = 0; i < RUN / WARP; i++) {
        u32 at = first + i * WARP + lane;
        float weight = at < whole ? weight_of(p, row, at, largest, ask) : 0.0f;
        // Sixteen sums, each of every sixteenth weight in order; the upper half's weights follow the lower half's.
        float upper = __shfl_down_sync(FULL, weight, 16);
        sum = __fadd_rn(__fadd_rn(sum, weight), upper);
    }
    float all = 0.0f;
    for (int i = 0; i < 16; i++) all = __fadd_rn(all, __shfl_sync(FULL, sum, i));
    if (lane != 0) return;
    // What does not fill sixteen comes last.
    for (u32 at = whole; at < end; at++) all = __fadd_rn(all, weight_of(p, row, at, largest, ask));
    out[4 + 2 * LIST_MAX + run] = __float_as_uint(all);
}

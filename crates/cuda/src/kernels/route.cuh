// Which experts a row visits: what `experts.cu`, `persistent_experts.cuh` and `expert_rows.cu` share; the first two choose alike bit for bit.

#include "common.cuh"

#define EXPERTS_MAX 256
#define USED_MAX 32
#define LIST_MAX (USED_MAX + WARP)

// A score is the product of the normalised row with the router's. The row's scale stands outside of the sum, so that the sum
// does not wait for it: this is a lane's part of a super-block, its eight elements in order, then the tree of a warp.
// Super-blocks are added in order and scaled by the caller.
__device__ __forceinline__ float super_score(const float* x, const float* norm, const float* router) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 8; i++) sum = __fmaf_rn(x[i], __fmul_rn(norm[i], router[i]), sum);
    return warp_sum(sum);
}

// Orders scores as integers, above zero; what is not a number comes first, so that it is noticed.
__device__ __forceinline__ u32 ordered(float score) {
    return (u32)(candidate(score, 0) >> 32);
}

__device__ __forceinline__ float score_of(u32 ordered) {
    return __uint_as_float(ordered & 0x80000000u ? ordered & 0x7fffffffu : ~ordered);
}

// What a warp that chose knows: the scores, with those of the chosen struck out, and which these are. A lane has the
// ordered scores of experts lane, lane + 32 and so on, zero where there is none.
template <int EACH>
struct Chosen {
    u32 scores[EACH];
    u32 lanes[EACH];
};

template <int EACH>
__device__ __forceinline__ u32 count_chosen(Chosen<EACH>& c, const u32* before) {
    u32 count = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++) c.lanes[i] = __ballot_sync(FULL, c.scores[i] != before[i]), count += __popc(c.lanes[i]);
    return count;
}

// One warp chooses `used` of up to WARP * EACH experts: those with the highest scores, of equal ones the first.
//
// A round strikes out the highest score, 80 cycles. Where two are equal that may strike out too many, and then everything is
// done again with one of them at a time.
template <int EACH>
__device__ __forceinline__ Chosen<EACH> choose(const u32* before, u32 used) {
    Chosen<EACH> c;
#pragma unroll
    for (int i = 0; i < EACH; i++) c.scores[i] = before[i];
#pragma unroll 1
    for (u32 k = 0; k < used; k++) {
        u32 best = 0;
#pragma unroll
        for (int i = 0; i < EACH; i++) best = max(best, c.scores[i]);
        best = __reduce_max_sync(FULL, best);
#pragma unroll
        for (int i = 0; i < EACH; i++) c.scores[i] = c.scores[i] == best ? 0 : c.scores[i];
    }
    if (count_chosen(c, before) == used) return c;
#pragma unroll
    for (int i = 0; i < EACH; i++) c.scores[i] = before[i];
#pragma unroll 1
    for (u32 k = 0; k < used; k++) {
        u32 best = 0, first = 0xffffffffu, lane = threadIdx.x % WARP;
#pragma unroll
        for (int i = 0; i < EACH; i++) best = max(best, c.scores[i]);
        best = __reduce_max_sync(FULL, best);
#pragma unroll
        for (int i = EACH - 1; i >= 0; i--) first = c.scores[i] == best ? i * WARP + lane : first;
        first = __reduce_min_sync(FULL, first);
#pragma unroll
        for (int i = 0; i < EACH; i++) c.scores[i] = first == i * WARP + lane ? 0 : c.scores[i];
    }
    count_chosen(c, before);
    return c;
}

// Expert and ordered score of the chosen, in the order of expert numbers. What is not chosen goes to a place of the lane's own after
// the last, which is cheaper than leaving it.
template <int EACH>
__device__ __forceinline__ void list_chosen(const Chosen<EACH>& c, const u32* before, uint2* list) {
    u32 lane = threadIdx.x % WARP, first = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        u32 slot = c.scores[i] != before[i] ? first + __popc(c.lanes[i] & ((1u << lane) - 1)) : USED_MAX + lane;
        list[slot] = make_uint2(lane + i * WARP, before[i]);
        first += __popc(c.lanes[i]);
    }
    __syncwarp();
}

// The shares of chosen experts, a lane for each: a softmax over their scores. Zero in the other lanes.
__device__ __forceinline__ float share_of(float score, bool exists) {
    float largest = warp_max(exists ? score : -INFINITY), here = exists ? expf(score - largest) : 0.0f;
    return here / warp_sum(here);
}

// The share of an expert that every row visits, by the score of its own gate.
__device__ __forceinline__ float shared_share(float score) {
    return __fdiv_rn(1.0f, __fadd_rn(1.0f, expf(-score)));
}

// One warp chooses a row's experts by its scores, which may stand in parts, and gives each its share. `list` is the warp's own.
__device__ __forceinline__ void
choose_row(const float* scores, u32 parts, u32 count, u32 used, uint2* list, u32* chosen, float* shares) {
    constexpr int EACH = EXPERTS_MAX / WARP;
    u32 lane = threadIdx.x % WARP, before[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        u32 e = lane + i * WARP;
        float score = 0.0f;
        for (u32 part = 0; part < parts && e < count; part++) score += __ldcg(scores + part * count + e);
        before[i] = e < count ? ordered(score) : 0;
    }
    list_chosen<EACH>(choose<EACH>(before, used), before, list);
    float share = share_of(score_of(list[lane].y), lane < used);
    if (lane < used) chosen[lane] = list[lane].x, shares[lane] = share;
}

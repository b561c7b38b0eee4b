// Prefill rows through experts: each row chooses, its visits are put in the order of experts, `packed` multiplies all rows of an
// expert at once, and what the visits gave is added up again, in the order of experts.

#include "route.cuh"
#include "gemm.cuh"

struct Choose {
    const float* scores;   // [row][part][count]
    u32* chosen;           // [row][used], in the order of their numbers
    float* shares;         // [row][used]
    u32 rows;
    u32 count;
    u32 used;
    u32 parts;
};
MIRRORED(Choose);

// A warp has a row.
extern "C" __global__ void __launch_bounds__(256) choose_experts(const __grid_constant__ Choose p) {
    __shared__ uint2 lists[8][LIST_MAX];
    let_next_start();
    wait_for_previous();
    u32 warp = threadIdx.x / WARP, row = blockIdx.x * 8 + warp, visit = row * p.used;
    if (row >= p.rows) return;
    choose_row(p.scores + (u64)row * p.parts * p.count, p.parts, p.count, p.used, lists[warp], p.chosen + visit, p.shares + visit);
}

struct Sort {
    const u32* chosen;     // [visit]: which expert
    u32* slots;           // [place]: which visit, in the order of experts and then of visits
    uint4* tiles;          // Expert, first place and number of places, at most TILE; zero after the last.
    u32 visits;
    u32 tiles_max;
};
MIRRORED(Sort);

#define NOBODY 0xffffffffu

__device__ __forceinline__ u32 tiles_of(u32 count) {
    return (count + TILE - 1) / TILE;
}

// Calls `work` with visits begin .. end and their experts, a warp at a time; eight are read at once. After the last there is nobody.
template <typename Work>
__device__ __forceinline__ void each_visit(const u32* chosen, u32 begin, u32 end, Work work) {
    for (u32 first = begin + threadIdx.x % WARP; first - threadIdx.x % WARP < end; first += 8 * WARP) {
        u32 experts[8];
#pragma unroll
        for (int i = 0; i < 8; i++) experts[i] = first + i * WARP < end ? chosen[first + i * WARP] : NOBODY;
#pragma unroll
        for (int i = 0; i < 8; i++) work(first + i * WARP, experts[i]);
    }
}

// A block has an expert. It counts the visits to all, to know its first place; a warp has every eighth of them.
extern "C" __global__ void __launch_bounds__(256) sort_visits(const __grid_constant__ Sort p) {
    __shared__ u32 counts[EXPERTS_MAX], sums[3][8];
    u32 expert = blockIdx.x, warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    u32 each = (p.visits + 7) / 8, begin = warp * each, end = min(begin + each, p.visits), own = 0;
    let_next_start();
    wait_for_previous();
    counts[threadIdx.x] = 0;
    __syncthreads();
    each_visit(p.chosen, begin, end, [&](u32, u32 chosen) {
        if (chosen != NOBODY) atomicAdd(counts + chosen, 1);
        own += chosen == expert;
    });
    __syncthreads();
    u32 before = threadIdx.x < expert ? counts[threadIdx.x] : 0;
    u32 parts[3] = {before, tiles_of(before), own};
#pragma unroll
    for (int i = 0; i < 3; i++) {
        u32 sum = __reduce_add_sync(FULL, parts[i]);
        if (lane == 0) sums[i][warp] = sum;
    }
    __syncthreads();
    u32 first = 0, tile = 0, slot = 0, count = counts[expert];
    for (int w = 0; w < 8; w++) first += sums[0][w], tile += sums[1][w], slot += w < warp ? sums[2][w] : 0;
    slot += first;
    each_visit(p.chosen, begin, end, [&](u32 visit, u32 chosen) {
        u32 lanes = __ballot_sync(FULL, chosen == expert);
        if (chosen == expert) p.slots[slot + __popc(lanes & ((1u << lane) - 1))] = visit;
        slot += __popc(lanes);
    });
    u32 last = expert == gridDim.x - 1 ? p.tiles_max - tile : tiles_of(count);
    for (u32 t = threadIdx.x; t < last; t += 256) {
        u32 done = t * TILE;
        p.tiles[tile + t] = make_uint4(expert, first + done, done < count ? min(TILE, count - done) : 0, 0);
    }
}

struct AddParts {
    const float* parts;    // [row][each][columns]
    const float* shares;   // [row][each]; or null: all the same.
    float* x;              // [row][columns]
    u32 columns;
    u32 each;
    u32 anew;              // Whether what stands in `x` does not count.
};
MIRRORED(AddParts);

// Adds to a row what several blocks or experts have for it, in order. A block has 1024 columns of a row, a thread four.
extern "C" __global__ void __launch_bounds__(256) add_parts(const __grid_constant__ AddParts p) {
    let_next_start();
    wait_for_previous();
    u32 first = blockIdx.x * p.each, c = blockIdx.y * 1024 + threadIdx.x * 4;
    if (c >= p.columns) return;
    float4* x = (float4*)(p.x + (u64)blockIdx.x * p.columns + c);
    float4 sum = p.anew ? make_float4(0.0f, 0.0f, 0.0f, 0.0f) : *x;
#pragma unroll 8
    for (u32 i = first; i < first + p.each; i++) {
        float4 v = *(const float4*)(p.parts + (u64)i * p.columns + c);
        float share = p.shares ? p.shares[i] : 1.0f;
        sum.x += share * v.x, sum.y += share * v.y, sum.z += share * v.z, sum.w += share * v.w;
    }
    *x = sum;
}

struct ScaleRows {
    const u16* input;      // [row][columns]
    const float* gate;     // [columns]
    u16* x;                // [row][width]
    u32 rows;
    u32 columns;
    u32 width;
};
MIRRORED(ScaleRows);

// Rows of an expert that all visit, by its share: that of the row's input times its gate. A warp has a row.
extern "C" __global__ void __launch_bounds__(256) scale_rows(const __grid_constant__ ScaleRows p) {
    let_next_start();
    wait_for_previous();
    u32 row = blockIdx.x * 8 + threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if (row >= p.rows) return;
    float sum = 0.0f;
    for (u32 c = lane * 2; c < p.columns; c += 2 * WARP) {
        float2 both = unpack_halves(*(const u32*)(p.input + (u64)row * p.columns + c));
        sum = __fmaf_rn(both.x, p.gate[c], __fmaf_rn(both.y, p.gate[c + 1], sum));
    }
    float share = shared_share(warp_sum(sum));
    for (u32 c = lane * 2; c < p.width; c += 2 * WARP) {
        u32* at = (u32*)(p.x + (u64)row * p.width + c);
        float2 both = unpack_halves(*at);
        *at = pack_halves(share * both.x, share * both.y);
    }
}

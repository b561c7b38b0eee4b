// Mixtures of experts: which experts a row visits, and one row at a time through their matrices.
//
// Part of the module for one tile of rows; the products are those of `product_batch.cu`.

#include "route.cuh"
#include "product_batch.cu"

#if TILES == 1
// The products of a mixture of experts: blockIdx.y is a row's visit to an expert, one row through that expert's matrices,
// which stand behind each other. Input and output are floats: [row] or [visit][columns], and [visit][stride] or slices.
template <int KIND>
__device__ __forceinline__ void experts(const ProductBatch& p) {
    let_next_start();
    // Which expert it is the kernel before says, or one before that.
    wait_for_previous();
    u32 visit = blockIdx.y, row = visit / p.used, slot = visit % p.used, expert = __ldcg(p.chosen + visit);
    ProductBatch own = p;
    Segment s = p.segments[0];
    u64 bytes = 0;
#define WORK(F) bytes = (u64)s.tiles * p.supers * Layout<F>::chunk
    FOR_FORMAT(s.format, WORK)
#undef WORK
    s.weights += expert * bytes, s.second += KIND == GATE ? expert * bytes : 0;
    own.rows = 1;
    own.input += (u64)(KIND == GATE ? row : visit) * p.columns * 4;
    own.output += (KIND == GATE ? (u64)visit : (u64)slot * p.supers * p.slice_rows + row) * p.output_stride;
#define WORK(F) run<F, KIND, false, true>(own, s, 0)
    FOR_FORMAT(s.format, WORK)
#undef WORK
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) experts_gate(const __grid_constant__ ProductBatch p) {
    experts<GATE>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS, 1) experts_partial(const __grid_constant__ ProductBatch p) {
    experts<PARTIAL>(p);
}

// Which experts a row visits, in the order of their numbers. A warp has one expert's score; the last block of a row chooses.
struct Route {
    const float* input;    // [row][columns]
    const float* norm;
    const float* router;   // [expert][columns]
    float* scores;         // [row][count]
    u32* arrived;          // [row], zero between kernels
    u32* chosen;           // [row][used]
    float* shares;         // [row][used + shared]
    u32 columns;
    u32 count;             // At most 256.
    u32 used;              // At most 32.
    float epsilon;
    u32 shared;            // 1 where one more row of the router is the gate of an expert that all visit.
    u32 padding;
};
MIRRORED(Route);

extern "C" __global__ void __launch_bounds__(SUPER) route(const __grid_constant__ Route p) {
    __shared__ u32 is_last;
    __shared__ uint2 chosen[LIST_MAX];
    u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, row = blockIdx.y, expert = blockIdx.x * 8 + warp;
    const float* router = p.router + (u64)expert * p.columns;
    let_next_start();
    u32 scored = p.count + p.shared;
    if (expert < scored) {
        for (u32 c = lane * 32; c < p.columns; c += WARP * 32) prefetch_line(router + c);
    }
    wait_for_previous();
    if (expert < scored) {
        const float* x = p.input + (u64)row * p.columns;
        float sum = 0.0f, squares = 0.0f;
#pragma unroll 4
        for (u32 super = 0; super * SUPER < p.columns; super++) {
            float a[8], b[8], c[8];
            u32 at = super * SUPER + lane * 8;
            load_8(x, at, p.columns, a), load_8(p.norm, at, p.columns, b), load_8(router, at, p.columns, c);
            sum += super_score(a, b, c);
            // As `residual_norm_quant` adds them up: a lane has every 32nd.
            float square = super_square(a);
            if (lane == super % WARP) squares += square;
        }
        sum = __fmul_rn(row_scale(warp_sum(squares), p.columns, p.epsilon), sum);
        if (lane == 0) p.scores[row * scored + expert] = sum;
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        is_last = atomicAdd(p.arrived + row, 1) == gridDim.x - 1;
        if (is_last) p.arrived[row] = 0;
        __threadfence();
    }
    __syncthreads();
    if (!is_last || warp != 0) return;
    float* shares = p.shares + row * (p.used + p.shared);
    choose_row(p.scores + row * scored, 1, p.count, p.used, chosen, p.chosen + row * p.used, shares);
    if (p.shared && lane == 0) shares[p.used] = shared_share(__ldcg(p.scores + row * scored + p.count));
}
#endif

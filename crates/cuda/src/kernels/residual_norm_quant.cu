// The residual between products of several rows.
//
// Adds what `product_batch_partial` left to the residual, then normalises and quantises it. The super-blocks of a row are dealt
// out to the blocks of gridDim.x, which tell each other the sums of their squares: through each other's shared memory, or,
// on cards that cannot, the last one to arrive does the rest of the row. At sixteen rows of the 1.5B (H200, by leaving it out)
// that way took 5.4 us, and the first one 4.7 while the loads of what is added still waited for each other.

#include "product.cuh"
struct ResidualNormQuant {
    float* x;              // [row][columns]
    const float* partial;  // [slice][row][columns]; null when there is nothing to add
    const float* bias;
    const float* norm;
    float* squares;        // [row][super]
    u32* arrived;          // [row], zero between kernels
    u8* output;
    float epsilon;
    u32 columns;
    u32 supers;
    u32 slices;
    u32 rows;
    u32 wide;
    float* normed;         // [row][columns], where the normalised row is wanted too.
    const float* shares;   // [row][visit]: slices are those of visits to experts, each with its share.
    u32 visits;
    u32 padding;
};
MIRRORED(ResidualNormQuant);

// Super-blocks of a row that one block may have.
#define OWN_MAX 8
#define SUPERS_MAX (8 * OWN_MAX)

// One element of the residual, with what is added to it. All slices are copied into shared memory at once: loads into
// registers wait for each other, because the sum is in their order.
__device__ __forceinline__ float summed(const ResidualNormQuant& p, u32 row, u32 super, float (*slices)[SUPER]) {
    u32 column = super * SUPER + threadIdx.x, piece = threadIdx.x % 64;
    float* x = p.x + (u64)row * p.columns + column;
    float value = column < p.columns ? __ldcg(x) : 0.0f;
    if (!p.partial) return value;
    if (super * SUPER + piece * 4 < p.columns) {
        const float* from = p.partial + (u64)row * p.columns + super * SUPER + piece * 4;
        for (u32 s = threadIdx.x / 64; s < p.slices; s += SUPER / 64) {
            copy_16(shared_address(&slices[s][piece * 4]), from + (u64)s * p.rows * p.columns);
        }
    }
    copies_commit();
    copies_wait<0>();
    __syncthreads();
    if (column < p.columns) {
        u32 each = p.slices / p.visits;
        for (u32 visit = 0; visit < p.visits; visit++) {
            float sum = sum_parts(each, [&](u32 s) { return slices[visit * each + s][threadIdx.x]; });
            if (p.bias) sum += p.bias[column];
            if (p.shares) sum = __fmul_rn(__ldcg(p.shares + row * p.visits + visit), sum);
            value = sum + value;
        }
        *x = value = rounded(value);
    }
    __syncthreads();
    return value;
}

__device__ __forceinline__ void finish_super(const ResidualNormQuant& p, u32 row, u32 super, float* v, float scale, const float* w) {
    normalise_8(v, scale, w);
    u32 column = super * SUPER + threadIdx.x % WARP * 8;
    if (p.normed && column < p.columns) {
        float4* out = (float4*)(p.normed + (u64)row * p.columns + column);
        out[0] = make_float4(v[0], v[1], v[2], v[3]), out[1] = make_float4(v[4], v[5], v[6], v[7]);
    }
    store_8(v, p.output, row, super, p.supers, p.wide);
}

extern "C" __global__ void __launch_bounds__(SUPER) residual_norm_quant(const __grid_constant__ ResidualNormQuant p) {
    __shared__ __align__(16) float staged[OWN_MAX][SUPER];
    __shared__ float squares[SUPERS_MAX];
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    u32 row = blockIdx.y, blocks = gridDim.x, own = blockIdx.x + warp * blocks;
    float v[8], w[8], sum = 0.0f, total = 0.0f;
    let_next_start();
#if __CUDA_ARCH__ >= 900
    cluster_begun();
#endif
    load_8(p.norm, own * SUPER + lane * 8, p.columns, w);
    wait_for_previous();
    for (u32 super = blockIdx.x, k = 0; super < p.supers; super += blocks, k++) {
        staged[k][threadIdx.x] = summed(p, row, super, (float(*)[SUPER])shared);
    }
    __syncthreads();
    if (own < p.supers) {
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] = staged[warp][lane * 8 + i];
        sum = super_square(v);
    }
#if __CUDA_ARCH__ >= 900
    // All blocks have begun; now each writes into the shared memory of all.
    cluster_wait();
    if (own < p.supers && lane < blocks) cluster_store(cluster_address(shared_address(squares + own), lane), sum);
    cluster_together();
    if (own >= p.supers) return;
    for (u32 i = lane; i < p.supers; i += WARP) total += squares[i];
    finish_super(p, row, own, v, row_scale(warp_sum(total), p.columns, p.epsilon), w);
#else
    __shared__ u32 is_last;
    if (lane == 0 && own < p.supers) p.squares[row * p.supers + own] = sum;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        is_last = atomicAdd(p.arrived + row, 1) == blocks - 1;
        if (is_last) p.arrived[row] = 0;
        __threadfence();
    }
    __syncthreads();
    if (!is_last) return;
    for (u32 i = lane; i < p.supers; i += WARP) total += __ldcg(p.squares + row * p.supers + i);
    float scale = row_scale(warp_sum(total), p.columns, p.epsilon);
    for (u32 super = warp; super < p.supers; super += SUPER / WARP) {
        load_8(p.x + (u64)row * p.columns, super * SUPER + lane * 8, p.columns, v);
        load_8(p.norm, super * SUPER + lane * 8, p.columns, w);
        finish_super(p, row, super, v, scale, w);
    }
#endif
}

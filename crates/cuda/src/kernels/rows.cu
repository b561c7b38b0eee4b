// Work on single rows: embeddings in, the most likely token out, norms for prompts, random weights.

#include "rows.cuh"

extern "C" __global__ void __launch_bounds__(128) embed(const __grid_constant__ Embed p) {
    let_next_start();
    wait_for_previous();
    u32 token = p.tokens[blockIdx.x];
    float* out = p.output + (u64)blockIdx.x * p.columns;
    if (is_float(p.format)) {
        const u16* row = (const u16*)p.table + (u64)token * p.columns;
        for (u32 c = threadIdx.x; c < p.columns; c += 128) out[c] = rounded(float_value(row[c], p.format));
    }
#define WORK(F) embed_row<F>(p, token, out)
    FOR_FORMAT(p.format, WORK)
#undef WORK
}

extern "C" __global__ void __launch_bounds__(256) pick(const __grid_constant__ Pick p) {
    __shared__ u64 best[8];
    let_next_start();
    wait_for_previous();
    u64 own = best_candidate(p, blockIdx.x, threadIdx.x, 256);
    if (threadIdx.x % WARP == 0) best[threadIdx.x / WARP] = own;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int w = 1; w < 8; w++) {
        if (best[w] > own) own = best[w];
    }
    publish(p, blockIdx.x, own);
}

struct Norm {
    const float* input;    // [row][columns]
    const float* weight;
    u16* output;           // [row][columns], half precision
    float epsilon;
    u32 columns;
};
MIRRORED(Norm);

extern "C" __global__ void __launch_bounds__(256) norm_half(const __grid_constant__ Norm p) {
    __shared__ float parts[8];
    let_next_start();
    wait_for_previous();
    const float* x = p.input + (u64)blockIdx.x * p.columns;
    float sum = 0.0f;
    for (u32 c = threadIdx.x * 4; c < p.columns; c += 1024) {
        float4 v = *(const float4*)(x + c);
        sum += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
    }
    sum = warp_sum(sum);
    if (threadIdx.x % WARP == 0) parts[threadIdx.x / WARP] = sum;
    __syncthreads();
    sum = 0.0f;
    for (int w = 0; w < 8; w++) sum += parts[w];
    float scale = 1.0f / sqrtf(sum / p.columns + p.epsilon);
    for (u32 c = threadIdx.x * 4; c < p.columns; c += 1024) {
        float4 v = *(const float4*)(x + c), w = *(const float4*)(p.weight + c);
        uint2 out = make_uint2(pack_halves(v.x * scale * w.x, v.y * scale * w.y),
                               pack_halves(v.z * scale * w.z, v.w * scale * w.w));
        *(uint2*)(p.output + (u64)blockIdx.x * p.columns + c) = out;
    }
}

struct Random {
    u8* output;
    u64 chunks;
    u32 format;
    u32 seed;
};
MIRRORED(Random);

__device__ __forceinline__ u32 mixed(u32 x) {
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    return x ^ (x >> 16);
}

// Random quants under scales of a sensible size, for measuring a shape without a file. One warp per chunk.
template <int F>
__device__ __forceinline__ void random_chunks(const Random& p) {
    typedef Layout<F> L;
    u64 warp = ((u64)blockIdx.x * blockDim.x + threadIdx.x) / WARP, warps = (u64)gridDim.x * blockDim.x / WARP;
    u16 d = float_to_half(L::super_blocks ? 0.0001f : 0.01f), m = float_to_half(L::super_blocks ? 0.001f : -0.08f);
    for (u64 at = warp; at < p.chunks; at += warps) {
        u32* chunk = (u32*)(p.output + at * L::chunk);
        for (u32 i = threadIdx.x % WARP; i < L::chunk / 4; i += WARP) {
            u32 word = mixed(p.seed ^ mixed((u32)at * 997u + i));
            bool scales = i < L::header / 4 && (F == Q6_K ? i >= 16 : !L::super_blocks || i % 4 == 0);
            bool second = F == Q4_K || F == Q5_K || (L::with_min && i >= 16);
            if (scales) word = (u32)(second ? m : d) << 16 | (second && i >= 16 ? m : d);
            chunk[i] = word;
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) random_weights(const __grid_constant__ Random p) {
#define WORK(F) random_chunks<F>(p)
    FOR_FORMAT(p.format, WORK)
#undef WORK
}

// Mixtures of experts: which experts a row visits, and one row at a time through their matrices.
//
// Part of the module for one tile of rows; the products are those of `several.cu`.

#if TILES == 1
// The products of a mixture of experts: blockIdx.y is a row's visit to an expert, one row through that expert's matrices,
// which stand behind each other. Input and output are floats: [row] or [visit][columns], and [visit][stride] or slices.
template <int KIND>
__device__ __forceinline__ void experts(const Several& p) {
    let_next_start();
    // Which expert it is the kernel before says, or one before that.
    wait_for_previous();
    u32 visit = blockIdx.y, row = visit / p.used, slot = visit % p.used, expert = __ldcg(p.chosen + visit);
    Several own = p;
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

extern "C" __global__ void __launch_bounds__(THREADS, 2) experts_gate(const __grid_constant__ Several p) {
    experts<GATE>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS, 2) experts_partial(const __grid_constant__ Several p) {
    experts<PARTIAL>(p);
}

// Which experts a row visits: the likeliest of a softmax over all, with their shares scaled to sum to one, in the order of
// their numbers. A warp has one expert's score; the last block of a row chooses.
struct Route {
    const float* input;    // [row][columns], normalised
    const float* router;   // [expert][columns]
    float* scores;         // [row][count]
    u32* arrived;          // [row], zero between kernels
    u32* chosen;           // [row][used]
    float* shares;         // [row][used]
    u32 columns;
    u32 count;             // At most 256.
    u32 used;              // At most 32.
    u32 padding;
};

extern "C" __global__ void __launch_bounds__(SUPER) route(const __grid_constant__ Route p) {
    __shared__ u32 is_last;
    u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, row = blockIdx.y, expert = blockIdx.x * 8 + warp;
    const float* router = p.router + (u64)expert * p.columns;
    let_next_start();
    if (expert < p.count) {
        for (u32 c = lane * 32; c < p.columns; c += WARP * 32) asm volatile("prefetch.global.L2 [%0];" ::"l"(router + c));
    }
    wait_for_previous();
    if (expert < p.count) {
        const float* x = p.input + (u64)row * p.columns;
        float sum = 0.0f;
#pragma unroll 8
        for (u32 c = lane * 4; c < p.columns; c += WARP * 4) {
            float4 a = __ldcg((const float4*)(x + c)), b = *(const float4*)(router + c);
            sum = __fmaf_rn(a.x, b.x, sum), sum = __fmaf_rn(a.y, b.y, sum);
            sum = __fmaf_rn(a.z, b.z, sum), sum = __fmaf_rn(a.w, b.w, sum);
        }
        sum = warp_sum(sum);
        if (lane == 0) p.scores[row * p.count + expert] = sum;
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
    u64 keys[8];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        u32 e = lane + i * WARP;
        keys[i] = e < p.count ? candidate(__ldcg(p.scores + row * p.count + e), e) : 0;
    }
    u32 own = 0;
    float share = 0.0f, largest = 0.0f, total = 0.0f;
    for (u32 k = 0; k < p.used; k++) {
        u64 best = 0;
#pragma unroll
        for (int i = 0; i < 8; i++) best = keys[i] > best ? keys[i] : best;
        for (int step = 16; step > 0; step /= 2) {
            u64 other = __shfl_xor_sync(FULL, best, step);
            best = other > best ? other : best;
        }
#pragma unroll
        for (int i = 0; i < 8; i++) keys[i] = keys[i] == best ? 0 : keys[i];
        u32 found = 0xffffffffu - (u32)best;
        float score = __ldcg(p.scores + row * p.count + found);
        if (k == 0) largest = score;
        float here = expf(score - largest);
        total += here;
        if (lane == k) own = found, share = here;
    }
    u32 place = 0;
    for (u32 k = 0; k < p.used; k++) place += __shfl_sync(FULL, own, k) < own;
    if (lane < p.used) p.chosen[row * p.used + place] = own, p.shares[row * p.used + place] = share / total;
}
#endif

// Matrix times one row, as a kernel of its own: what `decode_persistent.cu` does in one kernel for all, and `product_batch.cu` for more rows.
//
//   out[m][n] = sum_k W[n][k] * x[m][k]     m < ROWS (compiled for 1), x optionally normalised first
//
// Bytes: the packed weights, once. Work: one dp4a per four weights and row; 60 instructions per chunk and warp at ROWS = 1.
//
// One block per multiprocessor, 16 warps. Before it waits for the kernel that makes x, each warp has the first DEPTH of
// its chunks in flight into shared memory, so the memory system never idles at a dependency: 140 chained kernels of
// 8 MB read 4.25 TB/s that way and 2.10 TB/s when they read after waiting (H200, 2026-11-15). Every block then
// normalises and quantises x for itself, which costs an L2 read of x per block and saves a kernel in the chain.
//
// The result of a row does not depend on ROWS or on the other rows: a lane adds its terms in the order of the columns,
// eight lanes are added in a fixed tree, then the slices of the columns in order; where every super-block is a slice of its own and its
// scales are integers, its sum is one too (`super_value`). Slices depend on the shape only.

#include "product.cuh"

// Where a warp is in its list of units; a unit is one slice of one tile (or of a gate or up tile).
struct Cursor {
    u32 unit, super, end;
    const u8* chunk;
};

template <int F, bool PAIR>
__device__ __forceinline__ void enter(Cursor& c, const Segment& s, u32 first_tile, u32 supers, u32 slices) {
    u32 slice = c.unit % slices, slot = c.unit / slices;
    u32 tile = first_tile + (PAIR ? slot / 2 : slot);
    const u8* base = PAIR && slot % 2 ? s.second : s.weights;
    c.super = slice * supers / slices;
    c.end = (slice + 1) * supers / slices;
    c.chunk = base + ((u64)tile * supers + c.super) * Layout<F>::chunk;
}

template <int F>
__device__ __forceinline__ void fetch(const u8* from, u32 to, int lane) {
#pragma unroll
    for (int piece = 0; piece < Layout<F>::chunk / 16; piece += WARP) {
        if (piece + lane < Layout<F>::chunk / 16) copy_16(to + (piece + lane) * 16, from + (piece + lane) * 16);
    }
}

template <int F, bool PAIR, bool APART>
__device__ __forceinline__ void
run(const Product& p, const Segment& s, u32 first_tile, u32 tiles, Quantised x, float* partial, u8* stages) {
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    u32 units = tiles * p.slices * (PAIR ? 2 : 1);
    u8* own = stages + warp * DEPTH * Layout<F>::chunk;
    u32 own_address = shared_address(own);
    Cursor ahead = {(u32)warp, 0, 0, 0};
    if (ahead.unit < units) enter<F, PAIR>(ahead, s, first_tile, p.supers, p.slices);
    auto issue = [&](int stage) {
        if (ahead.unit < units) {
            fetch<F>(ahead.chunk, own_address + stage * Layout<F>::chunk, lane);
            ahead.chunk += Layout<F>::chunk;
            if (++ahead.super == ahead.end) {
                ahead.unit += PRODUCT_WARPS;
                if (ahead.unit < units) enter<F, PAIR>(ahead, s, first_tile, p.supers, p.slices);
            }
        }
        copies_commit();
    };
#pragma unroll
    for (int stage = 0; stage < DEPTH - 1; stage++) issue(stage);
    wait_for_previous();
    prepare(p, Layout<F>::super_blocks, x, partial);
    int stage = 0;
    for (u32 unit = warp; unit < units; unit += PRODUCT_WARPS) {
        u32 slice = unit % p.slices;
        u32 end = (slice + 1) * p.supers / p.slices;
        float sums[ROWS];
#pragma unroll
        for (int m = 0; m < ROWS; m++) sums[m] = 0.0f;
        for (u32 super = slice * p.supers / p.slices; super < end; super++) {
            copies_wait<DEPTH - 2>();
            __syncwarp();
            // The stage refilled here is the one read in the step before; all lanes are done with it.
            issue(stage == 0 ? DEPTH - 1 : stage - 1);
            advance<F, APART>(own + stage * Layout<F>::chunk, super, lane, p.supers, x, sums);
            stage = stage == DEPTH - 1 ? 0 : stage + 1;
        }
#pragma unroll
        for (int m = 0; m < ROWS; m++) {
            float sum = APART && Layout<F>::super_blocks ? sums[m] : row_sum(sums[m]);
            if (lane % 8 == 0) partial[(unit * 4 + lane / 8) * ROWS + m] = sum;
        }
    }
    __syncthreads();
}

template <int KIND>
__device__ __forceinline__ void product(const Product& p) {
    extern __shared__ __align__(16) u8 shared[];
    let_next_start();
    const Segment& s = own_segment(p.segments);
    u32 block = blockIdx.x - s.first_block;
    u32 first_tile = (u64)s.tiles * block / s.blocks, tiles = (u64)s.tiles * (block + 1) / s.blocks - first_tile;
    u32 slots = KIND == GATE ? 2 * tiles : tiles;
    Quantised x;
    x.quants = (i8*)shared;
    x.facts = (uint2*)(shared + ROWS * p.supers * SUPER);
    float* partial = (float*)(shared + ROWS * p.supers * (SUPER + 64));
    u32 floats = slots * p.slices * 4 * ROWS;
    if (p.norm && floats < ROWS * p.supers) floats = ROWS * p.supers;
    u8* stages = (u8*)(partial + (floats + 3) / 4 * 4);
#define WORK(F) \
    if (p.slices == p.supers) run<F, KIND == GATE, true>(p, s, first_tile, tiles, x, partial, stages); \
    else run<F, KIND == GATE, false>(p, s, first_tile, tiles, x, partial, stages)
    FOR_FORMAT(s.format, WORK)
#undef WORK
    u64 best[KIND == LOGITS ? ROWS : 1];
    if (KIND == LOGITS) {
#pragma unroll
        for (int m = 0; m < ROWS; m++) best[m] = 0;
    }
    for (u32 at = threadIdx.x; at < tiles * 4; at += PRODUCT_THREADS) {
        u32 tile = at / 4, r = at % 4, row = (first_tile + tile) * 4 + r;
        if (row >= s.rows) continue;
#pragma unroll
        for (int m = 0; m < ROWS; m++) {
            if (m >= p.rows) break;
            float* out = p.output + (u64)m * p.output_stride + s.output + row;
            if (KIND == GATE) {
                float gate = collected(partial, 2 * tile, r, m, p.slices);
                float up = collected(partial, 2 * tile + 1, r, m, p.slices);
                *out = rounded(silu(gate) * up);
                continue;
            }
            float value = collected(partial, tile, r, m, p.slices);
            if (s.bias) value += s.bias[row];
            if (KIND == ADD) value += *out;
            *out = KIND == LOGITS ? value : rounded(value);
            if (KIND == LOGITS) {
                u64 own = candidate(value, row);
                if (own > best[m]) best[m] = own;
            }
        }
    }
    if (KIND == LOGITS) {
        // The partial results have been read; their place holds the best of each warp now.
        u64* warps = (u64*)shared;
        __syncthreads();
#pragma unroll
        for (int m = 0; m < ROWS; m++) {
            u64 own = best[m];
            for (int step = 16; step > 0; step /= 2) {
                u64 other = __shfl_xor_sync(FULL, own, step);
                if (other > own) own = other;
            }
            if (threadIdx.x % WARP == 0) warps[m * PRODUCT_WARPS + threadIdx.x / WARP] = own;
        }
        __syncthreads();
        if (threadIdx.x < p.rows) {
            u64 own = 0;
            for (int w = 0; w < PRODUCT_WARPS; w++) {
                if (warps[threadIdx.x * PRODUCT_WARPS + w] > own) own = warps[threadIdx.x * PRODUCT_WARPS + w];
            }
            p.candidates[threadIdx.x * gridDim.x + blockIdx.x] = own;
        }
    }
}

extern "C" __global__ void __launch_bounds__(PRODUCT_THREADS, 1) product_store(const __grid_constant__ Product p) {
    product<STORE>(p);
}
extern "C" __global__ void __launch_bounds__(PRODUCT_THREADS, 1) product_add(const __grid_constant__ Product p) {
    product<ADD>(p);
}
extern "C" __global__ void __launch_bounds__(PRODUCT_THREADS, 1) product_gate(const __grid_constant__ Product p) {
    product<GATE>(p);
}
extern "C" __global__ void __launch_bounds__(PRODUCT_THREADS, 1) product_logits(const __grid_constant__ Product p) {
    product<LOGITS>(p);
}

// Matrix times many rows: prompts, on tensor cores.
//
//   out[m][n] = sum_k x[m][k] * W[n][k]     x and W in half precision, sums in 32-bit floats
//
// `expand` writes a packed matrix out in half precision just before it is used; at 512 rows and more its cost (2 bytes
// written and read per weight, mostly in the L2 cache) is small against 2 x rows operations per weight, and the product
// itself stays a plain one. Three stages, two blocks per multiprocessor. Fewer rows of quantised matrices go another way
// (`gemm_packed.cu`), and on cards of 9.0 all do (`gemm_packed_256.cu`).

#include "gemm.cuh"

struct Expand {
    const u8* weights;
    u16* output;
    u32 format;
    u32 rows;
    u32 columns;
    u32 supers;
    u32 step;              // Row r goes to row r * step + offset: gate and up rows alternate.
    u32 offset;
};
MIRRORED(Expand);

template <int F>
__device__ __forceinline__ void expand_all(const Expand& p) {
    u32 warp = (blockIdx.x * blockDim.x + threadIdx.x) / WARP, lane = threadIdx.x % WARP;
    u32 chunks = (p.rows + 3) / 4 * p.supers, warps = gridDim.x * blockDim.x / WARP;
    for (u32 at = warp; at < chunks; at += warps) {
        Block b = read_block<F>(p.weights + (u64)at * Layout<F>::chunk, lane);
        u32 row = at / p.supers * 4 + lane / 8, column = at % p.supers * SUPER + lane % 8 * 32;
        if (row >= p.rows || column >= p.columns) continue;
        u16* out = p.output + (u64)(row * p.step + p.offset) * p.columns + column;
#pragma unroll
        for (int i = 0; i < 32; i += 8) *(uint4*)(out + i) = eight_halves<F>(b, i);
    }
}

__device__ __forceinline__ u32 brains_to_halves(u32 both) {
    return pack_halves(__uint_as_float(both << 16), __uint_as_float(both & 0xffff0000));
}

// Eight elements at a time.
__device__ __forceinline__ void expand_floats(const Expand& p) {
    u32 pieces = p.columns / 8, threads = gridDim.x * blockDim.x;
    for (u32 at = blockIdx.x * blockDim.x + threadIdx.x; at < p.rows * pieces; at += threads) {
        uint4 w = ((const uint4*)p.weights)[at];
        if (p.format == BF16) {
            w = make_uint4(brains_to_halves(w.x), brains_to_halves(w.y), brains_to_halves(w.z), brains_to_halves(w.w));
        }
        u64 row = at / pieces * p.step + p.offset;
        ((uint4*)p.output)[row * pieces + at % pieces] = w;
    }
}

extern "C" __global__ void __launch_bounds__(256) expand(const __grid_constant__ Expand p) {
    let_next_start();
    wait_for_previous();
    if (is_float(p.format)) expand_floats(p);
#define WORK(F) expand_all<F>(p)
    FOR_FORMAT(p.format, WORK)
#undef WORK
}

struct Gemm {
    const u16* input;      // [m][k]
    const u16* weights;    // [n][k]
    void* output;
    const float* bias;
    u32 m, n, k;
    u32 output_stride;
    u32 each;              // Steps of TILE_K that a block has: blockIdx.z says which, and has its own output row then.
    u32 kind;
};
MIRRORED(Gemm);

__device__ __forceinline__ void
fetch_tile(u32 to, const u16* from, u32 first, u32 rows, u32 k, u32 columns) {
#pragma unroll
    for (int i = 0; i < TILE * TILE_K / 8 / 256; i++) {
        u32 at = threadIdx.x + i * 256, row = at / 8, piece = at % 8;
        bool exists = first + row < rows && k + piece * 8 < columns;
        copy_16_or_zero(to + slot(row, piece), exists ? from + (u64)(first + row) * columns + k + piece * 8 : from, exists);
    }
}

extern "C" __global__ void __launch_bounds__(256, 2) gemm(const __grid_constant__ Gemm p) {
    extern __shared__ __align__(1024) u8 shared[];
    u32 base = shared_address(shared);
    let_next_start();
    wait_for_previous();
    u32 first_m = blockIdx.x * TILE, first_n = blockIdx.y * TILE;
    float sums[COUNT_SUMS(STRIPS)] = {};
    u32 begin = blockIdx.z * p.each, end = min(begin + p.each, (p.k + TILE_K - 1) / TILE_K);
    auto fetch = [&](u32 step) {
        if (step < end) {
            u32 to = base + step % STAGES * 2 * TILE_BYTES;
            fetch_tile(to, p.input, first_m, p.m, step * TILE_K, p.k);
            fetch_tile(to + TILE_BYTES, p.weights, first_n, p.n, step * TILE_K, p.k);
        }
        copies_commit();
    };
    for (int i = 0; i < STAGES - 1; i++) fetch(begin + i);
    for (u32 step = begin; step < end; step++) {
        copies_wait<STAGES - 2>();
        show_tensor_cores();
        __syncthreads();
        fetch(step + STAGES - 1);
        u32 tile_x = base + step % STAGES * 2 * TILE_BYTES;
        multiply_tiles<STRIPS>(sums, tile_x, tile_x + TILE_BYTES);
        multiplied<STRIPS>(sums);
    }
    const float* bias = p.bias ? p.bias + first_n : nullptr;
    finish<STRIPS>(sums, shared, p.kind, p.output, bias, [&](u32 row, u32 column) {
        u32 m = first_m + row, n = first_n + column;
        u64 start = ((u64)m * gridDim.z + blockIdx.z) * p.output_stride;
        return m < p.m && n < p.n ? start + (p.kind == GATE ? n / 2 : n) : NOWHERE;
    });
}

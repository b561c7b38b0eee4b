// Matrix of halves or brain floats times 1 to 32 rows, on tensor cores.
//
//   out[m][n] = scale[m] * sum_k W[n][k] * (high[m][k] + low[m][k])     m < 8 * TILES
//
// Bytes: the matrix as it stands in the file, row after row, once; the input from the caches. A block takes sixteen weight rows
// at a time, and its warps share their columns, 32 in turn. A token of the 7B in 16 bits reads 15.2 GB, 3.3 ms on an H200; what
// share of that is reached no card has said yet (2026-11-17).
//
// The CPU multiplies such weights with whole floats, so an input is two numbers of the weights' own kind: itself rounded, and
// what rounding left. That keeps 22 bits of it with halves and 16 with brain floats. A power of two for each row keeps halves from
// overflowing.
//
// A lane has eight neighbouring columns of two weight rows and of one input row, which is the sum in another order: columns
// 8 t .. 8 t + 3 are a product's columns 2 t, 2 t + 1, 2 t + 8 and 2 t + 9, the next four those of a second product. So neither
// side is packed or goes through shared memory.
//
// The result of a row does not depend on the other rows or on TILES: a warp adds its columns in order, then come the warps in order.

#include "product.cuh"

#define WARPS 8
#define THREADS (WARPS * WARP)
// Pieces of 32 columns a warp has in flight.
#define AHEAD 4

// One row of input made ready: rounded, what is left, and the scale of both.
struct Ready {
    const float* input;    // [row][columns]
    u16* output;           // [high, low][row][columns]
    float* scales;
    u32 columns;
    u32 rows;
    u32 format;
};
MIRRORED(Ready);

template <int F>
__device__ __forceinline__ u16 narrow_float(float x) {
    return F == BF16 ? float_to_brain(x) : float_to_half(x);
}

template <int F>
__device__ __forceinline__ void ready_row(const Ready& p, u32 row, float inverse) {
    const float* x = p.input + (u64)row * p.columns;
    u16* high = p.output + (u64)row * p.columns;
    u16* low = high + (u64)p.rows * p.columns;
    for (u32 c = threadIdx.x; c < p.columns; c += THREADS) {
        float value = __fmul_rn(x[c], inverse);
        u16 first = narrow_float<F>(value);
        high[c] = first;
        low[c] = narrow_float<F>(value - float_value(first, F));
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) ready(const __grid_constant__ Ready p) {
    __shared__ float largest[WARPS];
    let_next_start();
    wait_for_previous();
    u32 row = blockIdx.x;
    float own = 0.0f;
    for (u32 c = threadIdx.x; c < p.columns; c += THREADS) own = fmaxf(own, fabsf(p.input[(u64)row * p.columns + c]));
    own = warp_max(own);
    if (threadIdx.x % WARP == 0) largest[threadIdx.x / WARP] = own;
    __syncthreads();
    for (int w = 0; w < WARPS; w++) own = fmaxf(own, largest[w]);
    // The largest comes to 2^14 or a little more.
    u32 exponent = min(max(__float_as_uint(own) >> 23, 15u), 254u) - 14;
    if (threadIdx.x == 0) p.scales[row] = __uint_as_float(exponent << 23);
    float inverse = __uint_as_float((254 - exponent) << 23);
    if (p.format == BF16) ready_row<BF16>(p, row, inverse);
    else ready_row<F16>(p, row, inverse);
}

struct Floats {
    Segment segments[3];
    const u16* input;      // [high, low][row][columns]
    const float* scales;   // [row]
    float* output;
    u64* candidates;       // Logits only: the best entry of each block, [row][block].
    u32 columns;
    u32 rows;
    u32 output_stride;
};
MIRRORED(Floats);

template <int F>
__device__ __forceinline__ void multiply_floats(float* sums, uint4 first, uint4 second, uint4 x) {
    u32 a[4] = {first.x, second.x, first.y, second.y}, b[2] = {x.x, x.y};
    u32 c[4] = {first.z, second.z, first.w, second.w}, d[2] = {x.z, x.w};
    if (F == BF16) multiply_add_brain(sums, a, b), multiply_add_brain(sums, c, d);
    else multiply_add(sums, a, b), multiply_add(sums, c, d);
}

// A warp's share of sixteen rows of one matrix, and of the gate's up.
template <int F, int MATRICES, int TILES>
__device__ __forceinline__ void sum_columns(const Floats& p, const Segment& s, u32 group, float (*sums)[TILES][4]) {
    u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    // Rows past the end are the last one again; their results are not used.
    u64 first = (u64)min(group * 16 + g, s.rows - 1) * p.columns, second = (u64)min(group * 16 + g + 8, s.rows - 1) * p.columns;
    for (u32 column = warp * 32; column < p.columns; column += AHEAD * WARPS * 32) {
        uint4 w[AHEAD][MATRICES][2];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            u32 c = column + i * WARPS * 32 + t * 8;
#pragma unroll
            for (int m = 0; m < MATRICES; m++) {
                const u16* weights = (const u16*)(m ? s.second : s.weights) + c;
                bool exists = c < p.columns;
                w[i][m][0] = exists ? *(const uint4*)(weights + first) : make_uint4(0, 0, 0, 0);
                w[i][m][1] = exists ? *(const uint4*)(weights + second) : make_uint4(0, 0, 0, 0);
            }
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            u32 c = column + i * WARPS * 32 + t * 8;
#pragma unroll
            for (int n = 0; n < TILES; n++) {
                u32 row = n * 8 + g;
                bool exists = c < p.columns && row < p.rows;
                const u16* at = p.input + (u64)row * p.columns + c;
                uint4 high = exists ? *(const uint4*)at : make_uint4(0, 0, 0, 0);
                uint4 low = exists ? *(const uint4*)(at + (u64)p.rows * p.columns) : make_uint4(0, 0, 0, 0);
#pragma unroll
                for (int m = 0; m < MATRICES; m++) {
                    multiply_floats<F>(sums[m][n], w[i][m][0], w[i][m][1], high);
                    multiply_floats<F>(sums[m][n], w[i][m][0], w[i][m][1], low);
                }
            }
        }
    }
}

// Sixteen rows, from all warps' columns to results.
template <int F, int KIND, int TILES>
__device__ __forceinline__ void
sixteen_rows(const Floats& p, const Segment& s, u32 group, float (*partial)[WARPS][16][8 * TILES], u64& best) {
    constexpr int MATRICES = KIND == GATE ? 2 : 1, INPUTS = 8 * TILES;
    u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    float sums[MATRICES][TILES][4] = {};
    sum_columns<F, MATRICES, TILES>(p, s, group, sums);
#pragma unroll
    for (int m = 0; m < MATRICES; m++) {
#pragma unroll
        for (int n = 0; n < TILES; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) partial[m][warp][g + i / 2 * 8][n * 8 + 2 * t + i % 2] = sums[m][n][i];
        }
    }
    __syncthreads();
    for (u32 at = threadIdx.x; at < 16 * INPUTS; at += THREADS) {
        u32 input = at % INPUTS, r = at / INPUTS, row = group * 16 + r;
        if (input >= p.rows || row >= s.rows) continue;
        float value[MATRICES];
#pragma unroll
        for (int m = 0; m < MATRICES; m++) {
            value[m] = 0.0f;
            for (int w = 0; w < WARPS; w++) value[m] += partial[m][w][r][input];
            value[m] *= p.scales[input];
        }
        if (KIND == GATE) value[0] = silu(value[0]) * value[MATRICES - 1];
        if (s.bias) value[0] += s.bias[row];
        p.output[(u64)input * p.output_stride + s.output + row] = value[0];
        if (KIND == LOGITS) {
            u64 own = candidate(value[0], row);
            if (own > best) best = own;
        }
    }
    __syncthreads();
}

// Into the second-level cache, before the input is there.
__device__ __forceinline__ void foresee_rows(const u8* weights, u32 first, u32 rows, u32 columns) {
    u64 at = (u64)first * columns * 2, end = (u64)min(first + 16, rows) * columns * 2;
    for (u64 line = at + threadIdx.x * 128; line < end; line += THREADS * 128) prefetch_line(weights + line);
}

template <int KIND, int TILES>
__device__ __forceinline__ void floats(const Floats& p) {
    __shared__ float partial[KIND == GATE ? 2 : 1][WARPS][16][8 * TILES];
    let_next_start();
    const Segment& s = own_segment(p.segments);
    u32 group = blockIdx.x - s.first_block;
    foresee_rows(s.weights, group * 16, s.rows, p.columns);
    if (KIND == GATE) foresee_rows(s.second, group * 16, s.rows, p.columns);
    wait_for_previous();
    // A thread always has the same row of input.
    u64 best = 0;
    for (; group < (s.rows + 15) / 16; group += s.blocks) {
        if (s.format == BF16) sixteen_rows<BF16, KIND, TILES>(p, s, group, partial, best);
        else sixteen_rows<F16, KIND, TILES>(p, s, group, partial, best);
    }
    if (KIND != LOGITS) return;
    __shared__ u64 found[THREADS];
    found[threadIdx.x] = best;
    __syncthreads();
    if (threadIdx.x >= p.rows) return;
    for (u32 other = threadIdx.x; other < THREADS; other += 8 * TILES) {
        if (found[other] > best) best = found[other];
    }
    p.candidates[(u64)threadIdx.x * gridDim.x + blockIdx.x] = best;
}

#define KERNELS(tiles) \
    extern "C" __global__ void __launch_bounds__(THREADS) floats_store_##tiles(const __grid_constant__ Floats p) { \
        floats<STORE, tiles>(p); \
    } \
    extern "C" __global__ void __launch_bounds__(THREADS) floats_gate_##tiles(const __grid_constant__ Floats p) { \
        floats<GATE, tiles>(p); \
    } \
    extern "C" __global__ void __launch_bounds__(THREADS) floats_logits_##tiles(const __grid_constant__ Floats p) { \
        floats<LOGITS, tiles>(p); \
    }
KERNELS(1)
KERNELS(2)
KERNELS(3)
KERNELS(4)

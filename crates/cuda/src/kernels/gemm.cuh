// What products of many rows share: tiles of 128 x 64 halves in shared memory, their product on tensor cores, and where it goes.
//
// 256 threads have a tile of 128 x 128 results. The result of a row does not depend on the other rows.

#include "formats.cuh"

#define TILE 128
#define TILE_K 64
#define TILE_BYTES (TILE * TILE_K * 2)
// Quarters of 32 rows that a whole tile has.
#define STRIPS 4
// Results of a thread, where COUNT quarters exist.
#define COUNT_SUMS(COUNT) (COUNT * 16)
#define STAGES 3

// Sixteen-byte pieces of a row are exchanged by the row's number, so that eight rows never meet in a bank.
__device__ __forceinline__ u32 slot(u32 row, u32 piece) {
    return row * (TILE_K * 2) + ((piece ^ (row & 7)) * 16);
}

// What this thread wrote or copied to shared memory can be multiplied from there after the next barrier.
__device__ __forceinline__ void show_tensor_cores() {
#if __CUDA_ARCH__ == 900
    order_copy_engine();
#endif
}

// Rows of a tile come in quarters of 32; COUNT of them exist: 1, 2 or 4, and 8 in `gemm_packed_256.cu`.
//
// `multiply_tiles` adds the product of a tile of rows and a tile of weights, or begins to; `multiplied` waits for it, and so must
// everybody before either tile is overwritten. `each_pair` calls `done` with row, column and the results of this column and the next,
// for all that this thread has.
#if __CUDA_ARCH__ == 900
// Two groups of four warps: each has half of the rows, or where half of a tile exists, all of that and half of the outputs.
#define COUNT_MIN 2

template <int COUNT>
__device__ __forceinline__ void multiply_tiles(float* sums, u32 tile_x, u32 tile_w) {
    u32 group = threadIdx.x / 128;
    group_begin();
#pragma unroll
    for (int k = 0; k < TILE_K / 16; k++) {
        if (COUNT == STRIPS) group_multiply<TILE>(sums, tile_x + group * (TILE_BYTES / 2), tile_w, k);
        else group_multiply<TILE / 2>(sums, tile_x, tile_w + group * (TILE_BYTES / 2), k);
    }
    group_end();
}

template <int COUNT>
__device__ __forceinline__ void multiplied(float* sums) {
    group_wait<COUNT_SUMS(COUNT)>(sums);
}

template <int COUNT, typename Done>
__device__ __forceinline__ void each_pair(const float* sums, Done done) {
    u32 group = threadIdx.x / 128, warp = threadIdx.x / WARP % 4, lane = threadIdx.x % WARP;
    u32 row = (COUNT < STRIPS ? 0 : group * COUNT * 16) + warp * 16 + lane / 4;
    u32 column = (COUNT < STRIPS ? group * 64 : 0) + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < COUNT_SUMS(COUNT); i += 2) {
        done(row + i / 64 * 64 + i / 2 % 2 * 8, column + i % 64 / 4 * 8, sums[i], sums[i + 1]);
    }
}
#else
// Eight warps, two by rows, taking turns at strips of 16, and four by columns.
#define COUNT_MIN 1

template <int COUNT>
__device__ __forceinline__ void multiply_tiles(float* sums, u32 tile_x, u32 tile_w) {
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
#pragma unroll
    for (int k = 0; k < TILE_K / 16; k++) {
        u32 a[COUNT][4], b[2][4];
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            load_matrices(a[i], tile_x + slot((i * 2 + warp % 2) * 16 + lane % 16, k * 2 + lane / 16));
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            u32 row = warp / 2 * 32 + i * 16 + lane % 8 + lane / 16 * 8;
            load_matrices(b[i], tile_w + slot(row, k * 2 + lane / 8 % 2));
        }
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
#pragma unroll
            for (int j = 0; j < 4; j++) multiply_add(sums + (i * 4 + j) * 4, a[i], b[j / 2] + j % 2 * 2);
        }
    }
}

template <int COUNT>
__device__ __forceinline__ void multiplied(float*) {}

template <int COUNT, typename Done>
__device__ __forceinline__ void each_pair(const float* sums, Done done) {
    u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    u32 row = warp % 2 * 16 + lane / 4, column = warp / 2 * 32 + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < COUNT_SUMS(COUNT); i += 2) {
        done(row + i / 16 * 32 + i / 2 % 2 * 8, column + i / 4 % 4 * 8, sums[i], sums[i + 1]);
    }
}
#endif

#define STORE 0
#define ADD 1
#define GATE 2
#define NOWHERE 0xffffffffffffffffull
// Floats from one row of results to the next in shared memory, so that rows of a warp's results do not meet in a bank.
#define PITCH (TILE + 8)

// Writes the results of a tile where `at` says that those of a row, a column and the next go, through shared memory: it is done once,
// and long code that is run once is mostly waited for. A gate and its up stand side by side and give one result. By 256 threads.
template <int COUNT, typename At>
__device__ __forceinline__ void finish(const float* sums, u8* shared, u32 kind, void* output, const float* bias, At at) {
    float* staged = (float*)shared;
    __syncthreads();
    each_pair<COUNT>(sums, [&](u32 row, u32 column, float x, float y) {
        *(float2*)(staged + row * PITCH + column) = make_float2(x, y);
    });
    __syncthreads();
#pragma unroll 1
    for (u32 first = threadIdx.x; first < COUNT * 32 * TILE / 2; first += 256 * 8) {
        float2 v[8];
        u64 to[8];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            u32 row = (first + i * 256) / (TILE / 2), column = (first + i * 256) % (TILE / 2) * 2;
            v[i] = *(const float2*)(staged + row * PITCH + column);
            to[i] = at(row, column);
            if (bias && to[i] != NOWHERE) v[i].x += bias[column], v[i].y += bias[column + 1];
        }
        if (kind == GATE) {
#pragma unroll
            for (int i = 0; i < 8; i++) {
                if (to[i] != NOWHERE) ((u16*)output)[to[i]] = float_to_half(v[i].x / (1.0f + expf(-v[i].x)) * v[i].y);
            }
            continue;
        }
        if (kind == ADD) {
#pragma unroll
            for (int i = 0; i < 8; i++) {
                float2 before = to[i] != NOWHERE ? *(const float2*)((float*)output + to[i]) : make_float2(0.0f, 0.0f);
                v[i].x += before.x, v[i].y += before.y;
            }
        }
#pragma unroll
        for (int i = 0; i < 8; i++) {
            if (to[i] != NOWHERE) *(float2*)((float*)output + to[i]) = v[i];
        }
    }
}

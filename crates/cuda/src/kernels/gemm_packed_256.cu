// The same as `gemm_packed.cu`, bit for bit, in tiles of 256 rows: long prompts, on cards of 9.0.
//
// Two groups of four warps do nothing but have tensor cores multiply, 128 rows by 128 outputs each, and two more bring rows and unpack
// weights for them, two tiles of 64 columns ahead. One group for that was 8 % slower, two by turns 6 % (H200s, 2026-11-17).

#include "gemm_packed.cu"
#if __CUDA_ARCH__ == 900

#define WIDE (2 * TILE)
#define WIDE_STAGES 4
#define WIDE_BYTES (WIDE * TILE_K * 2 + TILE_BYTES)
#define MULTIPLIERS 256
#define UNPACKERS 256

// Stages in shared memory, rows and then weights, and a barrier each for what has come and for what has been read.
struct Stages {
    u32 data, full, empty;

    __device__ __forceinline__ u32 rows(u32 step) const { return data + step % WIDE_STAGES * WIDE_BYTES; }
    __device__ __forceinline__ u32 weights(u32 step) const { return rows(step) + WIDE * TILE_K * 2; }
    __device__ __forceinline__ u32 come(u32 step) const { return full + step % WIDE_STAGES * 8; }
    __device__ __forceinline__ u32 read(u32 step) const { return empty + step % WIDE_STAGES * 8; }
};

// A thread unpacks 32 columns of a row of weights in each step, and copies pieces of eight rows.
template <int F>
__device__ __forceinline__ void unpack(const GemmPacked& p, const PackedPart& part, const Stages& stages, u32 steps) {
    u32 own = threadIdx.x - MULTIPLIERS, piece = own % 8, starts[8];
    // What comes after the last row is not written anywhere, so it may be the last once more.
#pragma unroll
    for (u32 i = 0; i < 8; i++) starts[i] = min(blockIdx.x * WIDE + own / 8 + i * 32, p.m - 1) * p.k + piece * 8;
    Share<F> share(p, part, 0, (blockIdx.y - part.first) * TILE, own);
    auto fetch = [&](u32 step) {
        if (step < steps) {
            // What was there before has been read.
            if (step >= WIDE_STAGES) barrier_wait(stages.read(step), step / WIDE_STAGES - 1 & 1);
            bool exists = step * TILE_K + piece * 8 < p.k;
            u32 to = stages.rows(step) + slot(own / 8, piece), column = exists ? step * TILE_K : 0;
#pragma unroll
            for (u32 i = 0; i < 8; i++) copy_16_or_zero(to + i * 32 * TILE_K * 2, p.input + starts[i] + column, exists);
        }
        copies_commit();
    };
    auto read = [&](u32 step) { return share.read(min(step, steps - 1)); };
    auto work = [&](u32 step, Raw& raw) {
        share.write(raw, step, stages.weights(step));
        copies_wait<1>();
        // Waits for everything this thread has asked for, so nothing is asked for just before.
        show_tensor_cores();
        __syncwarp();
        if (own_lane() == 0) barrier_arrive(stages.come(step));
        raw = read(step + 2);
        fetch(step + 2);
    };
    Raw even = read(0), odd = read(1);
    wait_for_previous();
    fetch(0), fetch(1);
    for (u32 step = 0; step < steps; step += 2) {
        work(step, even);
        if (step + 1 < steps) work(step + 1, odd);
    }
}

// Half of the rows for each group. While one tile is multiplied the next is waited for.
__device__ __forceinline__ void multiply_wide(float* sums, const Stages& stages, u32 steps) {
    u32 group = threadIdx.x / 128;
    for (u32 step = 0; step < steps; step++) {
        u32 rows = stages.rows(step) + group * TILE_BYTES, weights = stages.weights(step);
        barrier_wait(stages.come(step), step / WIDE_STAGES & 1);
        group_begin();
#pragma unroll
        for (int k = 0; k < TILE_K / 16; k++) {
            group_multiply<TILE>(sums, rows, weights, k);
            group_multiply<TILE>(sums + COUNT_SUMS(STRIPS), rows + TILE_BYTES / 2, weights, k);
        }
        group_end();
        group_wait_but_one();
        __syncwarp();
        if (step > 0 && own_lane() == 0) barrier_arrive(stages.read(step - 1));
    }
    group_wait<COUNT_SUMS(WIDE / 32)>(sums);
}

template <int F>
__device__ __forceinline__ void gemm_packed_256(const GemmPacked& p) {
    extern __shared__ __align__(1024) u8 shared[];
    u32 data = shared_address(shared), full = data + WIDE_STAGES * WIDE_BYTES, steps = (p.k + TILE_K - 1) / TILE_K;
    Stages stages = {data, full, full + WIDE_STAGES * 8};
    let_next_start();
    if (threadIdx.x < WIDE_STAGES) {
        barrier_init(stages.come(threadIdx.x), UNPACKERS / WARP), barrier_init(stages.read(threadIdx.x), MULTIPLIERS / WARP);
    }
    barriers_ready();
    __syncthreads();
    const PackedPart& part = p.parts[blockIdx.y >= p.parts[2].first ? 2 : blockIdx.y >= p.parts[1].first ? 1 : 0];
    u32 first_m = blockIdx.x * WIDE, first_n = (blockIdx.y - part.first) * TILE;
    if (threadIdx.x >= MULTIPLIERS) {
        fewer_registers<88>();
        unpack<F>(p, part, stages, steps);
        // As often as `finish`.
        __syncthreads();
        __syncthreads();
        return;
    }
    more_registers<168>();
    float sums[COUNT_SUMS(WIDE / 32)] = {};
    multiply_wide(sums, stages, steps);
    wait_for_previous();
    finish<WIDE / 32>(sums, shared, p.kind, p.output, part.bias ? part.bias + first_n : nullptr, [&](u32 row, u32 column) {
        u32 m = first_m + row, n = first_n + column;
        if (m >= p.m || n >= part.n) return NOWHERE;
        return (u64)m * p.output_stride + part.output + (p.kind == GATE ? n / 2 : n);
    });
}

#define ENTRY(F) \
    extern "C" __global__ void __launch_bounds__(MULTIPLIERS + UNPACKERS, 1) gemm_packed_256_##F(const __grid_constant__ GemmPacked p) { gemm_packed_256<F>(p); }
FOR_EACH_FORMAT(ENTRY)
#undef ENTRY
#endif

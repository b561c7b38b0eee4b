// Matrix times many rows, straight from packed weights: short prompts, and all rows that visit the same expert.
//
// The same bits as `expand` and `gemm.cu` give where rows are not cut (split-K), another way: weights become halves in flight into shared
// memory. Of every tile of 128 x 64 weights a thread has one block of 32, which it asks for two tiles ahead and unpacks while tensor cores
// work on the tile before. That costs instructions for every 128 rows anew, where expanding costs memory traffic once.

#include "gemm.cuh"

// Super-blocks that are asked for before they are needed.
#define AHEAD 2

struct PackedPart {
    const u8* weights;     // [expert][n][k]
    const u8* second;      // The ups, where `weights` is the gates: rows of the two alternate then.
    const float* bias;
    u32 n;
    u32 first;             // Number of its first tile of outputs.
    u32 output;            // Place of its first output in a row.
};
MIRRORED(PackedPart);

struct GemmPacked {
    PackedPart parts[3];   // Those that do not exist begin after the last tile.
    const u16* input;      // [row][k]
    void* output;
    const uint4* tiles;    // Of rows: expert, first place, number of places. Null: one matrix, and all `m` rows stand in order.
    const u32* from;       // [place]: input row times `used`. Null: that of the place's number.
    const u32* to;         // [place]: output row. Null: likewise.
    u32 kind;
    u32 m, k;
    u32 supers;
    u32 used;
    u32 output_stride;
    u32 each;              // Super-blocks of a row that a block has: blockIdx.z says which, and has its own output row then.
};
MIRRORED(GemmPacked);

// A thread's share of every tile of weights: 32 columns of a row. After the last row it is the last once more.
template <int F>
struct Share {
    const u8* row;         // The chunks this row is in.
    u32 lane;              // Whose block of a chunk it is, in the first of four tiles.
    u32 own;               // Number among the threads that share a tile.

    __device__ __forceinline__ Share(const GemmPacked& p, const PackedPart& part, u32 expert, u32 first, u32 own) : own(own) {
        u32 n = min(first + own / 2, part.n - 1), rows = part.n;
        bool is_second = p.kind == GATE && n % 2;
        if (p.kind == GATE) n /= 2, rows /= 2;
        u64 tile = (u64)expert * ((rows + 3) / 4) + n / 4;
        row = (is_second ? part.second : part.weights) + tile * p.supers * Layout<F>::chunk;
        lane = n % 4 * 8 + own % 2;
    }

    // Asks for the chunk of a super-block, no further than into the second-level cache; eight threads share a chunk.
    __device__ __forceinline__ void foresee(u32 super) const {
        for (u32 at = (lane / 8 * 2 + lane % 2) * 128; at < Layout<F>::chunk; at += 1024) {
            prefetch_line(row + (u64)super * Layout<F>::chunk + at);
        }
    }

    __device__ __forceinline__ Raw read(u32 step) const {
        return read_raw<F>(row + (u64)(step / 4) * Layout<F>::chunk, lane + step % 4 * 2);
    }

    __device__ __forceinline__ void write(const Raw& raw, u32 step, u32 tile) const {
        Block b = read_block<F>(raw, lane + step % 4 * 2);
#pragma unroll
        for (int i = 0; i < 4; i++) store_16(tile + slot(own / 2, own % 2 * 4 + i), eight_halves<F>(b, i * 8));
    }
};

// One tile of at most COUNT * 32 rows times one of 128 outputs.
template <int F, int COUNT>
__device__ __forceinline__ void multiply(const GemmPacked& p, const PackedPart& part, uint4 tile) {
    extern __shared__ __align__(1024) u8 shared[];
    u32 inputs = shared_address(shared), weights = inputs + STAGES * TILE_BYTES, first = (blockIdx.y - part.first) * TILE;
    u32 super = blockIdx.z * p.each, last = min(super + p.each, p.supers);
    u32 begin = super * 4, end = min(last * 4, (p.k + TILE_K - 1) / TILE_K);
    Share<F> share(p, part, tile.x, first, threadIdx.x);
    for (u32 ahead = super; ahead < min(super + AHEAD, last); ahead++) share.foresee(ahead);
    wait_for_previous();
    u32 piece = threadIdx.x % 8, starts[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        u32 row = threadIdx.x / 8 + i * 32, at = tile.y + row;
        starts[i] = row < tile.z ? (p.from ? p.from[at] / p.used : at) * p.k : 0xffffffffu;
    }
    auto fetch = [&](u32 step) {
        u32 column = step * TILE_K + piece * 8;
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            bool exists = starts[i] != 0xffffffffu && column < p.k;
            u32 to = inputs + step % STAGES * TILE_BYTES + slot(threadIdx.x / 8 + i * 32, piece);
            if (step < end) copy_16_or_zero(to, exists ? p.input + starts[i] + column : p.input, exists);
        }
        copies_commit();
    };
    float sums[COUNT_SUMS(COUNT)] = {};
    for (int i = 0; i < STAGES - 1; i++) fetch(begin + i);
    // A step writes the weights of the next and asks for those of the one after, so there are always two in flight.
    auto read = [&](u32 step) { return share.read(min(step, end - 1)); };
    auto work = [&](u32 step, const Raw& next, Raw& after) {
        copies_wait<STAGES - 2>();
        show_tensor_cores();
        __syncthreads();
        fetch(step + STAGES - 1);
        if (step % 4 == 0 && step / 4 + AHEAD < last) share.foresee(step / 4 + AHEAD);
        after = read(step + 2);
        multiply_tiles<COUNT>(sums, inputs + step % STAGES * TILE_BYTES, weights + step % 2 * TILE_BYTES);
        share.write(next, step + 1, weights + (step + 1) % 2 * TILE_BYTES);
        multiplied<COUNT>(sums);
    };
    if (begin < end) {
        Raw odd, even = read(begin);
        odd = read(begin + 1);
        share.write(even, begin, weights + begin % 2 * TILE_BYTES);
        for (u32 step = begin; step < end; step += 2) {
            work(step, odd, even);
            if (step + 1 < end) work(step + 1, even, odd);
        }
    }
    const float* bias = part.bias && blockIdx.z == 0 ? part.bias + first : nullptr;
    finish<COUNT>(sums, shared, p.kind, p.output, bias, [&](u32 row, u32 column) {
        u32 at = tile.y + row, n = first + column;
        if (row >= tile.z || n >= part.n) return NOWHERE;
        u64 start = ((u64)(p.to ? p.to[at] : at) * gridDim.z + blockIdx.z) * p.output_stride + part.output;
        return start + (p.kind == GATE ? n / 2 : n);
    });
}

template <int F>
__device__ __forceinline__ void gemm_packed(const GemmPacked& p) {
    let_next_start();
    // Whose tile it is the kernel before says, where there are experts.
    if (p.tiles) wait_for_previous();
    u32 first = blockIdx.x * TILE;
    uint4 tile = p.tiles ? p.tiles[blockIdx.x] : make_uint4(0, first, min(TILE, p.m - first), 0);
    if (tile.z == 0) return;
    const PackedPart& part = p.parts[blockIdx.y >= p.parts[2].first ? 2 : blockIdx.y >= p.parts[1].first ? 1 : 0];
    if (tile.z <= COUNT_MIN * 32) multiply<F, COUNT_MIN>(p, part, tile);
    else if (tile.z <= 64) multiply<F, 2>(p, part, tile);
    else multiply<F, STRIPS>(p, part, tile);
}

// A kernel for each format: in one they take the compiler minutes.
#define ENTRY(F) \
    extern "C" __global__ void __launch_bounds__(256, 2) gemm_packed_##F(const __grid_constant__ GemmPacked p) { gemm_packed<F>(p); }
FOR_EACH_FORMAT(ENTRY)
#undef ENTRY

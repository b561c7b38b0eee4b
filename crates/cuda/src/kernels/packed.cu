// Matrix times many rows, straight from packed weights: short prompts, and all rows that visit the same expert.
//
// The same bits as `expand` and `gemm.cu` give, another way: weights become halves on their way into shared memory. Of every tile of
// 128 x 64 weights a thread has one block of 32, which it asks for while tensor cores work on the tile before. That costs
// instructions for every 128 rows anew, where expanding costs memory traffic once.

struct Packed {
    const u16* input;      // [row][k]
    const u8* weights;     // [expert][n][k]
    const u8* second;      // The ups, where `weights` is the gates: rows of the two alternate then.
    void* output;
    const float* bias;
    const uint4* tiles;    // Of rows: expert, first place, number of places. Null: one matrix, and all `m` rows stand in order.
    const u32* from;       // [place]: input row times `used`. Null: that of the place's number.
    const u32* to;         // [place]: output row. Null: likewise.
    u32 format;
    u32 kind;
    u32 m, n, k;
    u32 supers;
    u32 used;
    u32 output_stride;
};

// A thread's share of every tile of weights: 32 columns of a row.
template <int F>
struct Share {
    const u8* row;         // The chunks this row is in.
    u32 lane;              // Whose block of a chunk it is, in the first of four tiles.
    bool exists;

    __device__ __forceinline__ Share(const Packed& p, u32 expert) {
        u32 n = blockIdx.y * TILE + threadIdx.x / 2, rows = p.n;
        bool is_second = p.kind == GATE && n % 2;
        exists = n < p.n;
        if (p.kind == GATE) n /= 2, rows /= 2;
        u64 tile = (u64)expert * ((rows + 3) / 4) + n / 4;
        row = (is_second ? p.second : p.weights) + tile * p.supers * Layout<F>::chunk;
        lane = n % 4 * 8 + threadIdx.x % 2;
    }

    __device__ __forceinline__ Block read(u32 step) const {
        return exists ? read_block<F>(row + (u64)(step / 4) * Layout<F>::chunk, lane + step % 4 * 2) : Block{};
    }

    __device__ __forceinline__ void write(const Block& b, u32 tile) const {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            u32 w[4];
#pragma unroll
            for (int k = 0; k < 4; k++) {
                w[k] = pack_halves(element<F>(b, i * 8 + 2 * k), element<F>(b, i * 8 + 2 * k + 1));
            }
            store_16(tile + place(threadIdx.x / 2, threadIdx.x % 2 * 4 + i), make_uint4(w[0], w[1], w[2], w[3]));
        }
    }
};

// One tile of at most COUNT * 32 rows times one of 128 outputs.
template <int F, int COUNT>
__device__ __forceinline__ void multiply(const Packed& p, uint4 tile) {
    extern __shared__ __align__(128) u8 shared[];
    u32 inputs = shared_address(shared), weights = inputs + STAGES * TILE_BYTES, steps = (p.k + TILE_K - 1) / TILE_K;
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
            u32 to = inputs + step % STAGES * TILE_BYTES + place(threadIdx.x / 8 + i * 32, piece);
            if (step < steps) copy_16_or_zero(to, exists ? p.input + starts[i] + column : p.input, exists);
        }
        copies_commit();
    };
    Share<F> share(p, tile.x);
    Block next = share.read(0);
    for (int i = 0; i < STAGES - 1; i++) fetch(i);
    share.write(next, weights);
    float sums[COUNT][4][4] = {};
    for (u32 step = 0; step < steps; step++) {
        copies_wait<STAGES - 2>();
        __syncthreads();
        fetch(step + STAGES - 1);
        if (step + 1 < steps) next = share.read(step + 1);
        multiply_tiles<COUNT>(sums, inputs + step % STAGES * TILE_BYTES, weights + step % 2 * TILE_BYTES);
        if (step + 1 < steps) share.write(next, weights + (step + 1) % 2 * TILE_BYTES);
    }
    each_pair<COUNT>(sums, [&](u32 row, u32 column, float x, float y) {
        u32 at = tile.y + row, n = blockIdx.y * TILE + column;
        if (row >= tile.z || n >= p.n) return;
        u64 start = (u64)(p.to ? p.to[at] : at) * p.output_stride;
        if (p.kind == STORE) put<STORE>(p.output, start, n, x, y, p.bias);
        if (p.kind == ADD) put<ADD>(p.output, start, n, x, y, p.bias);
        if (p.kind == GATE) put<GATE>(p.output, start, n, x, y, p.bias);
    });
}

extern "C" __global__ void __launch_bounds__(256, 2) packed(const __grid_constant__ Packed p) {
    let_next_start();
    wait_for_previous();
    u32 first = blockIdx.x * TILE;
    uint4 tile = p.tiles ? p.tiles[blockIdx.x] : make_uint4(0, first, min(TILE, p.m - first), 0);
    if (tile.z == 0) return;
#define WORK(F) tile.z <= 32 ? multiply<F, 1>(p, tile) : tile.z <= 64 ? multiply<F, 2>(p, tile) : multiply<F, STRIPS>(p, tile)
    FOR_FORMAT(p.format, WORK)
#undef WORK
}

// What products of many rows share: tiles of 128 x 64 halves in shared memory, their product on tensor cores, and where it goes.
//
// Eight warps have a tile of 128 x 128 results: two by rows, taking turns at strips of 16, and four by columns, 32 each. The result of
// a row does not depend on the other rows.

#define TILE 128
#define TILE_K 64
#define TILE_BYTES (TILE * TILE_K * 2)
// Strips of rows that a warp has in a whole tile.
#define STRIPS 4
#define STAGES 3

// Sixteen-byte pieces of a row are exchanged by the row's number, so that eight rows never meet in a bank.
__device__ __forceinline__ u32 place(u32 row, u32 piece) {
    return row * (TILE_K * 2) + ((piece ^ (row & 7)) * 16);
}

// Adds the product of a tile of rows, of which the first COUNT * 32 exist, and a tile of weights.
template <int COUNT>
__device__ __forceinline__ void multiply_tiles(float (*sums)[4][4], u32 tile_x, u32 tile_w) {
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
#pragma unroll
    for (int k = 0; k < TILE_K / 16; k++) {
        u32 a[COUNT][4], b[2][4];
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            load_matrices(a[i], tile_x + place((i * 2 + warp % 2) * 16 + lane % 16, k * 2 + lane / 16));
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            u32 row = warp / 2 * 32 + i * 16 + lane % 8 + lane / 16 * 8;
            load_matrices(b[i], tile_w + place(row, k * 2 + lane / 8 % 2));
        }
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
#pragma unroll
            for (int j = 0; j < 4; j++) multiply_add(sums[i][j], a[i], b[j / 2] + j % 2 * 2);
        }
    }
}

// Calls `done` with row, column and the results of this column and the next, for all that this thread has.
template <int COUNT, typename Done>
__device__ __forceinline__ void each_pair(const float (*sums)[4][4], Done done) {
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                u32 row = (i * 2 + warp % 2) * 16 + lane / 4 + half * 8, column = warp / 2 * 32 + j * 8 + lane % 4 * 2;
                done(row, column, sums[i][j][half * 2], sums[i][j][half * 2 + 1]);
            }
        }
    }
}

#define STORE 0
#define ADD 1
#define GATE 2

// Puts the results of columns n and n + 1 into a row of the output, which begins at `row`.
template <int KIND>
__device__ __forceinline__ void put(void* output, u64 row, u32 n, float x, float y, const float* bias) {
    if (KIND == GATE) {
        // Column n is a gate and n + 1 its up.
        ((u16*)output)[row + n / 2] = float_to_half(x / (1.0f + expf(-x)) * y);
        return;
    }
    float2* out = (float2*)((float*)output + row + n);
    if (bias) x += bias[n], y += bias[n + 1];
    if (KIND == ADD) {
        float2 before = *out;
        x += before.x, y += before.y;
    }
    *out = make_float2(x, y);
}

// Attention of many rows of a sequence: prompts, on tensor cores.
//
// A block takes 64 query rows of one head and walks over the cache in tiles of 64 positions, two tiles in shared memory
// at a time, with a running maximum and sum per row (Dao, FlashAttention-2, 2023). Scores and weights stay in registers.
// Weights are rounded to half precision before they meet the values. Compiled for HEAD elements per head.
//
// The result of a row does not depend on the other rows: tiles begin at multiples of 64 positions of its own sequence.

#include "heads.cuh"

#define ROWS_Q 64
// Long heads leave room for fewer positions, and for queries only where those would be.
#define TILE (HEAD > 128 ? 32 : 64)
#define PIECES (HEAD <= 64 ? 8 : HEAD <= 128 ? 16 : 32)
#define TILE_BYTES (TILE * PIECES * 16)
#define QUERY_BYTES (ROWS_Q * PIECES * 16)
#define LOG2E 1.4426950408889634f

// Query rows of one sequence that follow each other.
struct QueryTile {
    u32 row, count, position, padding;
};
MIRRORED(QueryTile);

struct Flash {
    Heads heads;
    const u16* queries;       // [row][heads][HEAD], scaled and rotated
    const QueryTile* tiles;
    u16* output;              // [row][heads * HEAD]
};
MIRRORED(Flash);

__device__ __forceinline__ u32 slot(u32 row, u32 piece) {
    return row * (PIECES * 16) + ((piece ^ (row & 7)) * 16);
}

#if KV8
// Eight elements of a position, from where its first stands.
__device__ __forceinline__ uint4 kv_halves(const Element* at, u32 position, u32 element, u32 side) {
    uint2 bytes = __ldcg((const uint2*)(at + (element ^ exchange(position, side))));
    float scale = __ldcg(scale_of(at, position));
    u32 words[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        u32 two = (i < 2 ? bytes.x : bytes.y) >> (16 * (i % 2));
        words[i] = pack_halves((float)(i8)two * scale, (float)(i8)(two >> 8) * scale);
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}
#endif

__device__ __forceinline__ void fetch_positions(const Heads& s, const u32* table, u32 kv_head, u32 first, u32 end, u32 side, u32 to) {
    for (u32 at = threadIdx.x; at < TILE * (HEAD / 8); at += 128) {
        u32 i = at / (HEAD / 8), piece = at % (HEAD / 8);
        bool exists = first + i < end;
#if KV8
        // Halves take the scale up.
        uint4 halves = make_uint4(0, 0, 0, 0);
        if (exists) halves = kv_halves(cached(s, table, first + i, side, kv_head), first + i, piece * 8, side);
        store_16(to + slot(i, piece), halves);
#else
        const u16* from = (const u16*)s.cache;
        if (exists) from = cached(s, table, first + i, side, kv_head) + (piece * 8 ^ exchange(first + i, side));
        copy_16_or_zero(to + slot(i, piece), from, exists);
#endif
    }
}

extern "C" __global__ void __launch_bounds__(128, HEAD <= 64 ? 4 : HEAD <= 128 ? 3 : 2) flash(const __grid_constant__ Flash p) {
    extern __shared__ __align__(128) u8 shared[];
    u32 base = shared_address(shared);
    let_next_start();
    wait_for_previous();
    const Heads& s = p.heads;
    // The last rows have the most positions before them, so they come first.
    QueryTile t = p.tiles[gridDim.x - 1 - blockIdx.x];
    u32 head = blockIdx.y, kv_head = head / (s.heads / s.kv_heads);
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const u32* table = table_of(s, t.row);
    u32 end = t.position + t.count, steps = (end + TILE - 1) / TILE;

    // Queries pass through the place of the first tile into registers.
    for (u32 at = threadIdx.x; at < ROWS_Q * (HEAD / 8); at += 128) {
        u32 i = at / (HEAD / 8), piece = at % (HEAD / 8);
        bool exists = i < t.count;
        const u16* from = p.queries + ((u64)(t.row + (exists ? i : 0)) * s.heads + head) * HEAD + piece * 8;
        copy_16_or_zero(base + slot(i, piece), from, exists);
    }
    copies_commit();
    copies_wait<0>();
    __syncthreads();
    u32 queries = base;
#if HEAD > 128
    // They stay where they are.
    base += QUERY_BYTES;
#else
    u32 q[HEAD / 16][4];
#pragma unroll
    for (int k = 0; k < HEAD / 16; k++) load_matrices(q[k], queries + slot(warp * 16 + lane % 16, k * 2 + lane / 16));
    __syncthreads();
#endif

    auto fetch = [&](u32 step) {
        if (step < steps) {
            u32 to = base + step % 2 * 2 * TILE_BYTES;
            fetch_positions(s, table, kv_head, step * TILE, end, 0, to);
            fetch_positions(s, table, kv_head, step * TILE, end, 1, to + TILE_BYTES);
        }
        copies_commit();
    };
    float out[HEAD / 8][4] = {};
    float largest[2] = {-INFINITY, -INFINITY}, total[2] = {0.0f, 0.0f};
    fetch(0);
    for (u32 step = 0; step < steps; step++) {
        fetch(step + 1);
        copies_wait<1>();
        __syncthreads();
        u32 keys = base + step % 2 * 2 * TILE_BYTES, values = keys + TILE_BYTES;
        float scores[TILE / 8][4] = {};
#pragma unroll
        for (int k = 0; k < HEAD / 16; k++) {
#if HEAD > 128
            u32 own[4];
            load_matrices(own, queries + slot(warp * 16 + lane % 16, k * 2 + lane / 16));
#else
            const u32* own = q[k];
#endif
#pragma unroll
            for (int n = 0; n < TILE / 16; n++) {
                u32 b[4];
                load_matrices(b, keys + slot(n * 16 + lane % 8 + lane / 16 * 8, k * 2 + lane / 8 % 2));
                multiply_add(scores[n * 2], own, b);
                multiply_add(scores[n * 2 + 1], own, b + 2);
            }
        }
        if ((step + 1) * TILE > t.position) {
            u32 limit = t.position + warp * 16 + lane / 4;
#pragma unroll
            for (int i = 0; i < TILE / 2; i++) {
                if (step * TILE + i / 4 * 8 + lane % 4 * 2 + i % 2 > limit + i / 2 % 2 * 8) scores[i / 4][i % 4] = -INFINITY;
            }
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float best = largest[half];
#pragma unroll
            for (int n = 0; n < TILE / 8; n++) best = fmaxf(best, fmaxf(scores[n][half * 2], scores[n][half * 2 + 1]));
            best = fmaxf(best, __shfl_xor_sync(FULL, best, 1));
            best = fmaxf(best, __shfl_xor_sync(FULL, best, 2));
            float factor = exp2f((largest[half] - best) * LOG2E), sum = 0.0f, taken = best * LOG2E;
            largest[half] = best;
#pragma unroll
            for (int n = 0; n < TILE / 8; n++) {
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    float& x = scores[n][half * 2 + e];
                    x = exp2f(__fmaf_rn(x, LOG2E, -taken));
                    sum += x;
                }
            }
            total[half] = total[half] * factor + sum;
#pragma unroll
            for (int n = 0; n < HEAD / 8; n++) out[n][half * 2] *= factor, out[n][half * 2 + 1] *= factor;
        }
#pragma unroll
        for (int k = 0; k < TILE / 16; k++) {
            u32 a[4] = {pack_halves(scores[2 * k][0], scores[2 * k][1]), pack_halves(scores[2 * k][2], scores[2 * k][3]),
                        pack_halves(scores[2 * k + 1][0], scores[2 * k + 1][1]),
                        pack_halves(scores[2 * k + 1][2], scores[2 * k + 1][3])};
#pragma unroll
            for (int n = 0; n < HEAD / 16; n++) {
                u32 b[4];
                load_matrices_transposed(b, values + slot(k * 16 + lane % 16, n * 2 + lane / 16));
                multiply_add(out[n * 2], a, b);
                multiply_add(out[n * 2 + 1], a, b + 2);
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float sum = total[half];
        sum += __shfl_xor_sync(FULL, sum, 1);
        sum += __shfl_xor_sync(FULL, sum, 2);
        u32 i = warp * 16 + lane / 4 + half * 8;
        if (i >= t.count) continue;
        u16* to = p.output + ((u64)(t.row + i) * s.heads + head) * HEAD;
#pragma unroll
        for (int n = 0; n < HEAD / 8; n++) {
            float2 x = make_float2(out[n][half * 2] / sum, out[n][half * 2 + 1] / sum);
#if OUTPUT_GATES
            u64 gates = (u64)(t.row + i) * HEADS_OF(s) * HEAD + gate_offset(s, head) + n * 8 + lane % 4 * 2;
            x = make_float2(with_gate(x.x, __ldcg(s.rows + gates)), with_gate(x.y, __ldcg(s.rows + gates + 1)));
#endif
            *(u32*)(to + n * 8 + lane % 4 * 2) = pack_halves(x.x, x.y);
        }
    }
}

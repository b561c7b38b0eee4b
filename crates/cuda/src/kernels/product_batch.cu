// Matrix times 2 to 32 rows, on tensor cores.
//
//   out[m][n] = sum_k W[n][k] * x[m][k]     m < 8 * TILES (compiled for one to four tiles of eight rows)
//
// Bytes: the packed weights, once, whatever the number of rows; quantised rows once per block, from the cache.
// Work: one 16 x 8 x 32 integer product per sixteen weight rows, block of 32 columns and tile; what costs is what comes after it, one
// instruction for each of its 128 sums where scales are integers, else four. Some 600 instructions a unit at 24 rows, one every two
// cycles with eight warps. Twelve are faster than eight (21 rows of the 7B 3.2 ms instead of 4.2, H200, 2026-11-17), although then no
// other kernel fits beside, and sixteen leave no room for a row of the 7B.
//
// A unit is sixteen weight rows (a group: four tiles of the packed layout, or two of a gate and two of its up) by one
// super-block of columns, one warp's work. Rows are quantised into the order in which lanes feed them to the tensor cores:
// once for all, by `residual_norm_quant`, where every block needs all of them. The sums of `product.cu`, bit for bit: integers inside a block of 32,
// or inside a super-block whose scales are integers, are exact, and floats are added in the same order: eight blocks in a tree, then
// super-blocks in order; or, where a product has one slice, super-blocks in order for each of the eight, then the tree (`WHOLE`).
//
// Matrices whose result is added to the residual are cut along the columns too, or every block would read all of a long
// row: `product_batch_partial` quantises its columns of the rows itself and leaves one sum per super-block, and the `residual_norm_quant` of
// whoever reads the residual next adds them.

#include "supers.cuh"

#define PARTIAL 4

extern __shared__ __align__(128) u8 shared[];

struct ProductBatch {
    Segment segments[3];
    const u8* input;      // From `residual_norm_quant`; `product_batch_partial`: floats, [row][columns].
    float* output;
    u64* candidates;      // Logits only: the best entry of each block, [row][block].
    u32 supers;
    u32 rows;             // Rows in use.
    u32 output_stride;
    u32 splits;           // Parts the columns are cut into; `product_batch_partial` only.
    u32 wave;             // Groups whose partial results fit.
    u32 columns;
    const u32* chosen;    // Experts only: which each row visits, [row][used].
    u32 slice_rows;       // Rows of a slice of `product_batch_partial`'s output.
    u32 used;
};
MIRRORED(ProductBatch);

// What a block has to do: groups of rows by super-blocks of columns.
struct Share {
    u32 first_group, groups;
    u32 first_super, supers;
};

template <int KIND>
__device__ __forceinline__ Share share_of(const ProductBatch& p, const Segment& s) {
    u32 block = blockIdx.x - s.first_block, splits = KIND == PARTIAL ? p.splits : 1;
    u32 split = block % splits, blocks = s.blocks / splits;
    u32 tiles = KIND == GATE ? 2 : 4, groups = (s.tiles + tiles - 1) / tiles;
    Share share;
    block /= splits;
    bool works = block < blocks;
    share.first_group = works ? (u64)groups * block / blocks : 0;
    share.groups = works ? (u64)groups * (block + 1) / blocks - share.first_group : 0;
    share.first_super = split * p.supers / splits;
    share.supers = (split + 1) * p.supers / splits - share.first_super;
    return share;
}

// Waits for the rows of this share and copies them into shared memory.
__device__ __forceinline__ void take_input(const ProductBatch& p, const Share& share, bool wide, u8* input) {
    wait_for_previous();
    u32 bytes = share.supers * input_bytes(wide);
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) {
        const u8* from = p.input + (u64)(tile * p.supers + share.first_super) * input_bytes(wide);
        u32 to = shared_address(input) + tile * bytes;
        for (u32 at = threadIdx.x * 16; at < bytes; at += THREADS * 16) copy_16(to + at, from + at);
    }
    copies_commit();
    copies_wait<0>();
    __syncthreads();
}

// The same for rows that are not quantised yet.
__device__ __forceinline__ void quantise_input(const ProductBatch& p, const Share& share, bool wide, u8* input) {
    constexpr int LOADS = 4;
    u32 items = share.supers * p.rows, lane = threadIdx.x % WARP;
    wait_for_previous();
    for (u32 first = threadIdx.x / WARP; first < items; first += LOADS * WARPS) {
        float v[LOADS][8];
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            u32 item = first + i * WARPS, super = share.first_super + item / p.rows;
            // Past the end of a row there are zeros.
            u32 column = item < items ? super * SUPER + lane * 8 : p.columns;
            load_8((const float*)p.input + (u64)(item % p.rows) * p.columns, column, p.columns, v[i]);
        }
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            u32 item = first + i * WARPS;
            if (item < items) store_8(v[i], input, item % p.rows, item / p.rows, share.supers, wide);
        }
    }
    __syncthreads();
}

// Stores a result, or notes a candidate too.
template <int KIND>
__device__ __forceinline__ void finish(const ProductBatch& p, const Segment& s, u32 m, u32 row, float value, float up, u64* best) {
    if (row >= s.rows || m >= p.rows) return;
    float* out = p.output + (u64)m * p.output_stride + s.output + row;
    if (KIND == GATE) {
        *out = rounded(silu(value) * up);
        return;
    }
    if (s.bias) value += s.bias[row];
    *out = KIND == LOGITS ? value : rounded(value);
    if (KIND == LOGITS) {
        u64 own = candidate(value, row);
        if (own > *best) *best = own;
    }
}

// The units a warp takes, in order: every eighth; or, where groups are added up as a whole, all of every eighth group.
struct Walk {
    u32 group, super, group_step, super_step;

    __device__ __forceinline__ Walk(u32 warp, u32 supers, bool whole) {
        u32 units = whole ? 1 : supers;
        group = warp / units, super = warp % units;
        group_step = WARPS / units, super_step = whole ? 1 : WARPS % units;
    }

    __device__ __forceinline__ void next(u32 supers, bool whole) {
        super += super_step;
        if (whole) {
            if (super == supers) super = 0, group += WARPS;
            return;
        }
        group += group_step;
        if (super >= supers) super -= supers, group++;
    }
};

// The results of a group that was added up as a whole: the tree over its blocks, then out.
template <int KIND>
__device__ __forceinline__ void
finish_group(const ProductBatch& p, const Segment& s, u32 group, int lane, float (*sums)[TILES][4], u64* best) {
    int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int n = 0; n < TILES; n++) {
        float v[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            v[i] = ((sums[0][n][i] + sums[1][n][i]) + (sums[2][n][i] + sums[3][n][i])) +
                   ((sums[4][n][i] + sums[5][n][i]) + (sums[6][n][i] + sums[7][n][i]));
        }
        u32 row = group * (KIND == GATE ? 8 : 16) + g, m = n * 8 + 2 * t;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            finish<KIND>(p, s, m + i, row, v[i], v[i + 2], &best[2 * n + i]);
            if (KIND != GATE) finish<KIND>(p, s, m + i, row + 8, v[i + 2], 0.0f, &best[2 * n + i]);
        }
    }
}

// Keeps the sums of a unit: in shared memory, or where the next `residual_norm_quant` finds them.
template <int KIND>
__device__ __forceinline__ void keep_unit(const ProductBatch& p, const Segment& s, u32 group, u32 super, int lane,
                                          float (*sums)[4], float* partial) {
    int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int at = 0; at < 4 * TILES; at++) {
        int n = at / 4, i = at % 4;
        u32 m = n * 8 + 2 * t + i % 2, row = group * 16 + g + i / 2 * 8;
        if (KIND == PARTIAL) {
            float* out = p.output + ((u64)super * p.slice_rows + m) * p.output_stride + row;
            if (m < p.rows && row < s.rows) *out = sums[n][i];
        } else if (m < p.rows) {
            partial[m * PARTIAL_STRIDE + g + i / 2 * 8] = sums[n][i];
        }
    }
}

// Adds up what units of these groups have left, super-blocks in order. All threads; `first` is the first of the groups.
template <int KIND>
__device__ __forceinline__ void
collect(const ProductBatch& p, const Segment& s, u32 first, u32 groups, u32 supers, const float* partial, u64* best) {
    constexpr u32 EACH = KIND == GATE ? 8 : 16;
    u32 apart = p.rows * PARTIAL_STRIDE;
    for (u32 at = threadIdx.x; at < groups * EACH * p.rows; at += THREADS) {
        u32 r = at % EACH, m = at / EACH % p.rows, group = at / EACH / p.rows;
        const float* own = partial + group * supers * apart + m * PARTIAL_STRIDE + r;
        float value = sum_parts(supers, [&](u32 super) { return own[super * apart]; }), up = 0.0f;
        if (KIND == GATE) up = sum_parts(supers, [&](u32 super) { return own[super * apart + 8]; });
        u64 found = 0;
        finish<KIND>(p, s, m, (first + group) * EACH + r, value, up, &found);
        if (KIND == LOGITS) atomicMax(&best[m], found);
    }
}

template <int F, int KIND, bool WHOLE, bool PLAIN>
__device__ __forceinline__ void run(const ProductBatch& p, const Segment& s, u64* best) {
    constexpr bool WIDE = Layout<F>::super_blocks;
    // Whoever multiplies block by block has their scales in shared memory.
    constexpr u32 SCALES = WIDE && !WHOLE ? 0 : SCALES_BYTES;
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    Share share = share_of<KIND>(p, s);
    u32 supers = share.supers, tile_bytes = supers * input_bytes(WIDE);
    float4* scales = (float4*)(shared + TILES * tile_bytes + warp * SCALES);
    float* partial = (float*)(shared + TILES * tile_bytes + WARPS * SCALES);
    u32 kept = KIND == PARTIAL || WHOLE ? 0 : p.wave * supers * p.rows * PARTIAL_STRIDE * 4;
    u8* ring = (u8*)partial + (kept + 127) / 128 * 128 + warp * DEPTH * Stage<F>::bytes;
    u32 ring_address = shared_address(ring);
    Copies<F, KIND == GATE> copies(s, p.supers, lane);
    Walk ahead(warp, supers, WHOLE), now = ahead;
    auto issue = [&](int slot) {
        if (ahead.group < share.groups) {
            u32 group = share.first_group + ahead.group, super = share.first_super + ahead.super;
            copies.start(group, super, ring_address + slot * Stage<F>::bytes, lane);
            ahead.next(supers, WHOLE);
        }
        copies_commit();
    };
#pragma unroll
    for (int slot = 0; slot < DEPTH - 1; slot++) issue(slot);
    if (PLAIN) quantise_input(p, share, WIDE, shared);
    else take_input(p, share, WIDE, shared);
    int slot = 0;
    auto next = [&]() {
        copies_wait<DEPTH - 2>();
        __syncwarp();
        // The slot refilled here is the one read in the step before; all lanes are done with it.
        issue(slot == 0 ? DEPTH - 1 : slot - 1);
    };
    if (WHOLE) {
        u64 own[2 * TILES] = {};
        for (u32 group = warp; group < share.groups; group += WARPS) {
            float sums[8][TILES][4] = {};
            for (u32 super = 0; super < supers; super++) {
                next();
                const u8* input = shared + super * input_bytes(WIDE);
                multiply_blocks<F, true>(ring + slot * Stage<F>::bytes, input, tile_bytes, scales, lane, sums);
                slot = slot == DEPTH - 1 ? 0 : slot + 1;
            }
            finish_group<KIND>(p, s, share.first_group + group, lane, sums, own);
        }
        if (KIND == LOGITS) {
#pragma unroll
            for (int i = 0; i < 2 * TILES; i++) atomicMax(&best[i / 2 * 8 + lane % 4 * 2 + i % 2], own[i]);
        }
        return;
    }
    for (u32 wave = 0; wave < share.groups; wave += p.wave) {
        u32 groups = min(p.wave, share.groups - wave);
        for (; now.group < wave + groups; now.next(supers, false)) {
            next();
            float sums[1][TILES][4];
            u32 group = now.group, super = now.super;
            const u8* input = shared + super * input_bytes(WIDE);
            const u8* stage = ring + slot * Stage<F>::bytes;
            if (WIDE) multiply_super<F>(stage, input, tile_bytes, lane, sums[0]);
            else multiply_blocks<F, false>(stage, input, tile_bytes, scales, lane, sums);
            slot = slot == DEPTH - 1 ? 0 : slot + 1;
            float* own = partial + ((group - wave) * supers + super) * p.rows * PARTIAL_STRIDE;
            keep_unit<KIND>(p, s, share.first_group + group, share.first_super + super, lane, sums[0], own);
        }
        if (KIND == PARTIAL) continue;
        __syncthreads();
        collect<KIND>(p, s, share.first_group + wave, groups, supers, partial, best);
        if (wave + p.wave < share.groups) __syncthreads();
    }
}

template <int KIND, bool WHOLE>
__device__ __forceinline__ void product_batch(const ProductBatch& p) {
    __shared__ u64 best[8 * TILES];
    let_next_start();
    if (threadIdx.x < 8 * TILES) best[threadIdx.x] = 0;
    const Segment& s = own_segment(p.segments);
#define WORK(F) run<F, KIND, WHOLE, KIND == PARTIAL>(p, s, best)
    FOR_FORMAT(s.format, WORK)
#undef WORK
    if (KIND == LOGITS) {
        __syncthreads();
        if (threadIdx.x < p.rows) p.candidates[threadIdx.x * gridDim.x + blockIdx.x] = best[threadIdx.x];
    }
}

#define KERNEL(name, kind, whole) \
    extern "C" __global__ void __launch_bounds__(THREADS, 1) name(const __grid_constant__ ProductBatch p) { \
        product_batch<kind, whole>(p); \
    }
KERNEL(product_batch_store, STORE, false)
KERNEL(product_batch_partial, PARTIAL, false)
KERNEL(product_batch_gate, GATE, false)
KERNEL(product_batch_gate_whole, GATE, true)
KERNEL(product_batch_logits, LOGITS, false)
KERNEL(product_batch_logits_whole, LOGITS, true)

// Attention of single rows over the cache, split along the positions.
//
//   out[row][head] = softmax(q . k) v     over positions 0 ..= position of the row
//
// Bytes: keys and values of all positions once per KV head (the query heads that share them sit in one block).
// A row's positions are cut into at most 64 chunks, whose length depends on the position alone, so the result of a row
// does not depend on what else is in the batch. The last block of a row and KV head to finish merges the partial results
// in the order of the chunks.
//
// Compiled for HEAD elements per head and GROUP query heads per block.

#define SPLITS 64
#define CHUNK_MIN 64
#define TILE 128
// Lanes that share a position, eight elements each; a power of two.
#define LANES (HEAD <= 64 ? 8 : HEAD <= 128 ? 16 : 32)
#define AT_ONCE (WARP / LANES)

struct Attention {
    Heads heads;
    float* output;         // [row][heads * HEAD]
    float* partial;        // [row][head][SPLITS][HEAD + 2]
    u32* arrived;          // [row][blockIdx.y], zero between kernels
    u32 store;             // Write this row's key and value first: only where every row has its own sequence.
};

#define SUM_ROWS 8
struct AttentionShared {
    float queries[GROUP][HEAD];
    float scores[GROUP][TILE];
    float statistics[3][GROUP];  // Largest score, sum of weights, factor for what was summed before.
    float sums[SUM_ROWS][GROUP][HEAD];
    u32 is_last;
};

__device__ __forceinline__ u32 chunk_of(u32 length) {
    u32 chunk = CHUNK_MIN;
    while (chunk * SPLITS < length) chunk *= 2;
    return chunk;
}

__device__ __forceinline__ void unpack_8(uint4 w, float* v) {
    u32 words[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float2 two = unpack_halves(words[i]);
        v[2 * i] = two.x, v[2 * i + 1] = two.y;
    }
}

template <int WARPS>
__device__ __forceinline__ void
merge(const Attention& p, u32 row, u32 first_head, u32 splits, float (*weights)[SPLITS]) {
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const float* base = p.partial + ((u64)row * p.heads.heads + first_head) * SPLITS * (HEAD + 2);
    for (int h = warp; h < GROUP; h += WARPS) {
        const float* own = base + (u64)h * SPLITS * (HEAD + 2);
        float largest = -INFINITY, total = 0.0f;
        for (u32 s = lane; s < splits; s += WARP) largest = fmaxf(largest, __ldcg(own + s * (HEAD + 2)));
        largest = warp_max(largest);
        for (u32 s = lane; s < splits; s += WARP) {
            float w = expf(__ldcg(own + s * (HEAD + 2)) - largest);
            total = __fmaf_rn(__ldcg(own + s * (HEAD + 2) + 1), w, total);
            weights[h][s] = w;
        }
        total = warp_sum(total);
        for (u32 s = lane; s < splits; s += WARP) weights[h][s] /= total;
    }
    __syncthreads();
    for (u32 at = threadIdx.x; at < GROUP * HEAD; at += WARPS * WARP) {
        u32 h = at / HEAD, c = at % HEAD;
        const float* own = base + (u64)h * SPLITS * (HEAD + 2) + 2 + c;
        float sum = 0.0f;
#pragma unroll 4
        for (u32 s = 0; s < splits; s++) sum = __fmaf_rn(__ldcg(own + s * (HEAD + 2)), weights[h][s], sum);
        p.output[((u64)row * p.heads.heads + first_head + h) * HEAD + c] = sum;
    }
}

// One block's part: one chunk of positions of one row, for the query heads `part * GROUP` and following of `parts`.
template <int WARPS>
__device__ __forceinline__ void
attend(const Attention& p, u32 split, u32 part, u32 parts, u32 row, AttentionShared& shared) {
    auto& queries = shared.queries;
    auto& scores = shared.scores;
    auto& statistics = shared.statistics;
    auto& sums = shared.sums;
    const Heads& s = p.heads;
    u32 first_head = part * GROUP;
    u32 kv_head = first_head / (s.heads / s.kv_heads);
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    u32 position = s.positions[row], length = position + 1;
    const u32* table = table_of(s, row);
    u32 chunk = chunk_of(length), start = split * chunk;
    if (start >= length) return;
    u32 end = min(start + chunk, length), splits = (length + chunk - 1) / chunk;

    const float* rows = s.rows + (u64)row * (s.heads + 2 * s.kv_heads) * HEAD;
    for (int i = warp; i < GROUP + 2; i += WARPS) {
        if (i < GROUP) {
            finish_head(s, rows + (first_head + i) * HEAD, s.q_norm, position, s.scale, queries[i]);
        } else if (p.store && position < end) {
            const float* x = rows + (s.heads + (i - GROUP) * s.kv_heads + kv_head) * HEAD;
            float* staged = sums[i - GROUP][0];
            if (i == GROUP) finish_head(s, x, s.k_norm, position, 1.0f, staged);
            else copy_head(x, staged);
            store_half_head(cached(s, table, position, i - GROUP, kv_head), staged);
        }
    }
    if (threadIdx.x < GROUP) statistics[0][threadIdx.x] = -INFINITY, statistics[1][threadIdx.x] = 0.0f;
    __syncthreads();

    int sub = lane % LANES, which = lane / LANES;
    bool active = sub * 8 < HEAD;
    float q[GROUP][8], sum[GROUP][8];
#pragma unroll
    for (int h = 0; h < GROUP; h++) {
#pragma unroll
        for (int i = 0; i < 8; i++) q[h][i] = active ? queries[h][sub * 8 + i] : 0.0f, sum[h][i] = 0.0f;
    }
    for (u32 base = start; base < end; base += TILE) {
        u32 n = min((u32)TILE, end - base);
        for (u32 i = warp * AT_ONCE; i < n; i += WARPS * AT_ONCE) {
            u32 at = i + which;
            float k[8] = {};
            if (active && at < n) unpack_8(*(const uint4*)(cached(s, table, base + at, 0, kv_head) + sub * 8), k);
#pragma unroll
            for (int h = 0; h < GROUP; h++) {
                float dot = 0.0f;
#pragma unroll
                for (int c = 0; c < 8; c++) dot = __fmaf_rn(q[h][c], k[c], dot);
#pragma unroll
                for (int step = LANES / 2; step > 0; step /= 2) dot += __shfl_xor_sync(FULL, dot, step);
                if (sub == 0 && at < n) scores[h][at] = dot;
            }
        }
        __syncthreads();
        for (int h = warp; h < GROUP; h += WARPS) {
            float before = statistics[0][h], largest = before;
            for (u32 i = lane; i < n; i += WARP) largest = fmaxf(largest, scores[h][i]);
            largest = warp_max(largest);
            float total = 0.0f;
            for (u32 i = lane; i < n; i += WARP) {
                float w = expf(scores[h][i] - largest);
                scores[h][i] = w;
                total += w;
            }
            total = warp_sum(total);
            // All lanes have read what lane 0 is about to change.
            __syncwarp();
            if (lane == 0) {
                float factor = expf(before - largest);
                statistics[0][h] = largest;
                statistics[1][h] = __fmaf_rn(statistics[1][h], factor, total);
                statistics[2][h] = factor;
            }
        }
        __syncthreads();
        if (base != start) {
#pragma unroll
            for (int h = 0; h < GROUP; h++) {
                float factor = statistics[2][h];
#pragma unroll
                for (int c = 0; c < 8; c++) sum[h][c] *= factor;
            }
        }
        for (u32 i = warp * AT_ONCE; i < n; i += WARPS * AT_ONCE) {
            u32 at = i + which;
            if (!active || at >= n) continue;
            float v[8];
            unpack_8(*(const uint4*)(cached(s, table, base + at, 1, kv_head) + sub * 8), v);
#pragma unroll
            for (int h = 0; h < GROUP; h++) {
                float w = scores[h][at];
#pragma unroll
                for (int c = 0; c < 8; c++) sum[h][c] = __fmaf_rn(w, v[c], sum[h][c]);
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int h = 0; h < GROUP; h++) {
#pragma unroll
        for (int c = 0; c < 8; c++) {
            float x = sum[h][c];
#pragma unroll
            for (int step = LANES; step < WARP; step *= 2) x += __shfl_xor_sync(FULL, x, step);
            // With more warps than rows of sums, the second half adds to the first when that has written.
            if (warp < SUM_ROWS && which == 0 && active) sums[warp][h][sub * 8 + c] = x;
            sum[h][c] = x;
        }
    }
    __syncthreads();
    if (WARPS > SUM_ROWS) {
        if (warp >= SUM_ROWS && which == 0 && active) {
#pragma unroll
            for (int h = 0; h < GROUP; h++) {
#pragma unroll
                for (int c = 0; c < 8; c++) sums[warp - SUM_ROWS][h][sub * 8 + c] += sum[h][c];
            }
        }
        __syncthreads();
    }
    for (u32 at = threadIdx.x; at < GROUP * HEAD; at += WARPS * WARP) {
        u32 h = at / HEAD, c = at % HEAD;
        float x = 0.0f;
#pragma unroll
        for (int w = 0; w < SUM_ROWS; w++) x += sums[w][h][c];
        u64 head = (u64)row * s.heads + first_head + h;
        if (splits == 1) {
            p.output[head * HEAD + c] = x / statistics[1][h];
        } else {
            float* own = p.partial + (head * SPLITS + split) * (HEAD + 2);
            own[2 + c] = x;
            if (c == 0) own[0] = statistics[0][h], own[1] = statistics[1][h];
        }
    }
    if (splits == 1) return;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        u32* arrived = p.arrived + row * parts + part;
        shared.is_last = atomicAdd(arrived, 1) == splits - 1;
        if (shared.is_last) *arrived = 0;
        __threadfence();
    }
    __syncthreads();
    if (shared.is_last) {
        merge<WARPS>(p, row, first_head, splits, (float (*)[SPLITS])sums);
    }
}

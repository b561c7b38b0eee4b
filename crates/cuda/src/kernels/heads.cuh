// Queries, keys and values between their product and attention: norm of each head, rotation, and the cache's layout.
//
// The cache is a run of blocks of 32 positions. Inside a block: layer, then keys and values apart, then head, then
// position, then the elements in half precision; a position's key is one contiguous piece.

struct Heads {
    const float* rows;        // [row][heads + 2 kv_heads][HEAD], as the product left them
    const u32* positions;     // of each row
    const u32* tables;        // [sequence][table_stride]: block numbers
    const u32* sequences;     // of each row
    u8* cache;
    const float* q_norm;
    const float* k_norm;
    const float2* angles;     // [position][dimensions / 2]: cosine and sine
    u64 block_bytes;
    u64 layer_offset;         // of this layer's keys in a block
    float epsilon;
    float scale;
    u32 heads;
    u32 kv_heads;
    u32 dimensions;
    u32 neighbours;           // Pairs are 2 i and 2 i + 1; otherwise i and i + dimensions / 2.
    u32 table_stride;
};

__device__ __forceinline__ const u32* table_of(const Heads& p, u32 row) {
    return p.tables + (u64)p.sequences[row] * p.table_stride;
}

__device__ __forceinline__ u16* cached(const Heads& p, const u32* table, u32 position, u32 side, u32 kv_head) {
    u32 block = table[position / KV_BLOCK];
    u64 part = p.layer_offset + (u64)((side * p.kv_heads + kv_head) * KV_BLOCK + position % KV_BLOCK) * HEAD * 2;
    return (u16*)(p.cache + block * p.block_bytes + part);
}

// One warp: reads a head, normalises it where a weight is given, rotates and scales it, and leaves it in `out`.
__device__ __forceinline__ void
finish_head(const Heads& p, const float* x, const float* norm, u32 position, float scale, float* out) {
    int lane = threadIdx.x % WARP;
    constexpr int EACH = (HEAD + WARP - 1) / WARP;
    float v[EACH];
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        int c = i * WARP + lane;
        v[i] = c < HEAD ? __ldcg(x + c) : 0.0f;
        squares = __fmaf_rn(v[i], v[i], squares);
    }
    if (norm) {
        squares = warp_sum(squares);
        float factor = __fdiv_rn(1.0f, __fsqrt_rn(squares / HEAD + p.epsilon));
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            int c = i * WARP + lane;
            if (c < HEAD) v[i] *= factor * norm[c];
        }
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        int c = i * WARP + lane;
        if (c < HEAD) out[c] = v[i];
    }
    __syncwarp();
    u32 pairs = p.dimensions / 2;
    for (u32 i = lane; i < pairs; i += WARP) {
        u32 first = p.neighbours ? 2 * i : i, second = p.neighbours ? 2 * i + 1 : i + pairs;
        float2 angle = p.angles[(u64)position * pairs + i];
        float a = out[first], b = out[second];
        out[first] = (a * angle.x - b * angle.y) * scale;
        out[second] = (a * angle.y + b * angle.x) * scale;
    }
    for (u32 c = p.dimensions + lane; c < HEAD; c += WARP) out[c] *= scale;
    __syncwarp();
}

// One warp: a head as it is.
__device__ __forceinline__ void copy_head(const float* x, float* out) {
    for (int c = threadIdx.x % WARP; c < HEAD; c += WARP) out[c] = __ldcg(x + c);
    __syncwarp();
}

__device__ __forceinline__ void store_half_head(u16* to, const float* x) {
    for (int c = threadIdx.x % WARP; c < HEAD / 2; c += WARP) ((u32*)to)[c] = pack_halves(x[2 * c], x[2 * c + 1]);
}

// Queries, keys and values between their product and attention: norm of each head, rotation, and the cache's layout.
//
// The cache is a run of blocks of 32 positions. Inside a block: layer, then keys and values apart, then head, then
// position, then the elements; a position's key is one contiguous piece. Its elements stand in an order of their own
// (`exchange`), so that keys and values lie in shared memory as they came without lanes meeting in a bank.
//
// Elements are halves, or, compiled with KV8, signed bytes as on the CPU: sixteen positions, then the scale of each. A byte
// is a half exactly, so tensor cores multiply the same way, and the scales meet scores and weights.

#include "common.cuh"

// Whether every query head comes with a gate of what it attends to.
#ifndef OUTPUT_GATES
#define OUTPUT_GATES 0
#endif

// Positions that stand together: a warp's share, whose keys it has in registers.
#define UNIT (HEAD > 128 ? 8 : 16)
#if KV8
typedef i8 Element;
#define UNIT_BYTES (UNIT * (HEAD + 4))
#else
typedef u16 Element;
#define UNIT_BYTES (UNIT * HEAD * 2)
#endif

struct Heads {
    const float* rows;        // [row][HEADS_OF][HEAD], as the product left them: queries, gates of the result, keys, values
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
MIRRORED(Heads);

// Heads of a row.
#if OUTPUT_GATES
#define FIRST_KEY(p) (2 * (p).heads)
#else
#define FIRST_KEY(p) ((p).heads)
#endif
#define HEADS_OF(p) (FIRST_KEY(p) + 2 * (p).kv_heads)

// Where a query head's gate stands in a row.
__device__ __forceinline__ u32 gate_offset(const Heads& p, u32 head) {
    return (p.heads + head) * HEAD;
}

// A result with its gate.
__device__ __forceinline__ float with_gate(float x, float gate) {
    return __fmul_rn(x, __fdiv_rn(1.0f, __fadd_rn(1.0f, expf(-gate))));
}

// What the place of an element in a position's key (side 0) or value (side 1) is exchanged by. Lanes that read together read
// 64 bytes of two keys that follow each other, or 32 bytes of every other one of eight values.
__device__ __forceinline__ u32 exchange(u32 position, u32 side) {
    if (HEAD % 64 != 0) return 0;
#if KV8
    // 32 bytes of four keys that follow each other, or of every other one of eight values.
    if (HEAD != 128) return (position >> 1 & 1) * 32;
    return ((side ? position >> 1 : position) & 3) * 32;
#endif
    return side ? (position >> 1 & 3) * 16 : (position & 1) * 32;
}

__device__ __forceinline__ const u32* table_of(const Heads& p, u32 row) {
    return p.tables + (u64)p.sequences[row] * p.table_stride;
}

__device__ __forceinline__ Element* cached_in(const Heads& p, u32 block, u32 position, u32 side, u32 kv_head) {
    u32 head = side * p.kv_heads + kv_head;
#if KV8
    u32 unit = head * (KV_BLOCK / UNIT) + position % KV_BLOCK / UNIT;
    u64 part = p.layer_offset + (u64)unit * UNIT_BYTES + position % UNIT * HEAD;
#else
    u64 part = p.layer_offset + (u64)(head * KV_BLOCK + position % KV_BLOCK) * HEAD * 2;
#endif
    return (Element*)(p.cache + block * p.block_bytes + part);
}

__device__ __forceinline__ Element* cached(const Heads& p, const u32* table, u32 position, u32 side, u32 kv_head) {
    return cached_in(p, table[position / KV_BLOCK], position, side, kv_head);
}

#if KV8
// The scale of a position, from where its first element stands.
__device__ __forceinline__ float* scale_of(const Element* at, u32 position) {
    u32 index = position % UNIT;
    return (float*)(at + (UNIT - index) * HEAD) + index;
}
#endif

// A lane's part of a head: elements lane, lane + 32 and so on.
#define HEAD_EACH ((HEAD + WARP - 1) / WARP)
struct HeadPart {
    float v[HEAD_EACH];
};

// A lane's part of a position's angles: pairs lane, lane + 32 and so on. Read early, because they may be far away.
struct Turn {
    float2 pairs[(HEAD / 2 + WARP - 1) / WARP];
};

__device__ __forceinline__ HeadPart load_head(const float* x) {
    int lane = this_thread() % WARP;
    HeadPart h;
#pragma unroll
    for (int i = 0; i < HEAD_EACH; i++) h.v[i] = i * WARP + lane < HEAD ? __ldcg(x + i * WARP + lane) : 0.0f;
    return h;
}

__device__ __forceinline__ Turn load_turn(const Heads& p, u32 position) {
    Turn turn;
    u32 pairs = p.dimensions / 2, i = this_thread() % WARP;
#pragma unroll
    for (float2& pair : turn.pairs) {
        pair = i < pairs ? p.angles[(u64)position * pairs + i] : make_float2(1.0f, 0.0f);
        i += WARP;
    }
    return turn;
}

// One warp: leaves a head as it is in `out`.
__device__ __forceinline__ void store_head(const HeadPart& h, float* out) {
    int lane = this_thread() % WARP;
#pragma unroll
    for (int i = 0; i < HEAD_EACH; i++) {
        if (i * WARP + lane < HEAD) out[i * WARP + lane] = h.v[i];
    }
    __syncwarp();
}

// One warp: normalises a head where a weight is given, rotates and scales it, and leaves it in `out`.
__device__ __forceinline__ void
finish_head(const Heads& p, HeadPart h, const float* norm, const Turn& turn, float scale, float* out) {
    int lane = this_thread() % WARP;
    if (norm) {
        float squares = 0.0f;
#pragma unroll
        for (int i = 0; i < HEAD_EACH; i++) squares = __fmaf_rn(h.v[i], h.v[i], squares);
        squares = warp_sum(squares);
        float factor = __fdiv_rn(1.0f, __fsqrt_rn(squares / HEAD + p.epsilon));
#pragma unroll
        for (int i = 0; i < HEAD_EACH; i++) {
            if (i * WARP + lane < HEAD) h.v[i] *= factor * norm[i * WARP + lane];
        }
    }
    u32 pairs = p.dimensions / 2;
    auto rotate = [&](float& a, float& b, float2 angle) {
        float first = __fmul_rn(__fmaf_rn(a, angle.x, -__fmul_rn(b, angle.y)), scale);
        b = __fmul_rn(__fmaf_rn(a, angle.y, __fmul_rn(b, angle.x)), scale);
        a = first;
    };
    if (HEAD % 64 == 0 && p.dimensions == HEAD && !p.neighbours) {
        // A lane has both elements of its pairs.
#pragma unroll
        for (int i = 0; i < HEAD_EACH / 2; i++) rotate(h.v[i], h.v[i + HEAD_EACH / 2], turn.pairs[i]);
        store_head(h, out);
        return;
    }
    store_head(h, out);
    u32 i = lane;
#pragma unroll
    for (const float2& angle : turn.pairs) {
        if (i < pairs) rotate(out[p.neighbours ? 2 * i : i], out[p.neighbours ? 2 * i + 1 : i + pairs], angle);
        i += WARP;
    }
    for (u32 c = p.dimensions + lane; c < HEAD; c += WARP) out[c] *= scale;
    __syncwarp();
}

__device__ __forceinline__ void store_half_head(u16* to, const float* x, u32 exchanged = 0) {
    for (u32 c = this_thread() % WARP * 2; c < HEAD; c += 2 * WARP) *(u32*)(to + (c ^ exchanged)) = pack_halves(x[c], x[c + 1]);
}

#if KV8
// One warp: a head as the cache stores them, which all kernels must make alike. Scale and rounding are the CPU's.
__device__ __forceinline__ void keep_head(Element* to, float* scale, const float* x, u32 exchanged = 0) {
    int lane = this_thread() % WARP;
    float largest = 0.0f;
    for (u32 c = lane; c < HEAD; c += WARP) largest = fmaxf(largest, fabsf(x[c]));
    float own = __fdiv_rn(warp_max(largest), 127.0f);
    for (u32 c = lane * 4; c < HEAD; c += 4 * WARP) {
        u32 word = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int q = own == 0.0f ? 0 : __float2int_rn(__fdiv_rn(x[c + i], own));
            word |= (u32)(q & 0xff) << (8 * i);
        }
        *(u32*)(to + (c ^ exchanged)) = word;
    }
    if (lane == 0) *scale = own;
}

// Four signed bytes as halves: 1024 + 128 + b is exact, and so is b.
__device__ __forceinline__ uint2 bytes_to_halves(u32 bytes) {
    bytes ^= 0x80808080;
    u32 low = __byte_perm(bytes, 0x64646464, 0x4140), high = __byte_perm(bytes, 0x64646464, 0x4342);
    return make_uint2(subtract_halves(low, 0x64806480), subtract_halves(high, 0x64806480));
}
#endif

// Into the cache.
__device__ __forceinline__ void cache_head(Element* to, u32 position, const float* x, u32 side) {
#if KV8
    keep_head(to, scale_of(to, position), x, exchange(position, side));
#else
    store_half_head(to, x, exchange(position, side));
#endif
}

// Embeddings in and the most likely token out, one block per row.

#include "formats.cuh"

struct Embed {
    const u8* table;       // Packed like any matrix.
    const u32* tokens;
    float* output;         // [row][columns]
    u32 format;
    u32 columns;
    u32 supers;
};
MIRRORED(Embed);

template <int F>
__device__ __forceinline__ void embed_row(const Embed& p, u32 token, float* out) {
    // A thread takes what one lane of the product would: 32 columns.
    for (u32 at = threadIdx.x; at < p.columns / 32; at += blockDim.x) {
        u32 super = at / 8;
        const u8* chunk = p.table + ((u64)(token / 4) * p.supers + super) * Layout<F>::chunk;
        Block b = read_block<F>(chunk, token % 4 * 8 + at % 8);
#pragma unroll
        for (int i = 0; i < 32; i++) out[at * 32 + i] = rounded(element<F>(b, i));
    }
}

// Picks that may stand in the mailbox unread.
#define RING 4
#define ROWS_MAX 32

struct Pick {
    const u64* candidates;  // [row][blocks]
    u32* tokens;            // Input of the next step, when it follows directly; else null.
    u32* positions;
    u32* tickets;           // [row]: picks made so far
    volatile u64* mailbox;  // [ticket % RING][row], host memory: ticket and token
    u32 blocks;
};
MIRRORED(Pick);

// The best of a row's candidates that are this thread's warp's. All lanes get it.
__device__ __forceinline__ u64 best_candidate(const Pick& p, u32 row, u32 first, u32 step) {
    u64 own = 0;
    for (u32 i = first; i < p.blocks; i += step) {
        u64 other = __ldcg(p.candidates + (u64)row * p.blocks + i);
        if (other > own) own = other;
    }
    for (int step = 16; step > 0; step /= 2) {
        u64 other = __shfl_xor_sync(FULL, own, step);
        if (other > own) own = other;
    }
    return own;
}

// One thread makes a row's pick known. A row with something that is not a number gives the token 0xffffffff.
__device__ __forceinline__ void publish(const Pick& p, u32 row, u64 best) {
    u32 token = (best >> 32) == 0xffffffffu ? 0xffffffffu : 0xffffffffu - (u32)best;
    if (p.tokens) {
        p.tokens[row] = token == 0xffffffffu ? 0 : token;
        p.positions[row] += 1;
    }
    u32 ticket = ++p.tickets[row];
    p.mailbox[ticket % RING * ROWS_MAX + row] = (u64)ticket << 32 | token;
}

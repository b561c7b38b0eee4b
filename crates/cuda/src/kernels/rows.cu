// Work on single rows: embeddings in, the most likely token out, and norms for prompts.

struct Embed {
    const u8* table;       // Packed like any matrix.
    const u32* tokens;
    float* output;         // [row][columns]
    u32 format;
    u32 columns;
    u32 supers;
};

template <int F>
__device__ __forceinline__ void embed_row(const Embed& p, u32 token, float* out) {
    // A thread takes what one lane of the product would: 32 columns.
    for (u32 at = threadIdx.x; at < p.columns / 32; at += blockDim.x) {
        u32 super = at / 8;
        const u8* chunk = p.table + ((u64)(token / 4) * p.supers + super) * Layout<F>::chunk;
        Block b = read_block<F>(chunk, token % 4 * 8 + at % 8);
#pragma unroll
        for (int i = 0; i < 32; i++) out[at * 32 + i] = element<F>(b, i);
    }
}

extern "C" __global__ void __launch_bounds__(128) embed(const __grid_constant__ Embed p) {
    let_next_start();
    wait_for_previous();
    u32 token = p.tokens[blockIdx.x];
    float* out = p.output + (u64)blockIdx.x * p.columns;
#define WORK(F) embed_row<F>(p, token, out)
    FOR_FORMAT(p.format, WORK)
#undef WORK
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

// One block per row. A row with something that is not a number gives the token 0xffffffff.
extern "C" __global__ void __launch_bounds__(256) pick(const __grid_constant__ Pick p) {
    __shared__ u64 best[8];
    let_next_start();
    wait_for_previous();
    u32 row = blockIdx.x;
    u64 own = 0;
    for (u32 i = threadIdx.x; i < p.blocks; i += blockDim.x) {
        u64 other = p.candidates[(u64)row * p.blocks + i];
        if (other > own) own = other;
    }
    for (int step = 16; step > 0; step /= 2) {
        u64 other = __shfl_xor_sync(FULL, own, step);
        if (other > own) own = other;
    }
    if (threadIdx.x % WARP == 0) best[threadIdx.x / WARP] = own;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int w = 1; w < 8; w++) {
        if (best[w] > own) own = best[w];
    }
    u32 token = (own >> 32) == 0xffffffffu ? 0xffffffffu : 0xffffffffu - (u32)own;
    if (p.tokens) {
        p.tokens[row] = token == 0xffffffffu ? 0 : token;
        p.positions[row] += 1;
    }
    u32 ticket = ++p.tickets[row];
    p.mailbox[ticket % RING * ROWS_MAX + row] = (u64)ticket << 32 | token;
}

struct Norm {
    const float* input;    // [row][columns]
    const float* weight;
    u16* output;           // [row][columns], half precision
    float epsilon;
    u32 columns;
};

extern "C" __global__ void __launch_bounds__(256) norm_half(const __grid_constant__ Norm p) {
    __shared__ float parts[8];
    let_next_start();
    wait_for_previous();
    const float* x = p.input + (u64)blockIdx.x * p.columns;
    float sum = 0.0f;
    for (u32 c = threadIdx.x * 4; c < p.columns; c += 1024) {
        float4 v = *(const float4*)(x + c);
        sum += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
    }
    sum = warp_sum(sum);
    if (threadIdx.x % WARP == 0) parts[threadIdx.x / WARP] = sum;
    __syncthreads();
    sum = 0.0f;
    for (int w = 0; w < 8; w++) sum += parts[w];
    float scale = 1.0f / sqrtf(sum / p.columns + p.epsilon);
    for (u32 c = threadIdx.x * 4; c < p.columns; c += 1024) {
        float4 v = *(const float4*)(x + c), w = *(const float4*)(p.weight + c);
        uint2 out = make_uint2(pack_halves(v.x * scale * w.x, v.y * scale * w.y),
                               pack_halves(v.z * scale * w.z, v.w * scale * w.w));
        *(uint2*)(p.output + (u64)blockIdx.x * p.columns + c) = out;
    }
}

struct Random {
    u8* output;
    u64 chunks;
    u32 format;
    u32 seed;
};

__device__ __forceinline__ u32 mixed(u32 x) {
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    return x ^ (x >> 16);
}

// Random quants under scales of a sensible size, for measuring a shape without a file. One warp per chunk.
template <int F>
__device__ __forceinline__ void random_chunks(const Random& p) {
    typedef Layout<F> L;
    u64 warp = ((u64)blockIdx.x * blockDim.x + threadIdx.x) / WARP, warps = (u64)gridDim.x * blockDim.x / WARP;
    u16 d = float_to_half(L::super_blocks ? 0.0001f : 0.01f), m = float_to_half(L::super_blocks ? 0.001f : -0.08f);
    for (u64 at = warp; at < p.chunks; at += warps) {
        u32* chunk = (u32*)(p.output + at * L::chunk);
        for (u32 i = threadIdx.x % WARP; i < L::chunk / 4; i += WARP) {
            u32 word = mixed(p.seed ^ mixed((u32)at * 997u + i));
            bool scales = i < L::header / 4 && (F == Q6_K ? i >= 16 : !L::super_blocks || i % 4 == 0);
            bool second = F == Q4_K || F == Q5_K || (L::with_min && i >= 16);
            if (scales) word = (u32)(second ? m : d) << 16 | (second && i >= 16 ? m : d);
            chunk[i] = word;
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) random_weights(const __grid_constant__ Random p) {
#define WORK(F) random_chunks<F>(p)
    FOR_FORMAT(p.format, WORK)
#undef WORK
}

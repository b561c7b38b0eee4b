// One token in one kernel: the whole network for a single row, phase after phase, without leaving the card.
//
// A chain of kernels pays for every link: the last block of one must end and be seen to have ended, parameters and code
// of the next are fetched anew, and its weights start moving late. Measured on an H200 (2026-11-15) that is 4 to 5 us
// for each of 143 kernels, 1142 us per token of the 1.5B. Here one block per multiprocessor stays, and the phases are
// separated by a counter in memory. Between its own part of a phase and the next phase's start a block fetches the
// first weights of that next phase, so the memory is busy while the counter is waited for.
//
// Weights come in pairs of chunks by bulk copies, a ring of DEPTH pairs for each warp, through all phases. Chunks of a
// block's tiles follow each other in memory, so a warp's next pair is an addition away. The sums are those of
// `product.cu`, bit for bit: a step of several rows gives the same tokens.
//
// Needs compute capability 9.0 and all blocks on the card at once (a cooperative launch).

#define OP_EMBED 0
#define OP_STORE 1
#define OP_ADD 2
#define OP_GATE 3
#define OP_LOGITS 4
#define OP_ATTENTION 5
#define OP_PICK 6

struct Op {
    u32 kind;
    u32 padding[3];
    union {
        Embed embed;
        Product product;
        Attention attention;
        Pick pick;
        uint4 words[13];
    };
};

struct Token {
    const Op* ops;
    u32* barrier;          // Arrivals of blocks, ever; launches, ever.
    u32 count;
    u32 ring_offset;       // of the ring in shared memory
};

// Where a warp is in its ring.
struct Ring {
    u32 data;              // Address of its first pair.
    u32 full;              // Address of its first barrier.
    u32 slot;
    u32 parity;
};

__device__ __forceinline__ void ring_fill(const Ring& r, u32 slot, const u8* from, u32 bytes) {
    u32 barrier = r.full + slot * 8;
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     r.data + slot * PAIR_BYTES),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}

__device__ __forceinline__ void ring_wait(const Ring& r) {
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n"
                 "}\n" ::"r"(r.full + r.slot * 8),
                 "r"(r.parity)
                 : "memory");
}

__device__ __forceinline__ void ring_next(Ring& r) {
    if (++r.slot == DEPTH) r.slot = 0, r.parity ^= 1;
}

// All blocks have done the phase before. Called by all threads.
__device__ __forceinline__ void phase_wait(const u32* arrivals, u32 target) {
    if (threadIdx.x == 0) {
        u32 seen;
        do {
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(arrivals) : "memory");
        } while ((int)(seen - target) < 0);
    }
    __syncthreads();
}

__device__ __forceinline__ void phase_done(u32* arrivals) {
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(arrivals) : "memory");
    }
}

// The same as `prepare` for one row, with loads ahead of their use. `early` is this lane's part of the norm's weight for
// the first item, read before the wait.
__device__ __forceinline__ void prepare_row(const Product& p, bool wide, Quantised x, float* squares, const float* early) {
    constexpr int AHEAD = 3;
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    u32 supers = p.supers, columns = p.columns;
    for (u32 first = warp; first < supers; first += AHEAD * PRODUCT_WARPS) {
        float v[AHEAD][8];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) load_8(p.input, (first + i * PRODUCT_WARPS) * SUPER + lane * 8, columns, v[i]);
        if (p.norm) {
#pragma unroll
            for (int i = 0; i < AHEAD; i++) {
                float sum = 0.0f;
#pragma unroll
                for (int c = 0; c < 8; c++) sum = __fmaf_rn(v[i][c], v[i][c], sum);
                sum = warp_sum(sum);
                if (lane == 0 && first + i * PRODUCT_WARPS < supers) squares[first + i * PRODUCT_WARPS] = sum;
            }
            // With more items than warps times AHEAD the loop would meet this barrier unevenly; the host forbids it.
            __syncthreads();
            float total = 0.0f;
            for (u32 i = lane; i < supers; i += WARP) total += squares[i];
            total = warp_sum(total);
            float scale = __fdiv_rn(1.0f, __fsqrt_rn(__fdiv_rn(total, (float)columns) + p.epsilon));
#pragma unroll
            for (int i = 0; i < AHEAD; i++) {
                float w[8];
                if (i == 0) {
#pragma unroll
                    for (int c = 0; c < 8; c++) w[c] = early[c];
                } else {
                    load_8(p.norm, (first + i * PRODUCT_WARPS) * SUPER + lane * 8, columns, w);
                }
#pragma unroll
                for (int c = 0; c < 8; c++) v[i][c] = __fmul_rn(__fmul_rn(v[i][c], scale), w[c]);
            }
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            u32 item = first + i * PRODUCT_WARPS;
            if (item < supers) quantise_super(v[i], lane, wide, x.quants + item * SUPER, x.facts + item * 8);
        }
    }
    // A warp without items has to meet the barrier inside all the same.
    if (p.norm && warp >= supers) __syncthreads();
    __syncthreads();
}

template <int F>
__device__ __forceinline__ float chunk_sum(const u8* chunk, u32 super, int lane, u32 supers, Quantised x) {
    float sum[1] = {0.0f};
    advance<F>(chunk, super, lane, supers, x, sum);
    return sum[0];
}

// Streams a block's chunks and leaves sums in `partial`: one per chunk and row, or one per tile and row (`WHOLE`).
// Whether there is a second matrix is looked up, not compiled in: the code of all phases should stay in the cache.
template <int F, bool WHOLE, typename Wait>
__device__ __forceinline__ void
stream(const Product& p, const Segment& s, u32 first_tile, u32 tiles, Quantised x, float* partial, const u8* ring_base,
       Ring& ring, Wait wait) {
    constexpr u32 CHUNK = Layout<F>::chunk;
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    u32 supers = p.supers;
    u32 matrices = s.second ? 2 : 1;
    // Pairs of a run: all chunks of a matrix here, or the chunks of one tile. A run's last pair may be half.
    u32 run = WHOLE ? supers : tiles * supers, pairs = (run + 1) / 2, runs = (WHOLE ? tiles : tiles > 0) * matrices;
    u64 skipped = (u64)first_tile * supers * CHUNK;
    auto start_of = [&](u32 r) {
        u32 matrix_runs = WHOLE ? tiles : 1;
        bool up = r >= matrix_runs;
        return (up ? s.second : s.weights) + skipped + (u64)(up ? r - matrix_runs : r) * run * CHUNK;
    };
    // The cursor that fetches: run, pair, and where they are.
    u32 fetch_run = WHOLE ? warp : 0, fetch_pair = WHOLE ? 0 : warp;
    while (fetch_run < runs && fetch_pair >= pairs) fetch_pair -= pairs, fetch_run++;
    const u8* fetch_start = start_of(fetch_run < runs ? fetch_run : 0);
    auto fetch = [&](u32 slot) {
        if (fetch_run >= runs) return;
        u32 bytes = 2 * fetch_pair + 1 < run ? 2 * CHUNK : CHUNK;
        if (lane == 0) ring_fill(ring, slot, fetch_start + (u64)fetch_pair * 2 * CHUNK, bytes);
        fetch_pair += WHOLE ? 1 : PRODUCT_WARPS;
        if (fetch_pair >= pairs) {
            fetch_pair -= pairs;
            fetch_run += WHOLE ? PRODUCT_WARPS : 1;
            // A run may be shorter than one round of the warps.
            while (!WHOLE && fetch_pair >= pairs && fetch_run < runs) fetch_pair -= pairs, fetch_run++;
            if (fetch_run < runs) fetch_start = start_of(fetch_run);
        }
    };
    u32 slot = ring.slot;
    for (int i = 0; i < DEPTH; i++) {
        fetch(slot);
        slot = slot == DEPTH - 1 ? 0 : slot + 1;
    }
    wait();
    if (WHOLE) {
        for (u32 r = warp; r < runs; r += PRODUCT_WARPS) {
            float sum[1] = {0.0f};
            for (u32 super = 0; super < supers; super += 2) {
                ring_wait(ring);
                const u8* chunk = ring_base + ring.slot * PAIR_BYTES;
                advance<F>(chunk, super, lane, supers, x, sum);
                if (super + 1 < supers) advance<F>(chunk + CHUNK, super + 1, lane, supers, x, sum);
                __syncwarp();
                fetch(ring.slot);
                ring_next(ring);
            }
            float whole = sum[0];
            whole += __shfl_xor_sync(FULL, whole, 1);
            whole += __shfl_xor_sync(FULL, whole, 2);
            whole += __shfl_xor_sync(FULL, whole, 4);
            if (lane % 8 == 0) partial[r * 4 + lane / 8] = whole;
        }
    } else {
        u32 pair = warp;
        for (u32 r = 0; r < runs; r++) {
            u32 super = pair * 2 % supers, step = 2 * PRODUCT_WARPS % supers;
            for (; pair < pairs; pair += PRODUCT_WARPS) {
                ring_wait(ring);
                const u8* chunk = ring_base + ring.slot * PAIR_BYTES;
                u32 next = super + 1 == supers ? 0 : super + 1;
                float a = chunk_sum<F>(chunk, super, lane, supers, x), b = 0.0f;
                bool both = 2 * pair + 1 < run;
                if (both) b = chunk_sum<F>(chunk + CHUNK, next, lane, supers, x);
                __syncwarp();
                fetch(ring.slot);
                ring_next(ring);
                // Even lanes go on with the first chunk and odd ones with the second: the same tree for each.
                bool odd = lane & 1;
                float mine = (odd ? b : a) + __shfl_xor_sync(FULL, odd ? a : b, 1);
                mine += __shfl_xor_sync(FULL, mine, 2);
                mine += __shfl_xor_sync(FULL, mine, 4);
                if (lane % 8 < 2 && (both || !odd)) partial[(r * run + 2 * pair + (lane & 1)) * 4 + lane / 8] = mine;
                super += step;
                if (super >= supers) super -= supers;
            }
            pair -= pairs;
        }
    }
    __syncthreads();
}

__device__ __forceinline__ void
token_product(const Product& p, u32 kind, u8* shared, const u8* ring_base, Ring& ring, const u32* arrivals, u32 target) {
    int which = 0;
    if (blockIdx.x >= p.segments[1].first_block) which = 1;
    if (blockIdx.x >= p.segments[2].first_block) which = 2;
    const Segment& s = p.segments[which];
    bool works = blockIdx.x - s.first_block < s.blocks;
    u32 block = works ? blockIdx.x - s.first_block : 0;
    u32 first_tile = (u64)s.tiles * block / s.blocks;
    u32 tiles = works ? (u32)((u64)s.tiles * (block + 1) / s.blocks) - first_tile : 0;
    Quantised x;
    x.quants = (i8*)shared;
    x.facts = (uint2*)(shared + p.supers * SUPER);
    float* partial = (float*)(shared + p.supers * (SUPER + 64));
    // What the end of the phase needs is asked for at its beginning.
    u32 own = threadIdx.x;
    bool has_row = own < tiles * 4 && first_tile * 4 + own < s.rows;
    float* own_output = p.output + s.output + first_tile * 4 + own;
    float early[8], own_bias = 0.0f, own_before = 0.0f;
    if (p.norm) load_8(p.norm, threadIdx.x / WARP * SUPER + threadIdx.x % WARP * 8, p.columns, early);
    if (has_row && s.bias) own_bias = s.bias[first_tile * 4 + own];
    auto wait = [&](bool wide) {
        phase_wait(arrivals, target);
        if (kind == OP_ADD && has_row) own_before = __ldcg(own_output);
        prepare_row(p, wide, x, partial, early);
    };
#define WORK(F) \
    { \
        auto ready = [&]() { wait(Layout<F>::super_blocks); }; \
        if (p.slices == 1) stream<F, true>(p, s, first_tile, tiles, x, partial, ring_base, ring, ready); \
        else stream<F, false>(p, s, first_tile, tiles, x, partial, ring_base, ring, ready); \
    }
    FOR_FORMAT(s.format, WORK)
#undef WORK
    u64 best = 0;
    for (u32 at = threadIdx.x; at < tiles * 4; at += PRODUCT_THREADS) {
        u32 tile = at / 4, r = at % 4, row = (first_tile + tile) * 4 + r;
        if (row >= s.rows) continue;
        float* out = p.output + s.output + row;
        float value = collected(partial, tile, r, 0, p.slices);
        if (kind == OP_GATE) {
            float up = collected(partial, tiles + tile, r, 0, p.slices);
            *out = value / (1.0f + expf(-value)) * up;
            continue;
        }
        if (s.bias) value += at == own ? own_bias : s.bias[row];
        if (kind == OP_ADD) value += at == own ? own_before : __ldcg(out);
        *out = value;
        if (kind == OP_LOGITS) {
            u64 candidate_here = candidate(value, row);
            if (candidate_here > best) best = candidate_here;
        }
    }
    if (kind == OP_LOGITS) {
        u64* warps = (u64*)shared;
        __syncthreads();
        for (int step = 16; step > 0; step /= 2) {
            u64 other = __shfl_xor_sync(FULL, best, step);
            if (other > best) best = other;
        }
        if (threadIdx.x % WARP == 0) warps[threadIdx.x / WARP] = best;
        __syncthreads();
        if (threadIdx.x == 0 && works) {
            for (int w = 0; w < PRODUCT_WARPS; w++) {
                if (warps[w] > best) best = warps[w];
            }
            p.candidates[blockIdx.x] = best;
        }
    }
}

extern "C" __global__ void __launch_bounds__(PRODUCT_THREADS, 1) token(const __grid_constant__ Token p) {
    extern __shared__ __align__(128) u8 shared[];
    __shared__ __align__(16) Op ops[2];
    __shared__ __align__(8) u64 full[PRODUCT_WARPS][DEPTH];
    int warp = threadIdx.x / WARP;
    const u8* ring_base = shared + p.ring_offset + warp * DEPTH * PAIR_BYTES;
    Ring ring = {shared_address(ring_base), shared_address(&full[warp][0]), 0, 0};
    if (threadIdx.x % WARP < DEPTH) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(ring.full + threadIdx.x % WARP * 8) : "memory");
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    constexpr u32 OP_WORDS = sizeof(Op) / 16;
    if (threadIdx.x < OP_WORDS) ((uint4*)&ops[0])[threadIdx.x] = ((const uint4*)p.ops)[threadIdx.x];
    u32 launches = *(volatile u32*)(p.barrier + 1);
    u32 target = launches * p.count * gridDim.x;
    __syncthreads();
    for (u32 i = 0; i < p.count; i++) {
        const Op& op = ops[i & 1];
        if (threadIdx.x < OP_WORDS && i + 1 < p.count) {
            ((uint4*)&ops[(i + 1) & 1])[threadIdx.x] = ((const uint4*)(p.ops + i + 1))[threadIdx.x];
        }
        switch (op.kind) {
            case OP_ATTENTION: {
                phase_wait(p.barrier, target);
                u32 parts = op.attention.heads.heads / GROUP;
                for (u32 item = blockIdx.x; item < SPLITS * parts; item += gridDim.x) {
                    attend<PRODUCT_WARPS>(op.attention, item / parts, item % parts, parts, 0, *(AttentionShared*)shared);
                    __syncthreads();
                }
                break;
            }
            case OP_EMBED: {
                phase_wait(p.barrier, target);
                if (blockIdx.x == 0) {
                    u32 token = op.embed.tokens[0];
#define WORK(F) embed_row<F>(op.embed, token, op.embed.output)
                    FOR_FORMAT(op.embed.format, WORK)
#undef WORK
                }
                break;
            }
            case OP_PICK: {
                phase_wait(p.barrier, target);
                if (blockIdx.x == 0) pick_row<PRODUCT_WARPS>(op.pick, 0, (u64*)shared);
                break;
            }
            default: token_product(op.product, op.kind, shared, ring_base, ring, p.barrier, target);
        }
        phase_done(p.barrier);
        target += gridDim.x;
    }
    // Everybody has read the number of launches: this block's own last wait says so.
    if (blockIdx.x == 0 && threadIdx.x == 0) *(volatile u32*)(p.barrier + 1) = launches + 1;
}

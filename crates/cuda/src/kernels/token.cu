// One token in one kernel: the whole network for a single row, phase after phase, without leaving the card.
//
// A chain of kernels pays for every link: the last block of one must end and be seen to have ended, parameters and code
// of the next are fetched anew, and its weights start moving late. Measured on an H200 (2026-11-15) that is 4 to 5 us
// for each of 143 kernels, 1142 us per token of the 1.5B. Here one block per multiprocessor stays, and the phases are
// separated by a counter in memory. Between its own part of a phase and the next phase's start a block fetches the
// first weights of that next phase, so the memory is busy while the counter is waited for.
//
// Weights come in pairs of chunks, a ring of DEPTH pairs for each warp, through all phases. Chunks of a
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
    u64* times;            // Only when compiled with TIMES: clock readings, [phase][block][6].
    u32 count;
    u32 ring_offset;       // of the ring in shared memory
};

// Clock readings of a phase: begun, weights asked for, phase before done, input ready, sums done, all done.
#ifdef TIMES
__device__ __forceinline__ void note(u64* times, u32 which) {
    if (threadIdx.x == 0) times[which] = clock64();
}
#else
__device__ __forceinline__ void note(u64*, u32) {}
#endif

// Where a warp is in its ring.
struct Ring {
    u32 data;              // Address of its first pair.
    u32 slot;
};

// Every fetch is a group of copies, also an empty one, so that waiting is counting.
__device__ __forceinline__ void ring_fill(const Ring& r, u32 slot, const u8* from, u32 bytes) {
    u32 to = r.data + slot * PAIR_BYTES;
#pragma unroll
    for (u32 first = 0; first < PAIR_BYTES; first += WARP * 16) {
        u32 at = first + threadIdx.x % WARP * 16;
        if (at < bytes) copy_16(to + at, from + at);
    }
}

// The pair in the current slot has arrived for all lanes.
__device__ __forceinline__ void ring_wait() {
    copies_wait<DEPTH - 1>();
    __syncwarp();
}

__device__ __forceinline__ void ring_next(Ring& r) {
    r.slot = r.slot == DEPTH - 1 ? 0 : r.slot + 1;
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
    // The barrier above orders the writes of all threads before this one's release.
    if (threadIdx.x == 0) {
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
                if (first + i * PRODUCT_WARPS >= supers) break;
                float sum = 0.0f;
#pragma unroll
                for (int c = 0; c < 8; c++) sum = __fmaf_rn(v[i][c], v[i][c], sum);
                sum = warp_sum(sum);
                if (lane == 0) squares[first + i * PRODUCT_WARPS] = sum;
            }
            // With more items than warps times AHEAD the loop would meet this barrier unevenly; the host forbids it.
            __syncthreads();
            float total = 0.0f;
            for (u32 i = lane; i < supers; i += WARP) total += squares[i];
            total = warp_sum(total);
            float scale = __fdiv_rn(1.0f, __fsqrt_rn(__fdiv_rn(total, (float)columns) + p.epsilon));
#pragma unroll
            for (int i = 0; i < AHEAD; i++) {
                if (first + i * PRODUCT_WARPS >= supers) break;
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

// Which pair of chunks a warp fetches next. A run is what is contiguous: all chunks a block has of a matrix, its pairs
// dealt out to the warps, or the chunks of one tile (`whole`), the tiles dealt out. A run's last pair may be half.
struct Cursor {
    const u8* weights;
    const u8* second;
    const u8* start;       // of the current run
    u32 chunk;             // bytes
    u32 run, pairs, runs, matrix_runs;
    u32 at_run, at_pair, run_step, pair_step;
};

__device__ __forceinline__ void cursor_enter(Cursor& c) {
    while (c.at_run < c.runs && c.at_pair >= c.pairs) c.at_pair -= c.pairs, c.at_run += c.run_step;
    if (c.at_run >= c.runs) return;
    bool up = c.at_run >= c.matrix_runs;
    c.start = (up ? c.second : c.weights) + (u64)(up ? c.at_run - c.matrix_runs : c.at_run) * c.run * c.chunk;
}

__device__ __forceinline__ void cursor_fetch(Cursor& c, const Ring& ring, u32 slot) {
    if (c.at_run < c.runs) {
        u32 bytes = 2 * c.at_pair + 1 < c.run ? 2 * c.chunk : c.chunk;
        ring_fill(ring, slot, c.start + (u64)c.at_pair * 2 * c.chunk, bytes);
        c.at_pair += c.pair_step;
        if (c.at_pair >= c.pairs) cursor_enter(c);
    }
    copies_commit();
}

// Works through a block's chunks and leaves sums in `partial`: one per chunk and row, or one per tile and row (`WHOLE`).
template <int F, bool WHOLE>
__device__ __forceinline__ void
stream(Cursor& cursor, u32 supers, Quantised x, float* partial, const u8* ring_base, Ring& ring) {
    constexpr u32 CHUNK = Layout<F>::chunk;
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    u32 run = cursor.run, pairs = cursor.pairs, runs = cursor.runs;
    if (WHOLE) {
        for (u32 r = warp; r < runs; r += PRODUCT_WARPS) {
            float sum[1] = {0.0f};
            for (u32 super = 0; super < supers; super += 2) {
                ring_wait();
                const u8* chunk = ring_base + ring.slot * PAIR_BYTES;
                advance<F>(chunk, super, lane, supers, x, sum);
                if (super + 1 < supers) advance<F>(chunk + CHUNK, super + 1, lane, supers, x, sum);
                __syncwarp();
                cursor_fetch(cursor, ring, ring.slot);
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
                ring_wait();
                const u8* chunk = ring_base + ring.slot * PAIR_BYTES;
                u32 next = super + 1 == supers ? 0 : super + 1;
                float a = chunk_sum<F>(chunk, super, lane, supers, x), b = 0.0f;
                bool both = 2 * pair + 1 < run;
                if (both) b = chunk_sum<F>(chunk + CHUNK, next, lane, supers, x);
                __syncwarp();
                cursor_fetch(cursor, ring, ring.slot);
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
}

__device__ __forceinline__ void
token_product(const Product& p, u32 kind, u8* shared, const u8* ring_base, Ring& ring, const u32* arrivals, u32 target,
              u64* times) {
    int which = 0;
    if (blockIdx.x >= p.segments[1].first_block) which = 1;
    if (blockIdx.x >= p.segments[2].first_block) which = 2;
    const Segment& s = p.segments[which];
    bool works = blockIdx.x - s.first_block < s.blocks;
    u32 block = works ? blockIdx.x - s.first_block : 0;
    u32 first_tile = s.tiles * block / s.blocks;
    u32 tiles = works ? s.tiles * (block + 1) / s.blocks - first_tile : 0;
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
    u32 chunk = 0;
    bool wide = false, whole = p.slices == 1;
#define WORK(F) chunk = Layout<F>::chunk, wide = Layout<F>::super_blocks
    FOR_FORMAT(s.format, WORK)
#undef WORK
    u32 matrices = s.second ? 2 : 1, run = whole ? p.supers : tiles * p.supers, warp = threadIdx.x / WARP;
    u64 skipped = (u64)first_tile * p.supers * chunk;
    Cursor cursor;
    cursor.weights = s.weights + skipped, cursor.second = s.second + skipped, cursor.start = 0;
    cursor.chunk = chunk, cursor.run = run, cursor.pairs = (run + 1) / 2;
    cursor.matrix_runs = whole ? tiles : tiles > 0, cursor.runs = cursor.matrix_runs * matrices;
    cursor.at_run = whole ? warp : 0, cursor.at_pair = whole ? 0 : warp;
    cursor.run_step = whole ? PRODUCT_WARPS : 1, cursor.pair_step = whole ? 1 : PRODUCT_WARPS;
    cursor_enter(cursor);
    u32 slot = ring.slot;
#pragma unroll 1
    for (int i = 0; i < DEPTH; i++) {
        cursor_fetch(cursor, ring, slot);
        slot = slot == DEPTH - 1 ? 0 : slot + 1;
    }
    note(times, 1);
    phase_wait(arrivals, target);
    note(times, 2);
    if (kind == OP_ADD && has_row) own_before = __ldcg(own_output);
    prepare_row(p, wide, x, partial, early);
    note(times, 3);
#define WORK(F) \
    if (whole) stream<F, true>(cursor, p.supers, x, partial, ring_base, ring); \
    else stream<F, false>(cursor, p.supers, x, partial, ring_base, ring)
    FOR_FORMAT(s.format, WORK)
#undef WORK
    __syncthreads();
    note(times, 4);
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

// Brings the keys and values a block will read first, all but this step's own, close before the wait: they come from
// memory every time, because a token's weights have passed through the cache since.
__device__ __forceinline__ void warm(const Attention& p, u32 item, u32 parts) {
    const Heads& s = p.heads;
    u32 position = s.positions[0], chunk = chunk_of(position + 1), start = item / parts * chunk;
    u32 end = min(min(start + chunk, start + TILE), position);
    u32 kv_head = item % parts * GROUP / (s.heads / s.kv_heads);
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, sub = lane % LANES;
    const u32* table = table_of(s, 0);
    for (u32 at = start + warp * AT_ONCE + lane / LANES; at < end; at += PRODUCT_WARPS * AT_ONCE) {
        if (sub * 8 >= HEAD) continue;
        u32 k = *(volatile u32*)(cached(s, table, at, 0, kv_head) + sub * 8);
        u32 v = *(volatile u32*)(cached(s, table, at, 1, kv_head) + sub * 8);
        asm volatile("" ::"r"(k), "r"(v));
    }
}

// Functions of their own, so that their registers do not count against the phases that stream weights.
__device__ __noinline__ void token_attention(const Attention& p, u8* shared) {
    u32 parts = p.heads.heads / GROUP, length = p.heads.positions[0] + 1, chunk = chunk_of(length);
    for (u32 item = blockIdx.x; item < (length + chunk - 1) / chunk * parts; item += gridDim.x) {
        attend<PRODUCT_WARPS>(p, item / parts, item % parts, parts, 0, *(AttentionShared*)shared);
        __syncthreads();
    }
}

__device__ __noinline__ void token_embed(const Embed& p) {
    u32 token = p.tokens[0];
#define WORK(F) embed_row<F>(p, token, p.output)
    FOR_FORMAT(p.format, WORK)
#undef WORK
}

extern "C" __global__ void __launch_bounds__(PRODUCT_THREADS, 1) token(const __grid_constant__ Token p) {
    extern __shared__ __align__(128) u8 shared[];
    __shared__ __align__(16) Op ops[2];
    const u8* ring_base = shared + p.ring_offset + threadIdx.x / WARP * DEPTH * PAIR_BYTES;
    Ring ring = {shared_address(ring_base), 0};
    constexpr u32 OP_WORDS = sizeof(Op) / 16;
    if (threadIdx.x < OP_WORDS) ((uint4*)&ops[0])[threadIdx.x] = ((const uint4*)p.ops)[threadIdx.x];
    u32 launches = *(volatile u32*)(p.barrier + 1);
    u32 target = launches * p.count * gridDim.x;
    __syncthreads();
    for (u32 i = 0; i < p.count; i++) {
        const Op& op = ops[i & 1];
        u64* times = p.times + ((u64)i * gridDim.x + blockIdx.x) * 6;
        note(times, 0);
        if (threadIdx.x < OP_WORDS && i + 1 < p.count) {
            ((uint4*)&ops[(i + 1) & 1])[threadIdx.x] = ((const uint4*)(p.ops + i + 1))[threadIdx.x];
        }
        switch (op.kind) {
            case OP_ATTENTION: {
                warm(op.attention, blockIdx.x, op.attention.heads.heads / GROUP);
                note(times, 1);
                phase_wait(p.barrier, target);
                note(times, 2);
                note(times, 3);
                token_attention(op.attention, shared);
                note(times, 4);
                break;
            }
            case OP_EMBED: {
                phase_wait(p.barrier, target);
                if (blockIdx.x == 0) token_embed(op.embed);
                break;
            }
            case OP_PICK: {
                phase_wait(p.barrier, target);
                if (blockIdx.x == 0) pick_row<PRODUCT_WARPS>(op.pick, 0, (u64*)shared);
                break;
            }
            default: token_product(op.product, op.kind, shared, ring_base, ring, p.barrier, target, times);
        }
        phase_done(p.barrier);
        note(times, 5);
        target += gridDim.x;
    }
    // Everybody has read the number of launches: this block's own last wait says so.
    if (blockIdx.x == 0 && threadIdx.x == 0) *(volatile u32*)(p.barrier + 1) = launches + 1;
}

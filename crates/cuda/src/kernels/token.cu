// One token in one kernel: the whole network for a single row, phase after phase, without leaving the card.
//
// A chain of kernels pays for every link: the last block of one must end and be seen to have ended, parameters and code
// of the next are fetched anew, and its weights start moving late. Measured on an H200 (2026-11-15) that is 4 to 5 us
// for each of 143 kernels, 1142 us per token of the 1.5B. One block per multiprocessor that stays, with a counter between
// the phases and the next phase's weights fetched at the end of each: 990 us. Here weights do not wait for phases at all
// (`ring.cuh`), and results are handed on without a counter (`tagged.cuh`): 791 us (2026-11-16).
//
// The sums are those of `product.cu` and `attention.cu`, bit for bit: a step of several rows gives the same tokens.
//
// Needs compute capability 9.0 and all blocks on the card at once. There are as many as multiprocessors, one fits each, and
// those of the next launch come when these have all started, so all of a launch do get there.

// Ends a program without logits: the residual stream as plain floats.
struct Plain {
    const u64* input;
    float* output;
    u32 columns;
};

// Parameters of the phases that are no products.
union Op {
    Embed embed;
    Attention attention;
    Pick pick;
    Plain plain;
    uint4 words[13];
};

struct Token {
    Embed embed;
    Heads heads;           // of any layer
    const Op* ops;
    const Job* jobs;       // [block][phase]
    const Stretch* stretches;  // [block][phase]
    u32* counters;         // Arrivals of blocks, ever; launches, ever.
    u64* times;            // Only when compiled with TIMES: clock readings, [phase][block][6].
    u32 count;
    u32 stretches_offset;  // in shared memory
    u32 ring_offset;
    u32 padding;
};

// A thread takes four of the 32 columns that one lane of a product would.
template <int F>
__device__ __forceinline__ void embed_tagged(const Embed& p, u32 token, u64* out, u32 tag) {
    for (u32 at = threadIdx.x; at < p.columns / 4; at += PRODUCT_THREADS) {
        const u8* chunk = p.table + ((u64)(token / 4) * p.supers + at / 64) * Layout<F>::chunk;
        Block b = read_block<F>(chunk, token % 4 * 8 + at / 8 % 8);
#pragma unroll
        for (int g = 0; g < 8; g++) {
            if (at % 8 != g) continue;
#pragma unroll
            for (int c = 0; c < 4; c++) put(out + slot_of(at * 4 + c), element<F>(b, g * 4 + c), tag);
        }
    }
}

// The end of every program: all blocks arrive, and the first one, which waits for that, finishes.
__device__ __noinline__ void token_end(const Op& op, u32 kind, u32* counters, u32 target) {
    __syncthreads();
    // The barrier above orders the writes of all threads before this one's release.
    if (threadIdx.x == 0) asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counters) : "memory");
    if (blockIdx.x != 0) return;
    if (threadIdx.x == 0) {
        u32 seen;
        do {
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(counters) : "memory");
        } while (seen != target);
    }
    __syncthreads();
    if (kind == OP_PLAIN) {
        for (u32 e = threadIdx.x; e < op.plain.columns; e += PRODUCT_THREADS) {
            op.plain.output[e] = value_of(look(op.plain.input + slot_of(e)));
        }
    } else if (threadIdx.x < WARP) {
        u64 best = best_candidate(op.pick, 0, threadIdx.x, WARP);
        if (threadIdx.x == 0) publish(op.pick, 0, best);
    }
}

extern "C" __global__ void __launch_bounds__(PRODUCT_THREADS, 1) token(const __grid_constant__ Token p) {
    extern __shared__ __align__(128) u8 shared[];
    let_next_start();
    __shared__ __align__(16) Op ops[2];
    __shared__ __align__(16) Job jobs[2];
    __shared__ Place place;
    __shared__ Ring saved[PRODUCT_WARPS];
    __shared__ __align__(8) u64 full[PRODUCT_WARPS * DEPTH];
    u32 warp = threadIdx.x / WARP, own = threadIdx.x;
    // Sixteen bytes per thread of what the next phase is: its job by the first threads, its parameters by the next warp's.
    auto bring = [&](u32 i) {
        const uint4* from = 0;
        u32 to;
        if (own < sizeof(Job) / 16) {
            from = (const uint4*)(p.jobs + (u64)blockIdx.x * p.count + i) + own, to = shared_address(jobs + (i & 1)) + own * 16;
        } else if (own >= WARP && own - WARP < sizeof(Op) / 16) {
            from = (const uint4*)(p.ops + i) + own - WARP, to = shared_address(ops + (i & 1)) + (own - WARP) * 16;
        }
        if (from) copy_16(to, from);
        copies_commit();
    };
    Stretch* stretches = (Stretch*)(shared + p.stretches_offset);
    for (u32 i = own; i < p.count * 2; i += PRODUCT_THREADS) {
        copy_16(shared_address(stretches) + i * 16, (const uint4*)(p.stretches + (u64)blockIdx.x * p.count) + i);
    }
    bring(0);
    if (own < PRODUCT_WARPS * DEPTH) barrier_init(shared_address(full) + own * 8, 1);
    // The copy engine must see the barriers too.
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    copies_wait<0>();
    __syncthreads();
    Weights weights = {shared + p.ring_offset + warp * DEPTH * STAGE_BYTES, stretches, p.count};
    Ring ring = ring_begin(shared_address(shared + p.ring_offset), shared_address(full));
    ring_refill(ring, stretches, p.count);
    // Up to here nothing depends on the step before.
    wait_for_previous();
    u32 launches = *(volatile u32*)(p.counters + 1), base = launches * p.count;
#pragma unroll 1
    for (u32 i = 0; i < p.count; i++) {
        const Job& job = jobs[i & 1];
        u64* times = p.times + ((u64)i * gridDim.x + blockIdx.x) * 6;
        u32 tag = base + i + 1, kind = job.kind;
        note(times, 0);
        if (i + 1 < p.count) bring(i + 1);
        if (kind >= OP_STORE && kind <= OP_LOGITS) {
            token_product(job, stretches[i], shared, weights, ring, base, tag, times);
        } else if (kind == OP_ATTENTION) {
            if (blockIdx.x >= place.items) ring_refill(ring, stretches, p.count);
            // Attention needs all registers there are.
            saved[warp] = ring;
            __syncwarp();
            token_attention(ops[i & 1].attention, place, *(AttentionShared*)shared, base + job.input_from, tag, times);
            ring = saved[warp], ring.lane = own_lane();
        } else if (kind == OP_EMBED) {
            if (blockIdx.x == 0) {
                u32 token = p.embed.tokens[0];
#define WORK(F) embed_tagged<F>(p.embed, token, (u64*)p.embed.output, tag)
                FOR_FORMAT(p.embed.format, WORK)
#undef WORK
            }
            find_place(p.heads, place);
        } else {
            token_end(ops[i & 1], kind, p.counters, (launches + 1) * gridDim.x);
        }
        copies_wait<0>();
        __syncthreads();
        note(times, 5);
    }
    // Everybody has read the number of launches: the wait at the end says so.
    if (blockIdx.x == 0 && own == 0) *(volatile u32*)(p.counters + 1) = launches + 1;
}

// The persistent kernel: one token in one launch, the whole network for a single row, phase after phase, without leaving the card.
//
// A chain of kernels pays for every link: the last block of one must end and be seen to have ended, parameters and code
// of the next are fetched anew, and its weights start moving late. Measured on an H200 (2026-11-15) that is 4 to 5 us
// for each of 143 kernels, 1142 us per token of the 1.5B. One block per multiprocessor that stays, with a counter between
// the phases and the next phase's weights fetched at the end of each: 990 us. Here weights do not wait for phases at all
// (`ring.cuh`), and results are passed on without a counter (`ready_bits.cuh`).
//
// Warp specialisation: sixteen warps compute. One more fetches weights for them, and one the descriptions of phases and the weights of norms; those have
// few registers and leave theirs to the others, as do two that end at once, since registers are dealt out to four warps.
//
// The sums are those of `product.cu` and `attention.cu`, bit for bit: a step of several rows gives the same tokens.
//
// Needs compute capability 9.0 and all blocks on the card at once, two and two where they share down's input. There are as many as multiprocessors, one fits each, and
// those of the next launch come when these have all started, so all of a launch do get there.

#include "rows.cuh"
#include "persistent_product.cuh"
#include "persistent_experts.cuh"
#include "persistent_attention.cuh"
#ifdef WITH_DELTA
#include "persistent_delta.cuh"
#endif

// Ends a persistent step without logits: the residual stream as plain floats.
struct Plain {
    const u32* input;
    float* output;
    u32 columns;
};
MIRRORED(Plain);

// Parameters of the phases that are no products.
union Op {
    Embed embed;
    Attention attention;
    Mixture mixture;
#ifdef WITH_DELTA
    DeltaPhase delta;
#endif
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
    u32 partial_offset;
    u32 norm_offset;
    u32 known;             // Phases before the first whose weights depend on a choice of experts.
    DeltaSlots slots;
};
MIRRORED(Token);

// A phase's description in flight from memory, and the barriers that say that it has come and that it has been read.
struct Entry {
    Op op;
    Job job;
    u64 full, empty;
};
#define ENTRIES 4
#define ENTRY_FULL (u32)(sizeof(Op) + sizeof(Job))
#define ENTRY_EMPTY (ENTRY_FULL + 8)
#define ENTRY_COPIES (ENTRY_FULL / 16)
static_assert(ENTRY_COPIES <= WARP, "a warp copies a description");

// A thread takes four of the 32 columns that one lane of a product would, as `element` does.
template <int F>
__device__ __forceinline__ void embed_ready(const Embed& p, u32 token, u32* out, u32 mark) {
    for (u32 at = threadIdx.x; at < p.columns / 4; at += PRODUCT_THREADS) {
        const u8* chunk = p.table + ((u64)(token / 4) * p.supers + at / 64) * Layout<F>::chunk;
        Block b = read_block<F>(chunk, token % 4 * 8 + at / 8 % 8);
        u32 group = at % 8;
        int word = b.q[0];
#pragma unroll
        for (int g = 1; g < 8; g++) word = group == g ? b.q[g] : word;
        float scale = __fmul_rn(b.d, (float)(group < 4 ? b.scale[0] : b.scale[1]));
#pragma unroll
        for (int c = 0; c < 4; c++) {
            int q = (i8)(word >> (8 * c)) - Layout<F>::zero;
            put(out + at * 4 + c, __fadd_rn(__fmul_rn(scale, (float)q), b.m), mark);
        }
    }
}

// The end of every persistent step: all blocks arrive, and the first one, which waits for that, finishes.
__device__ __forceinline__ void token_end(const Op& op, u32 kind, u32* counters, u32 target) {
    together();
    // The barrier above orders the writes of all threads before this one's release.
    if (threadIdx.x == 0) count_release(counters);
    if (blockIdx.x != 0) return;
    if (threadIdx.x == 0) {
        while (load_acquire(counters) != target) {}
    }
    together();
    if (kind == OP_PLAIN) {
        for (u32 e = threadIdx.x; e < op.plain.columns; e += PRODUCT_THREADS) {
            op.plain.output[e] = value_of(load_relaxed(op.plain.input + e));
        }
    } else if (threadIdx.x < WARP) {
        u64 best = best_candidate(op.pick, 0, threadIdx.x, WARP);
        if (threadIdx.x == 0) publish(op.pick, 0, best);
    }
}

// One warp fetches descriptions, as many ahead as there is room for, and the weights of norms. The copy engine has enough to do
// with those of matrices, and the warps that compute with what comes between two phases.
__device__ __forceinline__ void feed_entries(const Token& p, Entry* entries, u32 brought, float* norm) {
    const Job* jobs = p.jobs + (u64)blockIdx.x * p.count;
    u32 lane = own_lane(), before = 0u - ENTRIES;
    for (u32 i = 0; i < p.count; i++) {
        Entry& e = entries[i % ENTRIES];
        barrier_wait(shared_address(&e.empty), (i / ENTRIES & 1) ^ 1);
        const uint4* from = lane < sizeof(Op) / 16 ? p.ops[i].words + lane : (const uint4*)(jobs + i) + lane - sizeof(Op) / 16;
        if (lane < ENTRY_COPIES) copy_16_near(shared_address(&e) + lane * 16, from);
        copies_commit();
        copies_wait<0>();
        __syncwarp();
        if (lane == 0) barrier_arrive(shared_address(&e.full));
#ifdef WIDE_NORM
        if (lane == 0 && e.job.norm && e.job.supers > PRODUCT_WARPS) foresee(e.job.norm, e.job.columns * 4);
#endif
#ifdef WITH_DELTA
        if (lane == 0 && e.job.dots) foresee(e.job.dots, e.job.columns * 4);
#endif
        if (!e.job.norm || e.job.supers > PRODUCT_WARPS) continue;
        // The norm before has been read when its phase is over.
        if (i - before < ENTRIES) barrier_wait(shared_address(&entries[before % ENTRIES].empty), before / ENTRIES & 1);
        before = i;
        for (u32 at = lane * 4; at < e.job.columns; at += 4 * WARP) copy_16_near(shared_address(norm + at), e.job.norm + at);
        copies_commit();
        copies_wait<0>();
        __syncwarp();
        if (lane == 0) barrier_arrive(brought);
    }
}

// Worked out anew wherever it is used: kept through everything else it would go to memory.
__device__ __forceinline__ Stretch* stretches_at(u8* shared, const Token& p) {
    return (Stretch*)(shared + anew(p.stretches_offset));
}

extern "C" __global__ void __launch_bounds__(PRODUCT_THREADS + FEEDERS, 1) decode_persistent(const __grid_constant__ Token p) {
    extern __shared__ __align__(128) u8 shared[];
    let_next_start();
    __shared__ __align__(16) Entry entries[ENTRIES];
    __shared__ __align__(16) float squares[32];
    __shared__ Cache cache;
    __shared__ Saved saved[PRODUCT_WARPS];
    __shared__ __align__(8) u64 full[DEPTH];
    __shared__ Choice choice;
    __shared__ __align__(8) u64 brought, heard;
#ifdef WITH_DELTA
    __shared__ float dots[32];
#else
    float* dots = 0;
#endif
    u32 warp = threadIdx.x / WARP, own = threadIdx.x;
    for (u32 i = own; i < p.count * 2; i += PRODUCT_THREADS + FEEDERS) {
        copy_16(shared_address(shared) + p.stretches_offset + i * 16, (const uint4*)(p.stretches + (u64)blockIdx.x * p.count) + i);
    }
    if (own < PRODUCT_WARPS) saved[own].released = 0;
    if (own < DEPTH) {
        barrier_init(shared_address(full + own), 1);
    } else if (own == PRODUCT_THREADS) {
        choice.known = p.known, barrier_init(shared_address(&cache.swizzled), 1), barrier_init(shared_address(&brought), 1);
        barrier_init(shared_address(&heard), 1);
    } else if (own - DEPTH < ENTRIES) {
        Entry& e = entries[own - DEPTH];
        barrier_init(shared_address(&e.full), 1), barrier_init(shared_address(&e.empty), PRODUCT_WARPS);
    }
    barriers_ready();
    copies_commit();
    copies_wait<0>();
    // The other block of the cluster may send something as soon as it has what to send.
    if (PAIRS) cluster_together();
    else __syncthreads();
    if (warp >= PRODUCT_WARPS) {
        fewer_registers<32>();
        // Nothing that is fetched depends on the step before.
        if (warp == PRODUCT_WARPS) {
            u32 released = shared_address(&saved[own_lane() % PRODUCT_WARPS].released);
            Feeder feeder = {shared_address(shared + p.ring_offset), shared_address(full), released, 0};
            feed(feeder, stretches_at(shared, p), p.count, shared_address(&choice.known), cache);
        } else if (warp == PRODUCT_WARPS + 1) {
            feed_entries(p, entries, shared_address(&brought), (float*)(shared + p.norm_offset));
        }
        return;
    }
    more_registers<112>();
    wait_for_previous();
    Saved& mine = saved[warp];
    if (own_lane() == 0) mine.launches = *(volatile u32*)(p.counters + 1), mine.taken = 0;
    __syncwarp();
    // A phase's number is not kept but read from its description, and where that is stays in one register: what stays in more is
    // missing in attention, and what is worked out anew stands between two phases, where all other blocks wait.
    u32 phase = 0, at = shared_address(entries);
#pragma unroll 1
    while (true) {
        const Entry& e = *(const Entry*)shared_pointer(at);
        barrier_wait(at + ENTRY_FULL, phase / ENTRIES & 1);
        u64* times = p.times + ((u64)phase * gridDim.x + blockIdx.x) * 6;
        u32 kind = e.job.kind;
        note(times, 0);
        if (MIXED && this_thread() == PRODUCT_THREADS - 2 * WARP && kind == OP_ADD) {
            Entry& next = entries[(phase + 1) % ENTRIES];
            barrier_wait(shared_address(&next.full), (phase + 1) / ENTRIES & 1);
            if (next.job.kind == OP_ROUTE) foresee_router(next.op.mixture, next.job.columns);
        }
        u32 launches = mine.launches;
        i8* input = (i8*)shared + e.job.begin;
        Room room = {{input, (uint4*)(input + e.job.supers * SUPER)}, squares, (float*)(shared + p.partial_offset),
                     {(float*)(shared + p.norm_offset), shared_address(&brought)}, shared_address(&heard), dots};
        if ((kind >= OP_STORE && kind <= OP_LOGITS) || (MIXED && (kind == OP_EXPERTS || kind == OP_MIX))) {
            if (MIXED && kind == OP_EXPERTS) {
                // The row is ready since the phase before.
                together();
                token_choose(e.job, e.op.mixture, choice, stretches_at(shared, p) + phase, launches * p.count + phase, times);
            }
            Ring ring = {shared + p.ring_offset, anew(shared_address(full)), shared_address(&mine.released), mine.taken};
            token_product(e.job, stretches_at(shared, p)[phase], room, ring, choice, mine.launches, times);
            if (own_lane() == 0) mine.taken = ring.taken;
        } else if (MIXED && kind == OP_ROUTE) {
            u32 mark = input_mark(e.job, launches), tag = launches * p.count + phase + 1;
            token_route(e.job, e.op.mixture, room, choice.parts, mark, tag, times);
        } else if (kind == OP_ATTENTION) {
            WholeRing ring = {shared + p.ring_offset, shared_address(full)};
            token_attention(e.op.attention, e.job, cache, *(AttentionShared*)shared, ring, saved, p.count, times);
#ifdef WITH_DELTA
        } else if (kind == OP_DELTA) {
            WholeRing ring = {shared + p.ring_offset, shared_address(full)};
            token_delta(e.op.delta, e.job, cache, *(DeltaShared*)shared, ring, mine, times);
#endif
        } else if (kind == OP_EMBED) {
            for (u32 copy = blockIdx.x; copy < COPIES; copy += gridDim.x) {
                u32 token = p.embed.tokens[0], mark = output_mark(e.job, launches);
#define WORK(F) embed_ready<F>(p.embed, token, (u32*)p.embed.output + copy * e.job.apart, mark)
                FOR_FORMAT(p.embed.format, WORK)
#undef WORK
            }
            find_slot(p.heads, cache);
#ifdef WITH_DELTA
            find_state(p.slots, cache);
#endif
            together();
            if (this_thread() == 0) tell_slot(cache);
        } else {
            token_end(e.op, kind, p.counters, (launches + 1) * gridDim.x);
        }
        note(times, 5);
        phase = keep(e.job.phase) + 1;
        __syncwarp();
        if (own_lane() == 0) barrier_arrive(at + ENTRY_EMPTY);
        if (phase == p.count) break;
        at = anew(phase % ENTRIES ? at + sizeof(Entry) : at - (ENTRIES - 1) * sizeof(Entry));
    }
    // Everybody has read the number of launches: the wait at the end says so.
    if (blockIdx.x == 0 && this_thread() == 0) *(volatile u32*)(p.counters + 1) = mine.launches + 1;
}

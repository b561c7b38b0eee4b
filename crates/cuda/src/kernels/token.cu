// One token in one kernel: the whole network for a single row, phase after phase, without leaving the card.
//
// A chain of kernels pays for every link: the last block of one must end and be seen to have ended, parameters and code
// of the next are fetched anew, and its weights start moving late. Measured on an H200 (2026-11-15) that is 4 to 5 us
// for each of 143 kernels, 1142 us per token of the 1.5B. One block per multiprocessor that stays, with a counter between
// the phases and the next phase's weights fetched at the end of each: 1000 us. Here weights do not wait for phases at all
// (`ring.cuh`), and results are handed on without a counter (`tagged.cuh`).
//
// The sums are those of `product.cu` and `attention.cu`, bit for bit: a step of several rows gives the same tokens.
//
// Needs compute capability 9.0 and all blocks on the card at once (a cooperative launch).

#define OP_EMBED 0
#define OP_STORE 1
#define OP_ADD 2
#define OP_GATE 3
#define OP_LOGITS 4
#define OP_ATTENTION 5
#define OP_PICK 6
#define OP_PLAIN 7

// Ends a program without logits: the residual stream as plain floats.
struct Plain {
    const u64* input;
    float* output;
    u32 columns;
};

// What a phase is for one block; the host writes these. Inputs and outputs are tagged vectors; the tag is the phase's
// number, counted over all launches.
struct Job {
    u32 kind;
    u32 format;
    u32 input_from;        // The phase of this launch that made the input, counted from 1.
    u32 before_from;       // The one that made what the result is added to.
    const u64* input;
    const float* norm;
    const float* bias;     // of this block's first row
    u64* output;           // Logits are plain floats.
    u64* candidates;
    u32 tiles;             // of this block
    u32 rows;              // of them that exist
    u32 place;             // of the first in the output
    u32 columns;
    u32 supers;
    u32 slices;
    float epsilon;
    u32 wide;              // How the input is quantised.
    u32 padding[2];
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

// Clock readings of a phase: begun, asked for the input, input seen, input ready, sums done, all done.
#ifdef TIMES
__device__ __forceinline__ void note(u64* times, u32 which) {
    if (threadIdx.x == 0) times[which] = clock64();
}
#else
__device__ __forceinline__ void note(u64*, u32) {}
#endif

// What the ring is filled from.
struct Weights {
    const u8* ring;        // of this warp
    const Stretch* stretches;
    u32 count;             // of phases
};

// The same as `prepare` for one row of at most AHEAD super-blocks per warp, or of any number without a norm.
template <int AHEAD, bool NORM>
__device__ __forceinline__ void
prepare_row(const Job& job, u32 tag, Quantised x, float* squares, const Weights& weights, Ring& ring, u64* times) {
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    u32 supers = job.supers, columns = job.columns;
    for (u32 first = warp; first < supers; first += AHEAD * PRODUCT_WARPS) {
        const u64* own = job.input + first * SUPER + lane * 2;
        u32 at = first * SUPER + lane * 8;
        constexpr u32 STEP = PRODUCT_WARPS * SUPER;
        Eight seen[AHEAD];
        float v[AHEAD][8], w[AHEAD][8];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            look_8(seen[i], own + i * STEP, at + i * STEP < columns);
            if (NORM) load_8(job.norm, at + i * STEP, columns, w[i]);
        }
        note(times, 1);
        // Time to fetch weights of later phases, while the input is on its way.
        ring_refill(ring, weights.stretches, weights.count);
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            settle_8(seen[i], own + i * STEP, tag, at + i * STEP < columns);
#pragma unroll
            for (int c = 0; c < 8; c++) v[i][c] = value_of(seen[i].seen[c]);
        }
        note(times, 2);
        if (NORM) {
#pragma unroll
            for (int i = 0; i < AHEAD; i++) {
                float sum = 0.0f;
#pragma unroll
                for (int c = 0; c < 8; c++) sum = __fmaf_rn(v[i][c], v[i][c], sum);
                sum = warp_sum(sum);
                if (lane == 0 && first + i * PRODUCT_WARPS < supers) squares[first + i * PRODUCT_WARPS] = sum;
            }
            __syncthreads();
            float total = 0.0f;
            for (u32 i = lane; i < supers; i += WARP) total += squares[i];
            total = warp_sum(total);
            float scale = __fdiv_rn(1.0f, __fsqrt_rn(__fdiv_rn(total, (float)columns) + job.epsilon));
#pragma unroll
            for (int i = 0; i < AHEAD; i++) {
#pragma unroll
                for (int c = 0; c < 8; c++) v[i][c] = __fmul_rn(__fmul_rn(v[i][c], scale), w[i][c]);
            }
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            u32 item = first + i * PRODUCT_WARPS;
            if (item < supers) quantise_super(v[i], lane, job.wide, x.quants + item * SUPER, x.facts + item * 8);
        }
    }
    if (warp >= supers) {
        ring_refill(ring, weights.stretches, weights.count);
        // A warp without items has to meet the barrier inside all the same.
        if (NORM) __syncthreads();
    }
    __syncthreads();
}

template <int F>
__device__ __forceinline__ float chunk_sum(const u8* chunk, u32 super, int lane, u32 supers, Quantised x) {
    float sum[1] = {0.0f};
    advance<F>(chunk, super, lane, supers, x, sum);
    return sum[0];
}

// Works through a block's chunks and leaves sums in `partial`: one per chunk and row, or one per tile and row (`WHOLE`).
template <int F, bool WHOLE>
__device__ __forceinline__ void stream(const Stretch& s, u32 supers, Quantised x, float* partial, const Weights& weights, Ring& ring) {
    constexpr u32 CHUNK = Layout<F>::chunk, STAGE = STAGE_BYTES / CHUNK;
    u32 run = s.run, runs = s.runs, lane = ring.lane;
    if (WHOLE) {
#pragma unroll 1
        for (u32 r = ring.warp; r < runs; r += PRODUCT_WARPS) {
            float sum[1] = {0.0f};
#pragma unroll 1
            for (u32 super = 0; super < supers; super += STAGE) {
                const u8* chunk = ring_wait(ring, weights.ring);
                if (super + STAGE <= supers) {
#pragma unroll
                    for (u32 i = 0; i < STAGE; i++) advance<F>(chunk + i * CHUNK, super + i, lane, supers, x, sum);
                } else {
#pragma unroll 1
                    for (u32 i = 0; super + i < supers; i++) advance<F>(chunk + i * CHUNK, super + i, lane, supers, x, sum);
                }
                ring_next(ring, weights.stretches, weights.count);
            }
            float whole = sum[0];
            whole += __shfl_xor_sync(FULL, whole, 1);
            whole += __shfl_xor_sync(FULL, whole, 2);
            whole += __shfl_xor_sync(FULL, whole, 4);
            if (lane % 8 == 0) partial[r * 4 + lane / 8] = whole;
        }
    } else {
        u32 first = run * ring.warp / PRODUCT_WARPS, last = run * (ring.warp + 1) / PRODUCT_WARPS;
        u32 super_first = first % supers;
        bool odd = lane & 1;
#pragma unroll 1
        for (u32 r = 0; r < runs; r++) {
            u32 super = super_first;
            float* out = partial + r * run * 4 + lane / 8;
#pragma unroll 1
            for (u32 stage = first; stage < last; stage += STAGE) {
                const u8* chunk = ring_wait(ring, weights.ring);
                u32 end = min(stage + STAGE, last);
#pragma unroll 1
                for (u32 at = stage; at < end; at += 2, chunk += 2 * CHUNK) {
                    u32 next = super + 1 == supers ? 0 : super + 1;
                    // Where there is no second chunk its sum is of whatever stands there, and is left.
                    float a = chunk_sum<F>(chunk, super, lane, supers, x);
                    float b = chunk_sum<F>(chunk + CHUNK, next, lane, supers, x);
                    // Even lanes go on with the first chunk and odd ones with the second: the same tree for each.
                    float mine = (odd ? b : a) + __shfl_xor_sync(FULL, odd ? a : b, 1);
                    mine += __shfl_xor_sync(FULL, mine, 2);
                    mine += __shfl_xor_sync(FULL, mine, 4);
                    if (lane % 8 < 2 && at + odd < end) out[(at + odd) * 4] = mine;
                    bool both = at + 1 < end;
                    super = both ? (next + 1 == supers ? 0 : next + 1) : next;
                }
                ring_next(ring, weights.stretches, weights.count);
            }
        }
    }
}

// The same as `collected`, with more loads ahead of the chain of sums.
__device__ __forceinline__ float collected_row(const float* partial, u32 place, u32 r, u32 slices) {
    const float* own = partial + place * slices * 4 + r;
    float sum = 0.0f;
    u32 s = 0;
#pragma unroll 1
    for (; s + 12 <= slices; s += 12) {
        float v[12];
#pragma unroll
        for (int i = 0; i < 12; i++) v[i] = own[(s + i) * 4];
#pragma unroll
        for (int i = 0; i < 12; i++) sum += v[i];
    }
#pragma unroll 6
    for (; s < slices; s++) sum += own[s * 4];
    return sum;
}

// The best of a block's logits. Called by all warps that compute.
__device__ __forceinline__ void note_candidate(u64 best, u64* warps, u64* to) {
    __syncthreads();
    for (int step = 16; step > 0; step /= 2) {
        u64 other = __shfl_xor_sync(FULL, best, step);
        if (other > best) best = other;
    }
    if (threadIdx.x % WARP == 0) warps[threadIdx.x / WARP] = best;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int w = 0; w < PRODUCT_WARPS; w++) {
        if (warps[w] > best) best = warps[w];
    }
    *to = best;
}

// `base` is the number of phases before this launch, `tag` this one's number.
__device__ __forceinline__ void
token_product(const Job& job, const Stretch& stretch, u8* shared, const Weights& weights, Ring& ring, u32 base, u32 tag, u64* times) {
    if (job.tiles == 0) return;
    Quantised x;
    x.quants = (i8*)shared;
    x.facts = (uint2*)(shared + job.supers * SUPER);
    float* partial = (float*)(shared + job.supers * (SUPER + 64));
    u32 input = base + job.input_from;
    if (job.norm) {
        if (job.supers <= PRODUCT_WARPS) prepare_row<1, true>(job, input, x, partial, weights, ring, times);
        else prepare_row<2, true>(job, input, x, partial, weights, ring, times);
    } else {
        if (job.supers <= PRODUCT_WARPS) prepare_row<1, false>(job, input, x, partial, weights, ring, times);
        else prepare_row<3, false>(job, input, x, partial, weights, ring, times);
    }
    note(times, 3);
    // What the end of the phase needs is asked for before the sums.
    u32 own = threadIdx.x, kind = job.kind;
    bool has_row = own < job.rows;
    float own_bias = has_row && job.bias ? __ldcg(job.bias + own) : 0.0f;
    u64 own_before = has_row && kind == OP_ADD ? look(job.output + slot_of(job.place + own)) : 0;
#define WORK(F) \
    if (stretch.whole) stream<F, true>(stretch, job.supers, x, partial, weights, ring); \
    else stream<F, false>(stretch, job.supers, x, partial, weights, ring)
    FOR_FORMAT(job.format, WORK)
#undef WORK
    __syncthreads();
    note(times, 4);
    u64 best = 0;
#pragma unroll 1
    for (u32 at = own; at < job.rows; at += PRODUCT_THREADS) {
        u32 tile = at / 4, r = at % 4, place = job.place + at;
        float value = collected_row(partial, tile, r, job.slices);
        if (kind == OP_GATE) {
            float up = collected_row(partial, job.tiles + tile, r, job.slices);
            put(job.output + slot_of(place), value / (1.0f + expf(-value)) * up, tag);
            continue;
        }
        if (job.bias) value += at == own ? own_bias : __ldcg(job.bias + at);
        if (kind == OP_ADD) {
            u64* out = job.output + slot_of(place);
            value += settle(at == own ? own_before : look(out), out, base + job.before_from);
            put(out, value, tag);
        } else if (kind == OP_STORE) {
            put(job.output + place, value, tag);
        } else {
            ((float*)job.output)[place] = value;
            u64 here = candidate(value, place);
            if (here > best) best = here;
        }
    }
    if (kind == OP_LOGITS) note_candidate(best, (u64*)shared, job.candidates + blockIdx.x);
}

__device__ __forceinline__ HeadPart take_head(const u64* head, u32 tag) {
    int lane = threadIdx.x % WARP;
    u64 seen[HEAD_EACH];
#pragma unroll
    for (int i = 0; i < HEAD_EACH; i++) seen[i] = i * WARP + lane < HEAD ? look(head + i * WARP + lane) : 0;
    HeadPart h;
#pragma unroll
    for (int i = 0; i < HEAD_EACH; i++) {
        h.v[i] = i * WARP + lane < HEAD ? settle(seen[i], head + i * WARP + lane, tag) : 0.0f;
    }
    return h;
}

// Queries ready, the row's own key and value in the cache and in `fresh`; as in `attention.cu`.
__device__ __forceinline__ void begin(const Heads& s, const Span& span, const u32* table, u32 tag, AttentionShared& shared) {
    int warp = threadIdx.x / WARP;
    u32 position = span.length - 1;
    const u64* rows = (const u64*)s.rows;
    if (warp < GROUP) {
        float* staged = shared.staged[warp];
        Turn turn = load_turn(s, position);
        finish_head(s, take_head(rows + (span.part * GROUP + warp) * HEAD, tag), s.q_norm, turn, s.scale, staged);
        place_query(shared, staged, warp);
    } else if (warp < 8) {
        place_query(shared, 0, warp);
    } else if (warp < 10 && span.end == span.length) {
        int side = warp - 8;
        float* staged = shared.staged[GROUP + side];
        Turn turn = load_turn(s, position);
        HeadPart x = take_head(rows + (s.heads + side * s.kv_heads + span.kv_head) * HEAD, tag);
        if (side == 0) finish_head(s, x, s.k_norm, turn, 1.0f, staged);
        else store_head(x, staged);
        store_half_head(shared.fresh[side], staged);
        store_half_head(cached(s, table, position, side, span.kv_head), staged);
    }
    __syncthreads();
}

// All blocks that had a chunk of these heads merge, each a few elements, in the order of the chunks.
__device__ __forceinline__ void merge(const Attention& p, const Span& span, u32 tag, AttentionShared& shared) {
    constexpr int EACH = (GROUP * HEAD + SPLITS + 511) / 512;
    u32 splits = span.splits, count = (GROUP * HEAD + splits - 1) / splits, first = span.split * count;
    const u64* base = (const u64*)p.partial + (u64)span.part * GROUP * SPLITS * (HEAD + 2);
    auto place = [&](u32 at) {
        u32 element = first + at % count;
        return base + ((u64)(element / HEAD) * SPLITS + at / count) * (HEAD + 2) + 2 + element % HEAD;
    };
    auto exists = [&](u32 at) { return at < count * splits && first + at % count < GROUP * HEAD; };
    u32 own = threadIdx.x, h = own / splits;
    const u64* statistics = base + ((u64)h * SPLITS + own % splits) * (HEAD + 2);
    u64 largest = 0, total = 0, seen[EACH];
    if (h < GROUP) largest = look(statistics), total = look(statistics + 1);
#pragma unroll
    for (int i = 0; i < EACH; i++) seen[i] = exists(own + i * 512) ? look(place(own + i * 512)) : 0;
    if (h < GROUP) {
        shared.merge.weights[h][own % splits] = settle(largest, statistics, tag);
        shared.merge.totals[h][own % splits] = settle(total, statistics + 1, tag);
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        u32 at = own + i * 512;
        if (exists(at)) shared.merge.values[at] = settle(seen[i], place(at), tag);
    }
    __syncthreads();
    if (threadIdx.x / WARP < GROUP) share_out(shared, threadIdx.x / WARP, splits);
    __syncthreads();
    for (u32 i = threadIdx.x; i < count && first + i < GROUP * HEAD; i += 512) {
        const float* weights = shared.merge.weights[(first + i) / HEAD];
        float sum = 0.0f;
#pragma unroll 8
        for (u32 s = 0; s < splits; s++) sum = __fmaf_rn(shared.merge.values[s * count + i], weights[s], sum);
        put((u64*)p.output + slot_of(span.part * GROUP * HEAD + first + i), sum, tag);
    }
    __syncthreads();
}

// What attention needs that is the same in all layers.
struct Place {
    Span span;             // of this block's first item
    const u32* table;
    u32 position, parts, items;
    // Where the keys of each warp's first positions stand in the cache, but for the layer.
    u64 units[PRODUCT_WARPS];
};

__device__ __forceinline__ void find_place(const Heads& s, Place& place) {
    u32 warp = threadIdx.x / WARP, position = s.positions[0], parts = s.heads / GROUP;
    const u32* table = table_of(s, 0);
    Span span = span_of(s, position, blockIdx.x / parts, blockIdx.x % parts);
    u32 first = span.start + warp * UNIT;
    if (first < span.end && blockIdx.x < span.splits * parts) {
        place.units[warp] = (u8*)cached(s, table, first, 0, span.kv_head) - s.cache - s.layer_offset;
    }
    if (threadIdx.x == 0) {
        place.span = span, place.table = table;
        place.position = position, place.parts = parts, place.items = span.splits * parts;
    }
}

__device__ __forceinline__ void
token_attention(const Attention& p, const Place& place, AttentionShared& shared, u32 input, u32 tag, u64* times) {
    const Heads& s = p.heads;
    u32 warp = threadIdx.x / WARP, parts = place.parts;
    bool alone = place.span.splits == 1;
#pragma unroll 1
    for (u32 item = blockIdx.x; item < place.items; item += gridDim.x) {
        bool is_first = item == blockIdx.x;
        Span span = is_first ? place.span : span_of(s, place.position, item / parts, item % parts);
        // Keys and values of earlier positions do not depend on this step: they are on their way before the wait.
        uint4 keys[2][KEY_PIECES];
        u32 first = span.start + warp * UNIT;
        if (first < span.end) {
            ask(s, is_first ? (const u16*)(s.cache + s.layer_offset + place.units[warp])
                            : cached(s, place.table, first, 0, span.kv_head), keys);
        }
        note(times, 1);
        begin(s, span, place.table, input, shared);
        note(times, 2);
        Running r = walk(s, place.table, span, shared, true, keys);
        note(times, 3);
        gather(shared, r);
#pragma unroll 1
        for (u32 at = threadIdx.x; at < GROUP * HEAD; at += 512) {
            u32 h = at / HEAD, c = at % HEAD, head = span.part * GROUP + h;
            float x = gathered(shared, h, c);
            if (alone) {
                put((u64*)p.output + slot_of(head * HEAD + c), x / shared.all_total[h], tag);
                continue;
            }
            u64* own = (u64*)p.partial + ((u64)head * SPLITS + span.split) * (HEAD + 2);
            put(own + 2 + c, x, tag);
            if (c == 0) put(own, shared.all_largest[h], tag), put(own + 1, shared.all_total[h], tag);
        }
        __syncthreads();
        note(times, 4);
    }
    if (alone) return;
#pragma unroll 1
    for (u32 item = blockIdx.x; item < place.items; item += gridDim.x) {
        merge(p, item == blockIdx.x ? place.span : span_of(s, place.position, item / parts, item % parts), tag, shared);
    }
}

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

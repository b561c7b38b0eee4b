// A product as a phase of `token.cu`: one row's input made ready by every block for itself, then this block's chunks.
//
// The code of a phase runs once per phase, with nothing beside it to hide its latency, so its length counts as much as its
// arithmetic. There is no barrier at the end of a phase: the next one's input is written where this one's was read, all of
// which lies before the barrier in the middle, and its sums only after its own first barrier.

// What a lane multiplies a chunk with: 32 columns of the input, in registers.
struct Columns {
    uint4 low, high;       // Elements 0 .. 15 and 16 .. 31.
    float scale, sum;
    u32 halves;            // The sums of both halves as two 16-bit numbers.
};

__device__ __forceinline__ Columns columns_of(const Input& x, u32 super, u32 lane) {
    u32 j = lane % 8;
    const i8* quants = x.quants + super * SUPER + j * 16;
    uint4 facts = x.facts[super * 8 + j];
    return {*(const uint4*)quants, *(const uint4*)(quants + 128), __uint_as_float(facts.x), __uint_as_float(facts.y), facts.z};
}

// A lane's share of a chunk, 32 columns of one row, added to what was before. The same as `advance`, bit for bit.
template <int F>
__device__ __forceinline__ float chunk_sum(const u8* chunk, u32 lane, const Columns& x, float before) {
    typedef Layout<F> L;
    uint4 a = x.low, c = x.high;
    if (F == Q4_K) {
        uint4 w = *(const uint4*)(chunk + L::header + lane * 16);
        u32 j = lane % 8;
        const u8* header = chunk + lane / 8 * 16;
        u32 d = *(const u32*)header, low = header[4 + j], high = header[12 + j / 2];
        // Dividing a sum by sixteen is cheaper than shifting every word.
        int first = __dp4a((int)(w.x & 0x0f0f0f0f), (int)a.x, 0);
        int second = dp4a_unsigned(w.x & 0xf0f0f0f0, c.x, 0);
        first = __dp4a((int)(w.y & 0x0f0f0f0f), (int)a.y, first);
        second = dp4a_unsigned(w.y & 0xf0f0f0f0, c.y, second);
        first = __dp4a((int)(w.z & 0x0f0f0f0f), (int)a.z, first);
        second = dp4a_unsigned(w.z & 0xf0f0f0f0, c.z, second);
        first = __dp4a((int)(w.w & 0x0f0f0f0f), (int)a.w, first);
        second = dp4a_unsigned(w.w & 0xf0f0f0f0, c.w, second);
        // Below 2^22, so added to the bits of 1.5 * 2^23 it is added to its value.
        int whole = (int)(low & 63) * (first + (second >> 4)) + 0x4b400000;
        u32 min = (__funnelshift_l(high, high, 2 + j % 2 * 28) & 0x3c) | low >> 6;
        float d_min = half_to_float((u16)(d >> 16));
        float m = -__fmul_rn(d_min, __uint_as_float(min | 0x4b400000) - 12582912.0f);
        float term = __fmul_rn(half_to_float((u16)d), __int_as_float(whole) - 12582912.0f);
        return __fmaf_rn(x.scale, __fmaf_rn(m, x.sum, term), before);
    }
    constexpr bool RAISED = F == Q4_0 || F == Q4_1;
    Block b = read_block<F, RAISED>(chunk, lane);
    int2 sum = multiply_halves<RAISED>(b, a, c);
    if (L::zero) {
        int sum_0 = (short)(x.halves & 0xffff), sum_1 = (short)(x.halves >> 16);
        sum.x -= L::zero * sum_0, sum.y -= L::zero * sum_1;
    }
    float term = __fmul_rn(b.d, (float)(b.scale[0] * sum.x + b.scale[1] * sum.y));
    if (L::with_min) term = __fmaf_rn(b.m, x.sum, term);
    return __fmaf_rn(x.scale, term, before);
}

// Most super-blocks of a part, whose columns are in registers.
#define WIDTH 3

// Of up to three sums, each over the eight lanes of a row, a lane ends up with one: which is `lane % 4 / 2 + lane % 2 * 2`.
__device__ __forceinline__ float deal_out(const float* v, u32 lane) {
    bool odd = lane & 1, upper = lane & 2;
    float a = (odd ? v[2] : v[0]) + __shfl_xor_sync(FULL, odd ? v[0] : v[2], 1);
    float b = (odd ? 0.0f : v[1]) + __shfl_xor_sync(FULL, odd ? v[1] : 0.0f, 1);
    float mine = (upper ? b : a) + __shfl_xor_sync(FULL, upper ? a : b, 2);
    return mine + __shfl_xor_sync(FULL, mine, 4);
}

// Works through a warp's tiles and leaves sums in `partial`: one per super-block and row. Two tiles at a time would fill more
// cycles and was no faster: the code is twice as long then.
template <int F>
__device__ __forceinline__ void stream(const Stretch& s, const Input& x, float* partial, Ring& ring) {
    u32 lane = own_lane(), supers = s.supers, groups = s.groups, tiles = s.tiles;
    Share share = place_of(s, threadIdx.x / WARP);
    if (share.group >= groups) return;
    u32 own = lane % 4 / 2 + lane % 2 * 2;
#pragma unroll 1
    for (u32 part = share.part; part < s.parts; part += PRODUCT_WARPS) {
        u32 first = part * s.width, count = min((u32)s.width, supers - first);
        bool keeps = lane % 8 < 4 && own < count;
        Columns columns[WIDTH];
#pragma unroll
        for (int i = 0; i < WIDTH; i++) columns[i] = columns_of(x, first + min((u32)i, count - 1), lane);
        float* out = partial + (first + own) * 4 + lane / 8;
#pragma unroll 1
        for (u32 tile = share.group; tile < tiles; tile += groups) {
            const u8* chunk = ring_wait(ring);
            // Where there is no second or third chunk its sum is of whatever stands there, and is left.
            float v[WIDTH];
#pragma unroll
            for (int i = 0; i < WIDTH; i++) v[i] = chunk_sum<F>(chunk + i * Layout<F>::chunk, lane, columns[i], 0.0f);
            float mine = deal_out(v, lane);
            if (keeps) out[tile * supers * 4] = mine;
            ring_next(ring, lane);
        }
        if (s.parts <= PRODUCT_WARPS) break;
    }
}

// The same for tiles that one warp has whole: a sum per tile and row.
template <int F>
__device__ __forceinline__ void stream_whole(const Stretch& s, const Input& x, float* partial, Ring& ring) {
    constexpr u32 CHUNK = Layout<F>::chunk, STAGE = STAGE_BYTES / CHUNK;
    u32 lane = own_lane(), tiles = s.tiles, supers = s.supers;
#pragma unroll 1
    for (u32 tile = threadIdx.x / WARP; tile < tiles; tile += PRODUCT_WARPS) {
        float sum = 0.0f;
#pragma unroll 1
        for (u32 super = 0; super < supers; super += STAGE) {
            const u8* chunk = ring_wait(ring);
            u32 end = min(super + STAGE, supers);
#pragma unroll 3
            for (u32 at = super; at < end; at++, chunk += CHUNK) {
                sum = chunk_sum<F>(chunk, lane, columns_of(x, at, lane), sum);
            }
            ring_next(ring, lane);
        }
        sum += __shfl_xor_sync(FULL, sum, 1);
        sum += __shfl_xor_sync(FULL, sum, 2);
        sum += __shfl_xor_sync(FULL, sum, 4);
        if (lane % 8 == 0) partial[tile * 4 + lane / 8] = sum;
    }
}

// The same as `collected`, by four lanes, all of which get it. Four parts at a time, zeros where there are none.
__device__ __forceinline__ float collected_row(const float* partial, u32 place, u32 r, u32 slices, u32 quarter) {
    const float* own = partial + (place * slices + quarter) * 4 + r;
    float sum = 0.0f;
#pragma unroll 1
    for (u32 s = quarter; s < slices + quarter; s += 16, own += 64) {
        float v[4];
#pragma unroll
        for (int i = 0; i < 4; i++) v[i] = s + 4 * i < slices ? own[16 * i] : 0.0f;
#pragma unroll
        for (int i = 0; i < 4; i++) sum += v[i];
    }
    sum += __shfl_xor_sync(FULL, sum, 1);
    return sum + __shfl_xor_sync(FULL, sum, 2);
}

// The best of a block's logits.
__device__ __forceinline__ void note_candidate(u64 best, u64* warps, u64* to) {
    together();
    for (int step = 16; step > 0; step /= 2) {
        u64 other = __shfl_xor_sync(FULL, best, step);
        if (other > best) best = other;
    }
    if (threadIdx.x % WARP == 0) warps[threadIdx.x / WARP] = best;
    together();
    if (threadIdx.x != 0) return;
    for (int w = 0; w < PRODUCT_WARPS; w++) {
        if (warps[w] > best) best = warps[w];
    }
    *to = best;
}

// Where a phase works in shared memory.
struct Room {
    Input x;
    float* squares;
    float* partial;
    float* norm;
};

// The end of a product: four lanes have a row of a pass.
__device__ __forceinline__ void
finish_rows(const Job& job, const Room& room, u32 mark, float own_bias, u32 own_before) {
    u32 kind = job.kind, rows = job.rows, slices = job.slices, quarter = threadIdx.x % 4;
    bool gated = kind == OP_GATE || (MIXED && kind == OP_EXPERTS);
    u64 best = 0;
#pragma unroll 1
    for (u32 first = 0; first < rows; first += PRODUCT_THREADS / 4) {
        u32 at = first + threadIdx.x / 4;
        // All lanes of a warp take part in the sums.
        if (first + threadIdx.x / WARP * 8 >= rows) break;
        u32 tile = min(at, rows - 1) / 4, r = at % 4, place = job.place + at;
        float value = collected_row(room.partial, tile, r, slices, quarter);
        float up = gated ? collected_row(room.partial, job.tiles + tile, r, slices, quarter) : 0.0f;
        if (at >= rows || quarter != 0) continue;
        u32* out = job.output + place;
        if (gated) {
            value = silu(value) * up;
        } else {
            if (job.bias) value += first == 0 ? own_bias : __ldcg(job.bias + at);
            if (kind == OP_ADD) value += settle(first == 0 ? own_before : look(out), out, (mark + 3) & 3);
        }
        if (kind != OP_LOGITS) {
            put(out, value, mark);
            continue;
        }
        *(float*)out = value;
        u64 here = candidate(value, place);
        if (here > best) best = here;
    }
    if (kind == OP_LOGITS) note_candidate(best, (u64*)room.squares, job.candidates + blockIdx.x);
}

// In `token_experts.cuh`.
struct Choice;
__device__ __forceinline__ void
finish_mix(const Job& job, float* partial, const Choice& choice, u32 own_before, u32 mark);

__device__ __forceinline__ void token_product(const Job& job, const Stretch& stretch, const Room& room, Ring& ring,
                                              const Choice& choice, u32 launches, u64* times) {
    if (job.tiles == 0) return;
    u32 kind = job.kind, mark = output_mark(job, launches), own = threadIdx.x / 4;
    // What the end of the phase needs is asked for first.
    bool has_row = own < job.rows;
    float own_bias = has_row && job.bias ? __ldcg(job.bias + own) : 0.0f;
    u32 own_before = has_row && (kind == OP_ADD || (MIXED && kind == OP_MIX)) ? look(job.output + job.place + own) : 0;
    u32 input = input_mark(job, launches);
    if (MIXED && kind == OP_EXPERTS) {
        // Its input is ready since `token_route`.
    } else if (!job.norm) prepare_plain(job, input, room.x, times);
#ifdef WIDE_NORM
    else if (job.supers > PRODUCT_WARPS) prepare_normed_wide(job, input, room.x, room.squares);
#endif
    else prepare_normed(job, input, room.x, room.squares, room.norm, times);
    note(times, 3);
#define WORK(F) \
    if (job.whole) stream_whole<F>(stretch, room.x, room.partial, ring); \
    else stream<F>(stretch, room.x, room.partial, ring)
    FOR_FORMAT(job.format, WORK)
#undef WORK
    together();
    note(times, 4);
    if (MIXED && kind == OP_MIX) finish_mix(job, room.partial, choice, own_before, mark);
    else finish_rows(job, room, mark, own_bias, own_before);
}

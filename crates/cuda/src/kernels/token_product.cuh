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

// Of up to four sums, each over the eight lanes of a row, a lane ends up with one: which is `lane % 4 / 2 + lane % 2 * 2`.
__device__ __forceinline__ float deal_out(const float* v, u32 lane) {
    bool odd = lane & 1, upper = lane & 2;
    float a = (odd ? v[2] : v[0]) + __shfl_xor_sync(FULL, odd ? v[0] : v[2], 1);
    float b = (odd ? v[3] : v[1]) + __shfl_xor_sync(FULL, odd ? v[1] : v[3], 1);
    float mine = (upper ? b : a) + __shfl_xor_sync(FULL, upper ? a : b, 2);
    return mine + __shfl_xor_sync(FULL, mine, 4);
}

// A warp's share of a product, worked out while its input is on its way: what comes after the input is there is waited for by
// all other blocks.
struct Strip {
    Units units;
    u32 tiles, width, supers;
};

__device__ __forceinline__ Strip strip_of(const Stretch& s) {
    return {units_of(s, this_thread() / WARP), s.tiles, s.width, s.supers};
}

// Works through a warp's tiles and leaves sums in `partial`: one per super-block and row. Two tiles at a time would fill more
// cycles and was no faster: the code is twice as long then.
template <int F>
__device__ __forceinline__ void stream(const Strip& s, u32 lane, const Input& x, float* partial, Ring& ring) {
    // A slot has room for no more.
    constexpr u32 MOST = SLOT_BYTES / Layout<F>::chunk < WIDTH ? SLOT_BYTES / Layout<F>::chunk : WIDTH;
    u32 own = lane % 4 / 2 + lane % 2 * 2;
    Units u = s.units;
    u32 step = u.stride * s.supers * 4;
#pragma unroll 1
    while (u.count) {
        u32 first = u.part * s.width, count = min(s.width, s.supers - first);
        u32 run = u.stride > 1 ? u.count : min(s.tiles - u.tile, u.count);
        bool keeps = lane % 8 < 4 && own < count;
        Columns columns[MOST];
#pragma unroll
        for (u32 i = 0; i < MOST; i++) columns[i] = columns_of(x, first + min(i, count - 1), lane);
        float* out = partial + (u.tile * s.supers + first + own) * 4 + lane / 8;
        u.count -= run, u.part++, u.tile = 0;
#pragma unroll 1
        for (; run > 0; run--, out += step) {
            const u8* chunk = ring_wait(ring);
            // Where there are fewer chunks the sum of one that is not there is of whatever stands there, and is left.
            float v[4] = {};
#pragma unroll
            for (u32 i = 0; i < MOST; i++) v[i] = chunk_sum<F>(chunk + i * Layout<F>::chunk, lane, columns[i], 0.0f);
            float mine = deal_out(v, lane);
            if (keeps) *out = mine;
            ring_next<1>(ring, lane);
        }
    }
}

// The same for tiles that one warp has whole: a sum per tile and row.
template <int F>
__device__ __forceinline__ void stream_whole(const Strip& s, u32 lane, const Input& x, float* partial, Ring& ring) {
    constexpr u32 CHUNK = Layout<F>::chunk, STAGE = WHOLE_SLOTS * SLOT_BYTES / CHUNK;
    u32 supers = s.supers;
    if (s.units.count) ring_align<WHOLE_SLOTS>(ring);
#pragma unroll 1
    for (u32 tile = s.units.tile; tile < s.tiles; tile += PRODUCT_WARPS) {
        float sum = 0.0f;
#pragma unroll 1
        for (u32 super = 0; super < supers; super += STAGE) {
            const u8* chunk = ring_wait(ring);
            u32 end = min(super + STAGE, supers);
#pragma unroll 3
            for (u32 at = super; at < end; at++, chunk += CHUNK) {
                sum = chunk_sum<F>(chunk, lane, columns_of(x, at, lane), sum);
            }
            ring_next<WHOLE_SLOTS>(ring, lane);
        }
        sum += __shfl_xor_sync(FULL, sum, 1);
        sum += __shfl_xor_sync(FULL, sum, 2);
        sum += __shfl_xor_sync(FULL, sum, 4);
        if (lane % 8 == 0) partial[tile * 4 + lane / 8] = sum;
    }
}

// Sums of N rows whose parts stand `apart`: the gate's and up's, or one.
template <int N>
struct Sums {
    float of[N];
};

// The same as `collected`, by four lanes, all of which get it: every fourth part from `own` on. Four at a time, zeros where
// there are none.
template <int N>
__device__ __forceinline__ Sums<N> collected_rows(const float* own, u32 apart, u32 slices, u32 quarter) {
    Sums<N> sums = {};
#pragma unroll 1
    for (u32 s = quarter; s < slices + quarter; s += 16, own += 64) {
        float v[N][4];
#pragma unroll
        for (int n = 0; n < N; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) v[n][i] = s + 4 * i < slices ? own[16 * i + n * apart] : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
#pragma unroll
            for (int n = 0; n < N; n++) sums.of[n] += v[n][i];
        }
    }
#pragma unroll
    for (int n = 0; n < N; n++) sums.of[n] += __shfl_xor_sync(FULL, sums.of[n], 1);
#pragma unroll
    for (int n = 0; n < N; n++) sums.of[n] += __shfl_xor_sync(FULL, sums.of[n], 2);
    return sums;
}

// The best of a block's logits.
__device__ __forceinline__ void note_candidate(u64 best, u64* warps, u64* to) {
    together();
    for (int step = 16; step > 0; step /= 2) {
        u64 other = __shfl_xor_sync(FULL, best, step);
        if (other > best) best = other;
    }
    if (this_thread() % WARP == 0) warps[this_thread() / WARP] = best;
    together();
    if (this_thread() != 0) return;
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

// What the end of a product needs, also worked out early. Four lanes have a row, or one where it has one sum.
struct Ending {
    const float* parts;    // of this thread's row
    u32* out;
    u32 kind, row, rows, slices;
    u32 step;              // Rows of all threads.
    u32 second;            // From the gate's parts to those of up; else zero.
    float bias;
    u32 before;            // What the residual was seen to be.
};

// What a row is added to.
struct Before {
    float bias;
    u32 residual;
};

__device__ __forceinline__ Before before_of(const Job& job) {
    u32 kind = job.kind, row = this_thread() >> (job.whole ? 0 : 2);
    bool has_row = row < job.rows, adds = kind == OP_ADD || (MIXED && kind == OP_MIX);
    return {has_row && job.bias ? load_near(job.bias + row) : 0.0f, has_row && adds ? load_relaxed(job.output + job.place + row) : 0};
}

__device__ __forceinline__ Ending ending_of(const Job& job, const float* partial, Before before) {
    u32 kind = job.kind, rows = job.rows, slices = job.slices, each = job.whole ? 0 : 2, row = this_thread() >> each;
    bool gated = kind == OP_GATE || (MIXED && kind == OP_EXPERTS);
    u32* out = job.output + job.place + row;
    const float* parts = partial + (min(row, rows - 1) / 4 * slices + (job.whole ? 0 : this_thread() % 4)) * 4 + row % 4;
    return {parts, out, kind, row, rows, slices, PRODUCT_THREADS >> each, gated ? job.tiles * slices * 4 : 0, before.bias, before.residual};
}

// The end of a product, where all its rows are.
__device__ __forceinline__ void finish_rows(Ending e, const Job& job, u64* squares, u32 mark) {
    u64 best = 0;
    bool whole = e.step == PRODUCT_THREADS;
    u32 quarter = whole ? 0 : this_thread() % 4, others = whole ? 31 : 7;
    // All lanes of a warp take part in the sums of its rows.
#pragma unroll 1
    while ((e.row & ~others) < e.rows) {
        float value = 0.0f, up = 0.0f;
        if (whole) {
            value += e.parts[0], up += e.parts[e.second];
        } else if (e.second) {
            Sums<2> both = collected_rows<2>(e.parts, e.second, e.slices, quarter);
            value = both.of[0], up = both.of[1];
        } else {
            value = collected_rows<1>(e.parts, 0, e.slices, quarter).of[0];
        }
        if (e.row < e.rows && quarter == 0) {
            if (e.second) value = silu(value) * up;
            else value += e.bias;
            if (e.kind == OP_ADD) value += settle(e.before, e.out, (mark + 3) & 3);
            if (e.kind != OP_LOGITS) {
                put(e.out, value, mark);
            } else {
                *(float*)e.out = value;
                u64 here = candidate(value, e.out - job.output);
                if (here > best) best = here;
            }
        }
        e.row += e.step, e.out += e.step, e.parts += e.step * e.slices;
        if (e.row < e.rows && job.bias) e.bias = load_near(job.bias + e.row);
        if (e.row < e.rows && e.kind == OP_ADD) e.before = load_relaxed(e.out);
    }
    if (e.kind == OP_LOGITS) note_candidate(best, squares, job.candidates + blockIdx.x);
}

// In `token_experts.cuh`.
struct Choice;
__device__ __forceinline__ void
finish_mix(const Job& job, float* partial, const Choice& choice, u32 own_before, u32 mark);

__device__ __forceinline__ void token_product(const Job& job, const Stretch& stretch, const Room& room, Ring& ring,
                                              const Choice& choice, u32 launches, u64* times) {
    // Whoever called has read where the ring is, and writes that next.
    if (job.tiles == 0) return __syncwarp();
    // What does not depend on the input comes before it.
    u32 mark = output_mark(job, launches), input = input_mark(job, launches), format = job.format, whole = job.whole;
    u32 lane = own_lane();
    Before before = before_of(job);
    Ending ending;
    if (!MIXED) ending = ending_of(job, room.partial, before);
    Strip strip = strip_of(stretch);
    if (MIXED && job.kind == OP_EXPERTS) {
        // Its input is ready since `token_route`.
    } else if (!job.norm) prepare_plain(job, input, room.x, times);
#ifdef WIDE_NORM
    else if (job.supers > PRODUCT_WARPS) prepare_normed_wide(job, input, room.x, room.squares);
#endif
    else prepare_normed(job, input, room.x, room.squares, room.norm, times);
    note(times, 3);
#define WORK(F) \
    if (whole) stream_whole<F>(strip, lane, room.x, room.partial, ring); \
    else stream<F>(strip, lane, room.x, room.partial, ring)
    FOR_FORMAT(format, WORK)
#undef WORK
    together();
    note(times, 4);
    if (MIXED) ending = ending_of(job, room.partial, before);
    if (MIXED && ending.kind == OP_MIX) finish_mix(job, room.partial, choice, before.residual, mark);
    else finish_rows(ending, job, (u64*)room.squares, mark);
}

// How a product of `token.cu` gets its input: every block normalises and quantises the whole row for itself.
//
// Whoever made it once for all would hand it on a second time, and a hand-over takes longer than this.

// A quantised row in shared memory.
struct Input {
    i8* quants;            // [super][half][8 lanes][16]
    uint4* facts;          // [super * 8]: scale; the sum as a float; the sums of both halves as two 16-bit numbers; those of two blocks
};

__device__ __forceinline__ void store_super(const float* v, u32 lane, bool wide, i8* quants, uint4* facts) {
    Quants own = quantise_8(v, wide);
    u32 j = lane / 4, part = lane % 4;
    *(uint2*)(quants + part / 2 * 128 + j * 16 + part % 2 * 8) = make_uint2(own.words[0], own.words[1]);
    int sum = own.sums[0] + own.sums[1], next = __shfl_xor_sync(FULL, sum, 4);
    if (part == 0) {
        u32 halves = (u32)(own.sums[0] & 0xffff) | (u32)own.sums[1] << 16;
        facts[j] = make_uint4(__float_as_uint(own.scale), __float_as_uint((float)sum), halves, (u32)(sum & 0xffff) | (u32)next << 16);
    }
}

// The sum of the squares of at most 16 super-blocks: what `warp_sum` gives where lane i has the i-th.
__device__ __forceinline__ float sum_squares(const float* squares) {
    const float4* x = (const float4*)squares;
    float4 a = x[0], b = x[1], c = x[2], d = x[3];
    a = make_float4(a.x + c.x, a.y + c.y, a.z + c.z, a.w + c.w);
    b = make_float4(b.x + d.x, b.y + d.y, b.z + d.z, b.w + d.w);
    return ((a.x + b.x) + (a.z + b.z)) + ((a.y + b.y) + (a.w + b.w));
}

// A norm's weights on their way to shared memory, and how to wait for them. All blocks ask for them at the same moment, and from
// memory they take longer than everything else a norm does, so they come in the phases before.
struct Norm {
    const float* weights;
    u32 brought;           // A barrier.
};

// A thread's eight.
__device__ __forceinline__ void take_norm(const Norm& norm, const Job& job, float* w) {
    barrier_wait(norm.brought, job.turn);
    const float4* own = (const float4*)(norm.weights + this_thread() * 8);
    float4 a = make_float4(0.0f, 0.0f, 0.0f, 0.0f), b = a;
    if (this_thread() * 8 < job.columns) a = own[0], b = own[1];
    w[0] = a.x, w[1] = a.y, w[2] = a.z, w[3] = a.w, w[4] = b.x, w[5] = b.y, w[6] = b.z, w[7] = b.w;
}

// Normalises and quantises a row of at most 16 super-blocks, one for each warp. `squares` has room for 32. Ends with a
// barrier.
__device__ __forceinline__ void prepare_normed(const Job& job, u32 mark, Input x, float* squares, const Norm& norm, u64* times) {
    u32 warp = this_thread() / WARP, lane = own_lane(), columns = job.columns, at = warp * SUPER + lane * 8;
    const u32* own = job.input + at;
    float v[8] = {}, w[8];
    note(times, 1);
    if (at < columns) settle_8<0>(look_8(own), own, mark, v);
    __syncwarp();
    note(times, 2);
    float square = super_square(v);
    if (lane == 0) squares[warp] = square;
    together();
    float total = sum_squares(squares);
    take_norm(norm, job, w);
    normalise_8(v, row_scale(total, columns, job.epsilon), w);
    if (warp < job.supers) store_super(v, lane, job.wide, x.quants + warp * SUPER, x.facts + warp * 8);
    together();
}

// The same for a wider row, which is read twice.
#ifdef WIDE_NORM
__device__ __forceinline__ void prepare_normed_wide(const Job& job, u32 mark, Input x, float* squares) {
    u32 warp = this_thread() / WARP, lane = own_lane(), columns = job.columns;
    float scale = 0.0f;
#pragma unroll 1
    for (u32 item = warp; item < 2 * 32; item += PRODUCT_WARPS) {
        // First the squares of all, then all again.
        u32 super = item % 32, at = super * SUPER + lane * 8;
        if (item == 32 + warp) {
            together();
            float total = warp_sum(lane < job.supers ? squares[lane] : 0.0f);
            scale = row_scale(total, columns, job.epsilon);
        }
        float v[8] = {}, w[8];
        if (at < columns) settle_8<0>(look_8(job.input + at), job.input + at, mark, v);
        __syncwarp();
        if (item < 32) {
            float square = super_square(v);
            if (lane == 0) squares[super] = square;
        } else if (super < job.supers) {
            load_8(job.norm, at, columns, w);
            normalise_8(v, scale, w);
            store_super(v, lane, job.wide, x.quants + super * SUPER, x.facts + super * 8);
        }
    }
    together();
}
#endif

// Quantises a row as it is. While one super-block is worked on the next AHEAD are on their way: what was looked at long before it was
// there is looked at again, and after that a look would be waited for in every turn. Ends with a barrier.
template <int PAUSE>
__device__ __forceinline__ void prepare_plain(const Job& job, u32 mark, Input x, u64* times) {
    constexpr u32 STEP = PRODUCT_WARPS * SUPER;
    u32 lane = own_lane(), supers = job.supers, columns = job.columns, item = this_thread() / WARP;
    u32 at = item * SUPER + lane * 8;
    const u32* own = job.input + at;
    Eight seen[AHEAD + 1] = {};
#pragma unroll
    for (u32 i = 0; i < AHEAD; i++) {
        if (at + i * STEP < columns) seen[i] = look_8(own + i * STEP);
    }
    note(times, 1);
#pragma unroll 1
    for (; item < supers; item += PRODUCT_WARPS, at += STEP, own += STEP) {
        if (at + AHEAD * STEP < columns) seen[AHEAD] = look_8(own + AHEAD * STEP);
        float v[8] = {};
        if (at < columns) settle_8<PAUSE>(seen[0], own, mark, v);
        __syncwarp();
        note(times, 2);
        store_super(v, lane, job.wide, x.quants + item * SUPER, x.facts + item * 8);
#pragma unroll
        for (u32 i = 0; i < AHEAD; i++) seen[i] = seen[i + 1];
    }
    together();
}

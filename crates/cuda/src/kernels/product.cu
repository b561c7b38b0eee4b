// Matrix times few rows: the loop where a decoded token's time goes.
//
//   out[m][n] = sum_k W[n][k] * x[m][k]     m < ROWS (compiled for 1, 2, 4 or 8), x optionally normalised first
//
// Bytes: the packed weights, once. Work: one dp4a per four weights and row; 60 instructions per chunk and warp at ROWS = 1.
//
// One block per multiprocessor, 16 warps. Before it waits for the kernel that makes x, each warp has the first DEPTH of
// its chunks on their way into shared memory, so the memory system never idles at a dependency: 140 chained kernels of
// 8 MB read 4.25 TB/s that way and 2.10 TB/s when they read after waiting (H200, 2026-11-15). Every block then
// normalises and quantises x for itself, which costs an L2 read of x per block and saves a kernel in the chain.
//
// The result of a row does not depend on ROWS or on the other rows: a lane adds its terms in the order of the columns,
// eight lanes are added in a fixed tree, then the slices of the columns in order. Slices depend on the shape only.

#define WARPS 16
#define THREADS (WARPS * WARP)

struct Segment {
    const u8* weights;
    const u8* second;     // The up matrix where `weights` is the gate.
    const float* bias;
    u32 format;
    u32 rows;
    u32 tiles;
    u32 first_block;
    u32 blocks;
    u32 output;           // Place of the first row's result.
};

struct Product {
    Segment segments[3];
    const float* input;
    const float* norm;
    float* output;
    u64* candidates;      // Logits only: the best entry of each block, [row][block].
    float epsilon;
    u32 columns;
    u32 supers;           // Columns in whole super-blocks, rounded up.
    u32 slices;
    u32 rows;             // Rows in use, at most ROWS.
    u32 input_stride;
    u32 output_stride;
};

// Shared memory: quantised rows, then their scales and sums, then partial results, then the chunks under way.
struct Quantised {
    i8* quants;           // [row][super][half][8 lanes][16]
    uint2* facts;         // [row][super * 8]: scale, and the sums of both halves as two 16-bit numbers
};

__device__ __forceinline__ void load_8(const float* x, u32 at, u32 columns, float* v) {
    if (at < columns) {
        float4 a = *(const float4*)(x + at), b = *(const float4*)(x + at + 4);
        v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] = 0.0f;
    }
}

// Scales and rounding are the CPU's: one scale per 256 columns, or a half-precision one per 32.
__device__ __forceinline__ void quantise_super(const float* v, int lane, bool wide, i8* quants, uint2* facts) {
    float largest = 0.0f;
#pragma unroll
    for (int i = 0; i < 8; i++) largest = fmaxf(largest, fabsf(v[i]));
    largest = fmaxf(largest, __shfl_xor_sync(FULL, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(FULL, largest, 2));
    if (wide) {
#pragma unroll
        for (int step = 4; step < 32; step *= 2) largest = fmaxf(largest, __shfl_xor_sync(FULL, largest, step));
    }
    float inverse = largest == 0.0f ? 0.0f : __fdiv_rn(127.0f, largest);
    int sum = 0;
    u32 words[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < 8; i++) {
        int q = __float2int_rn(__fmul_rn(v[i], inverse));
        sum += q;
        words[i / 4] |= (u32)(q & 0xff) << (8 * (i % 4));
    }
    int j = lane / 4, part = lane % 4;
    *(uint2*)(quants + part / 2 * 128 + j * 16 + part % 2 * 8) = make_uint2(words[0], words[1]);
    sum += __shfl_xor_sync(FULL, sum, 1);
    int other = __shfl_xor_sync(FULL, sum, 2);
    if (part == 0) {
        float scale;
        if (wide) scale = largest == 0.0f ? 0.0f : __fdiv_rn(1.0f, inverse);
        else scale = half_to_float(float_to_half(__fdiv_rn(largest, 127.0f)));
        facts[j] = make_uint2(__float_as_uint(scale), (u32)(sum & 0xffff) | (u32)other << 16);
    }
}

// Normalises and quantises all rows into shared memory. Ends with a barrier.
__device__ __forceinline__ void prepare(const Product& p, bool wide, Quantised x, float* squares) {
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    u32 items = p.rows * p.supers;
    if (p.norm) {
        for (u32 item = warp; item < items; item += WARPS) {
            u32 row = item / p.supers, s = item % p.supers;
            float v[8], sum = 0.0f;
            load_8(p.input + (u64)row * p.input_stride, s * SUPER + lane * 8, p.columns, v);
#pragma unroll
            for (int i = 0; i < 8; i++) sum = __fmaf_rn(v[i], v[i], sum);
            sum = warp_sum(sum);
            if (lane == 0) squares[item] = sum;
        }
        __syncthreads();
    }
    for (u32 item = warp; item < items; item += WARPS) {
        u32 row = item / p.supers, s = item % p.supers;
        u32 at = s * SUPER + lane * 8;
        float v[8];
        load_8(p.input + (u64)row * p.input_stride, at, p.columns, v);
        if (p.norm) {
            float total = 0.0f;
            for (u32 i = lane; i < p.supers; i += WARP) total += squares[row * p.supers + i];
            total = warp_sum(total);
            float scale = __fdiv_rn(1.0f, __fsqrt_rn(__fdiv_rn(total, (float)p.columns) + p.epsilon));
            float w[8];
            load_8(p.norm, at, p.columns, w);
#pragma unroll
            for (int i = 0; i < 8; i++) v[i] = __fmul_rn(__fmul_rn(v[i], scale), w[i]);
        }
        quantise_super(v, lane, wide, x.quants + (u64)item * SUPER, x.facts + item * 8);
    }
    __syncthreads();
}

template <int F>
__device__ __forceinline__ void advance(const u8* chunk, u32 super, int lane, u32 supers, Quantised x, float* sums) {
    Block b = read_block<F>(chunk, lane);
    int j = lane % 8;
#pragma unroll
    for (int m = 0; m < ROWS; m++) {
        const i8* quants = x.quants + (u64)(m * supers + super) * SUPER + j * 16;
        uint4 a = *(const uint4*)quants, c = *(const uint4*)(quants + 128);
        uint2 facts = x.facts[(m * supers + super) * 8 + j];
        int first = __dp4a(b.q[0], (int)a.x, 0), second = __dp4a(b.q[4], (int)c.x, 0);
        first = __dp4a(b.q[1], (int)a.y, first), second = __dp4a(b.q[5], (int)c.y, second);
        first = __dp4a(b.q[2], (int)a.z, first), second = __dp4a(b.q[6], (int)c.z, second);
        first = __dp4a(b.q[3], (int)a.w, first), second = __dp4a(b.q[7], (int)c.w, second);
        int sum_0 = (short)(facts.y & 0xffff), sum_1 = (short)(facts.y >> 16);
        int whole = b.scale[0] * (first - Layout<F>::zero * sum_0) + b.scale[1] * (second - Layout<F>::zero * sum_1);
        float term = __fmul_rn(b.d, (float)whole);
        if (Layout<F>::with_min) term = __fmaf_rn(b.m, (float)(sum_0 + sum_1), term);
        sums[m] = __fmaf_rn(__uint_as_float(facts.x), term, sums[m]);
    }
}

// Where a warp is in its list of units; a unit is one slice of one tile (or of a gate or up tile).
struct Cursor {
    u32 unit, super, end;
    const u8* chunk;
};

template <int F, bool PAIR>
__device__ __forceinline__ void enter(Cursor& c, const Segment& s, u32 first_tile, u32 supers, u32 slices) {
    u32 slice = c.unit % slices, place = c.unit / slices;
    u32 tile = first_tile + (PAIR ? place / 2 : place);
    const u8* base = PAIR && place % 2 ? s.second : s.weights;
    c.super = slice * supers / slices;
    c.end = (slice + 1) * supers / slices;
    c.chunk = base + ((u64)tile * supers + c.super) * Layout<F>::chunk;
}

template <int F>
__device__ __forceinline__ void fetch(const u8* from, u32 to, int lane) {
#pragma unroll
    for (int piece = 0; piece < Layout<F>::chunk / 16; piece += WARP) {
        if (piece + lane < Layout<F>::chunk / 16) copy_16(to + (piece + lane) * 16, from + (piece + lane) * 16);
    }
}

template <int F, bool PAIR>
__device__ __forceinline__ void
run(const Product& p, const Segment& s, u32 first_tile, u32 tiles, Quantised x, float* partial, u8* stages) {
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    u32 units = tiles * p.slices * (PAIR ? 2 : 1);
    u8* own = stages + warp * DEPTH * Layout<F>::chunk;
    u32 own_address = shared_address(own);
    Cursor ahead = {(u32)warp, 0, 0, 0};
    if (ahead.unit < units) enter<F, PAIR>(ahead, s, first_tile, p.supers, p.slices);
    auto issue = [&](int stage) {
        if (ahead.unit < units) {
            fetch<F>(ahead.chunk, own_address + stage * Layout<F>::chunk, lane);
            ahead.chunk += Layout<F>::chunk;
            if (++ahead.super == ahead.end) {
                ahead.unit += WARPS;
                if (ahead.unit < units) enter<F, PAIR>(ahead, s, first_tile, p.supers, p.slices);
            }
        }
        copies_commit();
    };
#pragma unroll
    for (int stage = 0; stage < DEPTH - 1; stage++) issue(stage);
    wait_for_previous();
    prepare(p, Layout<F>::super_blocks, x, partial);
    int stage = 0;
    for (u32 unit = warp; unit < units; unit += WARPS) {
        u32 slice = unit % p.slices;
        u32 end = (slice + 1) * p.supers / p.slices;
        float sums[ROWS];
#pragma unroll
        for (int m = 0; m < ROWS; m++) sums[m] = 0.0f;
        for (u32 super = slice * p.supers / p.slices; super < end; super++) {
            copies_wait<DEPTH - 2>();
            __syncwarp();
            // The stage refilled here is the one read in the step before; all lanes are done with it.
            issue(stage == 0 ? DEPTH - 1 : stage - 1);
            advance<F>(own + stage * Layout<F>::chunk, super, lane, p.supers, x, sums);
            stage = stage == DEPTH - 1 ? 0 : stage + 1;
        }
#pragma unroll
        for (int m = 0; m < ROWS; m++) {
            float sum = sums[m];
            sum += __shfl_xor_sync(FULL, sum, 1);
            sum += __shfl_xor_sync(FULL, sum, 2);
            sum += __shfl_xor_sync(FULL, sum, 4);
            if (lane % 8 == 0) partial[(unit * 4 + lane / 8) * ROWS + m] = sum;
        }
    }
    __syncthreads();
}

// The sum over slices of one row of one tile place.
__device__ __forceinline__ float collected(const float* partial, u32 place, u32 r, u32 m, u32 slices) {
    float sum = 0.0f;
    for (u32 s = 0; s < slices; s++) sum += partial[((place * slices + s) * 4 + r) * ROWS + m];
    return sum;
}

// Orders floats as integers; what is not a number comes above everything, so that it is noticed.
__device__ __forceinline__ u64 candidate(float value, u32 index) {
    u32 bits = __float_as_uint(value);
    bits = value != value ? 0xffffffffu : bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return (u64)bits << 32 | (0xffffffffu - index);
}

#define STORE 0
#define ADD 1
#define GATE 2
#define LOGITS 3

template <int KIND>
__device__ __forceinline__ void product(const Product& p) {
    extern __shared__ __align__(16) u8 shared[];
    let_next_start();
    int which = 0;
    if (blockIdx.x >= p.segments[1].first_block) which = 1;
    if (blockIdx.x >= p.segments[2].first_block) which = 2;
    const Segment& s = p.segments[which];
    u32 block = blockIdx.x - s.first_block;
    u32 first_tile = (u64)s.tiles * block / s.blocks, tiles = (u64)s.tiles * (block + 1) / s.blocks - first_tile;
    u32 places = KIND == GATE ? 2 * tiles : tiles;
    Quantised x;
    x.quants = (i8*)shared;
    x.facts = (uint2*)(shared + ROWS * p.supers * SUPER);
    float* partial = (float*)(shared + ROWS * p.supers * (SUPER + 64));
    u32 floats = places * p.slices * 4 * ROWS;
    if (p.norm && floats < ROWS * p.supers) floats = ROWS * p.supers;
    u8* stages = (u8*)(partial + (floats + 3) / 4 * 4);
#define WORK(F) run<F, KIND == GATE>(p, s, first_tile, tiles, x, partial, stages)
    FOR_FORMAT(s.format, WORK)
#undef WORK
    u64 best[KIND == LOGITS ? ROWS : 1];
    if (KIND == LOGITS) {
#pragma unroll
        for (int m = 0; m < ROWS; m++) best[m] = 0;
    }
    for (u32 at = threadIdx.x; at < tiles * 4; at += THREADS) {
        u32 tile = at / 4, r = at % 4, row = (first_tile + tile) * 4 + r;
        if (row >= s.rows) continue;
#pragma unroll
        for (int m = 0; m < ROWS; m++) {
            if (m >= p.rows) break;
            float* out = p.output + (u64)m * p.output_stride + s.output + row;
            if (KIND == GATE) {
                float gate = collected(partial, 2 * tile, r, m, p.slices);
                float up = collected(partial, 2 * tile + 1, r, m, p.slices);
                *out = gate / (1.0f + expf(-gate)) * up;
                continue;
            }
            float value = collected(partial, tile, r, m, p.slices);
            if (s.bias) value += s.bias[row];
            if (KIND == ADD) value += *out;
            *out = value;
            if (KIND == LOGITS) {
                u64 own = candidate(value, row);
                if (own > best[m]) best[m] = own;
            }
        }
    }
    if (KIND == LOGITS) {
        // The partial results have been read; their place holds the best of each warp now.
        u64* warps = (u64*)shared;
        __syncthreads();
#pragma unroll
        for (int m = 0; m < ROWS; m++) {
            u64 own = best[m];
            for (int step = 16; step > 0; step /= 2) {
                u64 other = __shfl_xor_sync(FULL, own, step);
                if (other > own) own = other;
            }
            if (threadIdx.x % WARP == 0) warps[m * WARPS + threadIdx.x / WARP] = own;
        }
        __syncthreads();
        if (threadIdx.x < p.rows) {
            u64 own = 0;
            for (int w = 0; w < WARPS; w++) {
                if (warps[threadIdx.x * WARPS + w] > own) own = warps[threadIdx.x * WARPS + w];
            }
            p.candidates[threadIdx.x * gridDim.x + blockIdx.x] = own;
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) product_store(const __grid_constant__ Product p) {
    product<STORE>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS, 1) product_add(const __grid_constant__ Product p) {
    product<ADD>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS, 1) product_gate(const __grid_constant__ Product p) {
    product<GATE>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS, 1) product_logits(const __grid_constant__ Product p) {
    product<LOGITS>(p);
}

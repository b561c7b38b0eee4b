// Gated DeltaNet for steps of several rows and for prompts; `delta.cuh` has the arithmetic.
//
//   delta_gates    alpha and beta of every row and value head: the row's norm times matrices of floats
//   delta_prepare  convolution; q and k to length; decay, beta, q'k
//   delta_scan     a block has 32 columns of a head's S in registers and goes through a sequence's rows, one after the other
//   delta_norm     the result, normalised and gated
//   delta_settle   as much of a logged step as was kept, onto the state
//
// Bytes: a state is read and written once for all rows of a step.

#include "delta.cuh"
#include "product.cuh"
#include "route.cuh"

struct DeltaRows {
    Delta delta;
    const float* x;        // [row][columns], before the norm
    const float* norm;     // of the row
    const float* gates;    // [alpha and beta of all value heads][columns]
    float* mixed;          // Rows `stride` apart.
    float* rates;          // Rows `rates_stride` apart: alphas, then betas.
    float* ready;          // [row][q k v]
    float4* factors;       // [row][value head]: decay, beta, q'k
    float* o;              // [row][value head][DELTA]
    float* output;         // the same, normalised and gated; or
    u16* halves;           // in half precision
    const u32* positions;  // of each row
    const u32* sequences;  // of each row
    const DeltaRun* runs;  // of each sequence
    u8* log;               // [layer][row of the log]: see `DeltaLog`
    u64 log_bytes;         // of a row of the log
    u32 stride;
    u32 rates_stride;
    u32 rows;
    u32 columns;
    float epsilon;
    u32 padding;
};
MIRRORED(DeltaRows);

// Where things stand in a row of the log: q k v before the convolution, k, d, decay.
struct DeltaLog {
    float* mixed;
    float* keys;
    float* d;
    float* decay;
};

__device__ __forceinline__ DeltaLog log_at(const Delta& p, u8* log, u64 row_bytes, u32 row) {
    float* mixed = (float*)(log + row * row_bytes);
    float* keys = mixed + delta_channels(p);
    float* d = keys + p.key_heads * DELTA;
    return {mixed, keys, d, d + p.value_heads * DELTA};
}

#define GATE_ROWS 8
#define NO_SEQUENCE 0xffffffffu

// A warp has one row of the matrix and up to eight rows of input. As `token_route` and `route` add up scores.
extern "C" __global__ void __launch_bounds__(SUPER) delta_gates(const __grid_constant__ DeltaRows p) {
    let_next_start();
    wait_for_previous();
    u32 lane = own_lane(), which = blockIdx.x * (SUPER / WARP) + threadIdx.x / WARP, first = blockIdx.y * GATE_ROWS;
    u32 count = 2 * p.delta.value_heads, rows = min((u32)GATE_ROWS, p.rows - first);
    if (which >= count) return;
    const float* gate = p.gates + (u64)which * p.columns;
    float sums[GATE_ROWS] = {}, squares[GATE_ROWS] = {};
    for (u32 super = 0; super * SUPER < p.columns; super++) {
        float b[8], c[8];
        u32 at = super * SUPER + lane * 8;
        load_8(p.norm, at, p.columns, b), load_8(gate, at, p.columns, c);
#pragma unroll
        for (u32 r = 0; r < GATE_ROWS; r++) {
            float a[8];
            load_8(p.x + (u64)(first + (r < rows ? r : 0)) * p.columns, at, p.columns, a);
            sums[r] += super_score(a, b, c);
            float square = super_square(a);
            if (lane == super % WARP) squares[r] += square;
        }
    }
#pragma unroll
    for (u32 r = 0; r < GATE_ROWS; r++) {
        float scale = row_scale(warp_sum(squares[r]), p.columns, p.epsilon);
        if (lane == 0 && r < rows) p.rates[(u64)(first + r) * p.rates_stride + which] = rounded(__fmul_rn(scale, sums[r]));
    }
}

// Four channels of a row after the convolution; `past` has the rows before, and then those before the next one.
__device__ __forceinline__ void
convolved(const DeltaRows& p, const DeltaRun& run, u32 row, u32 channel, bool follows, Past& past, float* x) {
    const float* own = p.mixed + (u64)row * p.stride + channel;
    if (!follows) {
        // From this step or from the state.
        load_past(p.delta, run.read, p.positions[row], channel, past);
#pragma unroll
        for (u32 i = 0; i < DELTA_TAPS - 1; i++) {
            u32 back = DELTA_TAPS - 1 - i;
            if (row >= run.first + back) load_4(own - (u64)back * p.stride, past.rows[i]);
        }
    }
    float own_row[4];
    load_4(own, own_row);
#pragma unroll
    for (u32 e = 0; e < 4; e++) x[e] = own_row[e];
    convolve(past, x);
#pragma unroll
    for (u32 e = 0; e < 4; e++) past.rows[0][e] = past.rows[1][e], past.rows[1][e] = past.rows[2][e], past.rows[2][e] = own_row[e];
}

// A warp has a key head with its queries, or a value head, in several rows that follow each other.
extern "C" __global__ void __launch_bounds__(SUPER) delta_prepare(const __grid_constant__ DeltaRows p) {
    let_next_start();
    wait_for_previous();
    const Delta& s = p.delta;
    u32 item = blockIdx.y * (SUPER / WARP) + threadIdx.x / WARP, lane = own_lane();
    u32 each = (p.rows + gridDim.x - 1) / gridDim.x, begin = blockIdx.x * each, end = min(begin + each, p.rows);
    if (item >= s.key_heads + s.value_heads) return;
    bool is_key = item < s.key_heads;
    u32 keys = s.key_heads * DELTA, channel = (is_key ? item * DELTA : keys + item * DELTA) + lane * 4, head = item - s.key_heads;
    Past past, past_keys;
    load_taps(s, channel, past);
    if (is_key) load_taps(s, keys + channel, past_keys);
    u32 before = NO_SEQUENCE;
#pragma unroll 1
    for (u32 row = begin; row < end; row++) {
        u32 sequence = p.sequences[row];
        const DeltaRun& run = p.runs[sequence];
        bool follows = sequence == before;
        before = sequence;
        float* ready = p.ready + (u64)row * delta_channels(s);
        float4* factors = p.factors + (u64)row * s.value_heads;
        float x[4], k[4];
        convolved(p, run, row, channel, follows, past, x);
        if (!is_key) {
            store_4(ready + channel, x);
            const float* rates = p.rates + (u64)row * p.rates_stride;
            if (lane == 0) factors[head].x = decay_of(s, head, __ldcg(rates + head));
            if (lane == 1) factors[head].y = beta_of(__ldcg(rates + s.value_heads + head));
            continue;
        }
        convolved(p, run, row, keys + channel, follows, past_keys, k);
        to_length(x, QUERY_SCALE), to_length(k, 1.0f);
        store_4(ready + channel, x), store_4(ready + keys + channel, k);
        float qk = warp_sum(dot_4(x, k));
        for (u32 other = lane; other < s.value_heads; other += WARP) {
            if (key_head_of(s, other) == item) factors[other].z = qk;
        }
    }
}

#define SCAN_COLUMNS 32
#define SCAN_THREADS 256
#define SCAN_LANES 8
#define SCAN_ROWS 16

// What the rows of a stage need.
struct Scanned {
    float q[SCAN_ROWS][DELTA];
    float k[SCAN_ROWS][DELTA];
    float v[SCAN_ROWS][SCAN_COLUMNS];
    float4 factors[SCAN_ROWS];
};

__device__ __forceinline__ void ask_rows(const DeltaRows& p, u32 head, u32 column, u32 first, u32 count, Scanned& to) {
    const Delta& s = p.delta;
    u32 channels = delta_channels(s), key = key_head_of(s, head) * DELTA;
    for (u32 at = threadIdx.x; at < count * (DELTA / 4); at += SCAN_THREADS) {
        u32 row = at / (DELTA / 4), e = at % (DELTA / 4) * 4;
        const float* from = p.ready + (u64)(first + row) * channels;
        copy_16(shared_address(&to.q[row][e]), from + key + e);
        copy_16(shared_address(&to.k[row][e]), from + s.key_heads * DELTA + key + e);
    }
    for (u32 at = threadIdx.x; at < count * (SCAN_COLUMNS / 4); at += SCAN_THREADS) {
        u32 row = at / (SCAN_COLUMNS / 4), e = at % (SCAN_COLUMNS / 4) * 4;
        const float* from = p.ready + (u64)(first + row) * channels + (2 * s.key_heads + head) * DELTA + column;
        copy_16(shared_address(&to.v[row][e]), from + e);
    }
    if (threadIdx.x < count) copy_16(shared_address(to.factors + threadIdx.x), p.factors + (u64)(first + threadIdx.x) * s.value_heads + head);
}

// What a lane needs of a row.
struct Operands {
    float q[4][4], k[4][4], v;
    float4 factors;
};

__device__ __forceinline__ Operands operands_of(const Scanned& stage, u32 r, u32 own, u32 j) {
    Operands x;
#pragma unroll
    for (u32 g = 0; g < 4; g++) {
        float4 a = *(const float4*)&stage.k[r][g * 32 + j * 4], b = *(const float4*)&stage.q[r][g * 32 + j * 4];
        x.k[g][0] = a.x, x.k[g][1] = a.y, x.k[g][2] = a.z, x.k[g][3] = a.w;
        x.q[g][0] = b.x, x.q[g][1] = b.y, x.q[g][2] = b.z, x.q[g][3] = b.w;
    }
    x.v = stage.v[r][own], x.factors = stage.factors[r];
    return x;
}

// Eight lanes have a column: of each 32 elements four, as lanes of a whole warp would have them (`token_delta`), so the sums are the same.
extern "C" __global__ void __launch_bounds__(SCAN_THREADS) delta_scan(const __grid_constant__ DeltaRows p) {
    __shared__ __align__(16) Scanned stages[2];
    let_next_start();
    wait_for_previous();
    const Delta& s = p.delta;
    const DeltaRun& run = p.runs[blockIdx.y];
    u32 certain = run.certain, first_logged = run.log, count = run.count, first_row = run.first;
    u32 head = blockIdx.x / (DELTA / SCAN_COLUMNS), first_column = blockIdx.x % (DELTA / SCAN_COLUMNS) * SCAN_COLUMNS;
    u32 own = threadIdx.x / SCAN_LANES, j = threadIdx.x % SCAN_LANES, column = first_column + own;
    // When the state is written next is not looked up for every row: that took five times as long as the row.
    u32 start = p.positions[run.first], write = 0, next_write = run.writes ? run.after[0] : 0;
    float state[4][4] = {};
    if (start > 0) {
        const float* from = state_at(s, run.read, start, head) + column * DELTA + j * 4;
#pragma unroll
        for (u32 g = 0; g < 4; g++) load_4(from + g * 32, state[g]);
    }
    ask_rows(p, head, first_column, run.first, min((u32)SCAN_ROWS, run.count), stages[0]);
    copies_commit();
#pragma unroll 1
    for (u32 begin = 0, side = 0; begin < count; begin += SCAN_ROWS, side ^= 1) {
        u32 next = begin + SCAN_ROWS, rows = min((u32)SCAN_ROWS, count - begin);
        if (next < count) ask_rows(p, head, first_column, first_row + next, min((u32)SCAN_ROWS, count - next), stages[side ^ 1]);
        copies_commit();
        copies_wait<1>();
        __syncthreads();
        const Scanned& stage = stages[side];
        Operands next_row = operands_of(stage, 0, own, j);
#pragma unroll 4
        for (u32 r = 0; r < rows; r++) {
            // Those of the row that follows are on their way while this one is worked on.
            Operands x = next_row;
            next_row = operands_of(stage, min(r + 1, rows - 1), own, j);
            float ks[4], qs[4];
#pragma unroll
            for (u32 g = 0; g < 4; g++) ks[g] = dot_4(x.k[g], state[g]), qs[g] = dot_4(x.q[g], state[g]);
            float kall = (ks[0] + ks[2]) + (ks[1] + ks[3]), qall = (qs[0] + qs[2]) + (qs[1] + qs[3]);
#pragma unroll
            for (u32 by = SCAN_LANES / 2; by > 0; by /= 2) {
                kall += __shfl_xor_sync(FULL, kall, by), qall += __shfl_xor_sync(FULL, qall, by);
            }
            Change change = change_of(x.factors.x, x.factors.y, x.factors.z, x.v, kall, qall);
#pragma unroll
            for (u32 g = 0; g < 4; g++) {
#pragma unroll
                for (u32 e = 0; e < 4; e++) state[g][e] = updated(state[g][e], x.factors.x, x.k[g][e], change.d);
            }
            u32 row = first_row + begin + r;
            if (j == 0) p.o[((u64)row * s.value_heads + head) * DELTA + column] = change.o;
            u32 done = begin + r + 1;
            if (done > certain && j == 0) log_at(s, p.log, p.log_bytes, first_logged + done - 1 - certain).d[head * DELTA + column] = change.d;
            while (next_write == done) {
                float* to = state_at(s, run.slots[write++], start + done, head) + column * DELTA + j * 4;
#pragma unroll
                for (u32 g = 0; g < 4; g++) store_4(to + g * 32, state[g]);
                next_write = write < run.writes ? run.after[write] : 0;
            }
        }
        __syncthreads();
    }
    // The first block of a head has its channels: what the next rows look back at goes with the state, what is not certain to the log.
    if (first_column != 0) return;
    u32 channels = delta_channels(s), width = p.stride, keys = s.key_heads * DELTA, own_key = key_head_of(s, head) * DELTA;
    u32 each = leads(s, head) ? 3 * DELTA : DELTA;
    auto channel_of = [&](u32 at) {
        u32 part = at % each / DELTA, e = at % DELTA;
        return part == 0 ? 2 * keys + head * DELTA + e : (part == 1 ? 0 : keys) + own_key + e;
    };
    for (u32 i = 0; i < run.writes; i++) {
        // The slot that was read is written last.
        __syncthreads();
        u32 end = start + run.after[i];
        for (u32 at = threadIdx.x; at < DELTA_TAPS * each; at += SCAN_THREADS) {
            u32 back = at / each + 1, channel = channel_of(at);
            if (back > end) continue;
            u32 position = end - back;
            float value = position >= start ? __ldcg(p.mixed + (u64)(run.first + position - start) * width + channel)
                                            : __ldcg(row_at(s, run.read, position) + channel);
            row_at(s, run.slots[i], position)[channel] = value;
        }
    }
    for (u32 at = threadIdx.x; at < (run.count - run.certain) * each; at += SCAN_THREADS) {
        u32 logged = at / each, channel = channel_of(at), row = run.first + run.certain + logged;
        DeltaLog to = log_at(s, p.log, p.log_bytes, run.log + logged);
        to.mixed[channel] = __ldcg(p.mixed + (u64)row * width + channel);
        if (channel >= keys && channel < 2 * keys) to.keys[channel - keys] = __ldcg(p.ready + (u64)row * channels + channel);
        if (at % each == 0) to.decay[head] = __ldcg(&p.factors[(u64)row * s.value_heads + head].x);
    }
}

// A warp has a row's head.
extern "C" __global__ void __launch_bounds__(SUPER) delta_norm(const __grid_constant__ DeltaRows p) {
    let_next_start();
    wait_for_previous();
    const Delta& s = p.delta;
    u32 row = blockIdx.x, head = blockIdx.y * (SUPER / WARP) + threadIdx.x / WARP, e = own_lane() * 4;
    if (head >= s.value_heads) return;
    u64 at = ((u64)row * s.value_heads + head) * DELTA + e;
    float o[4], z[4], w[4];
    load_4(p.o + at, o), load_4(s.norm + e, w);
    load_4(p.mixed + (u64)row * p.stride + delta_channels(s) + head * DELTA + e, z);
    gate_head(s, o, w, z);
    if (p.halves) {
        *(uint2*)(p.halves + at) = make_uint2(pack_halves(o[0], o[1]), pack_halves(o[2], o[3]));
    } else {
        *(float4*)(p.output + at) = make_float4(rounded(o[0]), rounded(o[1]), rounded(o[2]), rounded(o[3]));
    }
}

// The first `kept` rows of a logged step, from one slot to another or the same; blockIdx.y is the layer.
struct DeltaSettle {
    Delta delta;           // of the first layer
    u8* log;               // [layer][row of the log]
    u64 layer_bytes;       // of a layer in a slot
    u64 log_bytes;         // of a row of the log
    u64 log_layer;         // of a layer in the log
    u32 from, to;
    u32 first, kept;       // Rows of the log.
    u32 start;             // Position of the first.
    u32 padding;
};
MIRRORED(DeltaSettle);

extern "C" __global__ void __launch_bounds__(SCAN_THREADS) delta_settle(const __grid_constant__ DeltaSettle p) {
    let_next_start();
    wait_for_previous();
    Delta s = p.delta;
    s.layer_offset += blockIdx.y * p.layer_bytes;
    u8* log = p.log + blockIdx.y * p.log_layer;
    u32 head = blockIdx.x, end = p.start + p.kept, key = key_head_of(s, head) * DELTA;
    const float* from = state_at(s, p.from, p.start, head);
    float* to = state_at(s, p.to, end, head);
#pragma unroll 1
    for (u32 at = threadIdx.x * 4; at < DELTA_STATE; at += SCAN_THREADS * 4) {
        u32 column = at / DELTA, e = at % DELTA;
        float x[4] = {};
        if (p.start > 0) load_4(from + at, x);
#pragma unroll 1
        for (u32 r = 0; r < p.kept; r++) {
            DeltaLog row = log_at(s, log, p.log_bytes, p.first + r);
            float k[4], d = __ldcg(row.d + head * DELTA + column), decay = __ldcg(row.decay + head);
            load_4(row.keys + key + e, k);
#pragma unroll
            for (u32 i = 0; i < 4; i++) x[i] = updated(x[i], decay, k[i], d);
        }
        store_4(to + at, x);
    }
    u32 keys = s.key_heads * DELTA, each = leads(s, head) ? 3 * DELTA : DELTA;
    for (u32 at = threadIdx.x; at < DELTA_TAPS * each; at += SCAN_THREADS) {
        u32 back = at / each, part = at % each / DELTA, e = at % DELTA;
        u32 channel = part == 0 ? 2 * keys + head * DELTA + e : (part == 1 ? 0 : keys) + key + e;
        if (back >= end) continue;
        u32 position = end - 1 - back;
        float value = position >= p.start ? __ldcg(log_at(s, log, p.log_bytes, p.first + position - p.start).mixed + channel)
                                          : __ldcg(row_at(s, p.from, position) + channel);
        row_at(s, p.to, position)[channel] = value;
    }
}

// Many rows through experts: each row chooses, its visits are put in the order of experts, `packed` multiplies all rows of an
// expert at once, and what the visits gave is added up again, in the order of experts.

struct Choose {
    const float* scores;   // [row][count]
    u32* chosen;           // [row][used], in the order of their numbers
    float* shares;         // [row][used]
    u32 rows;
    u32 count;
    u32 used;
};

// A warp has a row.
extern "C" __global__ void __launch_bounds__(256) choose_experts(const __grid_constant__ Choose p) {
    __shared__ uint2 lists[8][LIST_MAX];
    let_next_start();
    wait_for_previous();
    u32 warp = threadIdx.x / WARP, row = blockIdx.x * 8 + warp, visit = row * p.used;
    if (row >= p.rows) return;
    choose_row(p.scores + row * p.count, p.count, p.used, lists[warp], p.chosen + visit, p.shares + visit);
}

struct Sort {
    const u32* chosen;     // [visit]: which expert
    u32* places;           // [place]: which visit, in the order of experts and then of visits
    uint4* tiles;          // Expert, first place and number of places, at most TILE; zero after the last.
    u32 visits;
    u32 tiles_max;
};

__device__ __forceinline__ u32 tiles_of(u32 count) {
    return (count + TILE - 1) / TILE;
}

// A block has an expert. It counts the visits to all, to know its first place; a warp has every eighth of them.
extern "C" __global__ void __launch_bounds__(256) sort_visits(const __grid_constant__ Sort p) {
    __shared__ u32 counts[EXPERTS_MAX], sums[3][8];
    u32 expert = blockIdx.x, warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    u32 each = (p.visits + 255) / 256 * WARP, begin = warp * each, end = min(begin + each, p.visits), own = 0;
    let_next_start();
    wait_for_previous();
    counts[threadIdx.x] = 0;
    __syncthreads();
#pragma unroll 4
    for (u32 visit = begin + lane; visit < end; visit += WARP) {
        u32 chosen = p.chosen[visit];
        atomicAdd(counts + chosen, 1);
        own += chosen == expert;
    }
    __syncthreads();
    u32 before = threadIdx.x < expert ? counts[threadIdx.x] : 0;
    u32 parts[3] = {before, tiles_of(before), own};
#pragma unroll
    for (int i = 0; i < 3; i++) {
        u32 sum = __reduce_add_sync(FULL, parts[i]);
        if (lane == 0) sums[i][warp] = sum;
    }
    __syncthreads();
    u32 first = 0, tile = 0, place = 0, count = counts[expert];
    for (int w = 0; w < 8; w++) first += sums[0][w], tile += sums[1][w], place += w < warp ? sums[2][w] : 0;
    place += first;
    for (u32 visit = begin + lane; visit - lane < end; visit += WARP) {
        bool here = visit < end && p.chosen[visit] == expert;
        u32 lanes = __ballot_sync(FULL, here);
        if (here) p.places[place + __popc(lanes & ((1u << lane) - 1))] = visit;
        place += __popc(lanes);
    }
    u32 last = expert == gridDim.x - 1 ? p.tiles_max - tile : tiles_of(count);
    for (u32 t = threadIdx.x; t < last; t += 256) {
        u32 done = t * TILE;
        p.tiles[tile + t] = make_uint4(expert, first + done, done < count ? min(TILE, count - done) : 0, 0);
    }
}

struct AddVisits {
    const float* visits;   // [visit][columns]
    const float* shares;   // [visit]
    float* x;              // [row][columns]
    u32 columns;
    u32 used;
};

// A block has a row, a thread four columns of it.
extern "C" __global__ void __launch_bounds__(256) add_visits(const __grid_constant__ AddVisits p) {
    let_next_start();
    wait_for_previous();
    u32 first = blockIdx.x * p.used;
    for (u32 c = threadIdx.x * 4; c < p.columns; c += 1024) {
        float4* x = (float4*)(p.x + (u64)blockIdx.x * p.columns + c);
        float4 sum = *x;
#pragma unroll 4
        for (u32 i = first; i < first + p.used; i++) {
            float4 v = *(const float4*)(p.visits + (u64)i * p.columns + c);
            float share = p.shares[i];
            sum.x += share * v.x, sum.y += share * v.y, sum.z += share * v.z, sum.w += share * v.w;
        }
        *x = sum;
    }
}

// Keys and values into the cache, and queries made ready, for steps in which a sequence has several rows.
//
// One warp per row and head. In such a step a row attends to positions whose keys other rows of the same step bring,
// so all of them are written by a kernel of their own before attention starts.

#include "heads.cuh"

struct Store {
    Heads heads;
    u16* queries;          // [row][heads][HEAD] in half precision; not wanted when null
};
MIRRORED(Store);

extern "C" __global__ void __launch_bounds__(128) store_heads(const __grid_constant__ Store p) {
    __shared__ float staged[4][HEAD];
    let_next_start();
    wait_for_previous();
    const Heads& s = p.heads;
    u32 warp = threadIdx.x / WARP, row = blockIdx.x, item = blockIdx.y * 4 + warp;
    if (item >= s.heads + 2 * s.kv_heads) return;
    u32 place = item < s.heads ? item : item - s.heads + FIRST_KEY(s);
    const float* x = s.rows + ((u64)row * HEADS_OF(s) + place) * HEAD;
    u32 position = s.positions[row];
    if (item < s.heads) {
        if (!p.queries) return;
        finish_head(s, load_head(x), s.q_norm, load_turn(s, position), s.scale, staged[warp]);
        store_half_head(p.queries + ((u64)row * s.heads + item) * HEAD, staged[warp]);
    } else if (item < s.heads + s.kv_heads) {
        finish_head(s, load_head(x), s.k_norm, load_turn(s, position), 1.0f, staged[warp]);
        cache_head(cached(s, table_of(s, row), position, 0, item - s.heads), position, staged[warp], 0);
    } else {
        cache_head(cached(s, table_of(s, row), position, 1, item - s.heads - s.kv_heads), position, x, 1);
    }
}

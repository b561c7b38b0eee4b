// One unit of a product of several rows in a format with super-blocks, whose scales are integers: so is the sum of its eight blocks,
// and floats come once after it. Every block for itself, four instructions for each of a lane's sums, 21 rows of the 7B's gate took
// 79 us (H200, 2026-11-17), where its weights are read in 16.

#include "units.cuh"

// Gives `sums`, which a lane has for rows lane / 4 and lane / 4 + 8 and columns 2 (lane % 4) and the next of each tile.
template <int F>
__device__ __forceinline__ void
multiply_super(const u8* stage, const u8* input, u32 tile_bytes, int lane, float (*sums)[4]) {
    typedef Layout<F> L;
    int g = lane / 4, t = lane % 4;
    uint4 header[2];
    u32 mins[2];
    float d[2], d_min[2] = {};
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const u8* from = stage + Stage<F>::quants + (g / 4 + 2 * r) * L::header;
        header[r] = *(const uint4*)(from + g % 4 * 16);
        if (F == Q6_K) {
            // Behind the sixteen scales of each of four rows.
            d[r] = half_to_float(*(const u16*)(from + 64 + g % 4 * 2));
        } else {
            d[r] = half_to_float((u16)header[r].x), d_min[r] = half_to_float((u16)(header[r].x >> 16));
            uint2 all = minimums(header[r]);
            mins[r] = t == 0 ? all.x : t == 1 ? all.y : 0;
        }
    }
    int whole[TILES][4] = {};
#pragma unroll
    for (int pair = 0; pair < 4; pair++) {
        u32 a[2][4];
        load_pair<F>(stage, pair, lane, a);
#pragma unroll
        for (int b = 0; b < 2; b++) {
            int j = 2 * pair + b;
            int scale[2][2];
#pragma unroll
            for (int r = 0; r < 2; r++) {
                u32 words[4] = {header[r].x, header[r].y, header[r].z, header[r].w};
                u32 word = F == Q6_K ? words[j / 2] >> 16 * (j % 2) : words[1 + j / 4] >> 8 * (j % 4);
                scale[r][0] = F == Q6_K ? (i8)word : word & 63, scale[r][1] = (i8)(word >> 8);
            }
#pragma unroll
            for (int n = 0; n < TILES; n++) {
                uint2 x = load_rows(input + n * tile_bytes, j, lane);
                int c[4] = {}, e[4] = {};
                if (F == Q6_K) multiply_16(c, a[b][0], a[b][1], x.x), multiply_16(e, a[b][2], a[b][3], x.y);
                else multiply_32(c, a[b], x);
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    whole[n][i] += scale[i / 2][0] * c[i];
                    if (F == Q6_K) whole[n][i] += scale[i / 2][1] * e[i];
                }
            }
        }
    }
#pragma unroll
    for (int n = 0; n < TILES; n++) {
        const u8* facts = facts_of(input + n * tile_bytes);
        float2 factor = *(const float2*)(facts + 128 + 2 * t * 4);
        int less[4] = {};
        if (L::with_min) {
            // Minimums times the sums of the rows' blocks: their high digits, then their low ones.
            uint2 digits = *(const uint2*)(facts + digits_offset(g, t % 2 * 4));
            multiply_16(less, mins[0], mins[1], digits.y);
#pragma unroll
            for (int i = 0; i < 4; i++) less[i] *= DIGIT;
            multiply_16(less, mins[0], mins[1], digits.x);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float f = i % 2 ? factor.y : factor.x;
            sums[n][i] = super_value<L::with_min>(d[i / 2], whole[n][i], d_min[i / 2], less[i], f);
        }
    }
}

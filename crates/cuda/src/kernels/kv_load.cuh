// Keys and values as the cache stores them: how a lane of attention reads its own of sixteen positions, as the tensor cores want them.
//
// They come from memory or through the ring, in halves or in bytes with a scale for each position. The row's own are not in the
// cache yet when they are needed, and what stands past the end of a row may be anything.

#include "heads.cuh"

// A lane's pieces of eight elements of a key; pieces of four elements in a warp's quarter of a value.
#define KEY_PIECES ((HEAD + 31) / 32)
#define VALUE_PIECES (HEAD / 16)
// Eight positions at a time: how often a warp's keys are, and how often eight pieces are its quarter of a value.
#define KEY_GROUPS (UNIT / 8)
#define VALUE_ROUNDS ((VALUE_PIECES + 7) / 8)

// Of sixteen positions a lane has the keys of 8 i + lane / 4, and the values of 2 t, 2 t + 1, 2 t + 8 and 2 t + 9 with
// t = lane % 4.
__device__ __forceinline__ u32 value_offset(int i, int lane) {
    return lane % 4 * 2 + i % 2 + i / 2 * 8;
}

// Eight elements of a key and four of a value as the cache stores them, and as halves.
#if KV8
typedef uint2 Key;
typedef u32 Value;
__device__ __forceinline__ uint2 halves_of(u32 x) { return bytes_to_halves(x); }
__device__ __forceinline__ uint4 halves_of(uint2 x) {
    uint2 low = bytes_to_halves(x.x), high = bytes_to_halves(x.y);
    return make_uint4(low.x, low.y, high.x, high.y);
}
#else
typedef uint4 Key;
typedef uint2 Value;
__device__ __forceinline__ uint2 halves_of(uint2 x) { return x; }
__device__ __forceinline__ uint4 halves_of(uint4 x) { return x; }
#endif

// Keys and values from memory, past the first-level cache, or from shared memory.
struct FromMemory {
    template <typename T>
    static __device__ __forceinline__ T read(const void* at) { return __ldcg((const T*)at); }
};
struct FromShared {
    template <typename T>
    static __device__ __forceinline__ T read(const void* at) { return *(const T*)at; }
};

// The keys of eight positions.
template <typename From>
__device__ __forceinline__ void load_keys(const Element* base, int lane, Key* keys) {
    base += lane / 4 * HEAD;
#pragma unroll
    for (int j = 0; j < KEY_PIECES; j++) {
        u32 at = (lane % 4 + 4 * j) * 8;
        keys[j] = Key();
        if (at < HEAD) keys[j] = From::template read<Key>(base + (at ^ exchange(lane / 4, 0)));
    }
}

// A warp's quarter of the values of sixteen positions, eight and eight: pieces of one round.
template <typename From>
__device__ __forceinline__ void load_values(const Element* first, const Element* second, int lane, Value* values, u32 round = 0) {
    u32 piece = lane / 4 + round * 8, at = (this_thread() / WARP % 4 * (HEAD / 4) + piece * 4) ^ exchange(lane % 4 * 2, 1);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        values[i] = Value();
        const Element* own = (i < 2 ? first : second) + value_offset(i % 2, lane) * HEAD + at;
        if (piece < VALUE_PIECES) values[i] = From::template read<Value>(own);
    }
}

// Of sixteen positions a lane has the scales of 8 i + 2 (lane % 4) and the next, those whose scores and weights it has. Without
// scales there is nothing here.
struct Scales {
#if KV8
    float2 keys[KEY_GROUPS], values[KEY_GROUPS];
#endif
};

// Of keys or of values; `base` is where the sixteen positions begin.
template <typename From>
__device__ __forceinline__ void load_scales(const Element* base, int lane, u32 side, Scales& scales) {
#if KV8
    const float* from = (const float*)(base + UNIT * HEAD) + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < KEY_GROUPS; i++) (side ? scales.values : scales.keys)[i] = From::template read<float2>(from + i * 8);
#endif
}

// The row's own scales come from shared memory, where `fresh` is given; those past its end may be anything and become zero.
__device__ __forceinline__ void
patch_scales(Scales& scales, u32 first, u32 position, const float* fresh, int lane) {
#if KV8
    auto patched = [&](float scale, u32 at, u32 side) {
        return at > position ? 0.0f : fresh && at == position ? fresh[side] : scale;
    };
#pragma unroll
    for (int i = 0; i < KEY_GROUPS; i++) {
        u32 at = first + i * 8 + lane % 4 * 2;
        scales.keys[i] = make_float2(patched(scales.keys[i].x, at, 0), patched(scales.keys[i].y, at + 1, 0));
        scales.values[i] = make_float2(patched(scales.values[i].x, at, 1), patched(scales.values[i].y, at + 1, 1));
    }
#endif
}

// A score by the scale of its key (side 0), or a weight by that of its value (side 1).
template <int SIDE>
__device__ __forceinline__ float scaled(float x, const Scales& scales, int i, int e) {
#if KV8
    float2 own = SIDE ? scales.values[i] : scales.keys[i];
    return __fmul_rn(x, e ? own.y : own.x);
#else
    return x;
#endif
}

// The row's own key comes from shared memory, where `fresh` is given. `first` is the first of the eight positions.
__device__ __forceinline__ void patch_keys(Key* keys, u32 first, u32 position, const Element (*fresh)[HEAD], int lane) {
    if (!fresh || first + lane / 4 != position) return;
#pragma unroll
    for (int j = 0; j < KEY_PIECES; j++) {
        int piece = lane % 4 + 4 * j;
        if (piece * 8 < HEAD) keys[j] = *(const Key*)(fresh[0] + piece * 8);
    }
}

// So does its value; and what is past the end of the row may be anything and becomes zero.
__device__ __forceinline__ void
patch_values(Value* values, u32 first, u32 position, const Element (*fresh)[HEAD], int lane, u32 round = 0) {
    int piece = lane / 4 + round * 8;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        u32 at = first + value_offset(i, lane);
        bool own = fresh && at == position;
        if (!own && at <= position) continue;
        values[i] = Value();
        if (own && piece < VALUE_PIECES) {
            values[i] = *(const Value*)(fresh[1] + this_thread() / WARP % 4 * (HEAD / 4) + piece * 4);
        }
    }
}

// Partial results of attention that say themselves whether they are there: value and number of the phase that wrote it in
// one word of 8 bytes. A mark of two bits (`ready_bits.cuh`) would not do: how many parts there are depends on the position, so
// what stands in the place of a part may be arbitrarily old.

#include "common.cuh"

__device__ __forceinline__ void put_tagged(u64* to, float value, u32 tag) {
    store_relaxed(to, (u64)tag << 32 | __float_as_uint(value));
}

__device__ __forceinline__ bool is_from(u64 both, u32 tag) {
    return (u32)(both >> 32) == tag;
}

__device__ __forceinline__ float tagged_value(u64 both) {
    return __uint_as_float((u32)both);
}

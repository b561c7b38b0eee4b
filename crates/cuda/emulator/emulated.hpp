// What kernels see of a card that is not there: CUDA's words and those of `ptx.cuh`, for the host's own compiler.
//
// It is as asynchronous as a card may be: copies are made late or early by chance, threads run in turns, blocks on threads of
// the host. What it checks no card does: lanes that meet at different instructions, copies that are not aligned or still on
// their way at the end, and memory past the end of an allocation, which is not there.
#pragma once
#include "fibers.hpp"

#define __device__
#define __global__ __attribute__((used)) // What `compiler.cpp` knows kernels by.
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#ifdef RACES
#define __shared__ static __attribute__((section("block_shared")))
#else
#define __shared__ static
#endif

struct __align__(8) float2 { float x, y; };
struct __align__(8) uint2 { u32 x, y; };
struct __align__(8) int2 { int x, y; };
struct __align__(16) float4 { float x, y, z, w; };
struct __align__(16) uint4 { u32 x, y, z, w; };
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline uint2 make_uint2(u32 x, u32 y) { return {x, y}; }
static inline int2 make_int2(int x, int y) { return {x, y}; }
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static inline uint4 make_uint4(u32 x, u32 y, u32 z, u32 w) { return {x, y, z, w}; }

// Numbers.

template <typename To, typename From>
static inline To same_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "as many");
    To to;
    memcpy(&to, &from, sizeof(To));
    return to;
}

static inline u32 __float_as_uint(float x) { return same_bits<u32>(x); }
static inline int __float_as_int(float x) { return same_bits<int>(x); }
static inline float __uint_as_float(u32 x) { return same_bits<float>(x); }
static inline float __int_as_float(int x) { return same_bits<float>(x); }
static inline float half_to_float(u16 h) { return (float)same_bits<_Float16>(h); }
static inline u16 float_to_half(float f) { return same_bits<u16>((_Float16)f); }
static inline u16 float_to_brain(float f) {
    u32 bits = same_bits<u32>(f);
    return f != f ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
static inline u32 pack_halves(float low, float high) { return float_to_half(low) | (u32)float_to_half(high) << 16; }

static inline u32 subtract_halves(u32 a, u32 b) {
    return pack_halves(half_to_float((u16)a) - half_to_float((u16)b), half_to_float((u16)(a >> 16)) - half_to_float((u16)(b >> 16)));
}

template <typename A, typename B>
static constexpr auto min(A a, B b) -> decltype(true ? A() : B()) { return a < b ? a : b; }
template <typename A, typename B>
static constexpr auto max(A a, B b) -> decltype(true ? A() : B()) { return a > b ? a : b; }

static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline int __float2int_rn(float x) { return (int)__builtin_nearbyintf(x); }
static inline float __fdividef(float a, float b) { return a / b; }
static inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
static inline float __fsqrt_rn(float x) { return __builtin_sqrtf(x); }
static inline float sqrtf(float x) { return __builtin_sqrtf(x); }
static inline float rsqrtf(float x) { return 1.0f / __builtin_sqrtf(x); }
static inline float fabsf(float x) { return __builtin_fabsf(x); }
static inline float fmaxf(float a, float b) { return __builtin_fmaxf(a, b); }
extern "C" float expf(float) noexcept;
extern "C" float exp2f(float) noexcept;
extern "C" float logf(float) noexcept;
static inline float __expf(float x) { return expf(x); }

static inline int __popc(u32 x) { return __builtin_popcount(x); }
static inline int __clz(u32 x) { return x ? __builtin_clz(x) : 32; }
static inline u32 __funnelshift_l(u32 low, u32 high, u32 by) { return (u32)((((u64)high << 32 | low) << (by & 31)) >> 32); }

static inline u32 __byte_perm(u32 a, u32 b, u32 select) {
    u64 both = (u64)b << 32 | a;
    u32 result = 0;
    for (u32 i = 0; i < 4; i++) {
        u32 which = select >> (4 * i) & 15;
        u32 byte = (u32)(both >> (8 * (which & 7))) & 255;
        if (which & 8) byte = byte & 128 ? 255 : 0;
        result |= byte << (8 * i);
    }
    return result;
}

template <typename A, typename B>
static inline int dot_bytes(u32 a, u32 b, int sum) {
    for (u32 i = 0; i < 4; i++) sum += (int)(A)(a >> (8 * i)) * (int)(B)(b >> (8 * i));
    return sum;
}
static inline int __dp4a(int a, int b, int sum) { return dot_bytes<i8, i8>(a, b, sum); }
// Two 16-bit numbers times the lower, or the upper, two of four bytes.
static inline int dot_two(int a, int b, int sum) { return sum + (short)a * (i8)b + (a >> 16) * (i8)(b >> 8); }
static inline int __dp2a_lo(int a, int b, int sum) { return dot_two(a, b, sum); }
static inline int __dp2a_hi(int a, int b, int sum) { return dot_two(a, b >> 16, sum); }
static inline int dp4a_unsigned(u32 a, u32 b, int sum) { return dot_bytes<u8, i8>(a, b, sum); }

static inline u32 own_lane() { return threadIdx.x % 32; }
static inline u32 own_thread() { return threadIdx.x; }
static inline u32 anew(u32 x) { return x; }
static inline u64 clock_ns() { return __builtin_ia32_rdtsc(); }
template <int N>
static inline void fewer_registers() {}
template <int N>
static inline void more_registers() {}

// A warp together.

static inline void __syncwarp(u32 = 0xffffffff) { meet(SYNCWARP, 0); }

template <typename T>
static inline T __shfl_xor_sync(u32, T value, u32 by) {
    return brought<T>(meet("__shfl_xor_sync", value), threadIdx.x % 32 ^ by);
}
template <typename T>
static inline T __shfl_sync(u32, T value, u32 lane) {
    return brought<T>(meet("__shfl_sync", value), lane % 32);
}
template <typename T>
static inline T __shfl_down_sync(u32, T value, u32 by) {
    u32 lane = threadIdx.x % 32 + by;
    return brought<T>(meet("__shfl_down_sync", value), lane < 32 ? lane : threadIdx.x % 32);
}

template <typename T, typename F>
static inline T over_lanes(const char* what, T own, F both) {
    auto room = meet(what, own);
    Meeting& m = card.meetings[threadIdx.x / 32];
    u32 absent = m.absent[room == m.room[1]];
    for (u32 i = 0; i < 32; i++) {
        if (i != threadIdx.x % 32 && !(absent >> i & 1)) own = both(own, brought<T>(room, i));
    }
    return own;
}
static inline u32 __ballot_sync(u32, bool x) {
    u32 own = x ? 1u << threadIdx.x % 32 : 0;
    return over_lanes("__ballot_sync", own, [](u32 a, u32 b) { return a | b; });
}
static inline bool __any_sync(u32 mask, bool x) { return __ballot_sync(mask, x) != 0; }
static inline u32 __reduce_max_sync(u32, u32 x) {
    return over_lanes("__reduce_max_sync", x, [](u32 a, u32 b) { return a > b ? a : b; });
}
static inline u32 __reduce_min_sync(u32, u32 x) {
    return over_lanes("__reduce_min_sync", x, [](u32 a, u32 b) { return a < b ? a : b; });
}

static inline u32 __reduce_add_sync(u32, u32 x) {
    return over_lanes("__reduce_add_sync", x, [](u32 a, u32 b) { return a + b; });
}

// Lane i has the address of row i % 8 of matrix i / 8.
static inline u16 matrix_element(const u8 (*room)[48], u32 matrix, u32 row, u32 column) {
    u32 address = brought<u32>(room, matrix * 8 + row);
    if (address % 16) fault("a row of a matrix that is not aligned");
    return ((const u16*)at_shared(address))[column];
}
static inline void load_matrices(u32* r, u32 address) {
    auto room = meet("ldmatrix", address);
    u32 row = threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
    for (u32 m = 0; m < 4; m++) r[m] = matrix_element(room, m, row, column) | (u32)matrix_element(room, m, row, column + 1) << 16;
    __syncwarp();
}
static inline void load_matrices_transposed(u32* r, u32 address) {
    auto room = meet("ldmatrix.trans", address);
    u32 column = threadIdx.x % 32 / 4, row = threadIdx.x % 4 * 2;
    for (u32 m = 0; m < 4; m++) r[m] = matrix_element(room, m, row, column) | (u32)matrix_element(room, m, row + 1, column) << 16;
    __syncwarp();
}

// A product of tensor cores: four of its sums are this lane's, rows g and g + 8, columns 2 t and the next; the factors of a
// row stand in four lanes, `words` of the first factor for rows below eight and as many for the others, in turn.
template <int WORDS, typename Sum, typename Dot>
static inline void tensor_product(const char* what, Sum* c, const u32* a, const u32* b, Dot dot) {
    struct { u32 a[2 * WORDS], b[WORDS]; } own;
    for (int i = 0; i < 2 * WORDS; i++) own.a[i] = a[i];
    for (int i = 0; i < WORDS; i++) own.b[i] = b[i];
    auto room = meet(what, own);
    u32 g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    for (u32 i = 0; i < 4; i++) {
        u32 column = 2 * t + i % 2, below = i / 2;
        Sum sum = c[i];
        for (int w = 0; w < WORDS; w++) {
            for (u32 k = 0; k < 4; k++) {
                auto x = brought<decltype(own)>(room, g * 4 + k), y = brought<decltype(own)>(room, column * 4 + k);
                sum = dot(x.a[2 * w + below], y.b[w], sum);
            }
        }
        c[i] = sum;
    }
}
static inline void multiply_add(float* c, const u32* a, const u32* b) {
    tensor_product<2>("mma.f16", c, a, b, [](u32 x, u32 y, float sum) {
        sum = __builtin_fmaf(half_to_float((u16)x), half_to_float((u16)y), sum);
        return __builtin_fmaf(half_to_float((u16)(x >> 16)), half_to_float((u16)(y >> 16)), sum);
    });
}
static inline void multiply_add_brain(float* c, const u32* a, const u32* b) {
    tensor_product<2>("mma.bf16", c, a, b, [](u32 x, u32 y, float sum) {
        sum = __builtin_fmaf(same_bits<float>(x << 16), same_bits<float>(y << 16), sum);
        return __builtin_fmaf(same_bits<float>(x & 0xffff0000), same_bits<float>(y & 0xffff0000), sum);
    });
}
static inline int dot_signed(u32 x, u32 y, int sum) { return __dp4a((int)x, (int)y, sum); }
static inline void multiply_32(int* c, const u32* a, uint2 b) {
    u32 words[2] = {b.x, b.y};
    tensor_product<2>("mma.s8.k32", c, a, words, dot_signed);
}
static inline void multiply_16(int* c, u32 a0, u32 a1, u32 b) {
    u32 words[2] = {a0, a1};
    tensor_product<1>("mma.s8.k16", c, words, &b, dot_signed);
}

// By a group of four warps: done at once, each thread its own.
static inline float tile_element(u32 tile, u32 row, u32 column) {
    u32 piece = column / 8 ^ row % 8;
    return half_to_float(((const u16*)at_shared(tile + row * 128 + piece * 16))[column % 8]);
}
template <int N>
static inline void group_multiply(float* c, u32 rows, u32 weights, int k) {
    u32 warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    for (u32 i = 0; i < N / 2; i++) {
        u32 row = warp * 16 + lane / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
        for (u32 at = k * 16; at < k * 16u + 16; at++) c[i] += tile_element(rows, row, at) * tile_element(weights, column, at);
    }
}
static inline void group_begin() {}
static inline void group_end() {}
static inline void group_wait_but_one() {}
template <int COUNT>
static inline void group_wait(float*) {}

// A block together, blocks, kernels. Whoever looks at what others write lets them write, after it has looked: when all threads
// of a block have looked in vain and nothing has happened, the block waits for another (`once_around`).

static inline void wait_for_previous() {}
static inline void let_next_start() {}
static inline void __syncthreads() { wait_at(0, 0); }
static inline void wait_together(u32 which, u32 count) { wait_at(which, count); }
static inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __nanosleep(u32) { nap(); }

static inline void say() { happened(), card.said = true; }

template <typename T>
static inline T __ldcg(const T* at) { return *at; }
template <typename T>
static inline void store_relaxed(T* to, T word) { published(), __atomic_store_n(to, word, __ATOMIC_RELAXED), say(); }
template <typename T>
static inline T load_relaxed(const T* at) {
    T word = __atomic_load_n(at, __ATOMIC_RELAXED);
    looked(at, word);
    return word;
}
static inline uint4 load_relaxed_4(const u32* at) {
    auto word = [&](int i) { return __atomic_load_n(at + i, __ATOMIC_RELAXED); };
    uint4 words = {word(0), word(1), word(2), word(3)};
    looked(at, ((u64)words.x << 32 | words.y) * 31 + ((u64)words.z << 32 | words.w));
    return words;
}
static inline void count_release(u32* counter) { __atomic_fetch_add(counter, 1, __ATOMIC_RELEASE), say(); }
static inline u32 load_acquire(const u32* at) {
    u32 word = __atomic_load_n(at, __ATOMIC_ACQUIRE);
    looked(at, word);
    return word;
}
template <typename T, typename V>
static inline T atomicAdd(T* to, V by) { return __atomic_fetch_add(to, (T)by, __ATOMIC_SEQ_CST); }
template <typename T, typename V>
static inline T atomicMax(T* to, V value) {
    T old = __atomic_load_n(to, __ATOMIC_RELAXED);
    while (old < (T)value && !__atomic_compare_exchange_n(to, &old, (T)value, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {}
    return old;
}

static inline u32 shared_address(const void* p) { return (u32)((const u8*)p - anchor); }
static inline void* shared_pointer(u32 at) { return (void*)at_shared(at); }
UNWATCHED static void store_release_shared(u32 to, u32 word) {
    tell(to), passed_on(to);
    *(volatile u32*)at_shared(to) = word, happened();
}
UNWATCHED static u32 load_acquire_shared(u32 at) {
    u32 word = *(volatile u32*)at_shared(at);
    told(at);
    yield();
    return word;
}
static inline void store_after_reads(u32 to, u32 word) { store_release_shared(to, word); }
static inline u32 load_before_writes(u32 at) { return load_acquire_shared(at); }

static inline void cluster_begun() { __atomic_fetch_add(&card.run->cluster->arrived, 1, __ATOMIC_RELEASE), say(); }
static inline void cluster_wait() {
    Cluster& cluster = *card.run->cluster;
    u32 all = ++card.current->cluster_phase * cluster.blocks * card.run->threads;
    while (__atomic_load_n(&cluster.arrived, __ATOMIC_ACQUIRE) < all) yield();
}
static inline void cluster_together() { __syncthreads(), cluster_begun(), cluster_wait(); }
// The shared memory of another block is as far away as no address of this one is.
static inline u32 cluster_address(u32 address, u32 rank) { return address + ((rank + 1) << 27); }
static inline u32 cluster_rank(u32 to) { return (to + (1u << 26)) / (1u << 27) - 1; }
static inline void cluster_store(u32 to, float value) {
    u32 rank = cluster_rank(to), address = to - cluster_address(0, rank);
    u8* base = __atomic_load_n(&card.run->cluster->bases[rank], __ATOMIC_ACQUIRE);
    __atomic_store_n((u32*)(base + (int)address), __float_as_uint(value), __ATOMIC_RELAXED);
}
UNWATCHED static void send_letter(u32 to, const u32* words, u32 bytes, u32 barrier) {
    u32 rank = cluster_rank(to), away = cluster_address(0, rank);
    Mailbox& box = *card.run->cluster->boxes[rank];
    if (to % bytes) fault("words for another block that are not aligned");
    for (lock(box); box.count == LETTERS_MAX; lock(box)) unlock(box), yield();
    Letter& letter = box.letters[box.count];
    letter.to = to - away, letter.bytes = bytes, letter.barrier = barrier - away;
    memcpy(letter.words, words, bytes);
    __atomic_store_n(&box.count, box.count + 1, __ATOMIC_RELEASE);
    unlock(box), say();
}
static inline void cluster_send(u32 to, uint2 x, u32 barrier) { send_letter(to, (const u32*)&x, 8, barrier); }
static inline void cluster_send(u32 to, uint4 x, u32 barrier) { send_letter(to, (const u32*)&x, 16, barrier); }

// Copies.

static inline void copy_16_or_zero(u32 to, const void* from, bool exists) {
    if (to % 16 || (u64)from % 16) fault("a copy that is not aligned");
    CopyList<128>& small = card.current->small;
    Copy copy = {to, 16, exists ? (const u8*)from : 0, card.current->groups, 0};
    if (small.count == 128 || chance()) written_now(to, 16), perform(copy);
    else small.all[small.count++] = copy;
}
static inline void copy_16(u32 to, const void* from) { copy_16_or_zero(to, from, true); }
static inline void copy_16_near(u32 to, const void* from) { copy_16_or_zero(to, from, true); }
static inline float load_near(const float* from) { return *from; }
static inline void store_16(u32 to, uint4 x) { *(uint4*)at_shared(to) = x; }
static inline void copies_commit() { card.current->groups++; }
template <int N>
static inline void copies_wait() { finish_small(card.current->groups - 1 - N); }
static inline void prefetch_line(const void*) {}

static inline void barrier_init(u32 barrier, u32 count) { barrier_at(barrier) = {(u16)count, (u16)count, 0}; }
static inline void barriers_ready() {}
static inline void barrier_arrive(u32 barrier) { arrive_at(barrier, 0); }
static inline void barrier_expect(u32 barrier, u32 bytes) { arrive_at(barrier, bytes); }
static inline bool barrier_passed(u32 barrier, u32 parity) {
    bool passed = has_passed(barrier, parity);
    yield();
    return passed;
}
static inline void barrier_wait(u32 barrier, u32 parity) {
    while (!has_passed(barrier, parity)) sleep_among(card.at_barriers);
}
static inline void barrier_wait_cluster(u32 barrier, u32 parity) { barrier_wait(barrier, parity); }
static inline void fetch(u32 to, const void* from, u32 bytes, u32 full, u64) {
    if (to % 16 || (u64)from % 16 || bytes % 16 || !bytes) fault("a piece that is not aligned, or nothing");
    if (card.pieces.count == 4096) fault("more pieces under way than the emulator has room for");
    card.pieces.all[card.pieces.count++] = {to, bytes, (const u8*)from, threadIdx.x, full};
    asks_engine();
}
static inline void foresee(const void*, u32) {}
static inline void show_copy_engine() {}
static inline void order_copy_engine() {}
static inline u64 pass_through() { return 0; }
static inline u64 keep_near() { return 0; }

// What CUDA C++ has no words for: every PTX instruction that kernels name, each as one function. Nothing else has `asm`.
//
// NVRTC has no system headers, so half precision goes through PTX too and nothing is included. The emulated card
// (`emulator/`) replaces this file: what it gives under these names is what kernels mean by them.

typedef signed char i8;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#ifdef EMULATED
#include "emulated.hpp"
#else

// Numbers.

__device__ __forceinline__ float half_to_float(u16 h) {
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    return f;
}

__device__ __forceinline__ u16 float_to_half(float f) {
    u16 h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
    return h;
}

__device__ __forceinline__ u16 float_to_brain(float f) {
    u16 b;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(b) : "f"(f));
    return b;
}

// Two halves in a word, `low` in the low half.
__device__ __forceinline__ u32 pack_halves(float low, float high) {
    u32 both;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

// Four unsigned times four signed bytes.
__device__ __forceinline__ int dp4a_unsigned(u32 a, u32 b, int sum) {
    int result;
    asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(sum));
    return result;
}

// The lane's number, as something the compiler keeps instead of reading it from a slow register again and again.
__device__ __forceinline__ u32 own_lane() {
    u32 lane;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
}

// The thread's number, read anew: what is worked out from it is not kept from before, where registers are scarce.
__device__ __forceinline__ u32 own_thread() {
    u32 thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
}

// Hides from the compiler where a number comes from: what is worked out from it is not kept either.
__device__ __forceinline__ u32 anew(u32 x) {
    u32 same;
    asm volatile("mov.u32 %0, %1;" : "=r"(same) : "r"(x));
    return same;
}

// The same clock on all multiprocessors, in nanoseconds.
__device__ __forceinline__ u64 clock_ns() {
    u64 now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

// Registers of a warp from here on, all four of a group alike. Tools that watch every access put in code that needs more, so with
// WATCHED they stay as they are.
template <int N>
__device__ __forceinline__ void fewer_registers() {
#ifndef WATCHED
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
#endif
}

template <int N>
__device__ __forceinline__ void more_registers() {
#ifndef WATCHED
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
#endif
}

// Two halves less two others.
__device__ __forceinline__ u32 subtract_halves(u32 a, u32 b) {
    u32 result;
    asm("sub.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
    return result;
}

// Products on tensor cores; who has which element is in NVIDIA's PTX manual under the instruction's name.

// Four 8 x 8 matrices of halves from shared memory; lane i has the address of row i % 8 of matrix i / 8.
__device__ __forceinline__ void load_matrices(u32* r, u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

__device__ __forceinline__ void load_matrices_transposed(u32* r, u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

// 16 x 8 x 16, halves with 32-bit float sums.
__device__ __forceinline__ void multiply_add(float* c, const u32* a, const u32* b) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// The same with brain floats.
__device__ __forceinline__ void multiply_add_brain(float* c, const u32* a, const u32* b) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// 16 x 8 x 32 and 16 x 8 x 16, signed bytes.
__device__ __forceinline__ void multiply_32(int* c, const u32* a, uint2 b) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.x), "r"(b.y));
}

__device__ __forceinline__ void multiply_16(int* c, u32 a0, u32 a1, u32 b) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a0), "r"(a1), "r"(b));
}

#if __CUDA_ARCH__ == 900
// The same by a group of four warps, straight from shared memory, while they do something else. Only these cards have it.

// Where 16 columns of a tile begin that has 64 halves in a row, eight rows in a kilobyte, pieces of 16 bytes exchanged by the row's number.
__device__ __forceinline__ u64 tile_of(u32 address, int k) {
    return (u64)1 << 62 | (u64)(1024 >> 4) << 32 | (u64)1 << 16 | ((address & 0x3ffff) >> 4) + k * 2;
}

// Columns 16 k .. of 64 rows times N rows of weights. Of the sums a thread has those of row warp % 4 * 16 + lane / 4, and of the one eight
// further, in columns lane % 4 * 2 and the next of every eight.
template <int N>
__device__ __forceinline__ void group_multiply(float* c, u32 rows, u32 weights, int k);
template <>
__device__ __forceinline__ void group_multiply<64>(float* c, u32 rows, u32 weights, int k) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
                 "%32, %33, 1, 1, 1, 0, 0;"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]),
                   "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]),
                   "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]),
                   "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31])
                 : "l"(tile_of(rows, k)), "l"(tile_of(weights, k))
                 : "memory");
}
template <>
__device__ __forceinline__ void group_multiply<128>(float* c, u32 rows, u32 weights, int k) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
                 "%64, %65, 1, 1, 1, 0, 0;"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]),
                   "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]),
                   "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]),
                   "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31]),
                   "+f"(c[32]), "+f"(c[33]), "+f"(c[34]), "+f"(c[35]), "+f"(c[36]), "+f"(c[37]), "+f"(c[38]), "+f"(c[39]),
                   "+f"(c[40]), "+f"(c[41]), "+f"(c[42]), "+f"(c[43]), "+f"(c[44]), "+f"(c[45]), "+f"(c[46]), "+f"(c[47]),
                   "+f"(c[48]), "+f"(c[49]), "+f"(c[50]), "+f"(c[51]), "+f"(c[52]), "+f"(c[53]), "+f"(c[54]), "+f"(c[55]),
                   "+f"(c[56]), "+f"(c[57]), "+f"(c[58]), "+f"(c[59]), "+f"(c[60]), "+f"(c[61]), "+f"(c[62]), "+f"(c[63])
                 : "l"(tile_of(rows, k)), "l"(tile_of(weights, k))
                 : "memory");
}

// What was written to shared memory before the last barrier is multiplied from here on, and sums are as they were left.
__device__ __forceinline__ void group_begin() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

// The end of what was asked for. Sums are nobody's until they were waited for.
__device__ __forceinline__ void group_end() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// All but what was asked for last is done.
__device__ __forceinline__ void group_wait_but_one() {
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
}

template <int COUNT>
__device__ __forceinline__ void group_wait(float* c) {
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
    for (int i = 0; i < COUNT; i++) asm volatile("" : "+f"(c[i])::"memory");
}
#endif

// Order between kernels.

// Waits until the kernel before this one has ended and its writes are visible. Whatever a kernel reads that an earlier
// kernel of the same step wrote must be read after this; weights may be read before. Pointers to such data are never
// `__restrict__`, because the compiler would then be free to read them earlier.
__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the next kernel's blocks start beside this kernel's: they fetch their first weights and wait.
__device__ __forceinline__ void let_next_start() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Order between threads of a block, and between blocks.

// `count` threads wait for each other; `which` of the block's sixteen barriers, 0 being `__syncthreads`.
__device__ __forceinline__ void wait_together(u32 which, u32 count) {
    asm volatile("bar.sync %0, %1;" ::"r"(which), "r"(count) : "memory");
}

__device__ __forceinline__ void store_relaxed(u32* to, u32 word) {
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(word) : "memory");
}

__device__ __forceinline__ void store_relaxed(u64* to, u64 word) {
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(word) : "memory");
}

__device__ __forceinline__ u32 load_relaxed(const u32* at) {
    u32 word;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(word) : "l"(at) : "memory");
    return word;
}

__device__ __forceinline__ u64 load_relaxed(const u64* at) {
    u64 word;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(at) : "memory");
    return word;
}

// Four words, each as if read alone.
__device__ __forceinline__ uint4 load_relaxed_4(const u32* at) {
    uint4 w;
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w.x), "=r"(w.y), "=r"(w.z), "=r"(w.w)
                 : "l"(at)
                 : "memory");
    return w;
}

__device__ __forceinline__ void count_release(u32* counter) {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}

__device__ __forceinline__ u32 load_acquire(const u32* at) {
    u32 word;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(word) : "l"(at) : "memory");
    return word;
}

__device__ __forceinline__ u32 shared_address(const void* p) {
    return (u32)__cvta_generic_to_shared(p);
}

// The other way.
__device__ __forceinline__ void* shared_pointer(u32 address) {
    return __cvta_shared_to_generic(address);
}

// Within a block: whoever loads what was stored sees everything written before.
__device__ __forceinline__ void store_release_shared(u32 to, u32 word) {
    asm volatile("st.release.cta.shared.u32 [%0], %1;" ::"r"(to), "r"(word) : "memory");
}

__device__ __forceinline__ u32 load_acquire_shared(u32 at) {
    u32 word;
    asm volatile("ld.acquire.cta.shared.u32 %0, [%1];" : "=r"(word) : "r"(at) : "memory");
    return word;
}

// The same for reads of shared memory only, which it serves in the order in which a warp asks: whoever loads what was stored may
// have what was read before overwritten. A release would wait for all of memory.
__device__ __forceinline__ void store_after_reads(u32 to, u32 word) {
    asm volatile("st.volatile.shared.u32 [%0], %1;" ::"r"(to), "r"(word) : "memory");
}

__device__ __forceinline__ u32 load_before_writes(u32 at) {
    u32 word;
    asm volatile("ld.volatile.shared.u32 %0, [%1];" : "=r"(word) : "r"(at) : "memory");
    return word;
}

#if __CUDA_ARCH__ >= 900
// All blocks of a cluster have begun: said early, waited for late.
__device__ __forceinline__ void cluster_begun() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;");
}

__device__ __forceinline__ void cluster_wait() {
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}

__device__ __forceinline__ void cluster_together() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Where this block's `address` is in the shared memory of block `rank` of the cluster.
__device__ __forceinline__ u32 cluster_address(u32 address, u32 rank) {
    u32 there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    return there;
}

__device__ __forceinline__ void cluster_store(u32 to, float value) {
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(to), "f"(value) : "memory");
}

// The same, told to a barrier of that block: whoever finds it passed finds the words too.
__device__ __forceinline__ void cluster_send(u32 to, uint2 x, u32 barrier) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];"
                 ::"r"(to), "r"(x.x), "r"(x.y), "r"(barrier)
                 : "memory");
}

__device__ __forceinline__ void cluster_send(u32 to, uint4 x, u32 barrier) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];"
                 ::"r"(to), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w), "r"(barrier)
                 : "memory");
}
#endif

// Weights pass through the second-level cache once; keys, values and results should stay there instead.
__device__ __forceinline__ u64 pass_through() {
    u64 policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

__device__ __forceinline__ u64 keep_near() {
    u64 policy;
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

// Copies into shared memory.

// Sixteen bytes, asked for by one thread and waited for by it.
__device__ __forceinline__ void copy_16(u32 to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

// The same for what every step reads again: it should stay in the second-level cache.
__device__ __forceinline__ void copy_16_near(u32 to, const void* from) {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "l"(keep_near()) : "memory");
}

__device__ __forceinline__ float load_near(const float* from) {
    float x;
    asm volatile("ld.global.cg.L2::cache_hint.f32 %0, [%1], %2;" : "=f"(x) : "l"(from), "l"(keep_near()));
    return x;
}

// The same as `copy_16`, with zeros where there is nothing to copy.
__device__ __forceinline__ void copy_16_or_zero(u32 to, const void* from, bool exists) {
    int bytes = exists ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

// What is in registers already, into shared memory.
__device__ __forceinline__ void store_16(u32 to, uint4 x) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w) : "memory");
}

__device__ __forceinline__ void copies_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most N of the committed groups are still in flight.
template <int N>
__device__ __forceinline__ void copies_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// Into the second-level cache and no further.
__device__ __forceinline__ void prefetch_line(const void* from) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
}

// Barriers in shared memory, for copies that whole pieces are made with.

__device__ __forceinline__ void barrier_init(u32 barrier, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

// The copy engine sees the barriers too.
__device__ __forceinline__ void barriers_ready() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void barrier_expect(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

#if __CUDA_ARCH__ >= 900
// Whether the phase of this parity has passed. A barrier that is new has passed the phase of parity one.
__device__ __forceinline__ bool barrier_passed(u32 barrier, u32 parity) {
    u32 passed;
    asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(passed)
                 : "r"(barrier), "r"(parity)
                 : "memory");
    return passed;
}

__device__ __forceinline__ void barrier_wait(u32 barrier, u32 parity) {
    asm volatile("{\n.reg .pred p;\nWAIT:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra WAIT;\n}"
                 ::"r"(barrier), "r"(parity)
                 : "memory");
}

// The same where another block of the cluster writes what it tells of.
__device__ __forceinline__ void barrier_wait_cluster(u32 barrier, u32 parity) {
    asm volatile("{\n.reg .pred p;\nWAIT:\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1;\n@!p bra WAIT;\n}"
                 ::"r"(barrier), "r"(parity)
                 : "memory");
}

// Asks the copy engine (TMA) for a bulk copy; `full` is told how many bytes arrived.
__device__ __forceinline__ void fetch(u32 to, const void* from, u32 bytes, u32 full, u64 policy) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;"
                 ::"r"(to), "l"(from), "r"(bytes), "r"(full), "l"(policy)
                 : "memory");
}

// The same, no further than into the second-level cache.
__device__ __forceinline__ void foresee(const void* from, u32 bytes) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

// What was written to this block's shared memory comes before what the copy engine writes there.
__device__ __forceinline__ void order_copy_engine() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// What was written to memory is there for the copy engine too.
__device__ __forceinline__ void show_copy_engine() {
    asm volatile("fence.proxy.async;" ::: "memory");
}
#endif

#endif

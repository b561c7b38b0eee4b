// What a phase of `decode_persistent.cu` is, and what a warp remembers between two.

#include "ready_bits.cuh"

#define OP_EMBED 0
#define OP_STORE 1
#define OP_ADD 2
#define OP_GATE 3
#define OP_LOGITS 4
#define OP_ATTENTION 5
#define OP_PICK 6
#define OP_PLAIN 7
#define OP_ROUTE 8
#define OP_EXPERTS 9
#define OP_MIX 10
#define OP_DELTA 11

// What a phase is for one block; the host writes these. Inputs and outputs are vectors with ready bits (`ready_bits.cuh`): a mark is
// counted within a launch, and `step` is how many times a launch writes that vector.
struct Job {
    u32 kind;
    u32 format;
    u32 input_mark, input_step;
    u32 output_mark, output_step;
    const u32* input;
    const float* norm;
    const float* bias;     // of this block's first row
    u32* output;           // Logits are plain floats.
    u64* candidates;
    u32 tiles;             // of this block
    u32 rows;              // of them that exist
    u32 first_row;         // in the output
    u32 columns;
    u32 supers;
    u32 slices;
    float epsilon;
    u32 wide;              // How the input is quantised.
    u32 slot;              // Experts: which of the chosen ones this block works for,
    u32 chooses;           // and whether it needs the choice at all.
    u32 whole;             // A tile has one sum per row, not one for each super-block.
    u32 phase;
    u32 turn;              // Which of two rounds its norm comes in, or what the other block of the cluster sends.
    u32 apart;             // From one copy of the output to the next.
    u32 waits;             // Its input is attention's result, which takes its time.
    u32 stages;            // In which its weights come.
    u32 begin;             // Where its input stands in shared memory,
    u32 coming;            // and how many bytes of it the other block of the cluster sends.
    const float* dots;     // A row of floats that the normalised input is multiplied with too; its result is output `slot`.
};
MIRRORED(Job);

// What a warp remembers from phase to phase. In shared memory, because attention needs all registers: what the compiler
// keeps outside of them goes to memory, and 512 threads' worth of that does not fit the first-level cache.
struct Saved {
    u32 launches;          // before this one
    u32 taken;             // Slots of the ring, ever; the same for all warps where a phase begins.
    u32 held;              // Attention: slots that may be filled again, from the same beginning.
    u32 released;          // Slots that the feeder may fill again, as it is told.
};

// Reads again, so that nothing is kept.
__device__ __forceinline__ u32 keep(const u32& x) {
    return *(const volatile u32*)&x;
}

__device__ __forceinline__ u32 input_mark(const Job& job, u32 launches) {
    return (job.input_mark + launches * job.input_step) & 3;
}

__device__ __forceinline__ u32 output_mark(const Job& job, u32 launches) {
    return (job.output_mark + launches * job.output_step) & 3;
}

// Clock readings of a phase: begun, asked for the input, input seen, input ready, sums done, all done.
#ifdef TIMES
__device__ __forceinline__ void note(u64* times, u32 which) {
    if (threadIdx.x == 0) times[which] = clock_ns();
}
#else
__device__ __forceinline__ void note(u64*, u32) {}
#endif

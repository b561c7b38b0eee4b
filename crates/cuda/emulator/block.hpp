// What the driver and a compiled kernel know of each other: one block that is to be run.
#pragma once

typedef signed char i8;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SHARED_MAX 232448
#define CLUSTER_MAX 8
#define THREADS_MAX 1024
// Bytes of a thread's stack.
#define STACK (96 * 1024)

struct Index {
    u32 x, y, z;
};

// Words sent to another block of a cluster, with the barrier that is told of them.
struct Letter {
    u32 to, bytes, barrier;
    u32 words[4];
};
#define LETTERS_MAX 4096

struct Mailbox {
    u32 locked, count;
    Letter letters[LETTERS_MAX];
};

// What blocks of a cluster share.
struct Cluster {
    u32 blocks;
    u32 arrived;           // Threads, ever.
    u8* bases[CLUSTER_MAX];
    Mailbox* boxes[CLUSTER_MAX];
};

struct BlockRun {
    void (*enter)(const void*);
    const void* parameters;
    Index block, grid;
    u32 threads, shared_bytes;
    u8* stacks;
    Cluster* cluster;
    u64 seed;
    u32* epoch;            // Counts what any block of the launch said to others.
    const char* name;
};

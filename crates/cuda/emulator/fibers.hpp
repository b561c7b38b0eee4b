// A block of threads on one thread of the host: each is a fiber with its own stack, and runs until it waits for others.
//
// Every worker of the driver loads its own copy of a compiled kernel, so what is global here is one multiprocessor's, and
// nothing of a block is touched by two threads of the host but what blocks of a cluster store into each other.
#pragma once

#include "block.hpp"

typedef unsigned long u64_host;
#define DEADLOCK_CYCLES (150ull << 30)

// A copy under way: asked for, and not there before it is waited for.
struct Copy {
    u32 to, bytes;
    const u8* from;        // None: zeros.
    u32 group;             // of a thread's small copies; of a piece: who asked for it
    u32 barrier;           // of a whole piece
};

template <int MOST>
struct CopyList {
    Copy all[MOST];
    u32 count;
};

// What a thread saw where it looked last: whoever sees the same again waits for something.
struct Look {
    const void* at;
    u64 word;
};

struct Fiber {
    void* stack;
    Index index;
    u32 groups;            // of small copies, committed
    u32 cluster_phase;
    Look looks[16];
    u64 events;            // when it last went to sleep
    CopyList<128> small;
};

// Where lanes of a warp meet. Two rooms in turn: nobody enters a room again before all have left the other.
struct Meeting {
    u32 arrived, generation, gone;
    u32 absent[2];         // Who was gone when all others met in a room.
    const char* what;
    u8 room[2][32][48];
};

struct Gate {
    u32 arrived, generation;
};

// Threads, a word for each warp.
struct Threads {
    u32 lanes[THREADS_MAX / 32];
};

struct Card {
    Fiber* current;
    Fiber fibers[THREADS_MAX];
    Meeting meetings[THREADS_MAX / 32];
    Gate gates[16];
    Threads ready;         // Not asleep.
    Threads at_gates[16], at_barriers;  // Asleep there,
    Threads looking, napping;           // until another block says something, until something happens in this one.
    CopyList<4096> pieces;
    u32 alive;
    u64 moves, moves_seen; // Something happened in this block that somebody may wait for,
    u64 events;            // but for lanes and threads that met.
    bool said;             // So did something that another block may wait for.
    u32 epoch;             // of the launch, when the threads were last gone around
    u64 idle, idle_since;  // Times around without anything new.
    u64 random;
    void* host;
    const BlockRun* run;
};
static Card card;
static Mailbox mailbox;    // of this block

extern "C" {
int dprintf(int, const char*, ...);
void abort();
int sched_yield();
int usleep(u32);
void* memcpy(void*, const void*, u64_host);
void* memset(void*, int, u64_host);
}

#define threadIdx (card.current->index)
#define blockIdx (card.run->block)
#define gridDim (card.run->grid)
#define blockDim (Index{card.run->threads, 1, 1})

[[gnu::noinline, gnu::cold]] static void fault(const char* what) {
    dprintf(2, "emulated card: kernel %s, block (%u, %u, %u), thread %u: %s\n", card.run->name, blockIdx.x, blockIdx.y,
            blockIdx.z, threadIdx.x, what);
    abort();
}

// Leaves one stack for another: what a call preserves is saved on the old one.
extern "C" void change_stack(void** from, void* to);
asm(".text\n.hidden change_stack\n.globl change_stack\nchange_stack:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n");

static inline bool chance() {
    u64 x = card.random;
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    card.random = x;
    return x >> 40 & 1;
}

alignas(128) static u8 anchor[128];

static inline u8* at_shared(u32 address) {
    return anchor + (int)address;
}

struct Barrier {
    unsigned short pending, count;
    u32 state;             // Bytes that are still to come, and in the highest bit which phase it is.
};

static inline Barrier& barrier_at(u32 address) {
    return *(Barrier*)at_shared(address);
}

#include "races.hpp"

static inline void wake(Threads& asleep) {
    for (u32 w = 0; w < THREADS_MAX / 32; w++) card.ready.lanes[w] |= asleep.lanes[w], asleep.lanes[w] = 0;
}

static inline void happened() {
    card.moves++, card.events++;
    wake(card.napping);
}

UNWATCHED static void check_barrier(u32 address) {
    Barrier& b = barrier_at(address);
    if (b.pending || b.state << 1) return;
    b.state ^= 1u << 31, b.pending = b.count;
    passed_on(address);
    happened(), wake(card.at_barriers);
}

// Fewer than none are to come where they come before they are announced.
UNWATCHED static void add_bytes(Barrier& b, u32 bytes) {
    b.state = (b.state & 1u << 31) | ((b.state + bytes) & ~(1u << 31));
}

UNWATCHED static void arrive_at(u32 address, u32 bytes) {
    Barrier& b = barrier_at(address);
    if (!b.pending) fault("more arrive at a barrier in shared memory than it was made for");
    tell(address);
    b.pending--, add_bytes(b, bytes);
    check_barrier(address);
}

UNWATCHED static bool has_passed(u32 address, u32 parity) {
    if (barrier_at(address).state >> 31 == parity) return false;
    told(address);
    return true;
}

static inline void perform(const Copy& copy) {
    if (copy.from) memcpy(at_shared(copy.to), copy.from, copy.bytes);
    else memset(at_shared(copy.to), 0, 16);
    card.moves++;
}

UNWATCHED static void arrived_piece(const Copy& copy) {
    written_by_engine(copy);
    perform(copy);
    add_bytes(barrier_at(copy.barrier), -copy.bytes);
    check_barrier(copy.barrier);
}

UNWATCHED static void lock(Mailbox& box) {
    while (__atomic_exchange_n(&box.locked, 1, __ATOMIC_ACQUIRE)) sched_yield();
}
UNWATCHED static void unlock(Mailbox& box) { __atomic_store_n(&box.locked, 0, __ATOMIC_RELEASE); }

// Some of what other blocks sent arrives, in any order.
UNWATCHED static void open_letters() {
    lock(mailbox);
    u32 kept = 0;
    for (u32 i = 0; i < mailbox.count; i++) {
        Letter letter = mailbox.letters[i];
        if (chance()) {
            written_by_another(letter);
            memcpy(at_shared(letter.to), letter.words, letter.bytes);
            add_bytes(barrier_at(letter.barrier), -letter.bytes);
            card.moves++, check_barrier(letter.barrier);
        } else {
            mailbox.letters[kept++] = letter;
        }
    }
    mailbox.count = kept;
    unlock(mailbox);
}

// Another block must say something first. Not for ever: a thread may have seen what it looked for and not have gone on yet.
[[gnu::noinline]] static void wait_for_another() {
    for (u32 i = 0; i < 50 && __atomic_load_n(card.run->epoch, __ATOMIC_ACQUIRE) == card.epoch; i++) {
        if (i < 10) sched_yield();
        else usleep(20);
    }
    wake(card.looking), wake(card.napping);
    if (__builtin_ia32_rdtsc() - card.idle_since > DEADLOCK_CYCLES) fault("nothing has moved for a minute: a deadlock");
}

// Once around: some of the pieces arrive, in any order.
[[gnu::noinline]] static void once_around() {
    u32 kept = 0;
    for (u32 i = 0; i < card.pieces.count; i++) {
        Copy copy = card.pieces.all[i];
        if (chance()) arrived_piece(copy);
        else card.pieces.all[kept++] = copy;
    }
    card.pieces.count = kept;
    if (__atomic_load_n(&mailbox.count, __ATOMIC_ACQUIRE)) open_letters(), kept++;
    if (card.said) __atomic_fetch_add(card.run->epoch, 1, __ATOMIC_RELEASE), card.said = false;
    bool moved = card.moves != card.moves_seen || kept || __atomic_load_n(card.run->epoch, __ATOMIC_ACQUIRE) != card.epoch;
    if (moved) card.idle = 0, wake(card.looking);
    else if (++card.idle == 1) card.idle_since = __builtin_ia32_rdtsc();
    else if (card.idle > 4) wait_for_another();
    card.moves_seen = card.moves, card.epoch = __atomic_load_n(card.run->epoch, __ATOMIC_ACQUIRE);
}

// Lets the others run: the next one that is ready, perhaps the same.
[[gnu::noinline]] static void yield() {
    Fiber* own = card.current;
    if (!card.alive) return change_stack(&own->stack, card.host);
    u32 at = own->index.x, warps = (card.run->threads + 31) / 32, w = at / 32;
    u32 left = card.ready.lanes[w] & (u32)(~1ull << at % 32);
    while (!left) {
        if (++w == warps) w = 0, once_around();
        left = card.ready.lanes[w];
    }
    u32 next = w * 32 + __builtin_ctz(left);
    if (next == at) return;
    card.current = &card.fibers[next];
    change_stack(&own->stack, card.current->stack);
}

static inline void sleep_among(Threads& asleep) {
    u32 own = threadIdx.x;
    card.ready.lanes[own / 32] &= ~(1u << own % 32), asleep.lanes[own / 32] |= 1u << own % 32;
    yield();
}

// After a look: lets others run, until another block has said something where this look was in vain.
static inline void looked(const void* at, u64 word) {
    Look& last = card.current->looks[(u64)at / 4 % 16];
    bool again = last.at == at && last.word == word;
    last = {at, word};
    if (again) sleep_among(card.looking);
    else yield();
}

// Until something happens in this block, if nothing has since the last time.
static inline void nap() {
    Fiber& own = *card.current;
    bool again = own.events == card.events;
    own.events = card.events;
    if (again) sleep_among(card.napping);
    else yield();
}

static const char* const SYNCWARP = "__syncwarp";

// A thread that has ended counts as one that has arrived wherever it would be waited for.
static inline bool everybody_met(Meeting& m) {
    if (__builtin_popcount(m.gone) + m.arrived < 32) return false;
    if (m.what == SYNCWARP) ordered_by_warp();
    m.absent[m.generation % 2] = m.gone;
    m.arrived = 0, m.generation++, card.moves++;
    card.ready.lanes[&m - card.meetings] = ~m.gone;
    return true;
}

static inline bool everybody_at(Gate& gate, u32 count) {
    if (gate.arrived < (count ? count : card.alive)) return false;
    gate_opens((u32)(&gate - card.gates), gate.generation);
    gate.arrived = 0, gate.generation++, card.moves++;
    wake(card.at_gates[&gate - card.gates]);
    return true;
}

// The lanes of a warp meet, each with `own`; afterwards `room` of lane i has what lane i brought.
template <typename T>
static inline const u8 (*meet(const char* what, const T& own))[48] {
    static_assert(sizeof(T) <= 48, "room for it");
    Meeting& m = card.meetings[threadIdx.x / 32];
    if (m.arrived == 0) m.what = what;
    else if (m.what != what) fault("lanes of a warp meet at different instructions");
    u32 generation = m.generation;
    memcpy(m.room[generation % 2][threadIdx.x % 32], &own, sizeof(T));
    m.arrived++;
    if (!everybody_met(m)) {
        card.ready.lanes[threadIdx.x / 32] &= ~(1u << threadIdx.x % 32);
        yield();
        if (*(volatile u32*)&m.generation == generation) fault("woken before all lanes were there");
    }
    return m.room[generation % 2];
}

template <typename T>
static inline T brought(const u8 (*room)[48], u32 lane) {
    T value;
    memcpy(&value, room[lane], sizeof(T));
    return value;
}

static inline void wait_at(u32 which, u32 count) {
    Gate& gate = card.gates[which];
    u32 generation = gate.generation;
    reach_gate(which, generation);
    gate.arrived++;
    if (!everybody_at(gate, count)) {
        sleep_among(card.at_gates[which]);
        if (*(volatile u32*)&gate.generation == generation) fault("woken before all threads were there");
    }
    leave_gate(which, generation);
}

// A thread's small copies of groups up to `last` are there.
static inline void finish_small(u32 last) {
    CopyList<128>& small = card.current->small;
    u32 kept = 0;
    for (u32 i = 0; i < small.count; i++) {
        if ((int)(last - small.all[i].group) >= 0) written_now(small.all[i].to, 16), perform(small.all[i]);
        else small.all[kept++] = small.all[i];
    }
    small.count = kept;
}

// Where every thread begins and ends.
[[gnu::noinline]] static void live() {
    card.run->enter(card.run->parameters);
    finish_small(card.current->groups);
    Fiber* own = card.current;
    card.ready.lanes[own->index.x / 32] &= ~(1u << own->index.x % 32), card.alive--, card.moves++;
    Meeting& m = card.meetings[own->index.x / 32];
    m.gone |= 1u << own->index.x % 32;
    if (m.arrived) everybody_met(m);
    if (card.gates[0].arrived) everybody_at(card.gates[0], 0);
    yield();
    fault("a thread that has ended runs on");
}

extern "C" [[gnu::visibility("default")]] void emulate_block(const BlockRun* run) {
    card.run = run, card.alive = run->threads, card.said = false, card.idle = 0;
    card.random = run->seed * 0x9e3779b97f4a7c15ull | 1;
    card.epoch = __atomic_load_n(run->epoch, __ATOMIC_ACQUIRE);
    card.looking = card.napping = card.at_barriers = {};
    memset(card.gates, 0, sizeof(card.gates)), memset(&card.ready, 0, sizeof(card.ready));
    for (u32 i = 0; i < run->threads; i++) {
        Fiber& f = card.fibers[i];
        // As `change_stack` leaves it: six registers, then where to go on, and the stack as after a call.
        void** top = (void**)(run->stacks + (u64)(i + 1) * STACK) - 1;
        *--top = (void*)live;
        f.stack = top - 6, f.index = {i, 0, 0}, f.groups = 1, f.events = 0, f.cluster_phase = 0, f.small.count = 0;
        memset(f.looks, 0, sizeof(f.looks));
        card.ready.lanes[i / 32] |= 1u << i % 32;
        if (i % 32 == 0) card.meetings[i / 32].arrived = 0, card.meetings[i / 32].gone = 0;
    }
    if (run->threads % 32) card.meetings[run->threads / 32].gone = ~0u << run->threads % 32;
    if (run->cluster) {
        u32 rank = run->block.x % run->cluster->blocks;
        mailbox.locked = mailbox.count = 0, run->cluster->boxes[rank] = &mailbox;
        __atomic_store_n(&run->cluster->bases[rank], (u8*)anchor, __ATOMIC_RELEASE);
    }
    begin_races();
    card.current = card.fibers;
    change_stack(&card.host, card.fibers[0].stack);
    if (card.said) __atomic_fetch_add(run->epoch, 1, __ATOMIC_RELEASE);
    card.current = card.fibers;
    end_races();
    if (card.pieces.count) fault("pieces are on their way when the block ends");
    if (mailbox.count) fault("words from another block are on their way when the block ends");
}

// Hazards in shared memory: two threads touch the same word, one of them writes, and nothing orders the two.
//
// The host's compiler calls `__tsan_read4` and its like before every access (`-fsanitize=thread`); here is what they do. Every thread
// has a clock for each thread: how far it knows the others to have come. A thread's own advances whenever it tells others
// something; whoever is told takes the larger of both. An access is ordered after another by a different thread when the clock that
// the other had then has been passed on. (FastTrack, Flanagan and Freund, 2009.)
//
// Told: from all to all at `__syncwarp`, `__syncthreads` and named barriers; from those who arrive at a barrier in shared memory to
// those who find it passed, with what they asked the copy engine for; from a release to whoever acquires. Lanes that exchange
// registers are not told anything, as the card promises nothing there. Global memory is not looked at.
#pragma once

#ifndef RACES
#define UNWATCHED
static inline void ordered_by_warp() {}
static inline void reach_gate(u32, u32) {}
static inline void gate_opens(u32, u32) {}
static inline void leave_gate(u32, u32) {}
static inline void tell(u32) {}
static inline void told(u32) {}
static inline void passed_on(u32) {}
static inline void written_by_engine(const Copy&) {}
static inline void written_now(u32, u32) {}
static inline void asks_engine() {}
static inline void published() {}
static inline void written_by_another(const Letter&) {}
static inline void begin_races() {}
static inline void end_races() {}
#else
// Not watched itself.
#define UNWATCHED __attribute__((no_sanitize("thread"), noinline))

// The copy engine counts as a thread for each thread that asks it; those are the last of a block.
#define ASKERS 128
// Other blocks of the cluster are one more. They are taken to know what threads of this block had done when these last stored something
// for all blocks: somebody did see it, or there would be nothing to send.
#define CLOCKS (THREADS_MAX + ASKERS + 16)
#define SHADOW_WORDS (300 * 1024 / 4)
#define SHADOW_PLACES 512

struct Clocks {
    u32 of[CLOCKS];
};

// Who last wrote a word, and who has read it since: one thread, or all that have, once there is more than one.
struct Word {
    u32 write_clock, read_clock;
    unsigned short writer, reader;
    unsigned short disputed;      // Another thread wrote something else, and nothing orders the two: that one's number and one more.
    Clocks* readers;
};

struct Place {
    u32 address;
    Clocks arriving, passed;
};

static Clocks* clocks;            // [thread]
static Word* words;
static Place* places;
static u32 place_count;
static Clocks gate_clocks[16][2]; // of one generation and the next
static u32 clock_count, found;

// A word that two threads write without order, and what it was before the second did.
struct Suspect {
    u32 at, before, writer;
};
#define SUSPECTS 64
static Suspect suspects[SUSPECTS];
static u32 suspect_count;
static void* code;                // The access that is looked at.

extern "C" u8 __start_block_shared[], __stop_block_shared[];
extern "C" void* calloc(u64_host, u64_host);
extern "C" void free(void*);
extern "C" const u8 __ehdr_start[] __attribute__((visibility("hidden")));

UNWATCHED static void join(Clocks& to, const Clocks& from) {
    for (u32 i = 0; i < clock_count; i++) to.of[i] = to.of[i] > from.of[i] ? to.of[i] : from.of[i];
}

UNWATCHED static u32 engine_of(u32 asker) {
    return card.run->threads + asker % ASKERS;
}

UNWATCHED static u32 others() {
    return card.run->threads + ASKERS;
}

UNWATCHED static const char* kind_of(u32 who) {
    return who < card.run->threads ? "thread" : who == others() ? "another block as copy" : "copy";
}

UNWATCHED static void report(u32 who, const char* what, u32 other, u32 address) {
    const Index& at = card.run->block;
    u32 threads = card.run->threads;
    if (found++ < 10) {
        dprintf(2, "emulated card: kernel %s, block (%u, %u, %u): %s %u %s %s %u and nothing orders the two; shared address %u, code at 0x%lx\n",
                card.run->name, at.x, at.y, at.z, kind_of(who), who < threads ? who : who - threads, what, kind_of(other),
                other < threads ? other : other - threads, address, (u64_host)((u8*)code - __ehdr_start));
    }
}

UNWATCHED static void access(u32 at, u32 thread, const Clocks& now, bool writes) {
    Word& w = words[at];
    if (w.write_clock > now.of[w.writer]) {
        if (!writes) report(thread, "reads what is written by", w.writer, at * 4);
        else if (suspect_count < SUSPECTS) suspects[suspect_count++] = {at, ((const u32*)__start_block_shared)[at], w.writer};
    } else if (writes) {
        w.disputed = 0;
    }
    if (!writes) {
        if (w.disputed) report(thread, "reads what two write at once, one of them", w.disputed - 1, at * 4);
        u32 clock = now.of[thread];
        if (w.readers) {
            w.readers->of[thread] = clock;
        } else if (!w.read_clock || w.reader == thread || w.read_clock <= now.of[w.reader]) {
            w.read_clock = clock, w.reader = (unsigned short)thread;
        } else {
            w.readers = (Clocks*)calloc(1, sizeof(Clocks));
            w.readers->of[w.reader] = w.read_clock, w.readers->of[thread] = clock;
        }
        return;
    }
    if (w.readers) {
        for (u32 i = 0; i < clock_count; i++) {
            if (w.readers->of[i] > now.of[i]) report(thread, "writes what is read by", i, at * 4);
        }
        free(w.readers), w.readers = 0;
    } else if (w.read_clock > now.of[w.reader]) {
        report(thread, "writes what is read by", w.reader, at * 4);
    }
    w.read_clock = 0, w.write_clock = now.of[thread], w.writer = (unsigned short)thread;
}

// Several threads may write the same value, or what nobody reads. A write is only known when it has been made, which it has when
// the next access comes.
UNWATCHED static void check_suspects() {
    for (u32 i = 0; i < suspect_count; i++) {
        const Suspect& s = suspects[i];
        if (((const u32*)__start_block_shared)[s.at] != s.before) words[s.at].disputed = (unsigned short)(s.writer + 1);
    }
    suspect_count = 0;
}

// Words are watched whole: threads that write different bytes of one are taken to write at once what both write.
UNWATCHED static void watched(const void* p, u32 bytes, bool writes) {
    if (suspect_count) check_suspects();
    u64 at = (u64)p - (u64)__start_block_shared;
    if (at >= (u64)(__stop_block_shared - __start_block_shared)) return;
    u32 own = card.current->index.x;
    for (u64 word = at / 4; word <= (at + bytes - 1) / 4; word++) access((u32)word, own, clocks[own], writes);
}

UNWATCHED static u32 word_of(u32 address) {
    return (u32)((at_shared(address) - __start_block_shared) / 4);
}

// A barrier or a word that tells, by its address.
UNWATCHED static Place& place_at(u32 address) {
    for (u32 i = 0; i < place_count; i++) {
        if (places[i].address == address) return places[i];
    }
    if (place_count == SHADOW_PLACES) abort();
    places[place_count].address = address;
    return places[place_count++];
}

UNWATCHED static void ordered_by_warp() {
    u32 first = card.current->index.x / 32 * 32, last = first + 32 < card.run->threads ? first + 32 : card.run->threads;
    Clocks all = {};
    for (u32 i = first; i < last; i++) join(all, clocks[i]);
    for (u32 i = first; i < last; i++) clocks[i] = all, clocks[i].of[i]++;
}

UNWATCHED static void reach_gate(u32 which, u32 generation) {
    join(gate_clocks[which][generation % 2], clocks[card.current->index.x]);
}

// Everybody has arrived, so everybody has left the generation before.
UNWATCHED static void gate_opens(u32 which, u32 generation) {
    memset(&gate_clocks[which][(generation + 1) % 2], 0, sizeof(Clocks));
}

UNWATCHED static void leave_gate(u32 which, u32 generation) {
    u32 own = card.current->index.x;
    // With RACES=2 nobody is told anything here: what must be found then shows that it would be.
    if (RACES == 1) join(clocks[own], gate_clocks[which][generation % 2]);
    clocks[own].of[own]++;
}

UNWATCHED static void tell(u32 address) {
    u32 own = card.current->index.x;
    join(place_at(address).arriving, clocks[own]), clocks[own].of[own]++;
}

UNWATCHED static void passed_on(u32 address) {
    Place& place = place_at(address);
    place.passed = place.arriving;
}

UNWATCHED static void told(u32 address) {
    join(clocks[card.current->index.x], place_at(address).passed);
}

// Called before the bytes are: a piece arrives, written after everything its asker had done when it asked.
UNWATCHED static void written_by_engine(const Copy& copy) {
    u32 engine = engine_of(copy.group);
    Clocks& own = clocks[engine];
    own.of[engine]++, code = 0;
    for (u32 i = 0; i < copy.bytes / 4; i++) access(word_of(copy.to) + i, engine, own, true);
    join(place_at(copy.barrier).arriving, own);
}

UNWATCHED static void asks_engine() {
    u32 own = card.current->index.x;
    join(clocks[engine_of(own)], clocks[own]), clocks[own].of[own]++;
}

UNWATCHED static void published() {
    u32 own = card.current->index.x;
    join(clocks[others()], clocks[own]), clocks[own].of[own]++;
}

UNWATCHED static void written_by_another(const Letter& letter) {
    Clocks& own = clocks[others()];
    own.of[others()]++, code = 0;
    for (u32 i = 0; i < letter.bytes / 4; i++) access(word_of(letter.to) + i, others(), own, true);
    join(place_at(letter.barrier).arriving, own);
}

UNWATCHED static void written_now(u32 to, u32 bytes) {
    u32 own = card.current->index.x;
    code = 0;
    for (u32 i = 0; i < bytes / 4; i++) access(word_of(to) + i, own, clocks[own], true);
}

UNWATCHED static void begin_races() {
    if (!clocks) {
        clocks = (Clocks*)calloc(CLOCKS, sizeof(Clocks)), words = (Word*)calloc(SHADOW_WORDS, sizeof(Word));
        places = (Place*)calloc(SHADOW_PLACES, sizeof(Place));
    }
    clock_count = (card.run->threads + ASKERS + 1 + 15) / 16 * 16, found = 0;
    for (u32 i = 0; i < SHADOW_WORDS; i++) free(words[i].readers);
    memset(clocks, 0, sizeof(Clocks) * CLOCKS), memset(words, 0, sizeof(Word) * SHADOW_WORDS), memset(places, 0, sizeof(Place) * SHADOW_PLACES);
    memset(gate_clocks, 0, sizeof(gate_clocks)), place_count = 0;
    for (u32 i = 0; i < CLOCKS; i++) clocks[i].of[i] = 1;
}

UNWATCHED static void end_races() {
    suspect_count = 0;
    if (found) fault("hazards in shared memory");
}

#define WATCHED_AS(NAME, SIZE, WRITES) \
    UNWATCHED void NAME(void* p) { code = __builtin_return_address(0), watched(p, SIZE, WRITES); }
#define WATCHED(SIZE)                                      \
    WATCHED_AS(__tsan_read##SIZE, SIZE, false)             \
    WATCHED_AS(__tsan_write##SIZE, SIZE, true)             \
    WATCHED_AS(__tsan_unaligned_read##SIZE, SIZE, false)   \
    WATCHED_AS(__tsan_unaligned_write##SIZE, SIZE, true)   \
    WATCHED_AS(__tsan_volatile_read##SIZE, SIZE, false)    \
    WATCHED_AS(__tsan_volatile_write##SIZE, SIZE, true)

// Atomic accesses order nothing here and are no hazards.
#define ATOMIC(BITS, T)                                                                                     \
    UNWATCHED T __tsan_atomic##BITS##_load(const T* p, int) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); }     \
    UNWATCHED void __tsan_atomic##BITS##_store(T* p, T x, int) { __atomic_store_n(p, x, __ATOMIC_SEQ_CST); }     \
    UNWATCHED T __tsan_atomic##BITS##_fetch_add(T* p, T x, int) { return __atomic_fetch_add(p, x, __ATOMIC_SEQ_CST); } \
    UNWATCHED T __tsan_atomic##BITS##_compare_exchange_val(T* p, T old, T x, int, int) {                         \
        return __atomic_compare_exchange_n(p, &old, x, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST), old;      \
    }                                                                                                       \
    UNWATCHED int __tsan_atomic##BITS##_compare_exchange_strong(T* p, T* old, T x, int, int) {                   \
        return __atomic_compare_exchange_n(p, old, x, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);            \
    }

extern "C" {
WATCHED(1)
WATCHED(2)
WATCHED(4)
WATCHED(8)
WATCHED(16)
ATOMIC(32, u32)
ATOMIC(64, u64)
UNWATCHED void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
UNWATCHED void __tsan_read_range(void* p, u64_host bytes) { watched(p, (u32)bytes, false); }
UNWATCHED void __tsan_write_range(void* p, u64_host bytes) { watched(p, (u32)bytes, true); }
UNWATCHED void __tsan_func_entry(void*) {}
UNWATCHED void __tsan_func_exit() {}
UNWATCHED void __tsan_init() {}
}
#endif

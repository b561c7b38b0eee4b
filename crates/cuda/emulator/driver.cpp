// The driver's library of a card that is not there: what Flint calls of it, over the host's memory.
//
// Kernels are compiled by the host's own compiler (`compiler.cpp`), blocks run on threads of the host, as many at once as the card
// says it has multiprocessors, and a stream does what it is asked at once. Every allocation ends where a page that is not
// there begins. Nothing here is fast; it shows that kernels are right, on any machine.
//
//   EMULATED_CARD_BLOCKS   multiprocessors (24)
//   EMULATED_CARD_SEED     what chance begins with (1); see `chance` in `fibers.hpp`

#include "block.hpp"
#include "settings.hpp"
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <ucontext.h>
#include <unistd.h>
#include <vector>

enum Result { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_FOUND = 500 };

static const size_t STACKS_BYTES = THREADS_MAX * STACK, PAGE = 4096, MEMORY_BYTES = 16ull << 30;

// A compiled kernel source, loaded once for each worker.
struct Module {
    std::vector<void*> copies;
};

struct Function {
    std::string name;
    std::vector<void (*)(const void*)> enter;
    std::vector<void (*)(const BlockRun*)> emulate;
    size_t parameter_bytes;
};

struct Launch {
    Function* function;
    std::vector<u8> parameters;
    Index grid;
    u32 threads, shared_bytes, cluster;
};

// Memory that is not there: says which kernel wanted it, as far as that is known, and where in its code.
static thread_local const BlockRun* under_way = nullptr;

static void not_there(int, siginfo_t* info, void* context) {
    Dl_info where = {};
    void* at = (void*)((ucontext_t*)context)->uc_mcontext.gregs[REG_RIP];
    dladdr(at, &where);
    const BlockRun* run = under_way;
    dprintf(2, "emulated card: %s, block %u: no memory at %p; code at %p, %s + 0x%lx\n", run ? run->name : "no kernel",
            run ? run->block.x : 0, info->si_addr, at, where.dli_fname ? where.dli_fname : "?",
            (unsigned long)((u8*)at - (u8*)where.dli_fbase));
    _exit(139);
}

// The multiprocessors: threads that take the blocks of one launch in order.
class Workers {
  public:
    u32 count = (u32)setting("EMULATED_CARD_BLOCKS", 24);

    Workers() {
        if (count < CLUSTER_MAX) count = CLUSTER_MAX;
        struct sigaction action = {};
        action.sa_sigaction = not_there, action.sa_flags = SA_SIGINFO | SA_ONSTACK;
        sigaction(SIGSEGV, &action, nullptr), sigaction(SIGBUS, &action, nullptr);
        for (u32 i = 0; i < count; i++) std::thread([this, i] { work(i); }).detach();
    }

    void run(const Launch& launch) {
        std::lock_guard<std::mutex> one(running);
        u32 blocks = launch.grid.x * launch.grid.y * launch.grid.z;
        std::vector<Cluster> clusters(launch.cluster ? blocks / launch.cluster : 0);
        for (Cluster& cluster : clusters) cluster.blocks = launch.cluster, cluster.arrived = 0;
        std::unique_lock<std::mutex> lock(mutex);
        this->launch = &launch, this->clusters = clusters.data(), all = blocks, next = 0, busy = count, launches++;
        begin.notify_all();
        end.wait(lock, [this] { return busy == 0; });
    }

  private:
    std::mutex running, mutex;
    std::condition_variable begin, end;
    const Launch* launch = nullptr;
    Cluster* clusters = nullptr;
    u32 all = 0, busy = 0, epoch = 0;
    std::atomic<u32> next{0};
    u64 launches = 0, seed = setting("EMULATED_CARD_SEED", 1);

    void work(u32 own) {
        // A stack of its own for the handler: that of a fiber may be what is used up.
        stack_t aside = {malloc(SIGSTKSZ * 4), 0, (size_t)SIGSTKSZ * 4};
        sigaltstack(&aside, nullptr);
        void* stacks = mmap(nullptr, STACKS_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        for (u64 seen = 0;; seen++) {
            std::unique_lock<std::mutex> lock(mutex);
            begin.wait(lock, [&] { return launches > seen; });
            lock.unlock();
            for (u32 block; (block = next++) < all;) {
                const Launch& l = *launch;
                Index at = {block % l.grid.x, block / l.grid.x % l.grid.y, block / l.grid.x / l.grid.y};
                Cluster* cluster = l.cluster ? clusters + block / l.cluster : nullptr;
                u64 chance = (seed * 0x10001 + launches) * 0x10001 + block + 1;
                BlockRun run = {l.function->enter[own], l.parameters.data(), at, l.grid, l.threads, l.shared_bytes,
                                (u8*)stacks, cluster, chance, &epoch, l.function->name.c_str()};
                under_way = &run;
                l.function->emulate[own](&run);
                under_way = nullptr;
            }
            lock.lock();
            if (--busy == 0) end.notify_all();
        }
    }
};

static Workers& workers() {
    static Workers* all = new Workers;
    return *all;
}

// Memory: every piece ends at a page that cannot be touched.
class Memory {
  public:
    size_t used = 0;

    void* allocate(size_t bytes) {
        std::lock_guard<std::mutex> lock(mutex);
        size_t room = (bytes + PAGE - 1) / PAGE * PAGE;
        if (used + room > MEMORY_BYTES) return nullptr;
        u8* base = (u8*)mmap(nullptr, room + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (base == MAP_FAILED) return nullptr;
        mprotect(base + room, PAGE, PROT_NONE);
        used += room;
        // The driver promises 256 bytes of alignment; kernels need no more than sixteen.
        u8* start = base + (room - (bytes + 15) / 16 * 16);
        pieces[start] = {base, room};
        return start;
    }

    bool release(void* start) {
        std::lock_guard<std::mutex> lock(mutex);
        auto found = pieces.find((u8*)start);
        if (found == pieces.end()) return false;
        munmap(found->second.first, found->second.second + PAGE);
        used -= found->second.second;
        pieces.erase(found);
        return true;
    }

  private:
    std::mutex mutex;
    std::map<u8*, std::pair<u8*, size_t>> pieces;
};

static Memory& memory() {
    static Memory* all = new Memory;
    return *all;
}

// What a stream is asked for is done at once, or kept while a graph is recorded.
typedef std::vector<std::function<void()>> Graph;
static thread_local Graph* recorded = nullptr;

static Result ask(std::function<void()> work) {
    if (recorded) recorded->push_back(work);
    else work();
    return SUCCESS;
}

// An anonymous file with these bytes, opened as a library. Each opening is a library of its own.
static void* open_library(const void* bytes, size_t size) {
    int file = memfd_create("kernel", 0);
    if (file < 0 || write(file, bytes, size) != (ssize_t)size) return nullptr;
    std::string path = "/proc/self/fd/" + std::to_string(file);
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) fprintf(stderr, "emulated card: %s\n", dlerror());
    // The file stays open: another under the same path would be taken for this one.
    return library;
}

extern "C" {

Result cuInit(u32) { return SUCCESS; }
Result cuDriverGetVersion(int* version) { return *version = 13000, SUCCESS; }
Result cuDeviceGetCount(int* count) { return *count = 1, SUCCESS; }
Result cuDeviceGet(int* card, int) { return *card = 0, SUCCESS; }
Result cuDeviceGetName(char* name, int length, int) { return snprintf(name, length, "emulated card"), SUCCESS; }
Result cuDeviceTotalMem_v2(size_t* bytes, int) { return *bytes = MEMORY_BYTES, SUCCESS; }
Result cuMemGetInfo_v2(size_t* free, size_t* total) { return *total = MEMORY_BYTES, *free = MEMORY_BYTES - memory().used, SUCCESS; }
Result cuDevicePrimaryCtxRetain(void** context, int) { return *context = &memory(), SUCCESS; }
Result cuCtxSetCurrent(void*) { return SUCCESS; }
Result cuStreamCreate(void** stream, u32) { return *stream = &workers(), SUCCESS; }
Result cuStreamDestroy_v2(void*) { return SUCCESS; }
Result cuStreamSynchronize(void*) { return SUCCESS; }
Result cuStreamQuery(void*) { return SUCCESS; }
Result cuFuncSetAttribute(void*, int, int) { return SUCCESS; }

Result cuGetErrorString(Result result, const char** text) {
    *text = result == OUT_OF_MEMORY ? "out of memory" : result == NOT_FOUND ? "not found" : "refused by the emulated card";
    return SUCCESS;
}

Result cuDeviceGetAttribute(int* value, int which, int) {
    switch (which) {
        case 16: *value = (int)workers().count; return SUCCESS;   // Multiprocessors.
        case 75: *value = (int)setting("EMULATED_CARD_MAJOR", 9); return SUCCESS; // Compute capability.
        case 76: *value = 0; return SUCCESS;
        case 97: *value = SHARED_MAX; return SUCCESS;             // Shared memory of a block.
        default: return INVALID_VALUE;
    }
}

Result cuMemAlloc_v2(void** address, size_t bytes) {
    *address = memory().allocate(bytes);
    if (!*address) return OUT_OF_MEMORY;
    // What nobody wrote is no number.
    memset(*address, 0xff, bytes);
    return SUCCESS;
}
Result cuMemFree_v2(void* address) { return memory().release(address) ? SUCCESS : INVALID_VALUE; }
Result cuMemHostAlloc(void** address, size_t bytes, u32) { return cuMemAlloc_v2(address, bytes); }
Result cuMemFreeHost(void* address) { return cuMemFree_v2(address); }
Result cuMemsetD8Async(void* to, u8 value, size_t bytes, void*) { return ask([=] { memset(to, value, bytes); }); }
Result cuMemcpyHtoDAsync_v2(void* to, const void* from, size_t bytes, void*) { return ask([=] { memcpy(to, from, bytes); }); }
Result cuMemcpyDtoHAsync_v2(void* to, const void* from, size_t bytes, void*) { return ask([=] { memcpy(to, from, bytes); }); }
Result cuMemcpyDtoDAsync_v2(void* to, const void* from, size_t bytes, void*) { return ask([=] { memcpy(to, from, bytes); }); }

Result cuModuleLoadData(Module** module, const u8* code) {
    // Where an ELF file without anything after its section headers ends.
    u64 sections;
    unsigned short each, count;
    memcpy(&sections, code + 40, 8), memcpy(&each, code + 58, 2), memcpy(&count, code + 60, 2);
    *module = new Module;
    for (u32 i = 0; i < workers().count; i++) {
        void* library = open_library(code, sections + (u64)each * count);
        if (!library) return INVALID_VALUE;
        (*module)->copies.push_back(library);
    }
    return SUCCESS;
}

Result cuModuleGetFunction(Function** function, Module* module, const char* name) {
    *function = new Function{name, {}, {}, 0};
    for (void* library : module->copies) {
        void* enter = dlsym(library, ("enter_" + std::string(name)).c_str());
        if (!enter) return NOT_FOUND;
        (*function)->enter.push_back((void (*)(const void*))enter);
        (*function)->emulate.push_back((void (*)(const BlockRun*))dlsym(library, "emulate_block"));
        (*function)->parameter_bytes = *(const u64*)dlsym(library, ("bytes_" + std::string(name)).c_str());
    }
    return SUCCESS;
}

struct Attribute {
    u32 id, padding;
    u32 value[16];
};

struct Config {
    Index grid, block;
    u32 shared_bytes;
    void* stream;
    const Attribute* attributes;
    u32 count;
};

Result cuLaunchKernelEx(const Config* config, Function* function, void** parameters, void**) {
    const u8* given = (const u8*)parameters[0];
    u32 cluster = 0;
    for (u32 i = 0; i < config->count; i++) {
        if (config->attributes[i].id == 4) cluster = config->attributes[i].value[0];
    }
    bool fits = config->block.x <= THREADS_MAX && config->shared_bytes <= SHARED_MAX && cluster <= CLUSTER_MAX;
    if (!fits || config->grid.x * config->grid.y * config->grid.z == 0) return INVALID_VALUE;
    Launch launch = {function, std::vector<u8>(given, given + function->parameter_bytes), config->grid, config->block.x,
                     config->shared_bytes, cluster};
    return ask([launch] { workers().run(launch); });
}

Result cuStreamBeginCapture_v2(void*, int) { return recorded = new Graph, SUCCESS; }
Result cuStreamEndCapture(void*, Graph** graph) { return *graph = recorded, recorded = nullptr, SUCCESS; }
Result cuGraphInstantiateWithFlags(Graph** executable, Graph* graph, u64) { return *executable = new Graph(*graph), SUCCESS; }
Result cuGraphDestroy(Graph* graph) { return delete graph, SUCCESS; }
Result cuGraphExecDestroy(Graph* graph) { return delete graph, SUCCESS; }
Result cuGraphLaunch(Graph* graph, void*) {
    for (auto& work : *graph) work();
    return SUCCESS;
}

}  // extern "C"

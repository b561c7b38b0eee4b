// A card that is not there, as the driver's and the compiler's libraries: what Flint calls of both, over the host's memory.
//
// Kernels are compiled by the host's own compiler (`emulated.hpp`), blocks run on threads of the host, as many at once as the card
// says it has multiprocessors, and a stream does what it is asked at once. Every allocation ends where a page that is not
// there begins. Nothing here is fast; it shows that kernels are right, on any machine.
//
//   EMULATED_CARD_BLOCKS   multiprocessors (24)
//   EMULATED_CARD_SEED     what chance begins with (1); see `chance` in `fibers.hpp`
//   EMULATED_CARD_RACES    1: look for hazards in shared memory (`races.hpp`); ten times slower. 2: and find some, as if barriers of
//                          threads ordered nothing

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <ucontext.h>
#include <unistd.h>
#include <vector>

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

static const size_t STACKS_BYTES = 96 * 1024 * 1024, PAGE = 4096, MEMORY_BYTES = 16ull << 30;
static const u32 SHARED_MAX = 232448, CLUSTER_MAX = 8;

enum Result { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_FOUND = 500 };

struct Index {
    u32 x, y, z;
};

struct Cluster {
    u32 blocks, arrived;
    u8* bases[CLUSTER_MAX];
};

// As in `fibers.hpp`.
struct BlockRun {
    void (*enter)(const void*);
    const void* parameters;
    Index block, grid;
    u32 threads, shared_bytes;
    u8* stacks;
    Cluster* cluster;
    u64 seed;
    u32* epoch;
    const char* name;
};

static u64 setting(const char* name, u64 otherwise) {
    const char* value = getenv(name);
    return value && *value ? strtoull(value, nullptr, 10) : otherwise;
}

// A compiled kernel source, loaded once for each worker.
struct Module {
    std::vector<void*> copies;
};

struct Function {
    Module* module;
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

// The compiler.
struct Program {
    std::string text, log, code;
};

static std::string read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::stringstream all;
    all << file.rdbuf();
    return all.str();
}

// A preprocessed source as the host's compiler takes it: dynamic shared memory is an array like any other, and every kernel has an
// entry that takes its parameter by address.
static std::string for_host(const std::string& text) {
    std::regex dynamic("extern static(?: __attribute__\\(\\(section\\(\"\\w+\"\\)\\)\\))? __attribute__\\(\\(aligned\\(\\d+\\)\\)\\) u8 (\\w+)\\[\\];");
    std::regex kernel("extern \"C\" __attribute__\\(\\(used\\)\\) void\\s+(\\w+)\\(const\\s+(\\w+) p\\) \\{");
    std::set<std::string> arrays;
    const char* section = setting("EMULATED_CARD_RACES", 0) ? "__attribute__((section(\"block_shared\"))) " : "";
    std::ostringstream end;
    for (std::sregex_iterator i(text.begin(), text.end(), dynamic), none; i != none; ++i) {
        if (arrays.insert((*i)[1]).second) end << section << "alignas(128) u8 " << (*i)[1] << "[" << SHARED_MAX << "];\n";
    }
    for (std::sregex_iterator i(text.begin(), text.end(), kernel), none; i != none; ++i) {
        std::string name = (*i)[1], type = (*i)[2], shown = "extern \"C\" [[gnu::visibility(\"default\")]] ";
        end << shown << "void enter_" << name << "(const void* p) { " << name << "(*(const " << type << "*)p); }\n";
        end << shown << "const u64 bytes_" << name << " = sizeof(" << type << ");\n";
    }
    return std::regex_replace(text, dynamic, "extern u8 $1[];") + "\n" + end.str();
}

extern "C" {

int nvrtcVersion(int* major, int* minor) {
    // Other words of this emulator make other code: the version names what is kept on disk.
    size_t hash = std::hash<std::string>()(read_file(EMULATOR "/emulated.hpp") + read_file(EMULATOR "/fibers.hpp") +
                                           read_file(EMULATOR "/races.hpp"));
    *major = (int)setting("EMULATED_CARD_RACES", 0), *minor = (int)(hash & 0x7fffffff);
    return 0;
}

int nvrtcCreateProgram(void** program, const char* text, const char*, int, const char* const*, const char* const*) {
    *program = new Program{text, "", ""};
    return 0;
}

int nvrtcCompileProgram(Program* program, int count, const char* const* options) {
    char folder[] = "/tmp/emulated-card-XXXXXX";
    if (!mkdtemp(folder)) return 1;
    u64 races = setting("EMULATED_CARD_RACES", 0);
    std::string at = folder, define = "--define-macro=", source = at + "/kernel.cpp", plain = at + "/kernel.ii", object = at + "/kernel.o";
    auto run = [&](const std::string& command) { return system((command + " 2> " + at + "/log").c_str()) == 0; };
    std::string preprocess = "g++ -E -DEMULATED -I" EMULATOR " -o " + plain + " " + source;
    std::string compile = "g++ -c -std=c++17 -O2 -march=native -ffp-contract=off -fno-strict-aliasing -w -fPIC -fvisibility=hidden ";
    if (races) preprocess += " -DRACES=" + std::to_string(races), compile += "-g1 -fsanitize=thread ";
    for (int i = 0; i < count; i++) {
        std::string option = options[i];
        if (option.compare(0, define.size(), define) == 0) preprocess += " '-D" + option.substr(define.size()) + "'";
    }
    std::ofstream(source) << program->text;
    bool done = run(preprocess);
    if (done) {
        std::string text = for_host(read_file(plain));
        std::ofstream(source) << text;
        // Linked without what watches threads: `races.hpp` does.
        done = run(compile + source + " -o " + object) && run("g++ -shared -Wl,-Bsymbolic " + object + " -o " + at + "/kernel.so");
    }
    program->log = read_file(at + "/log"), program->code = read_file(at + "/kernel.so");
    if (!getenv("EMULATED_CARD_KEEP")) {
        for (const char* name : {"/kernel.cpp", "/kernel.ii", "/kernel.o", "/kernel.so", "/log"}) unlink((at + name).c_str());
        rmdir(folder);
    }
    return done ? 0 : 6;
}

int nvrtcGetCUBINSize(Program* program, size_t* size) { return *size = program->code.size(), 0; }
int nvrtcGetCUBIN(Program* program, char* to) { return memcpy(to, program->code.data(), program->code.size()), 0; }
int nvrtcGetProgramLogSize(Program* program, size_t* size) { return *size = program->log.size() + 1, 0; }
int nvrtcGetProgramLog(Program* program, char* to) { return memcpy(to, program->log.c_str(), program->log.size() + 1), 0; }
int nvrtcDestroyProgram(Program** program) { return delete *program, *program = nullptr, 0; }

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
        case 75: *value = 9; return SUCCESS;                      // Compute capability.
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
    *function = new Function{module, name, {}, {}, 0};
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
    bool fits = config->block.x <= 1024 && config->shared_bytes <= SHARED_MAX && cluster <= CLUSTER_MAX;
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

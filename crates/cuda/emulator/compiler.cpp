// The compiler's library of a card that is not there: the host's own compiler takes the kernels as they are, with `emulated.hpp` in place
// of what only a card has.
//
//   EMULATED_CARD_RACES    1: look for hazards in shared memory (`races.hpp`); several times slower. 2: and find some, as if barriers of
//                          threads ordered nothing
//   EMULATED_CARD_KEEP     leave what is compiled under /tmp

#include "block.hpp"
#include "settings.hpp"
#include <cstring>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <unistd.h>

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
    std::string all;
    for (const char* name : {"block.hpp", "fibers.hpp", "races.hpp", "emulated.hpp"}) all += read_file(std::string(EMULATOR "/") + name);
    *major = (int)setting("EMULATED_CARD_RACES", 0), *minor = (int)(std::hash<std::string>()(all) & 0x7fffffff);
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
    std::string architecture = "--gpu-architecture=sm_";
    std::string at = folder, define = "--define-macro=", source = at + "/kernel.cpp", plain = at + "/kernel.ii", object = at + "/kernel.o";
    auto run = [&](const std::string& command) { return system((command + " 2> " + at + "/log").c_str()) == 0; };
    std::string preprocess = "g++ -E -DEMULATED -I" EMULATOR " -o " + plain + " " + source;
    std::string compile = "g++ -c -std=c++17 -O2 -march=native -ffp-contract=off -fno-strict-aliasing -w -fPIC -fvisibility=hidden ";
    if (races) preprocess += " -DRACES=" + std::to_string(races), compile += "-g1 -fsanitize=thread ";
    for (int i = 0; i < count; i++) {
        std::string option = options[i];
        // sm_90a is 900.
        if (option.compare(0, architecture.size(), architecture) == 0) {
            preprocess += " -D__CUDA_ARCH__=" + std::to_string(atoi(option.c_str() + architecture.size()) * 10);
        }
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

}  // extern "C"

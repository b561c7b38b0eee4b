// llama.cpp's side of `alternate.py`: loads a model, reads DEPTH tokens once, and for every line on standard input decodes COUNT tokens
// there, takes them back, and prints the seconds they took.
//
//   g++ -O2 -I LLAMA/include -I LLAMA/ggml/include llama.cpp -o llama-depth -L LLAMA/build/bin -lllama -lggml -lggml-base
//   llama-depth MODEL DEPTH COUNT REPACK FLASH
#include "llama.h"
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int count, char** arguments) {
    if (count != 6) return fprintf(stderr, "MODEL DEPTH COUNT REPACK FLASH\n"), 1;
    int depth = atoi(arguments[2]), tokens = atoi(arguments[3]);
    llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
    llama_backend_init();
    auto model_options = llama_model_default_params();
    model_options.n_gpu_layers = 0, model_options.use_extra_bufts = atoi(arguments[4]) != 0;
    llama_model* model = llama_model_load_from_file(arguments[1], model_options);
    auto options = llama_context_default_params();
    options.n_ctx = depth + tokens + 64, options.n_batch = options.n_ubatch = 512, options.n_threads = options.n_threads_batch = 2;
    options.flash_attn_type = atoi(arguments[5]) ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    llama_context* context = model ? llama_init_from_model(model, options) : nullptr;
    if (!context) return fprintf(stderr, "the model cannot be loaded\n"), 1;
    std::vector<llama_token> part(512);
    for (int at = 0; at < depth; at += 512) {
        for (int i = 0; i < 512; i++) part[i] = 100 + (at + i) * 37 % 5000;
        if (llama_decode(context, llama_batch_get_one(part.data(), at + 512 <= depth ? 512 : depth - at))) return 1;
    }
    puts("ready"), fflush(stdout);
    for (char line[16]; fgets(line, sizeof line, stdin);) {
        auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < tokens; i++) {
            llama_token token = 100 + i;
            if (llama_decode(context, llama_batch_get_one(&token, 1))) return 1;
            llama_synchronize(context);
        }
        printf("%.6f\n", std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count()), fflush(stdout);
        llama_memory_seq_rm(llama_get_memory(context), 0, depth, -1);
    }
}

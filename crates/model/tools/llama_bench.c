// A stand-in for llama-bench where only llama.cpp's libraries are at hand: takes the arguments that `flint bench --peer` gives
// and prints what it reads. Built as llama_logits.c is; the first argument is again the backend's library.
#include "ggml-backend.h"
#include "llama.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct model_params { struct llama_model_params known; char more[512]; };
struct context_params { struct llama_context_params known; char more[512]; };
typedef struct model_params (*model_defaults)(void);
typedef struct context_params (*context_defaults)(void);
typedef struct llama_model *(*load_model)(const char *, struct model_params);
typedef struct llama_context *(*new_context)(struct llama_model *, struct context_params);
#define FUNCTION(type, name) ((type)dlsym(RTLD_DEFAULT, name))

static int vocab;
static void run(struct llama_context *context, int count, int at_once) {
    static llama_token tokens[8192];
    for (int i = 0; i < count; i += at_once) {
        for (int j = 0; j < at_once; j++) tokens[j] = rand() % vocab;
        if (llama_decode(context, llama_batch_get_one(tokens, count - i < at_once ? count - i : at_once))) exit(1);
    }
    llama_synchronize(context);
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + 1e-9 * now.tv_nsec;
}

static void quiet(enum ggml_log_level level, const char *text, void *data) {
    (void)data;
    if (level >= GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
}

int main(int argc, char **argv) {
    const char *path = NULL, *backend = getenv("LLAMA_BACKEND");
    int prompt = 0, generate = 0, depth = 0, repeats = 1, threads = 1;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "-m")) path = argv[i + 1];
        else if (!strcmp(argv[i], "-p")) prompt = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "-n")) generate = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "-d")) depth = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "-r")) repeats = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "-t")) threads = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--backend")) backend = argv[i + 1];
    }
    llama_log_set(quiet, NULL);
    if (!path || !backend || !ggml_backend_load(backend)) return 1;
    struct llama_model *model = FUNCTION(load_model, "llama_model_load_from_file")(
        path, FUNCTION(model_defaults, "llama_model_default_params")());
    if (!model) return 1;
    struct context_params params = FUNCTION(context_defaults, "llama_context_default_params")();
    params.known.n_ctx = depth + prompt + generate + 64;
    params.known.n_batch = 2048;
    params.known.n_threads = params.known.n_threads_batch = threads;
    struct llama_context *context = FUNCTION(new_context, "llama_init_from_model")(model, params);
    vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    double sum = 0;
    for (int i = -1; i < repeats; i++) {
        llama_memory_clear(llama_get_memory(context), 0);
        run(context, depth, 512);
        double start = seconds();
        run(context, prompt, 2048);
        run(context, generate, 1);
        if (i >= 0) sum += (prompt + generate) / (seconds() - start); // the first warms up
    }
    printf("[{\"avg_ts\": %f}]\n", sum / repeats);
    return 0;
}

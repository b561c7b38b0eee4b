// What llama.cpp makes of a model: logits of every row of COUNT tokens, read BATCH at a time, as 32-bit floats.
//
//   gcc -D_GNU_SOURCE -ILLAMA/include -ILLAMA/ggml/include llama_logits.c -o llama_logits -LLIBS -lllama -lggml -l:libggml-base.so
//   llama_logits BACKEND.so MODEL.gguf COUNT BATCH > LOGITS
//
// BACKEND.so is the build of libggml-cpu that fits this machine. Prebuilt libraries come with the Node package
// @node-llama-cpp/linux-x64; hybrid_goldens.py runs this program.
#include "ggml-backend.h"
#include "llama.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

// Parameters are passed by value and have grown between versions. What is longer than needed is read from its start.
struct model_params { struct llama_model_params known; char more[512]; };
struct context_params { struct llama_context_params known; char more[512]; };
typedef struct model_params (*model_defaults)(void);
typedef struct context_params (*context_defaults)(void);
typedef struct llama_model *(*load_model)(const char *, struct model_params);
typedef struct llama_context *(*new_context)(struct llama_model *, struct context_params);
#define FUNCTION(type, name) ((type)dlsym(RTLD_DEFAULT, name))

int main(int argc, char **argv) {
    if (argc != 5 || !ggml_backend_load(argv[1])) return 1;
    struct llama_model *model = FUNCTION(load_model, "llama_model_load_from_file")(
        argv[2], FUNCTION(model_defaults, "llama_model_default_params")());
    if (!model) return 1;
    struct context_params params = FUNCTION(context_defaults, "llama_context_default_params")();
    params.known.n_ctx = params.known.n_batch = 2048;
    params.known.n_threads = params.known.n_threads_batch = 2;
    params.known.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    struct llama_context *context = FUNCTION(new_context, "llama_init_from_model")(model, params);
    int vocab = llama_vocab_n_tokens(llama_model_get_vocab(model)), count = atoi(argv[3]), most = atoi(argv[4]);
    for (int start = 0; start < count; start += most) {
        int rows = count - start < most ? count - start : most;
        struct llama_batch batch = llama_batch_init(rows, 0, 1);
        batch.n_tokens = rows;
        for (int i = 0; i < rows; i++) {
            batch.token[i] = ((start + i) * 37 + 11) % vocab;
            batch.pos[i] = start + i;
            batch.n_seq_id[i] = 1;
            batch.seq_id[i][0] = 0;
            batch.logits[i] = 1;
        }
        if (llama_decode(context, batch)) return 1;
        for (int i = 0; i < rows; i++) fwrite(llama_get_logits_ith(context, i), 4, vocab, stdout);
        llama_batch_free(batch);
    }
    return 0;
}

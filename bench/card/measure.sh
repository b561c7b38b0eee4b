#!/bin/sh
# Every figure of a card in one go, as JSON lines with where they come from. Weights are random and made on the card.
#
#   bench/card/measure.sh FLINT VOCABULARY [SHAPE...] > results.jsonl
#
# VOCABULARY is any GGUF file of the family: its tokens and template are used and its weights are not, so a file without
# tensors will do (bench/card/vocabulary.py makes one). FLINT_BUILD_COMMIT names the state that FLINT was built from. With LLAMA_BENCH, the
# llama-bench of a llama.cpp built for the card, that runs right after each shape, on a file of it (19 GB for the largest, in TMPDIR).
set -eu
here=$(dirname "$0") flint=$1 vocabulary=$2 files=$(mktemp -d)
trap 'rm -rf "$files"' EXIT
shift 2
[ $# -gt 0 ] || set -- qwen2.5-coder-1.5b qwen2.5-coder-7b qwen3-coder-30b-a3b
nvidia-smi --query-gpu=name,driver_version,clocks.max.sm,clocks.max.mem --format=csv,noheader >&2 || true
for shape; do
    random="--device cuda --shape $shape --random-weights --json"
    # Five rounds: prompts, single tokens at the start and at depth, steps of several rows, sequences together, sampling.
    "$flint" bench $random --rounds 5 --prompt 2048 --depth 0,32768 --rows 2,8,16,32 --sequences 1,16
    if [ -n "${LLAMA_BENCH-}" ]; then
        python3 "$here/shape.py" "$vocabulary" "$shape" "$files/peer.gguf"
        peer="$LLAMA_BENCH -m $files/peer.gguf -ngl 99 -fa 1 -o jsonl -n 256"
        $peer -r 5 -p 2048
        $peer -r 3 -p 0 -d 32768
        rm "$files/peer.gguf"
    fi
    # The same engine behind a WebSocket, plain decoding; first tokens of a session; cancelling.
    "$flint" bench serve rate,session -m "$vocabulary" $random --no-drafts
    # Files rewritten with one function changed. Answers are those of the real model on a CPU.
    "$flint" bench edit -m "$vocabulary" $random --cases edit --ways prediction,usual --replay "$here/edit.json"
done

"""Decoding at a depth, Flint and llama.cpp in turn, a second each, with the bandwidth measured before every pair.

    python3 alternate.py LAB LLAMA-DEPTH MODEL.gguf DEPTH SECONDS > OUT.jsonl

The memory of the machine this was written on changes its speed from minute to minute, so a ratio counts only between neighbours. llama.cpp
runs as four processes, with and without its repacked weights and flash attention; with flash is what llama-bench chooses by itself. Medians of both ratios go to standard error.
"""
import json, statistics, subprocess, sys, time

COUNT = 16


def start(command):
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline().strip() == "ready", command
    return process


def ask(process):
    process.stdin.write("\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


lab_program, llama_program, model, depth, seconds = sys.argv[1:]
flint = start([lab_program, "depth", model, depth, str(COUNT)])
peers = {f"repack {r}, flash {f}": start([llama_program, model, depth, str(COUNT), r, f]) for r in "01" for f in "01"}
end, pairs = time.time() + float(seconds), []
while time.time() < end:
    bandwidth, took = map(float, ask(flint).split())
    theirs = {name: COUNT / float(ask(peer)) for name, peer in peers.items()}
    bandwidth_after, took_after = map(float, ask(flint).split())
    ours = 2 * COUNT / (took + took_after)
    with_flash = ours / max(rate for name, rate in theirs.items() if name.endswith("flash 1"))
    pairs.append(([bandwidth, bandwidth_after], with_flash, ours / max(theirs.values())))
    print(json.dumps({"bandwidth_gb_per_s": [bandwidth, bandwidth_after], "flint": [COUNT / took, COUNT / took_after],
                      "llama.cpp": theirs, "ratio": ours / max(theirs.values()), "unix_time": int(time.time())}), flush=True)
for low, high in [(0, 45), (45, 1000)]:
    of = [pair for pair in pairs if all(low <= bandwidth < high for bandwidth in pair[0])]
    if of:
        with_flash, best = (statistics.median(pair[i] for pair in of) for i in (1, 2))
        print(f"{low} to {high} GB/s, {len(of)} pairs: x{with_flash:.2f} of llama.cpp with flash attention, x{best:.2f} of its best",
              file=sys.stderr)

"""Writes tests/golden/hybrid-logits.jsonl: what llama.cpp makes of the tiny models with recurrent layers,
of some formats, and of families that have no other golden data.

  cargo run -p testkit --example tiny -- DIR
  hybrid_goldens.py LLAMA_LOGITS BACKEND.so DIR > hybrid-logits.jsonl       (LLAMA_LOGITS: see llama_logits.c)
"""

import array
import json
import pathlib
import subprocess
import sys

VOCAB = 328
program, backend, folder = sys.argv[1:]
formats = ["Q4_0", "Q4_K", "IQ4_NL", "IQ4_XS", "MXFP4"]
paths = [pathlib.Path(folder) / f"llama-{name}.gguf" for name in formats]
for path in sorted(pathlib.Path(folder).glob("hybrid-*.gguf")) + paths + [pathlib.Path(folder) / "mistral3-yarn.gguf"]:
    # Its queries grow from position 512 on.
    count = 600 if path.stem.startswith("mistral3") else 70
    command = [program, backend, str(path), str(count), str(count)]
    out = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout
    logits = array.array("f", out)
    rows = [logits[row * VOCAB : (row + 1) * VOCAB] for row in range(count)]
    picks = [max(range(VOCAB), key=row.__getitem__) for row in rows]
    # The first rows are where the convolution sees nothing yet.
    kept = {str(row): [float(f"{x:.6g}") for x in rows[row]] for row in (0, 2, count - 1)}
    line = {"model": path.stem.removeprefix("hybrid-"), "picks": picks, "logits": kept}
    print(json.dumps(line, separators=(",", ":")))

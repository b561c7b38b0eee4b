#!/usr/bin/env python3
"""What happens on a card when things go wrong: too long a request, KV that runs out, no memory left, a killed server. And, since
no other test has a server and a card, whether a schema holds an answer there.

    bench/card/failures.py FLINT MODEL [more arguments of `flint serve`]

Prints one JSON line per case and ends with status 1 when one of them went wrong. Needs nvidia-smi and nothing else.
"""

import atexit
import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

FLINT, MODEL, MORE = sys.argv[1], sys.argv[2], sys.argv[3:]
CONTEXT = 2048  # The KV cache has room for twice that.
failed = []


def report(case, right, **values):
    print(json.dumps({"figure": case, "right": right, "values": values}), flush=True)
    if not right:
        failed.append(case)


def used_mib():
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return int(subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0])


def processes():
    query = ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()


class Server:
    def __init__(self, folder):
        port_file = os.path.join(folder, "port")
        if os.path.exists(port_file):
            os.remove(port_file)
        command = [FLINT, "serve", "--offline", "--port", "0", "--no-socket", "--state", folder, "--port-file", port_file,
                   "--device", "cuda", "--context", str(CONTEXT), "--snapshot-gb", "0", "--log-level", "warn", "-m", MODEL]
        self.process = subprocess.Popen(command + MORE, stdout=subprocess.DEVNULL, stderr=sys.stderr)
        atexit.register(self.process.kill)
        while not os.path.exists(port_file):
            if self.process.poll() is not None:
                sys.exit("flint serve ended by itself")
            time.sleep(0.05)
        self.url = "http://127.0.0.1:" + open(port_file).read() + "/v1/responses"

    def ask(self, question, tokens=64, **more):
        """The text of an answer and its number of tokens, or the error."""
        # Short enough to be read in one way whatever runs beside it: see `Way` in crates/model/src/cuda/rows.rs.
        body = {"model": MODEL, "instructions": "Be brief.", "input": question, "max_output_tokens": tokens,
                "temperature": 0, "store": False, **more}
        request = urllib.request.Request(self.url, json.dumps(body).encode(), {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                answer = json.load(answer)
        except urllib.error.HTTPError as error:
            return {"error": json.load(error)["error"]["message"], "status": error.code}
        except OSError as error:
            return {"error": str(error), "status": 0}
        if answer["status"] == "failed":
            return {"error": answer["error"]["message"], "status": 200}
        parts = [part["text"] for item in answer["output"] for part in item.get("content", []) if "text" in part]
        return {"text": "".join(parts), "tokens": answer["usage"]["output_tokens"]}


def together(*calls):
    answers = [None] * len(calls)

    def run(i):
        answers[i] = calls[i]()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


class Hog:
    """Takes nearly all memory of the card that is free, in this process."""

    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        device, self.context = ctypes.c_int(), ctypes.c_void_p()
        assert self.cuda.cuInit(0) == 0 and self.cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
        assert self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(self.context), device) == 0
        assert self.cuda.cuCtxSetCurrent(self.context) == 0
        self.taken = []

    def take(self):
        size = 1 << 36
        while size >= 1 << 16:
            place = ctypes.c_uint64()
            if self.cuda.cuMemAlloc_v2(ctypes.byref(place), ctypes.c_size_t(size)) == 0:
                self.taken.append(place)
            else:
                size //= 2

    def free_mib(self):
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
        return free.value / 2**20

    def give_back(self):
        for place in self.taken:
            assert self.cuda.cuMemFree_v2(place) == 0
        self.taken = []


def main():
    folder = tempfile.mkdtemp()
    before = used_mib()
    server = Server(folder)
    question = "Tell a story of a lighthouse."
    plain = server.ask(question)
    report("a plain answer", "text" in plain, answer=plain)

    # Masks are made while the step runs, for the likeliest token and for a sampled one; a free answer would be prose.
    kinds = ["bug", "feature", "question"]
    schema = {"type": "object", "properties": {"kind": {"enum": kinds}, "urgent": {"type": "boolean"}},
              "required": ["kind", "urgent"], "additionalProperties": False}
    held = {"text": {"format": {"type": "json_schema", "name": "ticket", "schema": schema}}}
    answers = together(lambda: server.ask(question, **held), lambda: server.ask(question),
                       lambda: server.ask(question, **{**held, "temperature": 1}))
    values = [json.loads(answer.get("text") or "null") for answer in (answers[0], answers[2])]
    right = all(value and value.keys() == {"kind", "urgent"} and value["kind"] in kinds
                and isinstance(value["urgent"], bool) for value in values)
    report("answers held to a schema, beside a free one", right and answers[1] == plain, answers=values)

    long = "word " * (3 * CONTEXT)
    answers = together(lambda: server.ask(long), lambda: server.ask(question), lambda: server.ask(question))
    right = answers[0].get("status") == 400 and answers[1] == plain and answers[2] == plain
    report("a request longer than the context, beside two others", right, error=answers[0].get("error"))

    # Eight times 300 tokens of prompt and 900 of answer do not fit into 4,096 positions.
    def big(i):
        return server.ask(f"Number {i}. " + f"The {i}th ship came in. " * 40 + question, 900)

    answers = together(*[lambda i=i: big(i) for i in range(8)], lambda: server.ask(question))
    errors = [answer["error"] for answer in answers if "error" in answer]
    report("more sequences than KV", answers[8] == plain and len(errors) < 8, errors=errors,
           tokens=[answer.get("tokens") for answer in answers])
    report("the same answer afterwards", server.ask(question) == plain)

    hog = Hog()
    stop = threading.Event()
    during = []

    def stream():
        while not stop.is_set():
            during.append(server.ask(question))

    beside = threading.Thread(target=stream)
    beside.start()
    time.sleep(0.3)
    hog.take()
    left = hog.free_mib()
    # Numbers of sequences that never ran together before: the card must make room for what they need.
    counts = [2, 3, 5, 11, 16]
    answers = [together(*[lambda: server.ask(question)] * count) for count in counts]
    stop.set()
    beside.join()
    errors = {answer["error"] for group in answers for answer in group if "error" in answer}
    errors |= {answer["error"] for answer in during if "error" in answer}
    good = [sum(answer == plain for answer in group) for group in answers]
    wrong = [answer for group in answers + [during] for answer in group if answer != plain and "error" not in answer]
    alive = server.process.poll() is None
    hog.give_back()
    after = server.ask(question)
    report("no memory left on the card", alive and not wrong and after == plain, free_mib=round(left, 1), asked=counts,
           answered=good, answered_beside=len(during), errors=sorted(errors), wrong=wrong[:2], after=after == plain)
    hog.cuda.cuDevicePrimaryCtxRelease_v2(0)

    calls = [lambda: server.ask(question + " " * i, 1500) for i in range(4)]
    runner = threading.Thread(target=lambda: together(*calls))
    runner.start()
    time.sleep(0.2)
    server.process.send_signal(signal.SIGKILL)
    server.process.wait()
    runner.join()
    begun = time.time()
    while (processes() or used_mib() > before + 8) and time.time() < begun + 5:
        time.sleep(0.1)
    report("killed in the middle of four answers", used_mib() <= before + 8 and not processes(), mib_before=before,
           mib_after=used_mib(), processes=processes(), seconds=round(time.time() - begun, 1))
    server = Server(folder)
    report("and started again", server.ask(question) == plain)
    server.process.terminate()
    server.process.wait()
    sys.exit(1 if failed else 0)


main()

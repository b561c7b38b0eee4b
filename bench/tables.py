#!/usr/bin/env python3
"""Writes the tables of docs/performance from bench/results.

    python3 bench/tables.py            # writes them anew
    python3 bench/tables.py --check    # fails when a page is not what the results say

A page says where a table goes: `<!-- table KIND FILE... -->`, and everything up to `<!-- end -->` is replaced. Kinds:

    speed    lines of `flint bench`: medians over rounds, those of peers beside them, one table per model
    turns    lines of bench/depth/alternate.py: medians, and the ratio of each pair
    timed    lines of `flint bench serve`, `partner` and `screen`: times in ms, other numbers as they are
    edits    lines of `flint bench edit` that are not paired: tokens/s of whole answers
    fix      summaries of `flint bench fix`

With several files the same figure is taken from the last one that has it.
"""

import json
import re
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench/results"
BLOCK = re.compile(r"(<!-- table (\w+) ([^>]+?) -->\n).*?(<!-- end -->)", re.S)


def lines(names):
    for name in names:
        for line in (RESULTS / name).read_text().splitlines():
            yield json.loads(line)


def number(value):
    if isinstance(value, int) or value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}".rstrip("0").rstrip(".")


def table(head, rows):
    out = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    out += ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(out) + "\n"


def speed(names):
    models = {}
    for line in lines(names):
        if line.get("median") is None or "tokens_per_s" not in line:
            continue
        model = line.get("provenance", {}).get("model") or next(iter(models), "")
        models.setdefault(model, {})[line["figure"]] = line
    parts = []
    for model, figures in models.items():
        peers = sorted({peer for line in figures.values() for peer in line.get("peers", {})})
        rows = []
        for name, line in figures.items():
            row = [name, number(line["median"])]
            for peer in peers:
                rounds = line.get("peers", {}).get(peer)
                row.append("" if not rounds else f"{number(statistics.median(rounds))} "
                                                 f"(x{line['median'] / statistics.median(rounds):.2f})")
            bandwidth = line.get("bandwidth_gb_per_s") or []
            row.append(f"{min(bandwidth):.0f} to {max(bandwidth):.0f}" if bandwidth else "")
            rows.append(row)
        head = ["tokens/s", "Flint", *peers, "GB/s the machine read"]
        if not any(row[-1] for row in rows):
            head, rows = head[:-1], [row[:-1] for row in rows]
        parts.append((f"**{model}**\n\n" if model else "") + table(head, rows))
    return "\n".join(parts)


def turns(names):
    found = [line for line in lines(names) if "flint" in line and "llama.cpp" in line]
    flint = statistics.median(statistics.mean(line["flint"]) for line in found)
    rows = [["Flint", number(flint), ""]]
    for setting in found[0]["llama.cpp"]:
        peer = statistics.median(line["llama.cpp"][setting] for line in found)
        ratio = statistics.median(statistics.mean(line["flint"]) / line["llama.cpp"][setting] for line in found)
        rows.append([f"llama.cpp, {setting}", number(peer), f"x{ratio:.2f}"])
    bandwidth = [value for line in found for value in line["bandwidth_gb_per_s"]]
    head = [f"median of {len(found)} turns, {min(bandwidth):.0f} to {max(bandwidth):.0f} GB/s", "tokens/s", "Flint is"]
    return table(head, rows)


def flat(value, name=""):
    """Name and text of every number worth a cell."""
    if isinstance(value, dict) and "p50_ms" in value:
        yield name, f"{number(value['p50_ms'])} ms (p99 {number(value['p99_ms'])})"
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from flat(inner, f"{name}, {key}".strip(", "))
    elif isinstance(value, bool):
        yield name, "yes" if value else "no"
    elif isinstance(value, (int, float)):
        unit = " ms" if name.endswith("_ms") else ""
        yield name.removesuffix("_ms"), number(value) + unit


def timed(names):
    figures = {}
    for line in lines(names):
        values = line.get("values", line.get("times"))
        if values and "figure" in line:
            figures[line["figure"]] = values
    rows = []
    for figure, values in figures.items():
        cells = [f"{name}: {text}" if name else text for name, text in flat(values)]
        rows.append([figure, "; ".join(cells)])
    return table(["what", "measured"], rows)


def edits(names):
    rows = []
    for line in lines(names):
        values = line.get("values", {})
        if not isinstance(values.get("plain"), dict) or "median" not in values["plain"]:
            continue
        plain = values["plain"]["median"]
        row = [line["figure"], values.get("answer_tokens", ""), number(plain)]
        for way in ("ngram", "prediction"):
            rate = values.get(way, {}).get("median")
            row.append(f"{number(rate)} (x{rate / plain:.1f})" if rate else "")
        rows.append([*row, line["provenance"]["model"]])
    return table(["answer", "tokens", "plain, tokens/s", "from the conversation", "`prediction`", "model"], rows)


def fix(names):
    rows = []
    for line in lines(names):
        if "set" not in line:
            continue
        share = line.get("passed %", line.get("pass@1 %"))
        rows.append([f"`{line['provenance']['command']}`", f"{line['passed']} of {line['tasks']} ({share} %)",
                     line["applied"], line["reported"], number(line["seconds p50"])])
    return table(["command", "repaired", "applied", "reported", "median s"], rows)


KINDS = {"speed": speed, "turns": turns, "timed": timed, "edits": edits, "fix": fix}


def main(check):
    stale = []
    for page in sorted((ROOT / "docs/performance").glob("*.md")):
        text = page.read_text()
        made = BLOCK.sub(lambda m: m[1] + "\n" + KINDS[m[2]](m[3].split()) + "\n" + m[4], text)
        if made != text:
            stale.append(str(page.relative_to(ROOT)))
            if not check:
                page.write_text(made)
    if check and stale:
        sys.exit(f"stale: {', '.join(stale)}; python3 bench/tables.py writes them anew")
    print(f"{len(stale)} pages " + ("are stale" if check else "written"))


if __name__ == "__main__":
    main("--check" in sys.argv[1:])

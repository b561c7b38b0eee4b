#!/usr/bin/env python3
"""Writes .ci/advisories.tsv from a clone of the RustSec advisory database (github.com/rustsec/advisory-db).

    python3 .ci/advisories.py PATH_OF_THE_CLONE

The check itself is a test (crates/testkit/tests/tidy/supply.rs) and needs no network.
"""

import subprocess
import sys
import tomllib
from pathlib import Path


def git(clone, *arguments):
    return subprocess.run(["git", "-C", clone, *arguments], check=True, capture_output=True, text=True).stdout


def main(clone):
    commit, date = git(clone, "log", "-1", "--format=%H %cs").split()
    rows = []
    for path in git(clone, "ls-tree", "-r", "--name-only", "HEAD", "crates").split():
        text = git(clone, "show", f"HEAD:{path}")
        head = tomllib.loads(text.split("```toml", 1)[1].split("```", 1)[0])
        advisory, versions = head["advisory"], head.get("versions", {})
        if advisory.get("withdrawn"):
            continue
        title = next((line[2:] for line in text.splitlines() if line.startswith("# ")), "")
        ranges = ["; ".join(versions.get(key, [])) for key in ("patched", "unaffected")]
        rows.append([advisory["package"], advisory["id"], advisory.get("informational", "vulnerability"), *ranges, title])
    out = Path(__file__).with_name("advisories.tsv")
    head = (
        f"# RustSec advisory database, {date}, commit {commit[:12]}; CC0-1.0 (entries imported from GHSA: CC-BY-4.0).\n"
        "# package\tid\tkind\tpatched\tunaffected\ttitle\n"
    )
    out.write_text(head + "".join("\t".join(" ".join(cell.split()) for cell in row) + "\n" for row in sorted(rows)))
    print(f"{len(rows)} advisories of {date} in {out.name}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])

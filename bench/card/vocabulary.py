#!/usr/bin/env python3
"""Keeps the metadata of a GGUF file (shape, tokens, template) and drops its tensors: 6 MB instead of a gigabyte.

    bench/card/vocabulary.py MODEL.gguf VOCABULARY.gguf
"""

import struct
import sys

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, ARRAY = 8, 9
# More than the metadata of any model there is.
HEADER_MAX = 64 << 20


def skip(data, kind, at):
    """The place behind a value."""
    if kind == STRING:
        return at + 8 + struct.unpack_from("<Q", data, at)[0]
    if kind == ARRAY:
        kind, count = struct.unpack_from("<IQ", data, at)
        at += 12
        if kind in SIZES:
            return at + count * SIZES[kind]
        for _ in range(count):
            at = skip(data, kind, at)
        return at
    return at + SIZES[kind]


def main(source, target):
    with open(source, "rb") as file:
        data = file.read(HEADER_MAX)
    magic, _version, _tensors, count = struct.unpack_from("<4sIQQ", data, 0)
    if magic != b"GGUF":
        sys.exit(f"{source} is no GGUF file")
    at = 24
    for _ in range(count):
        at = skip(data, STRING, at)
        at = skip(data, struct.unpack_from("<I", data, at)[0], at + 4)
    header = bytearray(data[:at])
    struct.pack_into("<Q", header, 8, 0)
    header += bytes(-len(header) % 32)
    with open(target, "wb") as file:
        file.write(header)


if __name__ == "__main__":
    main(*sys.argv[1:3])

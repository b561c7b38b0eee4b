#!/usr/bin/env python3
"""Writes a GGUF file of a known shape with random weights in the Q4_K_M mix, for peers that need a file to be measured.

    bench/card/shape.py VOCABULARY.gguf SHAPE MODEL.gguf

The tokens are those of VOCABULARY, any file of the family (see vocabulary.py). Weights are one megabyte of random blocks over and
over: they mean nothing, are finite, and take as long to read as real ones.
"""

import math
import random
import struct
import sys

from vocabulary import ARRAY, HEADER_MAX, STRING, skip

U32, F32 = 4, 6
# Layers, width, heads, KV heads, head, feed-forward, vocabulary, experts, experts used; as in crates/model/src/cuda/shapes.rs.
SHAPES = {
    "qwen2.5-coder-1.5b": (28, 1536, 12, 2, 128, 8960, 151936, 0, 0),
    "qwen2.5-coder-7b": (28, 3584, 28, 4, 128, 18944, 152064, 0, 0),
    "qwen3-coder-30b-a3b": (48, 2048, 32, 4, 128, 768, 151936, 128, 8),
}
# Number in the file, elements of a block, bytes of a block.
PLAIN, Q4_K, Q6_K = (0, 1, 4), (12, 256, 144), (14, 256, 210)


def blocks(kind):
    """About a megabyte of them."""
    if kind == PLAIN:
        return struct.pack("<f", 1.0) * (1 << 18)
    scale = struct.pack("<e", 0.002)
    one = {
        Q4_K: lambda: scale * 2 + random.randbytes(140),
        Q6_K: lambda: random.randbytes(192) + bytes(random.choice((1, 2, 3)) for _ in range(16)) + scale,
    }[kind]
    return b"".join(one() for _ in range((1 << 20) // kind[2]))


def tensors(layers, width, heads, kv_heads, head, feed_forward, vocab, experts, tied):
    """Name, lengths (innermost first) and format of each."""
    yield "token_embd.weight", (width, vocab), Q6_K if tied else Q4_K
    if not tied:
        yield "output.weight", (width, vocab), Q6_K
    yield "output_norm.weight", (width,), PLAIN
    for i in range(layers):
        more = i < layers // 8 or i >= 7 * layers // 8 or (i - layers // 8) % 3 == 2
        fine, at = Q6_K if more else Q4_K, f"blk.{i}."
        yield at + "attn_norm.weight", (width,), PLAIN
        yield at + "ffn_norm.weight", (width,), PLAIN
        for name, count, kind in (("q", heads, Q4_K), ("k", kv_heads, Q4_K), ("v", kv_heads, fine)):
            yield at + f"attn_{name}.weight", (width, count * head), kind
            if not experts:
                yield at + f"attn_{name}.bias", (count * head,), PLAIN
            elif name != "v":
                yield at + f"attn_{name}_norm.weight", (head,), PLAIN
        yield at + "attn_output.weight", (heads * head, width), Q4_K
        suffix, of = ("_exps.weight", (experts,)) if experts else (".weight", ())
        if experts:
            yield at + "ffn_gate_inp.weight", (width, experts), PLAIN
        yield at + "ffn_gate" + suffix, (width, feed_forward, *of), Q4_K
        yield at + "ffn_up" + suffix, (width, feed_forward, *of), Q4_K
        yield at + "ffn_down" + suffix, (feed_forward, width, *of), fine


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def facts(shape, architecture):
    """What a loader asks a file of this architecture."""
    layers, width, heads, kv_heads, head, feed_forward, _, experts, used = shape
    numbers = {"block_count": layers, "context_length": 131072, "embedding_length": width, "attention.head_count": heads,
               "attention.head_count_kv": kv_heads, "feed_forward_length": feed_forward}
    if experts:
        numbers |= {"expert_count": experts, "expert_used_count": used, "expert_feed_forward_length": feed_forward,
                    "attention.key_length": head, "attention.value_length": head}
    floats = {"rope.freq_base": 1e6, "attention.layer_norm_rms_epsilon": 1e-6}
    yield text("general.architecture") + struct.pack("<I", STRING) + text(architecture)
    yield text("general.name") + struct.pack("<I", STRING) + text("random weights")
    yield text("general.file_type") + struct.pack("<II", U32, 15)
    for name, value in numbers.items():
        yield text(f"{architecture}.{name}") + struct.pack("<II", U32, value)
    for name, value in floats.items():
        yield text(f"{architecture}.{name}") + struct.pack("<If", F32, value)


def tokens_of(vocabulary, vocab):
    """The entries about tokens of another file, as they stand there, with as many tokens as the shape has."""
    with open(vocabulary, "rb") as file:
        data = file.read(HEADER_MAX)
    at = 24
    for _ in range(struct.unpack_from("<Q", data, 16)[0]):
        begin, at = at, skip(data, STRING, at)
        name, kind = data[begin + 8 : at].decode(), struct.unpack_from("<I", data, at)[0]
        value, at = at + 4, skip(data, kind, at + 4)
        if not name.startswith("tokenizer."):
            continue
        if kind == ARRAY and name in ("tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.scores"):
            inner, count = struct.unpack_from("<IQ", data, value)
            more = range(count, vocab)
            filler = {STRING: lambda i: text(f"[PAD{i}]"), F32: lambda _: struct.pack("<f", 0.0)}
            extra = b"".join(filler.get(inner, lambda _: struct.pack("<i", 5))(i) for i in more)
            yield data[begin:value] + struct.pack("<IQ", inner, count + len(more)) + data[value + 12 : at] + extra
        else:
            yield data[begin:at]


def main(vocabulary, name, target):
    shape = SHAPES[name]
    vocab, experts = shape[6:8]
    entries = [*facts(shape, "qwen3moe" if experts else "qwen2"), *tokens_of(vocabulary, vocab)]
    every = list(tensors(*shape[:8], name.endswith("1.5b")))
    header, offset, sizes = b"", 0, []
    for tensor, dimensions, kind in every:
        size = math.prod(dimensions) // kind[1] * kind[2]
        header += text(tensor) + struct.pack(f"<I{len(dimensions)}QIQ", len(dimensions), *dimensions, kind[0], offset)
        sizes.append(size)
        offset += size + -size % 32
    random.seed(1)
    made = {kind: memoryview(blocks(kind)) for kind in (PLAIN, Q4_K, Q6_K)}
    with open(target, "wb") as file:
        file.write(struct.pack("<4sIQQ", b"GGUF", 3, len(every), len(entries)) + b"".join(entries) + header)
        file.write(bytes(-file.tell() % 32))
        for (_, _, kind), size in zip(every, sizes):
            whole = made[kind]
            for begin in range(0, size, len(whole)):
                file.write(whole[: min(len(whole), size - begin)])
            file.write(bytes(-size % 32))


if __name__ == "__main__":
    main(*sys.argv[1:4])

"""Writes tests/golden/encoder.jsonl: what `transformers` computes for the tiny BERT of testkit::encoder.

Needs the Python packages torch, transformers and tokenizers. Weights follow from the names of their tensors, as there.
"""
import json
import pathlib

import numpy
import torch
from tokenizers import BertWordPieceTokenizer
from transformers import BertConfig, BertModel

HERE = pathlib.Path(__file__).parent
PIECES = HERE.parent.parent / "testkit" / "data" / "wordpiece.txt"
WIDTH, HEADS, FEED_FORWARD, LAYERS, CONTEXT = 64, 4, 128, 2, 48
TEXTS = [
    "", " ", "Hello, world!", "How does the cart total work?", "writing testable functions", "tax_rate = 0.19 * price",
    "Héllo WÖRLD", "e\u0301a\u00adb\u200bc\u0000d", "日本語のhello", "한글", "Straße ΣΑΣ дома İ", "½ € — 。",
    "unspeakable ⊕ words", "x" * 100, "x" * 101, "[cls] [ sep ]", "##ing ing", "the\tcart\nof\r\nthe item\u3000list",
    "return value; return error", "a" * 40 + " b", "\ufffd\u2028a\u00a0b", "Ǆ ﬁ Å", "(hello)[0]{1}<2>`3`|4~",
]


def weights(name, *shape):
    mask, state = (1 << 64) - 1, 0xCBF29CE484222325
    for byte in name.encode():
        state = (state ^ byte) * 0x100000001B3 & mask
    numbers = []
    for _ in range(int(numpy.prod(shape))):
        state = state + 0x9E3779B97F4A7C15 & mask
        z = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
        numbers.append(((z ^ z >> 31) >> 40) / (1 << 23) - 1.0)
    numbers = numpy.array(numbers, dtype=numpy.float32) * numpy.float32(0.25)
    if name.endswith("norm.weight"):
        numbers += 1
    return torch.from_numpy(numbers.reshape(shape))


def model(vocab):
    config = BertConfig(
        vocab_size=vocab, hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        intermediate_size=FEED_FORWARD, max_position_embeddings=CONTEXT, hidden_act="gelu", layer_norm_eps=1e-12,
    )
    bert = BertModel(config, add_pooling_layer=False).eval()
    state = {
        "embeddings.word_embeddings.weight": weights("token_embd.weight", vocab, WIDTH),
        "embeddings.position_embeddings.weight": weights("position_embd.weight", CONTEXT, WIDTH),
        "embeddings.token_type_embeddings.weight": weights("token_types.weight", 2, WIDTH),
    }

    def norm(theirs, ours):
        state[f"{theirs}.weight"] = weights(f"{ours}.weight", WIDTH)
        state[f"{theirs}.bias"] = weights(f"{ours}.bias", WIDTH)

    norm("embeddings.LayerNorm", "token_embd_norm")
    for i in range(LAYERS):
        layer = f"encoder.layer.{i}"
        for theirs, ours, rows, columns in [
            ("attention.self.query", "attn_q", WIDTH, WIDTH), ("attention.self.key", "attn_k", WIDTH, WIDTH),
            ("attention.self.value", "attn_v", WIDTH, WIDTH), ("attention.output.dense", "attn_output", WIDTH, WIDTH),
            ("intermediate.dense", "ffn_up", FEED_FORWARD, WIDTH), ("output.dense", "ffn_down", WIDTH, FEED_FORWARD),
        ]:
            state[f"{layer}.{theirs}.weight"] = weights(f"blk.{i}.{ours}.weight", rows, columns)
            state[f"{layer}.{theirs}.bias"] = weights(f"blk.{i}.{ours}.bias", rows)
        norm(f"{layer}.attention.output.LayerNorm", f"blk.{i}.attn_output_norm")
        norm(f"{layer}.output.LayerNorm", f"blk.{i}.layer_output_norm")
    missing = bert.load_state_dict(state, strict=False)
    assert not missing.unexpected_keys and all("position_ids" in key for key in missing.missing_keys), missing
    return bert


def main():
    words = BertWordPieceTokenizer(str(PIECES), lowercase=True)
    bert = model(words.get_vocab_size())
    with open(HERE.parent / "tests" / "golden" / "encoder.jsonl", "w") as out:
        for text in TEXTS:
            ids = words.encode(text, add_special_tokens=True).ids
            line = {"text": text, "ids": ids}
            if len(ids) <= CONTEXT:
                with torch.no_grad():
                    states = bert(input_ids=torch.tensor([ids])).last_hidden_state[0]
                mean = states.mean(dim=0)
                line["vector"] = [round(float(x), 6) for x in mean / mean.norm()]
            print(json.dumps(line), file=out)


main()

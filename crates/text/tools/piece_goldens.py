"""Writes tests/golden/pieces.json: small vocabularies of characters and the ids that their own programs give.

`llama` is a SentencePiece model (package `sentencepiece`), `gemma4` a list of merges over raw UTF-8 with bytes to fall
back on (package `tokenizers`), both trained here on the text of this repository.
"""
import io
import json
import pathlib
import random

import sentencepiece
from tokenizers import Tokenizer, decoders, models, normalizers, trainers

HERE = pathlib.Path(__file__).parent
GOLDEN = HERE.parent / "tests" / "golden"
TYPES = {"normal": 1, "unknown": 2, "control": 3, "byte": 6}


def texts():
    random.seed(4)
    lines = [json.loads(line).get("text") for path in ("corpus.jsonl", "words-corpus.jsonl")
             for line in open(GOLDEN / path, encoding="utf-8")]
    made = ["".join(random.choices("abc \n\tthe he in er  \u00e9\u4e2d\U0001f642", k=random.randint(1, 90))) for _ in range(60)]
    wanted = [line for line in lines if line and len(line) < 400 and "\u2581" not in line and "\0" not in line]
    return wanted[::6] + made


def llama(training, inputs):
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(training), model_writer=out, vocab_size=640, model_type="bpe", byte_fallback=True,
        normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=False,
        split_by_whitespace=False, split_by_number=False, split_by_unicode_script=False, allow_whitespace_only_pieces=True,
        character_coverage=0.98, minloglevel=2)
    model = sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())
    def kind(i):
        return (TYPES["byte"] if model.is_byte(i) else TYPES["control"] if model.is_control(i)
                else TYPES["unknown"] if model.is_unknown(i) else TYPES["normal"])
    size = model.get_piece_size()
    return {
        "tokens": [model.id_to_piece(i) for i in range(size)],
        "scores": [model.get_score(i) for i in range(size)],
        "kinds": [kind(i) for i in range(size)],
        "ids": [[text, model.encode(text)] for text in inputs],
    }


def gemma4(training, inputs):
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    special = ["<pad>", "<eos>", "<bos>", "<unk>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    alphabet = sorted(set("".join(training)) - set("\u2603\u00e9\u4e2d"))[:300]
    trainer = trainers.BpeTrainer(vocab_size=900, special_tokens=special, initial_alphabet=alphabet, limit_alphabet=300)
    # Merges never cross a line end, as in the real one.
    tokenizer.train_from_iterator((line for text in training for line in text.split("\n")), trainer)
    made = json.loads(tokenizer.to_str())["model"]
    tokens = [token for token, _ in sorted(made["vocab"].items(), key=lambda item: item[1])]
    plain = Tokenizer(models.BPE(vocab=made["vocab"], merges=[tuple(pair) for pair in made["merges"]], byte_fallback=True,
                                 unk_token="<unk>", fuse_unk=True))
    plain.normalizer = normalizers.Replace(" ", "\u2581")
    return {
        "tokens": tokens,
        "merges": [" ".join(pair) for pair in made["merges"]],
        "kinds": [TYPES["byte"] if 4 <= i < 260 else TYPES["control"] if i < 4 else TYPES["normal"] for i in range(len(tokens))],
        "ids": [[text, plain.encode(text).ids] for text in inputs],
    }


def main():
    training = [line for path in sorted((HERE.parent / "src").rglob("*.rs")) if path.stem != "table"
                for line in path.read_text(encoding="utf-8").splitlines()]
    inputs = texts()
    rows = {"llama": llama(training, inputs), "gemma4": gemma4(training, inputs)}
    (GOLDEN / "pieces.json").write_text(json.dumps(rows, separators=(",", ":")) + "\n", encoding="utf-8")


main()

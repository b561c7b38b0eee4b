"""Writes tests/golden/words-corpus.jsonl and words.jsonl: where the expressions of the models' own tokenizer.json cut.

Needs the Python package `tokenizers`, whose matcher is the one that the models' authors run.
"""
import json
import pathlib
import random

from tokenizers import Regex
from tokenizers.pre_tokenizers import Split

GOLDEN = pathlib.Path(__file__).parent.parent / "tests" / "golden"
# Written out: (?i:'s) would also be the old long s, which neither llama.cpp nor Flint takes for one.
SHORT = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
ANY, UPPER, LOWER = r"[^\r\n\p{L}\p{N}]?", r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
EXPRESSIONS = {
    "qwen35": rf"{SHORT}|{ANY}[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{SPACES}",
    "gpt-4o": rf"{ANY}{UPPER}*{LOWER}+{SHORT}?|{ANY}{UPPER}+{LOWER}*{SHORT}?|\p{{N}}{{1,3}}"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{SPACES}",
    "tekken": rf"{ANY}{UPPER}*{LOWER}+|{ANY}{UPPER}+{LOWER}*|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{SPACES}",
    "glm4": rf"{SHORT}|{ANY}\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{SPACES}",
    "gemma4": r"[^\n]+|\n+",
}
PIECES = [*"aBzQ09 \t\n\r/'._-", "'s", "'LL", "ß", "É", "ǅ", "ʰ", "ª", "中", "か", "़", "ि", "क", "\u0301", "\u20e3", "½",
          "²", "\u00a0", "\u3000", "🙂", "\u200d", "don't", "HTTPServer", "fooBar", "\r\n", "://", "ไม่", "ΑβΓ"]


def main():
    # Python prints surrogates that no matcher takes.
    def valid(text):
        return isinstance(text, str) and not any(0xD800 <= ord(c) < 0xE000 for c in text)

    corpus = [json.loads(line).get("text") for line in open(GOLDEN / "corpus.jsonl", encoding="utf-8")]
    random.seed(35)
    made = ["".join(random.choices(PIECES, k=random.randint(1, 14))) for _ in range(120)]
    with open(GOLDEN / "words-corpus.jsonl", "w", encoding="utf-8") as out:
        out.writelines(json.dumps({"text": text}) + "\n" for text in made)
    texts = [text for text in corpus if text is not None] + made
    assert all(map(valid, texts))
    with open(GOLDEN / "words.jsonl", "w", encoding="utf-8") as out:
        for pre, expression in EXPRESSIONS.items():
            split = Split(Regex(expression), "isolated")
            for index, text in enumerate(texts):
                lengths = [len(word.encode()) for word, _ in split.pre_tokenize_str(text)]
                assert sum(lengths) == len(text.encode()), (pre, text)
                out.write(json.dumps({"pre": pre, "text": index, "bytes": lengths}, separators=(",", ":")) + "\n")


main()

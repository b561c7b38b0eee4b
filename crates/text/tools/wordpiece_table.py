"""Writes src/wordpiece/table.rs from Python's own Unicode data."""
import pathlib
import unicodedata

TABLE = pathlib.Path(__file__).parent.parent / "src" / "wordpiece" / "table.rs"
LETTERS = [chr(code) for code in range(0x110000) if not 0xD800 <= code <= 0xDFFF]


def ranges(belongs):
    found = []
    for letter in filter(belongs, LETTERS):
        if found and found[-1][1] == ord(letter) - 1:
            found[-1] = (found[-1][0], ord(letter))
        else:
            found.append((ord(letter), ord(letter)))
    return found


def bases():
    for letter in LETTERS:
        # Hangul is taken apart by arithmetic, and ideographs stay as they are.
        if any(first <= ord(letter) <= last for first, last in [(0xAC00, 0xD7A3), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F)]):
            continue
        left = [part for part in unicodedata.normalize("NFD", letter) if unicodedata.category(part) != "Mn"]
        if len(left) == 1 and left[0] != letter:
            yield ord(letter), ord(left[0])


def table(name, doc, pairs):
    text, line = f"/// {doc}\n#[rustfmt::skip]\npub(super) static {name}: [(u32, u32); {len(pairs)}] = [\n", "   "
    for first, last in pairs:
        pair = f" ({first:#x}, {last:#x}),"
        if len(line) + len(pair) > 118:
            text, line = text + line + "\n", "   "
        line += pair
    return f"{text}{line}\n];\n"


category = unicodedata.category
version = unicodedata.unidata_version.split(".")[0]
TABLE.write_text("\n".join([
    f"//! Generated from Unicode {version}: ranges of characters, first and last, and the letters that accents stand on.\n",
    table("NONSPACING", "`\\p{Mn}`: marks that stand on other letters.", ranges(lambda c: category(c) == "Mn")),
    table("PUNCTUATION", "`\\p{P}`.", ranges(lambda c: category(c)[0] == "P")),
    table("CONTROL", "`\\p{Cc}`, `\\p{Cf}` and `\\p{Co}`, without tabs and ends of lines.",
          ranges(lambda c: category(c) in ("Cc", "Cf", "Co") and c not in "\t\n\r")),
    table("BASES", "Letters with marks, and the letter that is left without them.", list(bases())),
]))

"""Writes src/unicode/table.rs from Unicode 15.1: Python 3.13's own data, or the package unicodedata2 15.1.0."""
import sys

try:
    import unicodedata2 as unicodedata
except ImportError:
    import unicodedata


def ranges(wanted):
    found = []
    for code in filter(wanted, range(0x110000)):
        if found and found[-1][1] + 1 == code:
            found[-1][1] = code
        else:
            found.append([code, code])
    return found


def table(name, doc, wanted):
    rows = ranges(wanted)
    lines = [f"/// {doc}", "#[rustfmt::skip]", f"pub(super) const {name}: [(u32, u32); {len(rows)}] = ["]
    line = "   "
    for first, last in rows:
        item = f" (0x{first:x}, 0x{last:x}),"
        if len(line) + len(item) > 120:
            lines.append(line)
            line = "   "
        line += item
    return "\n".join([*lines, line, "];"])


def category(name):
    return lambda code: unicodedata.category(chr(code)).startswith(name)


# What Rust's `char::is_lowercase` and `is_uppercase` say of letters differs from Ll and Lu for these alone.
OTHER_LOWERCASE = "ªºʰ-ʸˀ-ˁˠ-ˤͺჼᴬ-ᵪᵸᶛ-ᶿⁱⁿₐ-ₜⱼ-ⱽꚜ-ꚝꝰꟲ-ꟴꟸ-ꟹꭜ-ꭟꭩ𐞀𐞃-𐞅𐞇-𐞰𐞲-𐞺𞀰-𞁭"

assert unicodedata.unidata_version == "15.1.0", "the tokenisers of these models follow Unicode 15.1"
sys.stdout.write(
    "//! Letters, numbers and marks of Unicode 15.1, as ranges with both ends included. Written by\n"
    "//! `tools/unicode_table.py`.\n//!\n"
    "//! A fixed version on purpose: a code point that a later Unicode calls a letter would change where words end, and\n"
    "//! with it the token ids a model was trained on.\n\n"
)
import re

caseless = re.compile(f"[{OTHER_LOWERCASE}]")
print(table("LETTERS", "General category L.", category("L")))
print()
print(table("NUMBERS", "General category N.", category("N")))
print()
print(table("MARKS", "General category M.", category("M")))
print()
print(table("TITLE_CASE", "General category Lt.", category("Lt")))
print()
doc = "Letters that have the property Lowercase and are of the categories Lm and Lo."
print(table("CASELESS", doc, lambda code: category("L")(code) and caseless.match(chr(code)) is not None
            and unicodedata.category(chr(code)) in ("Lm", "Lo")))

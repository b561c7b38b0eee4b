"""Writes src/unicode/table.rs from the Unicode data of the Python that runs it (3.13 has Unicode 15.1)."""
import sys
import unicodedata


def ranges(category):
    found = []
    for code in range(0x110000):
        if unicodedata.category(chr(code))[0] != category:
            continue
        if found and found[-1][1] + 1 == code:
            found[-1][1] = code
        else:
            found.append([code, code])
    return found


def table(name, doc, category):
    rows = ranges(category)
    lines = [f"/// {doc}", "#[rustfmt::skip]", f"pub(super) const {name}: [(u32, u32); {len(rows)}] = ["]
    line = "   "
    for first, last in rows:
        item = f" (0x{first:x}, 0x{last:x}),"
        if len(line) + len(item) > 120:
            lines.append(line)
            line = "   "
        line += item
    return "\n".join([*lines, line, "];"])


assert unicodedata.unidata_version == "15.1.0", "the tokenisers of these models follow Unicode 15.1"
sys.stdout.write(
    "//! Letters and numbers of Unicode 15.1, as ranges with both ends included. Written by `tools/unicode_table.py`.\n//!\n"
    "//! A fixed version on purpose: a code point that a later Unicode calls a letter would change where words end, and\n"
    "//! with it the token ids a model was trained on.\n\n"
)
print(table("LETTERS", "General category L.", "L"))
print()
print(table("NUMBERS", "General category N.", "N"))

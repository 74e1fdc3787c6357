"""Character classes by name: `\\d \\w \\s`, line ends, and Unicode general categories by the running Python's unicodedata."""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from itertools import groupby

from converters.grammar.charset import ANY, MAX_CODE_POINT, CharSet

DIGIT = CharSet.span(0x30, 0x39)
WORD = CharSet.from_ranges([(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)])
LINE_END = CharSet.of("\n\r\u2028\u2029")
SPACE = CharSet.of("\t\n\v\f\r \u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff") | CharSet.span(0x2000, 0x200A)
"""ECMA-262's WhiteSpace and LineTerminator."""
NOT_LINE_END = ~LINE_END
SHORTHAND = {"d": DIGIT, "w": WORD, "s": SPACE, "D": ~DIGIT, "W": ~WORD, "S": ~SPACE}

_LONG_NAMES = {
    "Other": "C", "Control": "Cc", "cntrl": "Cc", "Format": "Cf", "Unassigned": "Cn", "Private_Use": "Co",
    "Surrogate": "Cs", "Letter": "L", "Cased_Letter": "LC", "L&": "LC", "Lowercase_Letter": "Ll",
    "Modifier_Letter": "Lm", "Other_Letter": "Lo", "Titlecase_Letter": "Lt", "Uppercase_Letter": "Lu", "Mark": "M",
    "Combining_Mark": "M", "Spacing_Mark": "Mc", "Enclosing_Mark": "Me", "Nonspacing_Mark": "Mn", "Number": "N",
    "Decimal_Number": "Nd", "digit": "Nd", "Letter_Number": "Nl", "Other_Number": "No", "Punctuation": "P",
    "punct": "P", "Connector_Punctuation": "Pc", "Dash_Punctuation": "Pd", "Close_Punctuation": "Pe",
    "Final_Punctuation": "Pf", "Initial_Punctuation": "Pi", "Other_Punctuation": "Po", "Open_Punctuation": "Ps",
    "Symbol": "S", "Currency_Symbol": "Sc", "Modifier_Symbol": "Sk", "Math_Symbol": "Sm", "Other_Symbol": "So",
    "Separator": "Z", "Line_Separator": "Zl", "Paragraph_Separator": "Zp", "Space_Separator": "Zs",
}  # fmt: skip
_GROUPS = {"LC": ("Ll", "Lt", "Lu")}
_CATEGORIES = {
    "Cc", "Cf", "Cn", "Co", "Cs", "Ll", "Lm", "Lo", "Lt", "Lu", "Mc", "Me", "Mn", "Nd", "Nl", "No", "Pc", "Pd", "Pe",
    "Pf", "Pi", "Po", "Ps", "Sc", "Sk", "Sm", "So", "Zl", "Zp", "Zs",
}  # fmt: skip


@lru_cache(maxsize=64)
def property_class(name: str) -> CharSet | None:
    """The characters with the property in `\\p{name}`: a general category, short or long, `Any`, `ASCII` or `Assigned`.

    None for a name that is none of these (a script, a binary property, a misspelling).
    """
    for prefix in ("General_Category=", "gc="):
        name = name.removeprefix(prefix)
    if name == "Any":
        return ANY
    if name == "ASCII":
        return CharSet.span(0, 0x7F)
    if name == "Assigned":
        return ~_by_category()["Cn"]
    short = _LONG_NAMES.get(name, name)
    members = _GROUPS.get(short) or tuple(c for c in sorted(_CATEGORIES) if c == short or (len(short) == 1 and c[0] == short))
    if not members:
        return None
    table = _by_category()
    return CharSet.from_ranges(r for member in members if member in table for r in table[member].ranges)


@lru_cache(maxsize=1)
def _by_category() -> dict[str, CharSet]:
    """Every code point, by general category. Takes about 0.1 s, once."""
    ranges: dict[str, list[tuple[int, int]]] = {}
    start = 0
    for category, run in groupby(map(unicodedata.category, map(chr, range(MAX_CODE_POINT + 1)))):
        end = start + sum(1 for _ in run)
        ranges.setdefault(category, []).append((start, end - 1))
        start = end
    return {category: CharSet.from_ranges(found) for category, found in ranges.items()}


def fold_ascii(chars: CharSet) -> CharSet:
    """`chars` with both cases of every ASCII letter in it (simple case folding, ASCII only)."""
    letters = [
        (max(lo, first) ^ 0x20, min(hi, first + 25) ^ 0x20)
        for lo, hi in chars.ranges
        for first in (0x41, 0x61)
        if lo <= first + 25 and hi >= first
    ]
    return chars | CharSet.from_ranges(letters) if letters else chars

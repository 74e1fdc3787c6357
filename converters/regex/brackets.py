"""Character classes in brackets."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from converters.grammar.charset import ANY, NOTHING, CharSet
from converters.regex.escape import class_escape
from converters.regex.unicode import fold_ascii

if TYPE_CHECKING:
    from converters.regex.parser import Parser

_POSIX = re.compile(r"\[(:\^?[a-z]+:|\.[^\]]*\.|=[^\]]*=)\]")
_OCTAL = re.compile(r"\\([0-3]?[0-7]{1,2})")  # no back-references in a class
_LATER_CLOSE = re.compile(r"(?:\\.|[^\]\\])*\]", re.DOTALL)


def brackets(parser: Parser, ignore_case: bool) -> CharSet:
    """The class at `parser.at`, consumed up to its closing bracket."""
    start = parser.at
    parser.at += 1
    negated = parser.take("^")
    if parser.peek() == "]":
        return _empty(parser, negated, start)
    ranges: list[tuple[int, int]] = []
    sets: list[CharSet] = []
    while not parser.take("]"):
        _add_item(parser, ranges, sets, start)
    chars = CharSet.from_ranges(ranges + [r for s in sets for r in s.ranges]) if ranges or len(sets) > 1 else sets[0]
    if not chars and ranges:
        raise parser.unsupported("a class of lone surrogates matches no character", start)
    if ignore_case:
        chars = fold_ascii(chars)
    return _inverse(chars) if negated else chars


@lru_cache(maxsize=64)
def _inverse(chars: CharSet) -> CharSet:
    return ~chars


def _empty(parser: Parser, negated: bool, start: int) -> CharSet:
    """`[]` (nothing) and `[^]` (any character), as in ECMA-262; refused where others would read on to the next bracket."""
    parser.at += 1
    if _LATER_CLOSE.match(parser.text, parser.at):
        written = parser.text[start : parser.at]
        raise parser.unsupported(
            f"{written} followed by another ] is read differently by ECMA-262 and Python: write \\] in the class", start
        )
    return ANY if negated else NOTHING


def _add_item(parser: Parser, ranges: list[tuple[int, int]], sets: list[CharSet], start: int) -> None:
    """One character, set or range of the class. A hyphen beside a set is itself."""
    at = parser.at
    low = _member(parser, start)
    if isinstance(low, CharSet):
        sets.append(low)
        return
    if parser.peek() != "-" or parser.peek(2) in ("-]", "-"):
        ranges.append((low, low))
        return
    parser.at += 1
    high = _member(parser, start)
    if isinstance(high, CharSet):
        ranges += [(low, low), (0x2D, 0x2D)]
        sets.append(high)
        return
    if high < low:
        raise parser.invalid(f"the range {parser.text[at : parser.at]} is out of order", at)
    ranges.append((low, high))


def _member(parser: Parser, start: int) -> CharSet | int:
    if parser.at >= len(parser.text):
        raise parser.invalid("missing ']': the class is not closed", start)
    char = parser.text[parser.at]
    if char == "[" and (posix := _POSIX.match(parser.text, parser.at)):
        raise parser.unsupported(f"the POSIX class {posix[0]} is not supported: write its characters", parser.at)
    if char != "\\":
        parser.at += 1
        return ord(char)
    if parser.peek(2) == "\\b":
        parser.at += 2
        return 8
    if octal := _OCTAL.match(parser.text, parser.at):
        parser.at = octal.end()
        return int(octal[1], 8)
    return class_escape(parser)

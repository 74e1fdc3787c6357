"""What a backslash begins, inside and outside of brackets."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

from converters.grammar.charset import CharSet
from converters.regex.tree import Anchor, At, Class, Node
from converters.regex.unicode import SHORTHAND, property_class

if TYPE_CHECKING:
    from converters.regex.parser import Flags, Parser

_CONTROL = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13, "a": 7}
_ANCHORS = {
    "A": Anchor.START, "z": Anchor.END, "Z": Anchor.END, "b": Anchor.BOUNDARY, "B": Anchor.NO_BOUNDARY,
}  # fmt: skip
_REFUSED = {
    "k": "back-references (\\k) have no regular language",
    "g": "back-references and calls (\\g) have no regular language",
    "G": "the anchor \\G has no meaning here",
    "K": "\\K has no meaning for a whole match",
    "X": "grapheme clusters (\\X) are not supported",
    "R": "\\R is not supported: write (?:\\r\\n|[\\n-\\r])",
    "C": "single bytes (\\C) are not supported",
    "Q": "quoting with \\Q…\\E is not supported",
    "E": "quoting with \\Q…\\E is not supported",
    "h": "\\h is not supported: write [ \\t]",
    "H": "\\H is not supported: write [^ \\t]",
}
_HEX = {"x": (2,), "u": (4,), "U": (8,)}
_BRACED = re.compile(r"\{([0-9A-Fa-f]{1,8})\}")
_DIGITS = {n: re.compile(f"[0-9A-Fa-f]{{{n}}}") for n in (2, 4, 8)}
_LOW_SURROGATE = re.compile(r"\\u([Dd][C-Fc-f][0-9A-Fa-f]{2})")
_OCTAL = re.compile(r"0[0-7]{0,2}|[1-3][0-7]{2}")
_PROPERTY = re.compile(r"\{(\^?)([A-Za-z0-9_&=. :-]+)\}|([A-Z])")


def escaped(parser: Parser, flags: Flags) -> Node:
    """The backslash at `parser.at` and what belongs to it, outside of brackets."""
    start = parser.at
    letter = parser.text[start + 1 : start + 2]
    if letter in _ANCHORS:
        parser.at += 2
        return At(_ANCHORS[letter])
    if letter.isdigit() and letter != "0" and not _is_octal(parser, start + 1):
        raise parser.unsupported(f"back-references (\\{letter}) have no regular language", start)
    value = class_escape(parser)
    if isinstance(value, CharSet):
        return Class(value)
    return parser.literal(value, flags, start)


def _is_octal(parser: Parser, at: int) -> bool:
    return re.compile("[1-3][0-7]{2}").match(parser.text, at) is not None


def class_escape(parser: Parser) -> CharSet | int:
    """The escape at `parser.at`, consumed: a set, or one code point. What is the same inside and outside of brackets."""
    start = parser.at
    letter = parser.text[start + 1 : start + 2]
    parser.at += 2
    if letter in SHORTHAND and letter:
        return SHORTHAND[letter]
    if letter in _CONTROL:
        return _CONTROL[letter]
    if letter in _HEX:
        return _hex(parser, letter, start)
    if letter and letter in "pP":
        return _property(parser, letter == "P", start)
    if letter.isdigit():
        return _octal(parser, start)
    return _other(parser, letter, start)


def _other(parser: Parser, letter: str, start: int) -> int:
    if not letter:
        raise parser.invalid("a backslash at the end", start)
    if letter == "c":
        control = parser.peek()
        if not (control.isascii() and control.isalpha()):
            raise parser.invalid("\\c needs a letter", start)
        parser.at += 1
        return ord(control.upper()) - 64
    if letter == "N" and parser.peek() == "{":
        return _named(parser, start)
    if letter in _REFUSED:
        raise parser.unsupported(_REFUSED[letter], start)
    if letter.isascii() and letter.isalpha():
        raise parser.invalid(f"unknown escape \\{letter}", start)
    return ord(letter)


def _hex(parser: Parser, letter: str, start: int) -> int:
    """`\\xHH`, `\\uHHHH` (two for a pair of surrogates), `\\UHHHHHHHH`, and `\\x{…}`, `\\u{…}`."""
    braced = _BRACED.match(parser.text, parser.at) if letter != "U" else None
    match = braced or _DIGITS[_HEX[letter][0]].match(parser.text, parser.at)
    if match is None:
        raise parser.invalid(f"\\{letter} needs {_HEX[letter][0]} hexadecimal digits", start)
    parser.at = match.end()
    point = int(match[1] if braced else match[0], 16)
    if 0xD800 <= point <= 0xDBFF and (low := _LOW_SURROGATE.match(parser.text, parser.at)):
        parser.at = low.end()
        return 0x10000 + ((point - 0xD800) << 10) + int(low[1], 16) - 0xDC00
    if point > 0x10FFFF:
        raise parser.invalid("no such code point: above 10FFFF", start)
    return point


def _octal(parser: Parser, start: int) -> int:
    """`\\0`, `\\012`, `\\101`. One or two digits that begin with another than 0 are a back-reference."""
    match = _OCTAL.match(parser.text, start + 1)
    if match is None:
        raise parser.invalid(f"invalid escape \\{parser.text[start + 1]}", start)
    parser.at = match.end()
    return int(match[0], 8)


def _named(parser: Parser, start: int) -> int:
    end = parser.text.find("}", parser.at)
    name = parser.text[parser.at + 1 : end] if end > 0 else ""
    try:
        char = unicodedata.lookup(name)
    except KeyError:
        raise parser.invalid(f"no character is named {name!r}", start) from None
    if len(char) != 1:
        raise parser.unsupported(f"the name {name!r} is of a sequence, not of one character", start)
    parser.at = end + 1
    return ord(char)


def _property(parser: Parser, negated: bool, start: int) -> CharSet:
    """`\\p{Lu}`, `\\pL`, `\\P{…}`, `\\p{^…}`."""
    match = _PROPERTY.match(parser.text, parser.at)
    if match is None:
        raise parser.invalid("\\p needs a property in braces", start)
    name = match[2] or match[3]
    found = property_class(name)
    if found is None:
        what = "general categories, Any, ASCII and Assigned are known, scripts and other properties are not"
        raise parser.unsupported(f"the Unicode property {name!r} is not supported ({what})", start)
    parser.at = match.end()
    return ~found if negated != bool(match[1]) else found

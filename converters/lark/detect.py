"""GBNF or Lark? Some request fields take either (spec section 2).

Both languages begin with a definition, after whitespace and comments, and the sign after its name tells them apart: `::=` or
`:` (with a priority, parameters or attributes before it); statements with `%` and the modifiers `?` and `!` are Lark's. So
what stands in strings, classes and regexes never counts. A text that begins with neither is broken in both languages; then
the definitions further down say whose error will help.
"""

from __future__ import annotations

import re
from typing import Literal

GrammarKind = Literal["gbnf", "lark"]

_BLANK = re.compile(r"(?:[\s\ufeff]|#[^\n]*|//[^\n]*)*")
_GBNF_HEAD = re.compile(r"[A-Za-z0-9_.-]+\s*::=")
_LARK_HEAD = re.compile(
    r"""%[a-z]
    |[?!]{0,2}_*[A-Za-z][\w-]*
        [ \t]*(?:\{[^{}\n]*\})?
        [ \t]*(?:\.[ \t]*[+-]?\d+)?
        [ \t]*(?:\[[^\n]*?\])?
        [ \t]*:(?!:?=)""",
    re.VERBOSE,
)
_LINE = re.compile(r"^[ \t]*", re.MULTILINE)


def detect_grammar_kind(text: str) -> GrammarKind:
    """The language of a grammar, or the one whose parser has the more helpful error for it.

    Never fails: a text without any definition counts as GBNF when it speaks of `root` or of `::=`, else as Lark.
    """
    blank = _BLANK.match(text)
    start = blank.end() if blank else 0
    return _head_at(text, start) or _first_head(text) or ("gbnf" if re.search(r"::=|\broot\b", text) else "lark")


def _head_at(text: str, start: int) -> GrammarKind | None:
    """The language of the definition that begins at `start`, if one does."""
    if _GBNF_HEAD.match(text, start):
        return "gbnf"
    return "lark" if _LARK_HEAD.match(text, start) else None


def _first_head(text: str) -> GrammarKind | None:
    """The language of the first line that begins with a definition."""
    for line in _LINE.finditer(text):
        kind = _head_at(text, line.end())
        if kind is not None:
            return kind
    return None

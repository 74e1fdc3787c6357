"""One look at an expression, kept with it: passes that have nothing to do in a rule needn't walk it themselves.

Expressions never change, so what was found once holds for good: over all passes, and from compile to compile for the
expressions that a process keeps.
"""

from __future__ import annotations

from dataclasses import dataclass

from converters.grammar.expr import Alt, Chars, Expr, Lit, Ref, Rep, Seq
from converters.grammar.passes.symbol import needs_split

MAX_HEIGHT = 40
"""Levels that an expression may have for the other passes, which call themselves for every level."""


@dataclass(slots=True)
class Look:
    """`refs`: the rules that the expression refers to. `is_plain`: nothing is too deep, and everything can be spelled.
    `branches`: there are alternatives. `repeats`: more than a character or a literal is repeated. `splits`: something is
    repeated that `repetition` must split.

    The others are filled in by the passes that ask: `left`, the rules that the expression begins with if none of its rules is
    ever empty; whether `factor` has seen it, and what that made of it (None: the same).
    """

    refs: frozenset[str]
    is_plain: bool
    branches: bool
    repeats: bool
    splits: bool
    left: tuple[str, ...] | None = None
    is_factored: bool = False
    factored: Expr | None = None


def look_of(expr: Expr) -> Look:
    """What there is to know of `expr`."""
    try:
        return expr.look
    except AttributeError:
        found = _look(expr)
        object.__setattr__(expr, "look", found)
        return found


def is_spellable(node: Expr) -> bool:
    """False for what llama.cpp's text can't carry, and for NEVER; nothing below `node` is looked at."""
    if type(node) is Lit:
        return (node.text.isascii() and "\0" not in node.text) or not any(_is_unspellable(c) for c in node.text)
    if type(node) is Chars:
        return bool(node.chars) and node.chars.ranges[0][0] > 0
    return type(node) is not Alt or bool(node.options)


def _is_unspellable(char: str) -> bool:
    return char == "\0" or "\ud800" <= char <= "\udfff"


def _look(expr: Expr) -> Look:
    """Level by level, in the depth of nothing but the heap."""
    refs: list[str] = []
    is_plain, branches, repeats, splits = True, False, False, False
    level: list[Expr] = [expr]
    height = 0
    while level:
        height += 1
        below: list[Expr] = []
        for node in level:
            if type(node) is Ref:
                refs.append(node.name)
            elif type(node) is Seq:
                below += node.items
            elif type(node) is Lit:
                if "\0" in node.text or not node.text.isascii():
                    is_plain = is_plain and is_spellable(node)
            elif type(node) is Chars:
                if not node.chars.ranges or node.chars.ranges[0][0] == 0:
                    is_plain = False
            elif type(node) is Alt:
                below += node.options
                is_plain = is_plain and bool(node.options)
                branches = True
            elif type(node) is Rep:
                below.append(node.item)
                splits = splits or needs_split(node)
                repeats = repeats or not (type(node.item) is Lit or type(node.item) is Chars)
        level = below
    return Look(frozenset(refs), is_plain and height <= MAX_HEIGHT, branches, repeats, splits)

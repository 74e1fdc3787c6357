"""What no sampler can produce is taken out of a grammar: NUL, lone surrogates, and NEVER inside a larger expression."""

from __future__ import annotations

from converters.grammar.charset import CharSet
from converters.grammar.expr import NEVER, Alt, Chars, Expr, Grammar, Lit, chars
from converters.grammar.passes.walk import each_rule, nodes, rewrite
from converters.limits import Budget

NUL = CharSet.of("\0")


def drop_unspellable(grammar: Grammar, budget: Budget) -> Grammar:
    """Take out what llama.cpp's text can't carry.

    Before → after: `root ::= [\\x00-z] | "a\\x00b"` → `root ::= [\\x01-z]`
    """
    return each_rule(grammar, _spell, budget)


def _spell(expr: Expr) -> Expr:
    if all(is_spellable(node) for node in nodes(expr)):
        return expr
    return rewrite(expr, lambda leaf: leaf if is_spellable(leaf) else _without_unspellable(leaf), settle=True)


def is_spellable(node: Expr) -> bool:
    """False for what llama.cpp's text can't carry, and for NEVER; nothing below `node` is looked at."""
    if isinstance(node, Lit):
        return (node.text.isascii() and "\0" not in node.text) or not any(_is_unspellable(c) for c in node.text)
    if isinstance(node, Chars):
        return bool(node.chars) and node.chars.ranges[0][0] > 0
    return not isinstance(node, Alt) or bool(node.options)


def _is_unspellable(char: str) -> bool:
    return char == "\0" or "\ud800" <= char <= "\udfff"


def _without_unspellable(leaf: Expr) -> Expr:
    return chars(leaf.chars - NUL) if isinstance(leaf, Chars) else NEVER

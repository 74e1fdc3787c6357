"""What no sampler can produce is taken out of a grammar: NUL, lone surrogates, and NEVER inside a larger expression."""

from __future__ import annotations

from converters.grammar.charset import CharSet
from converters.grammar.expr import NEVER, Chars, Expr, Grammar, chars
from converters.grammar.passes.look import is_spellable
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


def _without_unspellable(leaf: Expr) -> Expr:
    return chars(leaf.chars - NUL) if isinstance(leaf, Chars) else NEVER

"""What llama.cpp repeats as it stands, and what must be split first (`repetition`). Only the questions."""

from __future__ import annotations

from converters.grammar.expr import Chars, Expr, Lit, Ref, Rep, Token

SHARED = 8
"""A repetition with at least so many optional items gets a rule of its own, shared by its equals."""


def needs_split(node: Rep) -> bool:
    """False for what llama.cpp reads well as it stands: `+`, and `*`, `?` and small counts of one symbol."""
    if is_loop(node) or node.max == 1:
        return not is_symbol(node.item)
    if node.max is None:
        return node.min > 1 and not (node.min <= SHARED and is_symbol(node.item))
    return not (is_symbol(node.item) and node.max <= SHARED)


def is_loop(node: Rep) -> bool:
    """True for `*`."""
    return node.min == 0 and node.max is None


def is_symbol(expr: Expr) -> bool:
    """True when llama.cpp can repeat `expr` in place at little cost: it copies the elements for every count."""
    if type(expr) is Chars:
        return len(expr.chars.ranges) <= 4
    if type(expr) is Lit:
        return len(expr.text) <= 4
    return type(expr) is Ref or type(expr) is Token

"""A finished grammar inside another: its rules move into the other's book, under fresh names."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from typing_extensions import assert_never

from converters.constraint import Constraint
from converters.grammar.expr import Alt, Chars, Expr, Grammar, Lit, Ref, Rep, RuleBook, Seq, Token
from converters.options import CompileOptions

Embed: TypeAlias = Callable[[Constraint, CompileOptions, RuleBook, str], tuple[Expr, tuple[str, ...]]]
"""Compiles a constraint into a book, rules named like the hint: its expression, and notes. The pipeline hands it to those
sub-compilers whose sources hold constraints of any kind."""


def graft(grammar: Grammar, book: RuleBook, hint: str) -> Ref:
    """The entry rule of `grammar` as a rule of `book`; the names of the others begin with `hint`."""
    names = {name: book.reserve(hint if name == grammar.root else f"{hint}-{name}") for name in grammar.rules}
    for name, expr in grammar.rules.items():
        book.define(names[name], _renamed(expr, names))
    return names[grammar.root]


def _renamed(expr: Expr, names: dict[str, Ref]) -> Expr:
    match expr:
        case Lit() | Chars() | Token():
            return expr
        case Ref(name):
            return names[name]
        case Seq(items):
            return Seq(tuple(_renamed(item, names) for item in items))
        case Alt(options):
            return Alt(tuple(_renamed(option, names) for option in options))
        case Rep(item, low, high):
            return Rep(_renamed(item, names), low, high)
        case _:
            assert_never(expr)

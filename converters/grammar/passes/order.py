"""The order of alternatives: llama.cpp asks the stack of the last one first, and stops copying a token once one takes it."""

from __future__ import annotations

from operator import is_

from converters.grammar.expr import Alt, Chars, Expr, Grammar, Lit, Ref, Rep, Seq, Token
from converters.grammar.passes.walk import each_rule
from converters.limits import Budget

MAX_CHAIN = 8
"""So many rules are looked through for what an alternative begins with."""


def order_alternatives(grammar: Grammar, budget: Budget) -> Grammar:
    """What can begin with the most characters comes last, nothing at all first. For printing only.

    Before → after: `root ::= [a-z] root | "?" x | ""` → `root ::= "" | "?" x | [a-z] root`
    """
    return each_rule(grammar, _Order(grammar).sorted, budget)


class _Order:
    def __init__(self, grammar: Grammar) -> None:
        self._rules = grammar.rules
        self._widths: dict[str, int] = {}

    def sorted(self, expr: Expr) -> Expr:
        """`expr` with all its alternatives in order; the same object when they are."""
        if isinstance(expr, Alt):
            options = self._each(expr.options)
            ordered = tuple(sorted(options, key=self._width))
            if options is not expr.options or not all(map(is_, ordered, options)):
                return Alt(ordered)
        elif isinstance(expr, Seq):
            items = self._each(expr.items)
            if items is not expr.items:
                return Seq(items)
        elif isinstance(expr, Rep):
            item = self.sorted(expr.item)
            if item is not expr.item:
                return Rep(item, expr.min, expr.max)
        return expr

    def _each(self, exprs: tuple[Expr, ...]) -> tuple[Expr, ...]:
        new = [self.sorted(expr) if isinstance(expr, (Seq, Alt, Rep)) else expr for expr in exprs]
        return exprs if all(map(is_, new, exprs)) else tuple(new)

    def _width(self, expr: Expr, depth: int = MAX_CHAIN) -> int:
        """About how many characters `expr` can begin with; 0 for the empty text."""
        if isinstance(expr, Seq):
            return self._width(expr.items[0], depth) if expr.items else 0
        if isinstance(expr, Chars):
            return len(expr.chars)
        if isinstance(expr, (Lit, Token)):
            return 1
        if isinstance(expr, Rep):
            return self._width(expr.item, depth)
        if isinstance(expr, Alt):
            return sum([self._width(option, depth) for option in expr.options])
        return self._width_of_rule(expr, depth)

    def _width_of_rule(self, ref: Ref, depth: int) -> int:
        if ref.name not in self._widths:
            self._widths[ref.name] = 0  # while it is looked for
            self._widths[ref.name] = self._width(self._rules[ref.name], depth - 1) if depth else 0
        return self._widths[ref.name]

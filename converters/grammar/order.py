"""The order of alternatives: llama.cpp asks the stack of the last one first, and stops copying a token once one takes it."""

from __future__ import annotations

from collections.abc import Mapping

from converters.grammar.expr import Alt, Chars, Expr, Ref, Rep, Seq

MAX_CHAIN = 8
"""So many rules are looked through for what an alternative begins with."""


class Order:
    """Puts alternatives so that nothing at all comes first, and what can begin with the most characters last.

    Before → after: `root ::= [a-z] root | "?" x | ""` → `root ::= "" | "?" x | [a-z] root`
    """

    def __init__(self, rules: Mapping[str, Expr]) -> None:
        self._rules = rules
        self._widths: dict[str, int] = {}
        self._depth = 0

    def of(self, options: tuple[Expr, ...]) -> list[Expr]:
        """`options` in order; those that begin with as many characters stay as they are."""
        return sorted(options, key=self.width)

    def width(self, expr: Expr) -> int:
        """About how many characters `expr` can begin with; 0 for the empty text."""
        if isinstance(expr, Seq):
            if not expr.items:
                return 0
            expr = expr.items[0]
        if isinstance(expr, Ref):
            return self._width_of_rule(expr.name)
        if isinstance(expr, Chars):
            return len(expr.chars)
        if isinstance(expr, Rep):
            return self.width(expr.item)
        return sum([self.width(option) for option in expr.options]) if isinstance(expr, Alt) else 1

    def _width_of_rule(self, name: str) -> int:
        known = self._widths.get(name)
        if known is None:
            known = self._widths[name] = 0  # while it is looked for
            if self._depth < MAX_CHAIN:
                self._depth += 1
                known = self._widths[name] = self.width(self._rules[name])
                self._depth -= 1
        return known

"""The order of alternatives: llama.cpp asks the stack of the last one first, and stops copying a token once one takes it.

It follows a token into one stack at a time: what comes after a character is met only for the stack that took it. So first are
asked the ways that a token is likely to take and that are cheap to follow, and last "any other character".
"""

from __future__ import annotations

from collections.abc import Mapping

from converters.grammar.expr import Alt, Chars, Expr, Lit, Ref, Rep, Seq
from converters.grammar.passes.runs import NEARLY_ANY

MAX_CHAIN = 8
"""So many rules are looked through for what an alternative begins with."""
_LOOP, _RUN = 1 << 30, 1 << 31


class Order:
    """Puts alternatives so that nothing at all comes first, then what begins with nearly any character, and last what can
    begin with the most characters, loops and runs (see `passes.runs`).

    Before → after: `x ::= [a-z] x | y "?" | "" | [^a-z]` → `x ::= "" | [^a-z] | y "?" | [a-z] x`
    """

    def __init__(self, rules: Mapping[str, Expr]) -> None:
        self._rules = rules
        self._widths: dict[str, int] = {}
        self._depth = 0

    def of(self, options: tuple[Expr, ...], rule: str) -> list[Expr]:
        """`options`, which stand in `rule`, in order; those that begin with as many characters stay as they are."""
        ranks: list[float] = []
        for option in options:
            first = option.items[0] if type(option) is Seq and option.items else option
            ranks.append(1 if type(first) is Lit else self._rank(option, rule))
        if ranks.count(1) == len(ranks):
            return list(options)
        order = sorted(range(len(ranks)), key=ranks.__getitem__)
        return [options[i] for i in order]

    def _rank(self, option: Expr, rule: str) -> float:
        if type(option) is Seq and option.items:
            first, last = option.items[0], option.items[-1]
            if type(first) is Rep and first.min > 1:
                return _RUN
            if type(first) is Chars and type(last) is Ref and last.name == rule:
                return _LOOP
        width = self.width(option)
        return width if width < NEARLY_ANY else 0.5

    def width(self, expr: Expr) -> int:
        """About how many characters `expr` can begin with; 0 for the empty text."""
        if type(expr) is Seq:
            if not expr.items:
                return 0
            expr = expr.items[0]
        if type(expr) is Ref:
            return self._width_of_rule(expr.name)
        if type(expr) is Chars:
            return len(expr.chars)
        if type(expr) is Rep:
            return self.width(expr.item)
        return sum([self.width(option) for option in expr.options]) if type(expr) is Alt else 1

    def _width_of_rule(self, name: str) -> int:
        known = self._widths.get(name)
        if known is None:
            known = self._widths[name] = 0  # while it is looked for
            if self._depth < MAX_CHAIN:
                self._depth += 1
                known = self._widths[name] = self.width(self._rules[name])
                self._depth -= 1
        return known

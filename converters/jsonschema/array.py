"""Arrays: prefix items, the rest, counts, contains and uniqueItems as grammar."""

from __future__ import annotations

from typing import TYPE_CHECKING

from converters.errors import UnsupportedFeature
from converters.grammar.expr import EMPTY, NEVER, Expr, lit, opt, rep, seq
from converters.jsonschema.shape import ANYTHING, ArrayFacts, Term

if TYPE_CHECKING:
    from converters.jsonschema.lower import Lowering


def array_expr(facts: ArrayFacts, lowering: Lowering, hint: str) -> Expr:
    """The JSON texts of the arrays of `facts`."""
    if facts.occurs or (facts.distinct is not None and (facts.max is None or facts.max > 1)):
        raise UnsupportedFeature("contains or uniqueItems", path=facts.path)
    if facts.distinct is False:
        return NEVER
    content = _content(facts, lowering, hint)
    return NEVER if content == NEVER else seq(lit("["), lowering.bracketed(content), lit("]"))


def term_at(facts: ArrayFacts, i: int, lowering: Lowering) -> Term:
    """What item i must be."""
    terms = (e.prefix[i] if i < len(e.prefix) else e.rest for e in facts.elements)
    return lowering.algebra.simplify(frozenset().union(ANYTHING, *terms))


def n_prefix(facts: ArrayFacts) -> int:
    """From which item on all are ruled alike."""
    return max((len(elements.prefix) for elements in facts.elements), default=0)


def _content(facts: ArrayFacts, lowering: Lowering, hint: str) -> Expr:
    """Items and commas: the prefix from its end backwards, each item optional from `min` on."""
    comma, n = lowering.layout.comma, n_prefix(facts)
    if facts.max is not None:
        n = min(n, facts.max)
    rest = lowering.value(term_at(facts, n, lowering), f"{hint}-item")
    low = max(0, facts.min - n)
    high = None if facts.max is None else facts.max - n
    more: Expr
    if n == 0:
        if high == 0:
            return EMPTY if low == 0 else NEVER
        more = rep(seq(comma, rest), max(low - 1, 0), None if high is None else high - 1)
        return opt(seq(rest, more)) if low == 0 else seq(rest, more)
    more = rep(seq(comma, rest), low, high)
    for i in range(n - 1, -1, -1):
        item = lowering.value(term_at(facts, i, lowering), f"{hint}-item")
        more = seq(item, more) if i == 0 else seq(comma, item, more)
        if i >= facts.min:
            more = opt(more)
    return more

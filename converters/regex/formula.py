"""Boolean formulas over automaton states, as disjunctions of conjunctions.

A literal is `2 * state`, or `2 * state + 1` for its negation. Formulas are kept without contradictions and without terms
that a shorter one implies; they are not canonical, which costs states but never correctness.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

Term = frozenset[int]
Formula = frozenset[Term]
Charge = Callable[[int], None]
"""Told how much work is done; raises when it is too much."""

TRUE: Formula = frozenset({frozenset()})
FALSE: Formula = frozenset()


def state_formula(state: int) -> Formula:
    """`state` itself."""
    return frozenset({frozenset({2 * state})})


def disjunction(a: Formula, b: Formula, charge: Charge) -> Formula:
    """a or b."""
    if a == b or not b:
        return a
    if not a:
        return b
    return _absorbed(a | b, charge)


def conjunction(a: Formula, b: Formula, charge: Charge) -> Formula:
    """a and b."""
    if a == TRUE or not b:
        return b
    if b == TRUE or not a:
        return a
    terms: set[Term] = set()
    for x in a:
        for y in b:
            charge(1)
            term = x | y
            if not any(literal ^ 1 in x for literal in y):
                terms.add(term)
    return _absorbed(terms, charge)


def negation(a: Formula, charge: Charge) -> Formula:
    """not a."""
    result = TRUE
    for term in a:
        result = conjunction(result, frozenset(frozenset({literal ^ 1}) for literal in term), charge)
    return result


def _absorbed(terms: Iterable[Term], charge: Charge) -> Formula:
    """Without the terms that contain another one."""
    kept: list[Term] = []
    single: set[int] = set()
    for term in sorted(terms, key=len):
        if len(term) == 0:
            return TRUE
        charge(1)
        if not single.isdisjoint(term):
            continue
        if len(term) == 1:
            single |= term
            kept.append(term)
            continue
        charge(len(kept))
        if not any(len(shorter) > 1 and shorter < term for shorter in kept):
            kept.append(term)
    return frozenset(kept)

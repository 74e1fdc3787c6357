"""Set algebra of regular languages: products of two automata, and the relations that they decide.

Everything that can grow takes a budget and the name of what is compiled, for the error.
"""

from __future__ import annotations

from collections.abc import Callable

from converters.automata.alphabet import refine
from converters.automata.dfa import ANY_TEXT, Dfa, of_length
from converters.automata.minimise import minimise, trim
from converters.limits import Budget

_DEAD = -1
_LANGUAGE = "a regular language"

Keep = Callable[[bool, bool], bool]


def intersection(a: Dfa, b: Dfa, budget: Budget, what: str = _LANGUAGE) -> Dfa:
    """Words of both."""
    return _product(a, b, lambda x, y: x and y, budget, what)


def union(a: Dfa, b: Dfa, budget: Budget, what: str = _LANGUAGE) -> Dfa:
    """Words of either."""
    return _product(a, b, lambda x, y: x or y, budget, what)


def difference(a: Dfa, b: Dfa, budget: Budget, what: str = _LANGUAGE) -> Dfa:
    """Words of `a` that are not words of `b`."""
    return _product(a, b, lambda x, y: x and not y, budget, what)


def complement(a: Dfa, budget: Budget, what: str = _LANGUAGE) -> Dfa:
    """Texts that are not words of `a`."""
    return difference(ANY_TEXT, a, budget, what)


def bounded(a: Dfa, low: int, high: int | None, budget: Budget, what: str = _LANGUAGE) -> Dfa:
    """Words of `a` of `low` to `high` code points (None: without end)."""
    if low == 0 and high is None:
        return a
    budget.check_automaton(low if high is None else high, low if high is None else high, what)
    return intersection(a, of_length(low, high), budget, what)


def includes(a: Dfa, b: Dfa, budget: Budget) -> bool:
    """Is every word of `b` a word of `a`?"""
    return difference(b, a, budget).is_empty()


def is_disjoint(a: Dfa, b: Dfa, budget: Budget) -> bool:
    """Do they share no word?"""
    return intersection(a, b, budget).is_empty()


def equivalent(a: Dfa, b: Dfa, budget: Budget) -> bool:
    """Do they have the same words?"""
    return _product(a, b, lambda x, y: x != y, budget, _LANGUAGE).is_empty()


def _product(a: Dfa, b: Dfa, keep: Keep, budget: Budget, what: str) -> Dfa:
    """The pairs of states reached together. A word is kept by `keep(in a, in b)`; `keep(False, False)` must be False."""
    alphabet, columns = refine(a.alphabet, b.alphabet)
    alone_a, alone_b = keep(True, False), keep(False, True)
    pairs: dict[tuple[int, int], int] = {(0, 0): 0}
    order = [(0, 0)]
    rows: list[dict[int, int]] = []
    n_edges = 0
    nowhere: dict[int, int] = {}
    for pa, pb in order:
        row_a = a.rows[pa] if pa >= 0 else nowhere
        row_b = b.rows[pb] if pb >= 0 else nowhere
        row: dict[int, int] = {}
        for c, (ca, cb) in enumerate(columns):
            ta, tb = row_a.get(ca, _DEAD), row_b.get(cb, _DEAD)
            if (ta < 0 and not (alone_b and tb >= 0)) or (tb < 0 and not alone_a):
                continue
            pair = (ta, tb)
            target = pairs.get(pair)
            if target is None:
                target = pairs[pair] = len(order)
                order.append(pair)
            row[c] = target
        rows.append(row)
        n_edges += len(set(row.values()))
        budget.tick()
        budget.check_automaton(len(order), n_edges, what)
    finals = frozenset(i for i, (pa, pb) in enumerate(order) if keep(pa in a.accepting, pb in b.accepting))
    return minimise(trim(Dfa(alphabet, tuple(rows), finals)))

"""Long lengths beside a pattern: counts stay counts where an automaton ends in loops over one set of characters.

The product of `^data:[a-z]*$` and `maxLength: 32767` has as many states as the length; here the few characters before the
loop are walked, and the loop becomes one repetition.
"""

from __future__ import annotations

from converters.automata import JSON, Dfa, spelled_char
from converters.automata.spelling import spelled
from converters.grammar.charset import CharSet
from converters.grammar.expr import EMPTY, NEVER, Expr, RuleBook, opt, rep
from converters.limits import Budget

_MAX_PLACES = 2000


def counted_expr(dfa: Dfa, low: int, high: int | None, book: RuleBook, budget: Budget) -> Expr | None:
    """The JSON texts of the words of `low` to `high` code points; None where the automaton isn't of that kind."""
    edges = [dfa.edges(state) for state in range(dfa.n_states)]
    loops = [any(target == state for _, target in edges[state]) for state in range(dfa.n_states)]
    if any(loops[state] and len(edges[state]) > 1 for state in range(dfa.n_states)):
        return None
    walk = _Walk(dfa, edges, loops, low, high, book, budget)
    try:
        return walk.rest(0, 0)
    except _TooMany:
        return None


class _TooMany(Exception):
    """The part before the loops is too large, or goes round."""


class _Walk:
    def __init__(
        self,
        dfa: Dfa,
        edges: list[list[tuple[CharSet, int]]],
        loops: list[bool],
        low: int,
        high: int | None,
        book: RuleBook,
        budget: Budget,
    ) -> None:
        self._dfa, self._edges, self._loops = dfa, edges, loops
        self._low, self._high = low, high
        self._book, self._budget = book, budget
        self._memo: dict[tuple[int, int], Expr] = {}

    def rest(self, state: int, n: int) -> Expr:
        """What may follow in `state` after `n` characters."""
        self._budget.tick()
        if n > self._dfa.n_states:
            raise _TooMany
        if (state, n) not in self._memo:
            if len(self._memo) >= _MAX_PLACES:
                raise _TooMany
            expr = self._loop(state, n) if self._loops[state] else self._branches(state, n)
            self._memo[state, n] = expr if expr in (EMPTY, NEVER) else self._book.add("counted", expr)
        return self._memo[state, n]

    def _loop(self, state: int, n: int) -> Expr:
        ((charset, _),) = self._edges[state]
        if self._high is not None and self._high < n:
            return NEVER
        char = spelled_char(charset, self._book, "counted-char", JSON)
        return rep(char, max(0, self._low - n), None if self._high is None else self._high - n)

    def _branches(self, state: int, n: int) -> Expr:
        may_end = state in self._dfa.accepting and n >= self._low
        if self._high is not None and n >= self._high:
            return EMPTY if may_end and n == self._high else NEVER
        found = [(charset, self.rest(target, n + 1)) for charset, target in self._edges[state]]
        alive = [(charset, then) for charset, then in found if then != NEVER]
        expr = spelled(alive, JSON) if alive else NEVER
        return opt(expr) if may_end else expr

"""What may stand between tokens: the terminals of `%ignore`, each taken as long as it goes, as Lark's lexers do.

A comment `#[^\\n]*` reaches to the end of its line: no token can begin inside of it. A grammar can't look ahead, so the text
that is ignored is split by where it stops. Where nothing that the grammar can go on with would have made it longer (spaces,
mostly), it stands after the token before it. Where something would have, as after an open comment, it stands only before
those tokens that can follow there (a line end), joined to them as one automaton, and at the end of the text.

"As long as it goes" looks one character ahead: an ignored terminal that ends must not go on to a longer one with the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from converters.automata.dfa import Dfa
from converters.automata.nfa import Nfa
from converters.grammar.charset import NOTHING, CharSet
from converters.limits import Budget

_WHAT = "%ignore"

_Place = tuple[int, int]  # an ignored terminal and a state of it


@dataclass(frozen=True, slots=True)
class Ignored:
    """The ignored terminals of a grammar whose tokens begin with `first_chars`. `once`: at most one of them in a row."""

    terminals: Sequence[Dfa]
    first_chars: CharSet
    once: bool
    budget: Budget
    _longer: dict[_Place, CharSet] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        for k, dfa in enumerate(self.terminals):
            for state in dfa.accepting:
                sets = [chars for chars, target in dfa.edges(state) if target in dfa.accepting]
                self._longer[k, state] = CharSet.from_ranges(r for chars in sets for r in chars.ranges)

    def between(self) -> Dfa:
        """What may stand after any token: it stops where no token could have made it longer."""
        return self._automaton(None, set(filter(self._is_free, self._longer)), is_between=True)

    def before(self, token: Dfa) -> Dfa | None:
        """`token` with what may stand before it and is not `between`; None if there is no such thing."""
        first = token.first_chars()
        if all(self._is_free(place) or not first - longer for place, longer in self._longer.items()):
            return None
        return self._automaton(token, set(), is_between=False)

    def before_unspelled(self, first_chars: CharSet) -> Dfa | None:
        """The same for something that is no terminal and begins with one of `first_chars` (none: with no character, as the
        end of the text does): only what stands before it."""
        ends = {p for p, longer in self._longer.items() if not self._is_free(p) and not longer & first_chars}
        return self._automaton(None, ends, is_between=False) if ends else None

    def _is_free(self, place: _Place) -> bool:
        return self._longer[place].isdisjoint(self.first_chars)

    def _automaton(self, token: Dfa | None, ends: set[_Place], *, is_between: bool) -> Dfa:
        """Ignored terminals that stop in `ends`, then `token`. What isn't `between` stops nowhere where that does."""
        nfa = Nfa(self.budget, _WHAT)
        states = {(k, state): nfa.state() for k, dfa in enumerate(self.terminals) for state in range(dfa.n_states)}
        token_states = [nfa.state() for _ in range(token.n_states)] if token else []
        start = nfa.state()
        self._go_on(nfa, start, states, token, token_states, NOTHING, is_first=True)
        ways_on: dict[CharSet, int] = {}
        for state, number in enumerate(token_states):
            assert token is not None
            _connect(nfa, number, token.edges(state), token_states, NOTHING)
        for (k, state), number in states.items():
            own = [states[k, target] for target in range(self.terminals[k].n_states)]
            _connect(nfa, number, self.terminals[k].edges(state), own, NOTHING)
            longer = self._longer.get((k, state))
            if longer is not None and (is_between or not self._is_free((k, state))):
                if longer not in ways_on:
                    ways_on[longer] = nfa.state()
                    self._go_on(nfa, ways_on[longer], states, token, token_states, longer, is_first=False)
                nfa.moves[number].append(ways_on[longer])
        nfa.accepting.update(token_states[state] for state in token.accepting) if token else nfa.accepting.add(start)
        nfa.accepting.update(states[place] for place in ends)
        return nfa.determinize(start)

    def _go_on(
        self, nfa: Nfa, source: int, states: dict[_Place, int], token: Dfa | None, token_states: Sequence[int],
        without: CharSet, *, is_first: bool,
    ) -> None:  # fmt: skip
        """From `source` into every ignored terminal, and into the token, but not over the characters of `without`."""
        if is_first or not self.once:
            for k, dfa in enumerate(self.terminals):
                self.budget.tick()
                _connect(nfa, source, dfa.edges(0), [states[k, target] for target in range(dfa.n_states)], without)
        if token is not None:
            _connect(nfa, source, token.edges(0), token_states, without)


def _connect(nfa: Nfa, source: int, edges: Iterable[tuple[CharSet, int]], targets: Sequence[int], without: CharSet) -> None:
    for chars, target in edges:
        left = chars - without
        if left:
            nfa.arcs[source].append((nfa.set_id(left), targets[target]))

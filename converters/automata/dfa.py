"""The deterministic automaton: an immutable value, with the questions that one automaton answers by itself.

Operations that build automata are in `algebra` and `nfa`, strings drawn from them in `sample`, rules in `lower`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from converters.automata.alphabet import Alphabet, partition, union
from converters.grammar.charset import ANY, CharSet


@dataclass(frozen=True, slots=True, eq=False)
class Dfa:
    """States are numbers, 0 the start. `rows[s]` maps a class of `alphabet` to the next state; a missing one is dead.

    The classes are disjoint. What the operations of this package return is minimal and trimmed (every state is reached
    from the start and reaches acceptance), except that the empty language still has its start.
    """

    alphabet: Alphabet
    rows: tuple[Mapping[int, int], ...]
    accepting: frozenset[int]

    @property
    def n_states(self) -> int:
        """How many states."""
        return len(self.rows)

    @property
    def n_transitions(self) -> int:
        """How many pairs of a state and a successor."""
        return sum(len(set(row.values())) for row in self.rows)

    def step(self, state: int, char: str) -> int | None:
        """The state after `char`, or None where no word goes on so."""
        point = ord(char)
        for c, target in self.rows[state].items():
            if point in self.alphabet[c]:
                return target
        return None

    def accepts(self, text: str) -> bool:
        """Is `text` a word of the language?"""
        state: int | None = 0
        for char in text:
            state = self.step(state, char) if state is not None else None
        return state in self.accepting

    def after(self, text: str) -> Dfa:
        """The left quotient: what may follow `text`. States are not renumbered compactly, the language is right."""
        state: int | None = 0
        for char in text:
            state = self.step(state, char) if state is not None else None
        if state is None:
            return NOTHING
        return _rooted(self, state)

    def edges(self, state: int, unions: dict[tuple[int, ...], CharSet] | None = None) -> list[tuple[CharSet, int]]:
        """The transitions of `state`, classes merged per target. `unions` remembers what was merged, over many calls."""
        by_target: dict[int, list[int]] = {}
        for c, target in self.rows[state].items():
            by_target.setdefault(target, []).append(c)
        unions = {} if unions is None else unions
        found: list[tuple[CharSet, int]] = []
        for target, classes in by_target.items():
            key = tuple(sorted(classes))
            if key not in unions:
                unions[key] = union(self.alphabet, key)
            found.append((unions[key], target))
        return found

    def first_chars(self) -> CharSet:
        """The characters that a word can begin with (of a trimmed automaton)."""
        return union(self.alphabet, list(self.rows[0]))

    def following_chars(self) -> CharSet:
        """The characters that can continue a whole word to a longer one (of a trimmed automaton)."""
        classes = {c for state in self.accepting for c in self.rows[state]}
        return union(self.alphabet, list(classes))

    def is_empty(self) -> bool:
        """No word at all (of a trimmed automaton)."""
        return not self.accepting

    def is_universal(self) -> bool:
        """Every text is a word."""
        covered: dict[CharSet, bool] = {}
        for state, row in enumerate(self.rows):
            chars = union(self.alphabet, list(row))
            if state not in self.accepting or not covered.setdefault(chars, chars == ANY):
                return False
        return True

    def is_finite(self) -> bool:
        """Only finitely many words (of a trimmed automaton)."""
        from converters.automata.minimise import topological

        return topological(self.rows) is not None


def _rooted(dfa: Dfa, start: int) -> Dfa:
    """`dfa` with another start: the two states swap their numbers, the unreachable is dropped."""
    from converters.automata.minimise import minimise, trim

    def swap(state: int) -> int:
        return {0: start, start: 0}.get(state, state)

    rows = [{c: swap(t) for c, t in dfa.rows[swap(s)].items()} for s in range(dfa.n_states)]
    return minimise(trim(Dfa(dfa.alphabet, tuple(rows), frozenset(map(swap, dfa.accepting)))))


NOTHING = Dfa((), ({},), frozenset())
EMPTY_TEXT = Dfa((), ({},), frozenset({0}))
ANY_TEXT = Dfa((ANY,), ({0: 0},), frozenset({0}))
ANY_CHAR = Dfa((ANY,), ({0: 1}, {}), frozenset({1}))


def of_charset(charset: CharSet) -> Dfa:
    """One character of `charset`."""
    return Dfa((charset,), ({0: 1}, {}), frozenset({1})) if charset else NOTHING


def of_string(text: str) -> Dfa:
    """Exactly `text`."""
    alphabet, members = partition([CharSet.of(char) for char in text])
    rows: list[dict[int, int]] = [{members[i][0]: i + 1} for i in range(len(text))]
    return Dfa(alphabet, (*rows, {}), frozenset({len(text)}))


def of_length(low: int, high: int | None, charset: CharSet = ANY) -> Dfa:
    """Texts of `low` to `high` code points (None: without end), all of `charset`."""
    last = low if high is None else high
    rows: list[dict[int, int]] = [{0: i + 1} for i in range(last)]
    rows.append({0: last} if high is None else {})
    return Dfa((charset,), tuple(rows), frozenset(range(low, last + 1)))

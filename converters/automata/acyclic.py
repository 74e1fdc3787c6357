"""The minimal acyclic automaton of a list of strings, built while the sorted list is read.

After Daciuk, Mihov, Watson and Watson, "Incremental construction of minimal acyclic finite-state automata" (2000): only
the path of the last string is open; what lies behind it is merged with equal states already seen. Linear in the text.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from converters.automata.alphabet import partition
from converters.automata.dfa import Dfa
from converters.automata.minimise import minimise
from converters.grammar.charset import CharSet
from converters.limits import Budget


@dataclass(frozen=True, slots=True, eq=False)
class WordGraph:
    """A minimal acyclic automaton over single characters: `rows[s]` maps a character to the next state; `start` is its root."""

    rows: tuple[dict[str, int], ...]
    accepting: frozenset[int]
    start: int


def word_graph(words: Iterable[str], budget: Budget) -> WordGraph:
    """The minimal automaton of `words` (any order, repeats allowed). Not counted against `automaton_bytes`: it is linear."""
    builder = _Builder(budget)
    previous = ""
    for word in sorted(set(words)):
        builder.add(word, _n_shared(previous, word))
        previous = word
    return builder.finish()


def of_strings(words: Iterable[str], budget: Budget, what: str = "a list of strings") -> Dfa:
    """Exactly `words`, as an automaton for the algebra. Raises LimitExceeded when it is too large."""
    graph = word_graph(words, budget)
    n_edges = sum(map(len, graph.rows))
    budget.check_automaton(len(graph.rows), n_edges, what)
    chars = sorted({char for row in graph.rows for char in row})
    alphabet, members = partition([CharSet.of(char) for char in chars])
    ids = {char: members[i][0] for i, char in enumerate(chars)}
    order = [graph.start, *(s for s in range(len(graph.rows)) if s != graph.start)]
    number = {state: i for i, state in enumerate(order)}
    rows = tuple({ids[char]: number[t] for char, t in graph.rows[s].items()} for s in order)
    return minimise(Dfa(alphabet, rows, frozenset(number[s] for s in graph.accepting)))


def _n_shared(a: str, b: str) -> int:
    """The length of the common prefix."""
    n = min(len(a), len(b))
    if a[:n] == b[:n]:
        return n
    return next(i for i in range(n) if a[i] != b[i])


class _Builder:
    """Open states of the last word's path, and the register of closed, pairwise different states."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.rows: list[dict[str, int]] = []
        self.accepting: set[int] = set()
        self.register: dict[tuple[bool, tuple[tuple[str, int], ...]], int] = {}
        self.path: list[tuple[str, dict[str, int]]] = []  # open: the character that leads in, the closed part of the row
        self.final: list[bool] = []
        self._open("")

    def _open(self, char: str) -> None:
        self.path.append((char, {}))
        self.final.append(False)

    def add(self, word: str, n_shared: int) -> None:
        """The next word in sorted order, which shares `n_shared` characters with the one before."""
        self._close_to(n_shared)
        for char in word[n_shared:]:
            self._open(char)
        self.final[-1] = True
        self.budget.tick()

    def _close_to(self, depth: int) -> None:
        """Close the open states deeper than `depth`."""
        while len(self.path) > depth + 1:
            char, row = self.path.pop()
            state = self._intern(row, self.final.pop())
            self.path[-1][1][char] = state

    def _intern(self, row: dict[str, int], final: bool) -> int:
        key = (final, tuple(row.items()))  # a row grows in sorted order, so equal rows have equal items
        state = self.register.get(key)
        if state is None:
            state = self.register[key] = len(self.rows)
            self.rows.append(row)
            if final:
                self.accepting.add(state)
        return state

    def finish(self) -> WordGraph:
        """Close everything."""
        self._close_to(0)
        _, row = self.path.pop()
        start = self._intern(row, self.final.pop())
        return WordGraph(tuple(self.rows), frozenset(self.accepting), start)

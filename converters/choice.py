"""A list of strings as a grammar: the minimal automaton of the list, written so that no two alternatives begin alike.

Only states where words part or end are kept, what lies between is a literal; states with the same words left are one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from converters.automata.lower import or_nothing
from converters.errors import InvalidSource
from converters.grammar.charset import CharSet
from converters.grammar.expr import EMPTY, Chars, Expr, Grammar, Ref, RuleBook, alt, lit, seq
from converters.limits import Budget

_MAX_INLINE_DEPTH = 8

Edge = tuple[str, int]


def choice_grammar(options: Sequence[str], budget: Budget) -> Grammar:
    """Exactly one of `options`; equal ones count once, the empty string is an option like any other.

    Linear in the text, so not counted against `automaton_bytes`. Raises InvalidSource for no options, or one with a lone
    surrogate.
    """
    if not options:
        raise InvalidSource("a choice needs at least one option")
    for i, option in enumerate(options):
        if not option.isascii() and any("\ud800" <= char <= "\udfff" for char in option):
            raise InvalidSource(f"option {i} has a lone surrogate, which no text can have")
    book = RuleBook()
    graph = _Graph(budget)
    start = graph.build(sorted(set(options)))
    budget.n_states = max(budget.n_states, len(graph.edges))
    return book.build(_Lowering(graph, start, book).run())


@dataclass(slots=True)
class _Open:
    """A state on the path of the last word, `depth` characters from the start."""

    depth: int
    final: bool = False
    edges: list[Edge] = field(default_factory=list)


class _Graph:
    """States by number, targets before sources: `edges[s]` (a literal and a target), `final[s]`."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.edges: list[tuple[Edge, ...]] = []
        self.final: list[bool] = []
        self.numbers: dict[tuple[bool, tuple[Edge, ...]], int] = {}

    def build(self, words: Sequence[str]) -> int:
        """Read sorted, different words; returns the start. What lies behind the path of the last word is closed."""
        path = [_Open(0)]
        last = ""
        for word in words:
            self.close(path, last, _n_shared(last, word))
            if word:
                path.append(_Open(len(word), final=True))
            else:
                path[0].final = True
            last = word
            self.budget.tick()
        self.close(path, last, 0)
        return self.number(path[0])

    def close(self, path: list[_Open], word: str, depth: int) -> None:
        """Close the states of `word`'s path deeper than `depth`; open one at `depth` if words part there."""
        while path[-1].depth > depth:
            closed = path.pop()
            if path[-1].depth < depth:
                path.append(_Open(depth))
            parent = path[-1]
            parent.edges.append((word[parent.depth : closed.depth], self.number(closed)))

    def number(self, state: _Open) -> int:
        """The number of a closed state; equal ones have the same."""
        key = (state.final, tuple(state.edges))
        found = self.numbers.get(key)
        if found is None:
            found = self.numbers[key] = len(self.edges)
            self.edges.append(key[1])
            self.final.append(state.final)
        return found


class _Lowering:
    """The graph as right-linear rules: a state that several others lead to is a rule."""

    def __init__(self, graph: _Graph, start: int, book: RuleBook) -> None:
        self.graph = graph
        self.start = start
        self.book = book
        self.n_sources = [0] * len(graph.edges)
        for edges in graph.edges:
            for target in {target for _, target in edges}:
                self.n_sources[target] += 1
        self.refs: dict[int, Ref] = {}
        self.todo: list[int] = []

    def run(self) -> Expr:
        """The start's expression, once every rule is defined."""
        root = self.state(self.start, 0)
        while self.todo:
            state = self.todo.pop()
            self.book.define(self.refs[state], self.state(state, 0))
        return root

    def state(self, state: int, depth: int) -> Expr:
        """The words from `state` on."""
        edges = self.graph.edges[state]
        if not edges:
            return EMPTY
        single: dict[int, str] = {}
        for text, target in edges:
            if len(text) == 1:
                single[target] = single.get(target, "") + text
        options = [seq(_one_of(chars), self.then(target, depth)) for target, chars in single.items()]
        options += [seq(lit(text), self.then(target, depth)) for text, target in edges if len(text) > 1]
        return or_nothing(alt(*options)) if self.graph.final[state] else alt(*options)

    def then(self, state: int, depth: int) -> Expr:
        """`state` as the rest of an option: in place, or by its rule."""
        if not self.graph.edges[state]:
            return EMPTY
        if self.n_sources[state] == 1 and depth < _MAX_INLINE_DEPTH:
            return self.state(state, depth + 1)
        if state not in self.refs:
            self.refs[state] = self.book.reserve("choice")
            self.todo.append(state)
        return self.refs[state]


def _one_of(chars: str) -> Expr:
    return lit(chars) if len(chars) == 1 else Chars(CharSet.of(chars))


def _n_shared(a: str, b: str) -> int:
    """The length of the common prefix."""
    n = min(len(a), len(b))
    if a[:n] == b[:n]:
        return n
    return next(i for i in range(n) if a[i] != b[i])

"""The other way to print a pattern: its own position automaton (Glushkov, 1961), where that is unambiguous and walks cheaper.

llama.cpp pays for every live stack and for every rule that a stack is followed into. A deterministic automaton has few stacks,
but where the next characters decide what the last ones were (`.+\\.[a-z]{2,}`: every letter after a point may be in the last
label), each of its states has many ways on. The automaton of the pattern as it stands guesses instead: a stack for each guess,
with few ways on. Being unambiguous, it has no more ways through a text than it has states.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from random import Random

from converters.automata.dfa import Dfa
from converters.automata.lower import Edges, join, to_expr
from converters.automata.nfa import Nfa
from converters.automata.reach import reachable
from converters.grammar.charset import CharSet
from converters.grammar.expr import EMPTY, Chars, Expr, Ref, RuleBook, alt, lit
from converters.limits import Budget

MAX_STATES = 48
"""Of automata for which both ways are tried."""
MAX_STACKS = 6
MIN_GAIN = 0.85
_N_STEPS = 160
_COMMON = CharSet.of("abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ ")


def cheapest_expr(dfa: Dfa, nfa: Nfa, start: int, book: RuleBook, hint: str, budget: Budget) -> Expr:
    """`to_expr` of `dfa`; or the same language as `nfa` reads it from `start`, where a walk costs llama.cpp clearly less."""
    plain = _deterministic(dfa)
    if dfa.n_states <= MAX_STATES and len(nfa.arcs) <= 4 * MAX_STATES and plain.branches():
        guessing = _positions(nfa, start)
        budget.check_deadline()
        if len(guessing.edges) <= MAX_STATES and _pays(plain, guessing) and not guessing.is_ambiguous():
            return _Lowering(guessing, book, hint).run()
    return to_expr(dfa, book, hint, None, budget)


@dataclass(frozen=True, slots=True)
class _Automaton:
    """`edges[s]`: the ways on from state s, of which several may read the same characters. State 0 is the start."""

    edges: list[Edges]
    accepting: Collection[int]

    def branches(self) -> bool:
        """Has some state more than two ways on, itself and the end among them?"""
        return any(len(edges) + (state in self.accepting) > 2 for state, edges in enumerate(self.edges))

    def effort(self, state: int) -> int:
        """About how many stacks llama.cpp goes through to follow a stack into `state`."""
        n = len(self.edges[state]) + (state in self.accepting)
        return n + (n > 1)

    def cost(self, states: Collection[int]) -> int:
        """The same for all that may follow `states`, and the stacks themselves."""
        return sum([1 + self.effort(target) for state in states for _, target in self.edges[state]])

    def step(self, states: Collection[int], point: int) -> set[int]:
        """The states after a character."""
        return {target for state in states for charset, target in self.edges[state] if point in charset}

    def is_ambiguous(self) -> bool:
        """Has some word two ways through? Looked for among the pairs of states that one text leads to."""
        backward: dict[tuple[int, int], list[tuple[int, int]]] = {}

        def after(pair: tuple[int, int]) -> list[tuple[int, int]]:
            pairs = self._pairs(*pair)
            for reached in pairs:
                backward.setdefault(reached, []).append(pair)
            return pairs

        met = reachable([(0, 0)], after)
        ends = [(a, b) for a, b in met if a in self.accepting and b in self.accepting]
        return any(a != b for a, b in reachable(ends, lambda pair: backward.get(pair, ())))

    def _pairs(self, a: int, b: int) -> list[tuple[int, int]]:
        return [(x, y) for left, x in self.edges[a] for right, y in self.edges[b] if not left.isdisjoint(right)]


def _deterministic(dfa: Dfa) -> _Automaton:
    unions: dict[tuple[int, ...], CharSet] = {}
    return _Automaton([dfa.edges(state, unions) for state in range(dfa.n_states)], dfa.accepting)


def _positions(nfa: Nfa, start: int) -> _Automaton:
    """`nfa` without empty moves: a state for each set of places that one place leads to."""
    places = [nfa.closure(start)]
    ids = {places[0]: 0}
    edges: list[Edges] = []
    for here in places:
        by_target: dict[int, CharSet] = {}
        for set_id, target in sorted(arc for place in here for arc in nfa.arcs[place]):
            reached = nfa.closure(target)
            if reached not in ids:
                ids[reached] = len(places)
                places.append(reached)
            state = ids[reached]
            by_target[state] = by_target.get(state, CharSet()) | nfa.sets[set_id]
        edges.append([(charset, target) for target, charset in by_target.items()])
    return _merged(edges, [not nfa.accepting.isdisjoint(here) for here in places])


def _merged(edges: list[Edges], accepts: list[bool]) -> _Automaton:
    """Equal states joined, as long as there are any."""
    names = [int(accept) for accept in accepts]
    while True:
        keys = [(name, frozenset(_by_name(ways, names))) for name, ways in zip(names, edges, strict=True)]
        ids: dict[object, int] = {}
        new = [ids.setdefault(key, len(ids)) for key in keys]
        if len(set(names)) == len(ids):
            break
        names = new
    merged: dict[int, Edges] = {}
    for name, ways in zip(new, edges, strict=True):
        merged.setdefault(name, [(charset, target) for target, charset in _by_name(ways, new)])
    return _Automaton(list(merged.values()), {name for name, accept in zip(new, accepts, strict=True) if accept})


def _by_name(ways: Edges, names: list[int]) -> list[tuple[int, CharSet]]:
    joined: dict[int, CharSet] = {}
    for charset, target in ways:
        joined[names[target]] = joined.get(names[target], CharSet()) | charset
    return list(joined.items())


def _pays(plain: _Automaton, guessing: _Automaton) -> bool:
    """Walk through both at random: does guessing cost less, and never many stacks?"""
    rng = Random(0)
    cost = other_cost = 0
    states, guesses = {0}, {0}
    for _ in range(_N_STEPS):
        cost += plain.cost(states)
        other_cost += guessing.cost(guesses)
        (state,) = states
        if not plain.edges[state]:
            states, guesses = {0}, {0}
            continue
        point = _random_point(plain.edges[state], rng)
        states, guesses = plain.step(states, point), guessing.step(guesses, point)
        if sum([len(guessing.edges[guess]) for guess in guesses]) > MAX_STACKS:
            return False
    return other_cost < MIN_GAIN * cost


def _random_point(edges: Edges, rng: Random) -> int:
    """A character that may come next, rather one of those that texts are made of."""
    weights = [min(1 + len(charset & _COMMON), 40) for charset, _ in edges]
    ((charset, _),) = rng.choices(edges, weights)
    low, high = rng.choice((charset & _COMMON or charset).ranges)
    return rng.randint(low, high)


@dataclass(slots=True)
class _Lowering:
    """An automaton with several ways on over the same characters, as rules: one for each state that several lead to."""

    automaton: _Automaton
    book: RuleBook
    hint: str
    n_sources: list[int] = field(init=False)
    refs: dict[int, Ref] = field(init=False, default_factory=dict)
    todo: list[int] = field(init=False, default_factory=list)

    def run(self) -> Expr:
        """The expression of the start state, after all rules are defined."""
        self.n_sources = [0] * len(self.automaton.edges)
        for edges in self.automaton.edges:
            for _, target in edges:
                self.n_sources[target] += 1
        self.n_sources[0] += 1
        root = self.then(0)
        while self.todo:
            state = self.todo.pop()
            self.book.define(self.refs[state], self.written(state))
        return root

    def then(self, state: int) -> Expr:
        """`state` where it is reached."""
        if self.n_sources[state] == 1 or not self.automaton.edges[state]:
            return self.written(state)
        if state not in self.refs:
            self.refs[state] = self.book.reserve(self.hint)
            self.todo.append(state)
        return self.refs[state]

    def written(self, state: int) -> Expr:
        """What may follow in `state`."""
        ways = [join([_char(charset), self.then(target)]) for charset, target in self.automaton.edges[state]]
        return alt(*ways, *([EMPTY] if state in self.automaton.accepting else []))


def _char(charset: CharSet) -> Expr:
    return Chars(charset) if len(charset) > 1 else lit(chr(charset.first))

"""Nondeterministic automata with empty moves, and the subset construction that makes them deterministic.

An NFA lives only while something is compiled; it is built backwards, each state knowing its continuation. Assertions
(anchors, look-around) are not here: `converters.regex` has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from converters.automata.alphabet import partition
from converters.automata.dfa import Dfa
from converters.automata.minimise import minimise, trim
from converters.automata.reach import reachable
from converters.errors import LimitExceeded
from converters.grammar.charset import ANY, CharSet
from converters.limits import Budget

_MAX_SUBSET_ELEMENTS = 400_000  # keeps the subsets of one construction under about 30 MB, and a second
_MAX_WORK = 3_000_000  # arcs looked at, about a second
_MAX_LOOPS = 4
_MIN_STATES_FOR_LOOPS = 100

Arc = tuple[int, int]


@dataclass(slots=True)
class Nfa:
    """States are numbers; `arcs[s]` are (index into `sets`, target) pairs, `moves[s]` the targets of empty moves.

    `everything` is a state from which every text is accepted, reading at least one character (`any_text`): a subset that
    has it, and an accepting state, needs nothing else.
    """

    budget: Budget
    what: str
    arcs: list[list[Arc]] = field(default_factory=list)
    moves: list[list[int]] = field(default_factory=list)
    sets: list[CharSet] = field(default_factory=list)
    accepting: set[int] = field(default_factory=set)
    everything: int | None = None
    _any_loop: int = 0
    _set_ids: dict[CharSet, int] = field(default_factory=dict)

    def state(self, *moves: int) -> int:
        """A new state with these empty moves. Raises LimitExceeded when there are too many."""
        self.arcs.append([])
        self.moves.append(list(moves))
        n = len(self.arcs)
        if n & 127 == 0:
            self.budget.tick()
            self.budget.check_automaton(n, 0, self.what)
        return n - 1

    def read(self, charset: CharSet, target: int) -> int:
        """A new state that goes to `target` over one character of `charset`."""
        state = self.state()
        self.arcs[state].append((self.set_id(charset), target))
        return state

    def any_text(self, accept: int) -> int:
        """The state from which every text leads to the accepting state `accept`, which has no moves; made once."""
        if self.everything is None:
            loop = self.state(accept)
            self.everything = self.read(ANY, loop)
            self.moves[loop].append(self.everything)
            self._any_loop = loop
        return self._any_loop

    def set_id(self, charset: CharSet) -> int:
        """The index of `charset` in `sets`."""
        found = self._set_ids.get(charset)
        if found is None:
            found = self._set_ids[charset] = len(self.sets)
            self.sets.append(charset)
        return found

    def embed(self, dfa: Dfa, target: int) -> int:
        """A copy of `dfa` whose accepting states go on to `target`; returns its start."""
        base = len(self.arcs)
        ids = [self.set_id(charset) for charset in dfa.alphabet]
        for state, row in enumerate(dfa.rows):
            self.state(*((target,) if state in dfa.accepting else ()))
            self.arcs[base + state] = [(ids[c], base + t) for c, t in row.items()]
        return base

    def too_large(self) -> LimitExceeded:
        """The error for a construction whose working memory passes what its final size would need."""
        limit = self.budget.limits.automaton_bytes
        return LimitExceeded(
            f"the automaton of {self.what} needs more than {limit} bytes ({limit // 1024} KiB) of working memory",
            limit="automaton_bytes",
            value=limit,
        )

    def closure(self, state: int) -> frozenset[int]:
        """The states with arcs, or accepting, that empty moves reach from `state`."""
        return self.stops(reachable((state,), self.moves.__getitem__))

    def stops(self, states: Iterable[int]) -> frozenset[int]:
        """Those of `states` that have arcs, or accept."""
        return frozenset(s for s in states if self.arcs[s] or s in self.accepting)

    def determinize(self, start: int) -> Dfa:
        """The minimal DFA of what is accepted from `start`."""
        return minimise(trim(_Subsets(self).run(start)))


class _Subsets:
    """The subset construction, lazily from the start: sizes are counted while it grows."""

    def __init__(self, nfa: Nfa) -> None:
        self.nfa = nfa
        self.alphabet, self.members = partition(nfa.sets)
        self.arcs = nfa.arcs
        self.closures: dict[int, frozenset[int]] = {}
        self.n_elements = self.work = 0
        self.loops = self.find_loops() if len(self.arcs) > _MIN_STATES_FOR_LOOPS else []
        self.everything = nfa.everything
        self.all_texts = frozenset() if nfa.everything is None else self.closure(nfa.any_text(0))

    def run(self, start: int) -> Dfa:
        """The DFA, not yet trimmed."""
        first = self.closure(start)
        ids: dict[frozenset[int], int] = {first: 0}
        subsets = [first]
        rows: list[dict[int, int]] = []
        n_edges = 0
        for subset in subsets:
            row: dict[int, int] = {}
            for c, reached in self.step(subset).items():
                target = ids.get(reached)
                if target is None:
                    target = ids[reached] = len(subsets)
                    subsets.append(reached)
                    self.count(len(reached))
                row[c] = target
            rows.append(row)
            n_edges += len(set(row.values()))
            self.nfa.budget.tick()
            self.nfa.budget.check_automaton(len(subsets), n_edges, self.nfa.what)
        accepting = self.nfa.accepting
        finals = frozenset(i for i, subset in enumerate(subsets) if not accepting.isdisjoint(subset))
        return Dfa(self.alphabet, tuple(rows), finals)

    def step(self, subset: frozenset[int]) -> dict[int, frozenset[int]]:
        """Where each class leads from `subset`: joined per set first, since many states read the same set."""
        by_set: dict[int, frozenset[int] | set[int]] = {}
        n = 0
        for state in subset:
            for set_id, target in self.arcs[state]:
                reached = self.closures.get(target) or self.closure(target)
                known = by_set.get(set_id)
                if known is None:
                    by_set[set_id] = reached
                elif isinstance(known, set):
                    known |= reached
                elif known is not reached:
                    by_set[set_id] = known | reached if n < 4 else set(known) | reached
                n += 1
        self.charge(n)
        return self.by_class(by_set)

    def by_class(self, by_set: dict[int, frozenset[int] | set[int]]) -> dict[int, frozenset[int]]:
        """Where each class leads, from where each set leads."""
        row: dict[int, frozenset[int]] = {}
        for set_id, found in by_set.items():
            reached = frozenset(found)
            for c in self.members[set_id]:
                known = row.get(c)
                row[c] = reached if known is None else known | reached
            if len(reached) > 32:
                self.charge(len(reached) * len(self.members[set_id]) // 16)
        if self.everything is not None:
            for c, reached in row.items():
                if self.everything in reached:
                    row[c] = self.all_texts
        for loop, covered in self.loops:
            for c, reached in row.items():
                if loop in reached and not covered.isdisjoint(reached) and not self.nfa.accepting.isdisjoint(reached):
                    row[c] = reached - covered
        return row

    def find_loops(self) -> list[tuple[int, frozenset[int]]]:
        """States that loop over a set up to the end (`[…]*` there), each with the states that read only texts of that set.

        With such a loop, and acceptance, in a subset, the others add nothing: `[a-z]{1,256}[a-z0-9]*` doesn't multiply.
        """
        found: list[tuple[int, frozenset[int]]] = []
        for state, arcs in enumerate(self.arcs):
            if len(found) == _MAX_LOOPS or len(arcs) != 1:
                continue
            ((set_id, target),) = arcs
            if target != state - 1:
                continue  # a loop's state is built right after its head
            closure = self.closure(target)
            if state in closure and not self.nfa.accepting.isdisjoint(closure):
                found.append((state, self.covered(state, frozenset(self.members[set_id]))))
        return [(state, covered) for state, covered in found if covered]

    def covered(self, loop: int, classes: frozenset[int]) -> frozenset[int]:
        """The states other than `loop`, and not accepting, from which only characters of `classes` are ever read."""
        within = [classes.issuperset(members) for members in self.members]
        backward: list[list[int]] = [[] for _ in self.arcs]
        for state, arcs in enumerate(self.arcs):
            for target in [t for _, t in arcs] + self.nfa.moves[state]:
                backward[target].append(state)
        outside = {state for state, arcs in enumerate(self.arcs) if not all(within[set_id] for set_id, _ in arcs)}
        outside = reachable(outside, backward.__getitem__)
        return frozenset(range(len(self.arcs))) - outside - self.nfa.accepting - {loop}

    def charge(self, n: int) -> None:
        """Count `n` steps of work. Raises LimitExceeded past the bound, or past the deadline."""
        self.work += n
        self.nfa.budget.tick()
        if n > 256:
            self.nfa.budget.check_deadline()
        if self.work > _MAX_WORK:
            raise self.nfa.too_large()

    def closure(self, state: int) -> frozenset[int]:
        """`Nfa.closure`, found once, with its work counted."""
        found = self.closures.get(state)
        if found is not None:
            return found
        seen = reachable((state,), self.nfa.moves.__getitem__)
        closure = self.closures[state] = self.nfa.stops(seen)
        self.count(len(seen))
        self.charge(len(seen))
        return closure

    def count(self, n_elements: int) -> None:
        """Keep the memory of the subsets themselves bounded."""
        self.n_elements += n_elements
        if self.n_elements > _MAX_SUBSET_ELEMENTS:
            raise self.nfa.too_large()


def concatenated(dfas: Sequence[Dfa], budget: Budget, what: str = "a regular language") -> Dfa:
    """A word of each of `dfas`, in order."""
    nfa = Nfa(budget, what)
    start = nfa.state()
    nfa.accepting.add(start)
    for dfa in reversed(dfas):
        start = nfa.embed(dfa, start)
    return nfa.determinize(start)


def repeated(dfa: Dfa, low: int, high: int | None, budget: Budget, what: str = "a regular language") -> Dfa:
    """`low` to `high` words of `dfa` (None: without end)."""
    nfa = Nfa(budget, what)
    end = start = nfa.state()
    nfa.accepting.add(end)
    if high is None:
        start = nfa.state(end)
        nfa.moves[start].append(nfa.embed(dfa, start))
    for _ in range(0 if high is None else high - low):
        start = nfa.state(nfa.embed(dfa, start), end)
    for _ in range(low):
        start = nfa.embed(dfa, start)
    return nfa.determinize(start)


def reversed_language(dfa: Dfa, budget: Budget, what: str = "a regular language") -> Dfa:
    """The words of `dfa` spelled backwards."""
    nfa = Nfa(budget, what)
    for _ in dfa.rows:
        nfa.state()
    ids = [nfa.set_id(charset) for charset in dfa.alphabet]
    for state, row in enumerate(dfa.rows):
        for c, target in row.items():
            nfa.arcs[target].append((ids[c], state))
    nfa.accepting.add(0)
    return nfa.determinize(nfa.state(*dfa.accepting))

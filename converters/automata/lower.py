"""Automaton to grammar: right-linear rules that llama.cpp walks with one stack per possible next step.

What is not branching becomes sequences, a run of states that only count becomes a `Rep`, a loop on one state `[…]*`; a
state that several others lead to becomes a rule. With a spelling, the rules are over JSON text (see `spelling`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from converters.automata.dfa import Dfa
from converters.automata.spelling import Branch, Spelling, spelled
from converters.grammar.charset import MAX_CODE_POINT, CharSet
from converters.grammar.expr import EMPTY, NEVER, Chars, Expr, Lit, Ref, Rep, RuleBook, Seq, alt, lit, opt, rep, seq
from converters.limits import Budget

_MAX_INLINE_DEPTH = 8
_MAX_LITERAL_RUN = 8
_MAX_MERGED_STATES = 64  # with more branching states, each branch of a state spells its escapes for itself: much less text
_MIN_MIXED_RUN = 64  # a shorter run, left by characters that escapes may spell too, is written out state by state

Edges = list[tuple[CharSet, int]]


def to_expr(dfa: Dfa, book: RuleBook, hint: str, spelling: Spelling | None = None, budget: Budget | None = None) -> Expr:
    """The language of a trimmed automaton as an expression; shared states become rules of `book` named like `hint`.

    NEVER for the empty language. Deterministic: at every step no two alternatives begin with the same character. Only
    inside a JSON escape of a large automaton, as many may as the state has branches, until the escape is over.
    """
    if dfa.is_empty():
        return NEVER
    return _Lowering(dfa, book, hint, spelling, budget or Budget()).run()


def spelled_char(charset: CharSet, book: RuleBook, hint: str, spelling: Spelling | None) -> Expr:
    """One character of `charset`, spelled; a rule where that is more than a class or a short literal."""
    if spelling is None or not charset & spelling.escaped:
        is_char = len(charset) == 1 and charset.first <= MAX_CODE_POINT  # past it are the symbols of `network`
        return lit(chr(charset.first)) if is_char else Chars(charset) if charset else NEVER
    expr = spelled([(charset, EMPTY)], spelling)
    return book.add(hint, expr) if expr != NEVER else NEVER


@dataclass(frozen=True, slots=True)
class _Run:
    """Up to `length` steps (None: without end) over `charset`, which may be left after each by `rest`, or ended if `final`.

    With neither, all the steps are taken, to the state `end`.
    """

    charset: CharSet
    length: int | None
    rest: Edges
    final: bool
    end: int | None


@dataclass(slots=True)
class _Lowering:
    dfa: Dfa
    book: RuleBook
    hint: str
    spelling: Spelling | None
    budget: Budget
    edges: list[Edges] = field(init=False)
    merges_escapes: bool = field(init=False, default=False)
    n_sources: list[int] = field(init=False)
    refs: dict[int, Ref] = field(init=False, default_factory=dict)
    todo: list[int] = field(init=False, default_factory=list)
    no_run: set[tuple[int, CharSet]] = field(init=False, default_factory=set)
    parts: dict[Expr, Ref] = field(init=False, default_factory=dict)
    spelled_chars: dict[CharSet, Expr] = field(init=False, default_factory=dict)

    def run(self) -> Expr:
        """The start state's expression, after all rules are defined."""
        unions: dict[tuple[int, ...], CharSet] = {}
        self.edges = [self.dfa.edges(state, unions) for state in range(self.dfa.n_states)]
        n_branching = sum(len(edges) > 1 for edges in self.edges)
        self.merges_escapes = self.spelling is not None and n_branching <= _MAX_MERGED_STATES
        self.n_sources = [0] * self.dfa.n_states
        for state, edges in enumerate(self.edges):
            edges.sort(key=_first)
            for _, target in edges:
                self.n_sources[target] += target != state or self.loops_by_rule(state)
        root: Expr = self.ref(0) if self.n_sources[0] else self.state(0, 0)
        while self.todo:
            state = self.todo.pop()
            self.book.define(self.refs[state], self.state(state, 0))
        return root

    def mixes_escapes(self, edges: Edges) -> bool:
        """Must these edges be spelled together, because several begin with a backslash?"""
        return self.merges_escapes and len(edges) > 1

    def loops_by_rule(self, state: int) -> bool:
        """Is a loop on `state` its rule's business? `[…]*` and then several ways on is one more level for llama.cpp."""
        edges = self.edges[state]
        return self.mixes_escapes(edges) or len(edges) + (state in self.dfa.accepting) > 2

    def ref(self, state: int) -> Ref:
        """The rule of `state`."""
        if state not in self.refs:
            self.refs[state] = self.book.reserve(self.hint)
            self.todo.append(state)
        return self.refs[state]

    def state(self, state: int, depth: int) -> Expr:
        """What may follow in `state`, as far as it is written in place."""
        self.budget.check_deadline()
        items: list[Expr] = []
        while True:
            run = self.find_run(state)
            if run is None:
                items.append(self.branches(self.edges[state], state in self.dfa.accepting, depth))
                break
            if run.rest or run.final or run.length is None:
                items.append(self.counted(run.charset, 0, run.length))
                items.append(self.branches(run.rest, run.final, depth))
                break
            assert run.end is not None
            items.append(self.counted(run.charset, run.length, run.length))
            if self.is_shared(run.end):
                items.append(self.ref(run.end))
                break
            state = run.end
        return join(items)

    def find_run(self, state: int) -> _Run | None:
        """The run that begins in `state`: a loop on itself, or a chain of states that only count."""
        final = state in self.dfa.accepting
        for charset, target in self.edges[state]:
            rest = [edge for edge in self.edges[state] if edge[1] != target]
            if target == state and not self.loops_by_rule(state):
                return _Run(charset, None, rest, final, None)
        if not final and len(self.edges[state]) == 1:
            return self._plain_run(state)
        for charset, target in self.edges[state]:
            rest = [edge for edge in self.edges[state] if edge[1] != target]
            length = self._leaving_run(state, charset, rest)
            if length:
                return _Run(charset, length, rest, final, None)
        return None

    def _plain_run(self, state: int) -> _Run:
        """States with one way on, over the same characters."""
        charset, target = self.edges[state][0]
        length = 1
        while (
            not self.is_shared(target)
            and target not in self.dfa.accepting
            and len(self.edges[target]) == 1
            and self.edges[target][0][0] == charset
        ):
            target = self.edges[target][0][1]
            length += 1
        return _Run(charset, length, [], False, target)

    def _leaving_run(self, state: int, charset: CharSet, rest: Edges) -> int:
        """How many steps over `charset` lead from `state` to where only `rest` is left; 0: no such run."""
        final = state in self.dfa.accepting
        walked: list[int] = []
        while (state, charset) not in self.no_run:
            edges = self.edges[state]
            if edges == rest and (state in self.dfa.accepting) == final and walked:
                short = rest and self.merges_escapes and len(walked) < _MIN_MIXED_RUN
                return 0 if short else len(walked)
            target = next((t for chars, t in edges if chars == charset), state)
            if target == state or (walked and self.n_sources[state] > 1):
                break
            if [edge for edge in edges if edge[1] != target] != rest or (state in self.dfa.accepting) != final:
                break
            walked.append(state)
            state = target
        self.no_run.update((walked_state, charset) for walked_state in walked)
        return 0

    def is_shared(self, state: int) -> bool:
        """Does `state` need a rule of its own?"""
        return (self.n_sources[state] + (state == 0) > 1 or state in self.refs) and not self.is_leaf(state)

    def is_leaf(self, state: int) -> bool:
        """So small that it is written wherever it is reached: the end, or a loop over one class and then the end."""
        edges = self.edges[state]
        return state in self.dfa.accepting and (not edges or (len(edges) == 1 and edges[0][1] == state))

    def then(self, state: int, depth: int) -> Expr:
        """`state` as the rest of a branch."""
        if self.is_shared(state) or (depth >= _MAX_INLINE_DEPTH and not self.is_leaf(state)):
            return self.ref(state)
        return self.state(state, depth + 1)

    def branches(self, edges: Edges, final: bool, depth: int) -> Expr:
        """The alternatives of a state that is no run."""
        several = self.mixes_escapes(edges)
        found: list[Branch] = []
        for charset, target in edges:
            then: Expr = self.ref(target) if several and not self.is_leaf(target) else self.then(target, depth)
            found.append((charset, then))
        expr = self.spell(found)
        if not final:
            return expr
        return or_nothing(expr) if found else EMPTY

    def spell(self, branches: list[Branch]) -> Expr:
        """One character and then its branch's rest."""
        if self.spelling is None or not self.merges_escapes or len(branches) == 1:
            return alt(*(join([self.char(charset), then]) for charset, then in branches))
        return spelled(branches, self.spelling, self.part)

    def part(self, expr: Expr) -> Expr:
        """The rule for a part of a spelled character."""
        if expr not in self.parts:
            self.parts[expr] = self.book.add(f"{self.hint}-hex", expr)
        return self.parts[expr]

    def char(self, charset: CharSet) -> Expr:
        """One character of `charset`, spelled."""
        expr = self.spelled_chars.get(charset)
        if expr is None:
            expr = self.spelled_chars[charset] = spelled_char(charset, self.book, f"{self.hint}-char", self.spelling)
        return expr

    def counted(self, charset: CharSet, low: int, high: int | None) -> Expr:
        """`low` to `high` characters of `charset`."""
        char = self.char(charset)
        if type(char) is Lit and low == high and low <= _MAX_LITERAL_RUN:
            return lit(char.text * low)
        return rep(char, low, high)


def or_nothing(expr: Expr) -> Expr:
    """`expr` or the empty text, as `opt` has it; a repetition is no symbol either."""
    return alt(expr, EMPTY) if type(expr) is Rep else opt(expr)


def joined(expr: Expr) -> Expr:
    """A sequence with neighbouring repetitions of one item joined; anything else as it is."""
    return join(list(expr.items)) if type(expr) is Seq else expr


def join(items: list[Expr]) -> Expr:
    """`items` in order; neighbouring repetitions of one item become one."""
    out: list[Expr] = []
    for item in items:
        for part in item.items if type(item) is Seq else (item,):
            merged = _merge(out[-1], part) if out else None
            if merged is None:
                out.append(part)
            else:
                out[-1] = merged
    return seq(*out)


def _merge(a: Expr, b: Expr) -> Expr | None:
    """One repetition for two neighbours of the same item; None where they differ."""
    item_a, low_a, high_a = (a.item, a.min, a.max) if type(a) is Rep else (a, 1, 1)
    item_b, low_b, high_b = (b.item, b.min, b.max) if type(b) is Rep else (b, 1, 1)
    if item_a != item_b or type(item_a) is Lit:
        return None
    return Rep(item_a, low_a + low_b, None if high_a is None or high_b is None else high_a + high_b)


def _first(edge: tuple[CharSet, int]) -> int:
    return edge[0].first

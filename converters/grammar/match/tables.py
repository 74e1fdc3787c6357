"""Lowering a grammar to the matcher's program. Runs where grammars are compiled; nothing here walks text."""

from __future__ import annotations

from array import array
from collections import deque
from heapq import heapify, heappop, heappush

from typing_extensions import assert_never

from converters.grammar.charset import CharSet
from converters.grammar.expr import EMPTY, Alt, Chars, Expr, Grammar, Lit, Ref, Rep, Seq, Token
from converters.grammar.match.program import CHAR, END, ENDLESS, REF, REP, SET, TOKEN, UNBOUNDED, Program
from converters.limits import Budget

_CHARS = bytes((CHAR,))


def build_tables(grammar: Grammar, budget: Budget | None = None) -> bytes:
    """The tables of `Matcher.from_tables`. `grammar` has no left recursion and nothing nullable under a repetition without
    end (`passes.prepare` sees to both); counts of any size stay counts. Raises LimitExceeded past the budget's deadline."""
    return lower(grammar, budget).to_bytes()


def lower(grammar: Grammar, budget: Budget | None = None) -> Program:
    """`grammar` as a program."""
    return _Lowering(grammar, budget or Budget()).program()


class _Lowering:
    """Lowers breadth first: what is nested waits in `todo` for a rule of its own."""

    def __init__(self, grammar: Grammar, budget: Budget) -> None:
        self.budget = budget
        self.kind = bytearray()
        self.arg = array("I")
        self.sequences: list[_Sequence] = []
        self.n_rules = 0
        self.reps: list[tuple[int, int, int]] = []
        self.sets: dict[CharSet, int] = {}
        self.set_ids: dict[int, int] = {}  # by identity: the grammar outlives this
        self.tokens: dict[Token, int] = {}
        self.rule_ids: dict[str, int] = {}
        self.item_ids: dict[Expr, int] = {}
        self.todo: deque[Expr] = deque()
        for name in (grammar.root, *(name for name in grammar.rules if name != grammar.root)):
            self.rule_ids[name] = self.new_rule(grammar.rules[name])
        rule = 0
        while self.todo:
            budget.tick()
            expr = self.todo.popleft()
            for option in expr.options if isinstance(expr, Alt) else (expr,):
                self.emit_sequence(rule, option)
            rule += 1

    def new_rule(self, expr: Expr) -> int:
        self.todo.append(expr)
        self.n_rules += 1
        return self.n_rules - 1

    def emit_sequence(self, rule: int, expr: Expr) -> None:
        """One alternative of `rule`. Runs for every symbol of a grammar: the usual ones are put here."""
        kind, arg = self.kind, self.arg
        sequence = _Sequence(rule, len(kind))
        for item in expr.items if isinstance(expr, Seq) else (expr,):
            if isinstance(item, Ref):
                called = self.rule_ids[item.name]
                kind.append(REF)
                arg.append(called)
                sequence.needs.append((called, 1))
            elif isinstance(item, Lit):
                arg.extend(map(ord, item.text))
                kind.extend(_CHARS * len(item.text))
                sequence.length += len(item.text)
            elif isinstance(item, Chars):
                kind.append(SET)
                arg.append(self.set_id(item.chars))
                sequence.length += 1
            else:
                self.emit(item, sequence)
        kind.append(END)
        arg.append(0)
        self.sequences.append(sequence)

    def set_id(self, charset: CharSet) -> int:
        """The number of a set; large ones take long to hash, and most come again as the same object."""
        known = self.set_ids.get(id(charset))
        if known is None:
            known = self.set_ids[id(charset)] = self.sets.setdefault(charset, len(self.sets))
        return known

    def put(self, kind: int, arg: int) -> None:
        self.kind.append(kind)
        self.arg.append(arg)

    def emit(self, expr: Alt | Seq | Rep | Token, sequence: _Sequence) -> None:
        """What nests, and tokens by name."""
        if isinstance(expr, (Alt, Seq)):
            self.call(self.new_rule(expr), sequence)
        elif isinstance(expr, Rep):
            self.repeat(expr, sequence)
        elif isinstance(expr, Token):
            self.put(TOKEN, self.tokens.setdefault(expr, len(self.tokens)))
            sequence.length += 1
        else:
            assert_never(expr)

    def call(self, rule: int, sequence: _Sequence) -> None:
        self.put(REF, rule)
        sequence.needs.append((rule, 1))

    def repeat(self, expr: Rep, sequence: _Sequence) -> None:
        if (expr.min, expr.max) == (0, 1):
            options = expr.item.options if isinstance(expr.item, Alt) else (expr.item,)
            self.call(self.new_rule(Alt((*options, EMPTY))), sequence)
            return
        rule = self.item_rule(expr.item)
        low = min(expr.min, UNBOUNDED - 1)
        self.put(REP, len(self.reps))
        self.reps.append((rule, low, UNBOUNDED if expr.max is None else min(expr.max, UNBOUNDED - 1)))
        if low:
            sequence.needs.append((rule, low))

    def item_rule(self, item: Expr) -> int:
        if isinstance(item, Ref):
            return self.rule_ids[item.name]
        if not isinstance(item, (Chars, Lit)):
            return self.new_rule(item)
        if item not in self.item_ids:
            self.item_ids[item] = self.new_rule(item)
        return self.item_ids[item]

    def program(self) -> Program:
        first_start = array("I", bytes(4 * (self.n_rules + 1)))
        for i, sequence in enumerate(self.sequences):
            first_start[sequence.rule + 1] = i + 1
        least, best_start = self.least_lengths()
        first_range = array("I", [0])
        set_ranges = array("I")
        for charset in self.sets:
            for bounds in charset.ranges:
                set_ranges.extend(bounds)
            first_range.append(len(set_ranges))
        starts = array("I", [sequence.start for sequence in self.sequences])
        return Program(
            bytes(self.kind), self.arg, first_start, starts, least, best_start,
            array("I", [rule for rule, _, _ in self.reps]),
            array("I", [low for _, low, _ in self.reps]),
            array("I", [high for _, _, high in self.reps]),
            first_range, set_ranges, self.breaks(), tuple(self.tokens),
        )  # fmt: skip

    def breaks(self) -> array[int]:
        points = {arg for kind, arg in zip(self.kind, self.arg, strict=True) if kind == CHAR}
        points.update([point + 1 for point in points])
        for charset in self.sets:
            for low, high in charset.ranges:
                points.add(low)
                points.add(high + 1)
        return array("I", sorted(points))

    def least_lengths(self) -> tuple[array[int], array[int]]:
        """For every rule the length of its shortest sentence, and where its shortest alternative starts.

        Knuth's generalization of Dijkstra's algorithm (1977): rules become final in the order of their lengths.
        """
        least = array("I", [ENDLESS]) * self.n_rules
        best_start = array("I", bytes(4 * self.n_rules))
        users: list[list[tuple[int, int]]] = [[] for _ in range(self.n_rules)]
        ready: list[tuple[int, int]] = []
        for i, sequence in enumerate(self.sequences):
            sequence.n_missing = len(sequence.needs)
            if not sequence.needs:
                ready.append((sequence.length, i))
            for rule, times in sequence.needs:
                users[rule].append((i, times))
        heapify(ready)
        while ready:
            self.budget.tick()
            length, i = heappop(ready)
            rule = self.sequences[i].rule
            if least[rule] != ENDLESS:
                continue
            least[rule], best_start[rule] = min(length, ENDLESS - 1), self.sequences[i].start
            for user, times in users[rule]:
                sequence = self.sequences[user]
                sequence.n_missing -= 1
                sequence.length += times * length
                if not sequence.n_missing:
                    heappush(ready, (sequence.length, user))
        return least, best_start


class _Sequence:
    """One alternative of a rule: where it starts, the rules that it needs and how often, the number of its own symbols."""

    __slots__ = ("length", "n_missing", "needs", "rule", "start")

    def __init__(self, rule: int, start: int) -> None:
        self.rule = rule
        self.start = start
        self.needs: list[tuple[int, int]] = []
        self.length = 0
        self.n_missing = 0

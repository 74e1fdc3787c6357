"""Lowering a grammar to the matcher's program. Runs where grammars are compiled; nothing here walks text."""

from __future__ import annotations

from array import array
from collections import deque
from heapq import heappop, heappush

from typing_extensions import assert_never

from converters.grammar.charset import CharSet
from converters.grammar.expr import Alt, Chars, Expr, Grammar, Lit, Ref, Rep, Seq, Token
from converters.grammar.match.program import CHAR, END, ENDLESS, REF, REP, SET, TOKEN, UNBOUNDED, Program


def build_tables(grammar: Grammar) -> bytes:
    """The tables of `Matcher.from_tables`. `grammar` has no left recursion and nothing nullable under a repetition without
    end (`passes.prepare` sees to both); counts of any size stay counts."""
    return lower(grammar).to_bytes()


def lower(grammar: Grammar) -> Program:
    """`grammar` as a program."""
    return _Lowering(grammar).program()


class _Lowering:
    def __init__(self, grammar: Grammar) -> None:
        self.kind = bytearray()
        self.arg = array("I")
        self.rules: list[list[int]] = []  # starts of alternatives
        self.reps: list[tuple[int, int, int]] = []
        self.sets: dict[CharSet, int] = {}
        self.tokens: dict[Token, int] = {}
        self.points: set[int] = set()
        self.rule_ids: dict[str, int] = {}
        self.item_ids: dict[Expr, int] = {}
        self.todo: deque[tuple[int, Expr]] = deque()
        for name in (grammar.root, *(name for name in grammar.rules if name != grammar.root)):
            self.rule_ids[name] = self.new_rule(grammar.rules[name])
        while self.todo:
            rule, expr = self.todo.popleft()
            options = expr.options if isinstance(expr, Alt) else (expr,)
            self.rules[rule] = [self.emit_sequence(option) for option in options]

    def new_rule(self, expr: Expr) -> int:
        self.rules.append([])
        self.todo.append((len(self.rules) - 1, expr))
        return len(self.rules) - 1

    def emit_sequence(self, expr: Expr) -> int:
        start = len(self.kind)
        for item in expr.items if isinstance(expr, Seq) else (expr,):
            self.emit(item)
        self.put(END, 0)
        return start

    def put(self, kind: int, arg: int) -> None:
        self.kind.append(kind)
        self.arg.append(arg)

    def emit(self, expr: Expr) -> None:
        match expr:
            case Lit(text):
                codes = [ord(char) for char in text]
                self.kind.extend(bytes([CHAR]) * len(codes))
                self.arg.extend(codes)
                self.points.update(codes)
            case Chars(charset):
                self.put(SET, self.sets.setdefault(charset, len(self.sets)))
            case Token():
                self.put(TOKEN, self.tokens.setdefault(expr, len(self.tokens)))
            case Ref(name):
                self.put(REF, self.rule_ids[name])
            case Alt() | Seq():
                self.put(REF, self.new_rule(expr))
            case Rep(item, 0, 1):
                options = item.options if isinstance(item, Alt) else (item,)
                self.put(REF, self.new_rule(Alt((*options, Seq(())))))
            case Rep(item, low, high):
                self.reps.append(
                    (self.item_rule(item), min(low, UNBOUNDED - 1), UNBOUNDED if high is None else min(high, UNBOUNDED - 1))
                )
                self.put(REP, len(self.reps) - 1)
            case _:
                assert_never(expr)

    def item_rule(self, item: Expr) -> int:
        if isinstance(item, Ref):
            return self.rule_ids[item.name]
        if not isinstance(item, (Chars, Lit)):
            return self.new_rule(item)
        if item not in self.item_ids:
            self.item_ids[item] = self.new_rule(item)
        return self.item_ids[item]

    def program(self) -> Program:
        least, best_start = self.least_lengths()
        first_start = array("I", [0])
        starts = array("I")
        for alternatives in self.rules:
            starts.extend(alternatives)
            first_start.append(len(starts))
        first_range = array("I", [0])
        set_ranges = array("I")
        for charset in self.sets:
            for bounds in charset.ranges:
                set_ranges.extend(bounds)
            first_range.append(len(set_ranges))
        return Program(
            bytes(self.kind), self.arg, least, first_start, starts, best_start,
            array("I", [rule for rule, _, _ in self.reps]),
            array("I", [low for _, low, _ in self.reps]),
            array("I", [high for _, _, high in self.reps]),
            first_range, set_ranges, self.breaks(), tuple(self.tokens),
        )  # fmt: skip

    def breaks(self) -> array[int]:
        found = set(self.points)
        found.update([point + 1 for point in self.points])
        for charset in self.sets:
            for low, high in charset.ranges:
                found.add(low)
                found.add(high + 1)
        return array("I", sorted(found))

    def least_lengths(self) -> tuple[array[int], array[int]]:
        """For every position the least length to its sequence's end, for every rule where its shortest alternative starts.

        Knuth's generalization of Dijkstra's algorithm (1977): rules become final in the order of their lengths.
        """
        final, best_start = self._rule_lengths()
        least = array("I", bytes(4 * len(self.kind)))
        total = 0
        for position in range(len(self.kind) - 1, -1, -1):
            kind = self.kind[position]
            total = 0 if kind == END else min(ENDLESS, total + self._least_of(kind, self.arg[position], final))
            least[position] = total
        return least, best_start

    def _least_of(self, kind: int, arg: int, final: list[int]) -> int:
        if kind == REF:
            return final[arg]
        if kind == REP:
            rule, low, _ = self.reps[arg]
            return low and min(ENDLESS, low * final[rule])
        return 1

    def _rule_lengths(self) -> tuple[list[int], array[int]]:
        missing: dict[int, int] = {}  # by start of an alternative: rules not final yet
        total: dict[int, int] = {}
        owner: dict[int, int] = {}
        users: list[list[tuple[int, int]]] = [[] for _ in self.rules]  # by rule: (alternative, how often)
        heap: list[tuple[int, int, int]] = []
        for rule, alternatives in enumerate(self.rules):
            for start in alternatives:
                owner[start] = rule
                needed, length = self._needs(start)
                missing[start], total[start] = len(needed), length
                for used, times in needed:
                    users[used].append((start, times))
                if not needed:
                    heappush(heap, (length, start, rule))
        final = [ENDLESS] * len(self.rules)
        best_start = array("I", [alternatives[0] if alternatives else 0 for alternatives in self.rules])
        done = bytearray(len(self.rules))
        while heap:
            length, start, rule = heappop(heap)
            if done[rule]:
                continue
            done[rule], final[rule], best_start[rule] = 1, min(length, ENDLESS - 1), start
            for alternative, times in users[rule]:
                missing[alternative] -= 1
                total[alternative] += times * length
                if not missing[alternative]:
                    heappush(heap, (total[alternative], alternative, owner[alternative]))
        return final, best_start

    def _needs(self, start: int) -> tuple[list[tuple[int, int]], int]:
        """The rules that the alternative at `start` needs, each with its count, and the number of its own symbols."""
        needed: list[tuple[int, int]] = []
        length = 0
        position = start
        while (kind := self.kind[position]) != END:
            if kind == REF:
                needed.append((self.arg[position], 1))
            elif kind == REP:
                rule, low, _ = self.reps[self.arg[position]]
                if low:
                    needed.append((rule, low))
            else:
                length += 1
            position += 1
        return needed, length

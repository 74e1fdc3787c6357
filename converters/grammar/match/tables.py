"""Lowering a grammar to the matcher's program. Runs where grammars are compiled; nothing here walks text."""

from __future__ import annotations

from array import array
from heapq import heapify, heappop, heappush
from itertools import compress

from typing_extensions import assert_never

from converters.grammar.charset import CharSet, Range
from converters.grammar.expr import EMPTY, Alt, Chars, Expr, Grammar, Lit, Ref, Rep, Seq, Token
from converters.grammar.match.program import CHAR, END, ENDLESS, REF, REP, SET, TOKEN, UNBOUNDED, Program
from converters.limits import Budget

_CHARS = bytes((CHAR,))
_IS_CHAR = bytes([kind == CHAR for kind in range(256)])


def build_tables(grammar: Grammar, budget: Budget | None = None) -> bytes:
    """The tables of `Matcher.from_tables`. `grammar` has no left recursion and nothing nullable under a repetition without
    end (`passes.prepare` sees to both); counts of any size stay counts. Raises LimitExceeded past the budget's deadline."""
    return lower(grammar, budget).to_bytes()


def lower(grammar: Grammar, budget: Budget | None = None) -> Program:
    """`grammar` as a program."""
    return _Lowering(grammar, budget or Budget()).program()


class _Lowering:
    """Lowers breadth first: what is nested waits at the end of `todo` for a rule of its own."""

    def __init__(self, grammar: Grammar, budget: Budget) -> None:
        self.budget = budget
        self.kind = bytearray()
        self.arg: list[int] = []
        self.first_start: list[int] = [0]
        self.starts: list[int] = []  # of every alternative, and more of it in the same place of these:
        self.owners: list[int] = []  # its rule
        self.lengths: list[int] = []  # the number of its own symbols
        self.n_needed: list[int] = []  # how many calls of rules there are in it
        self.users: list[list[tuple[int, int]]] = []  # of every rule: the alternatives that call it, and how often each time
        self.reps: list[tuple[int, int, int]] = []
        self.sets: dict[tuple[Range, ...], int] = {}  # by ranges
        self.set_ids: dict[int, int] = {}  # by identity: the grammar outlives this
        self.tokens: dict[Token, int] = {}
        self.rule_ids: dict[str, int] = {}
        self.item_ids: dict[str | tuple[Range, ...], int] = {}
        self.todo: list[Expr] = []
        for name in (grammar.root, *(name for name in grammar.rules if name != grammar.root)):
            self.rule_ids[name] = self.new_rule(grammar.rules[name])
        for rule, expr in enumerate(self.todo):
            budget.tick()
            for option in expr.options if type(expr) is Alt else (expr,):
                self.emit_sequence(rule, option)
            self.first_start.append(len(self.starts))
        self.n_rules = len(self.todo)

    def new_rule(self, expr: Expr) -> int:
        self.todo.append(expr)
        self.users.append([])
        return len(self.todo) - 1

    def emit_sequence(self, rule: int, expr: Expr) -> None:
        """One alternative of `rule`: the usual symbols are put here."""
        kind, arg, users = self.kind, self.arg, self.users
        i = len(self.starts)
        self.starts.append(len(kind))
        self.owners.append(rule)
        self.n_needed.append(0)
        length = n_needed = 0
        for item in expr.items if type(expr) is Seq else (expr,):
            if type(item) is Ref:
                called = self.rule_ids[item.name]
                kind.append(REF)
                arg.append(called)
                users[called].append((i, 1))
                n_needed += 1
            elif type(item) is Lit:
                text = item.text
                if len(text) == 1:
                    arg.append(ord(text))
                    kind.append(CHAR)
                    length += 1
                else:
                    arg += map(ord, text)
                    kind += _CHARS * len(text)
                    length += len(text)
            elif type(item) is Chars:
                kind.append(SET)
                known = self.set_ids.get(id(item.chars))
                arg.append(self.new_set(item.chars) if known is None else known)
                length += 1
            else:
                length += self.emit(item)
        kind.append(END)
        arg.append(0)
        self.lengths.append(length)
        self.n_needed[i] += n_needed

    def new_set(self, charset: CharSet) -> int:
        """The number of a set; large ones take long to hash, and most come again as the same object."""
        found = self.set_ids[id(charset)] = self.sets.setdefault(charset.ranges, len(self.sets))
        return found

    def put(self, kind: int, arg: int) -> None:
        self.kind.append(kind)
        self.arg.append(arg)

    def emit(self, expr: Alt | Seq | Rep | Token) -> int:
        """What nests, and tokens by name; how many symbols of its own that is."""
        if type(expr) is Alt or type(expr) is Seq:
            self.call(self.new_rule(expr))
        elif type(expr) is Rep:
            self.repeat(expr)
        elif type(expr) is Token:
            self.put(TOKEN, self.tokens.setdefault(expr, len(self.tokens)))
            return 1
        else:
            assert_never(expr)
        return 0

    def call(self, rule: int) -> None:
        self.put(REF, rule)
        self.need(rule, 1)

    def need(self, rule: int, times: int) -> None:
        """The alternative that is being put down calls `rule`."""
        self.users[rule].append((len(self.starts) - 1, times))
        self.n_needed[-1] += 1

    def repeat(self, expr: Rep) -> None:
        if expr.max == 1 and expr.min == 0:
            options = expr.item.options if type(expr.item) is Alt else (expr.item,)
            self.call(self.new_rule(Alt((*options, EMPTY))))
            return
        rule = self.item_rule(expr.item)
        low = min(expr.min, UNBOUNDED - 1)
        self.put(REP, len(self.reps))
        self.reps.append((rule, low, UNBOUNDED if expr.max is None else min(expr.max, UNBOUNDED - 1)))
        if low:
            self.need(rule, low)

    def item_rule(self, item: Expr) -> int:
        if type(item) is Ref:
            return self.rule_ids[item.name]
        if type(item) is Lit:
            key: str | tuple[Range, ...] = item.text
        elif type(item) is Chars:
            key = item.chars.ranges
        else:
            return self.new_rule(item)
        found = self.item_ids.get(key)
        if found is None:
            found = self.item_ids[key] = self.new_rule(item)
        return found

    def program(self) -> Program:
        least, best_start = self.least_lengths()
        first_range = array("I", [0])
        set_ranges = array("I")
        for ranges in self.sets:
            for bounds in ranges:
                set_ranges.extend(bounds)
            first_range.append(len(set_ranges))
        return Program(
            bytes(self.kind), array("I", self.arg), array("I", self.first_start), array("I", self.starts), least, best_start,
            array("I", [rule for rule, _, _ in self.reps]),
            array("I", [low for _, low, _ in self.reps]),
            array("I", [high for _, _, high in self.reps]),
            first_range, set_ranges, self.breaks(set_ranges), tuple(self.tokens),
        )  # fmt: skip

    def breaks(self, set_ranges: array[int]) -> array[int]:
        points = set(compress(self.arg, self.kind.translate(_IS_CHAR)))
        points.update([point + 1 for point in points])
        points.update(set_ranges[::2])
        points.update([high + 1 for high in set_ranges[1::2]])
        return array("I", sorted(points))

    def least_lengths(self) -> tuple[array[int], array[int]]:
        """For every rule the length of its shortest sentence, and where its shortest alternative starts.

        Knuth's generalization of Dijkstra's algorithm (1977): rules become final in the order of their lengths.
        """
        least, best_start = [ENDLESS] * self.n_rules, [0] * self.n_rules
        n_missing, lengths, owners, users = self.n_needed, self.lengths, self.owners, self.users
        shortest: dict[int, tuple[int, int]] = {}  # of a rule's alternatives that need nothing
        for i, (n, rule) in enumerate(zip(n_missing, owners, strict=True)):
            if not n and (rule not in shortest or lengths[i] < shortest[rule][0]):
                shortest[rule] = (lengths[i], i)
        ready = list(shortest.values())
        heapify(ready)
        n_left = self.n_rules
        while ready and n_left:
            length, i = heappop(ready)
            rule = owners[i]
            if least[rule] != ENDLESS:
                continue
            self.budget.tick()
            n_left -= 1
            least[rule], best_start[rule] = min(length, ENDLESS - 1), self.starts[i]
            for user, times in users[rule]:
                lengths[user] += times * length
                if n_missing[user] > 1:
                    n_missing[user] -= 1
                elif least[owners[user]] == ENDLESS:
                    heappush(ready, (lengths[user], user))
        return array("I", least), array("I", best_start)

"""How many stacks a grammar makes: llama.cpp's time for one token grows with them, for some grammars without end.

What one question costs: llama.cpp follows every live stack at every character of a token, and looks for the readings of a
token it refuses on every way through them, without joining ways that meet. So three things must stay small: the stacks that
are alive at once, the ways to read as many characters as a token has, and the stacks gone through to make one step.

That no text makes them large can't be decided for context-free grammars. Looked for are texts that do: every set of stacks
that differs in what is on top is tried with every character, and each way back to the like of itself is walked again and
again, as far as thousands of characters where something grows or counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import cycle
from random import Random
from typing import TypeAlias

from converters.errors import LimitExceeded
from converters.grammar.charset import CharSet
from converters.grammar.expr import Grammar, Token
from converters.grammar.match.matcher import MAX_COMPARED, Cell, Matcher, TooManyStacks
from converters.grammar.match.tables import lower
from converters.limits import Budget


@dataclass(frozen=True, slots=True)
class Reach:
    """How far a grammar's readings go. `stacks`: alive at once. `ways`: to read the characters of a token, up to WINDOW, or RUN
    where they are all the same. `effort`: the stacks that llama.cpp goes through for one character."""

    stacks: int
    ways: int
    effort: int

    def __le__(self, other: Reach) -> bool:
        return self.stacks <= other.stacks and self.ways <= other.ways and self.effort <= other.effort


TOLERABLE = Reach(400, 100_000, 40_000)
"""Fractions of a second for the worst token."""
GOOD = Reach(60, 2_000, 4_000)
"""Milliseconds: what is past this deserves to be made deterministic."""

MAX_READERS = 32
"""Stacks that read the same character. Many alternatives make many stacks, each for characters of its own; these are guesses
that live on beside one another, and where there are so many, longer texts have more."""
CALM = Reach(12, 1_000, 1_000)
"""What is past this is looked at more closely."""

WINDOW, RUN = 24, 64
MAX_WORK = 80_000
"""Steps of single stacks that are looked at in all: about 0.2 s."""
SOME = 30
MANY, GROWTH = 60, 1.5
"""Where the closer look finds so many more stacks, and more than MANY, there is no end of them."""
N_MORE = 4
"""How often as much again where the first look found many readings."""
N_PUMPED = 3000
"""Characters that a repeated text is walked for, where something grows."""

_SHARES = (0.6, 0.8, 1.0)  # of the work, by phase
_N_STEADY = 6  # turns without growth after which a repeated text is left alone
_N_DEEP = 12  # turns that make a recursion deep
_MAX_LOOP = 12
_N_SYMBOLS = 14
_N_GREEDY = 160
_MAX_CLIMB = 1000
_MAX_DEEP = 10
_LONGER = (600, 300, 120, 600, 1500, 300, 120, 600, 300, 2500)
_MAX_ROUNDS = 300
_WANDER = 0.15
_MAX_TURN = 6
_SENTENCES = ((16, 120, 5), (1, 1500, 1))  # how many are drawn, how long, how many of the longest are walked

Symbol: TypeAlias = "int | Token"
Stacks: TypeAlias = dict[Cell, int]
"""The stacks that are alive, each with the number of ways that led to it in the present window."""


class TooAmbiguous(LimitExceeded):
    """Some text has too many readings."""


def reach_of(printable: Grammar, budget: Budget) -> Reach:
    """The most that was found on any text. `printable`: the grammar as it will be printed.

    Raises TooAmbiguous when a text is found that is past TOLERABLE. A heuristic in what it lets through: `Matcher(…,
    max_stacks)` is the guard for what grows all the same.
    """
    try:
        return _Search(Matcher(lower(printable, budget), max_stacks=TOLERABLE.stacks), budget).run()
    except TooManyStacks:
        raise _too_many_stacks() from None


def check_sentences(printable: Grammar, budget: Budget) -> None:
    """For a grammar that is written to have few readings, but too large to be sure of it: walk the longest of many sentences.

    Many alternatives that read the same character are no failure there. Raises TooAmbiguous past TOLERABLE. About 0.2 s.
    """
    try:
        search = _Search(Matcher(lower(printable, budget), max_stacks=TOLERABLE.stacks), budget, max_readers=None)
        search.allowed = MAX_WORK // 2
        with suppress(_Spent):
            search.walk_sentences(search.fresh(search.matcher.start.cells))
    except TooManyStacks:
        raise _too_many_stacks() from None


class _Spent(Exception):
    """The search has looked at as much as it may."""


@dataclass(frozen=True, slots=True, eq=False)
class _Node:
    """A set of stacks, and how the search came to it."""

    stacks: Stacks
    parent: _Node | None
    symbol: Symbol | None


class _Search:
    def __init__(self, matcher: Matcher, budget: Budget, max_readers: int | None = MAX_READERS) -> None:
        self.matcher = matcher
        self.max_readers = max_readers
        self.stacks = self.ways = self.effort = 0
        self.budget = budget
        self.rng = Random(0)
        self.work = self.allowed = 0
        self.seen: set[frozenset[tuple[int, int]]] = set()
        self.deep: list[Stacks] = []
        self.steps: dict[Cell, tuple[tuple[Cell, ...], int]] = {}
        self.matches: dict[tuple[int, Symbol], bool] = {}
        self.symbols_of: dict[frozenset[int], list[Symbol]] = {}

    def run(self) -> Reach:
        """All of it, each phase until its work is done or enough."""
        start = self.fresh(self.matcher.start.cells)
        self.check(start)
        for phase, share in zip((self.explore, self.climb_all, self.walk_sentences), _SHARES, strict=True):
            self.allowed = int(share * MAX_WORK)
            with suppress(_Spent):
                phase(start)
        if not Reach(self.stacks, self.ways, self.effort) <= CALM:
            before = max(self.stacks, MANY)
            self.allowed += N_MORE * MAX_WORK
            with suppress(_Spent):
                self.look_closer(start)
            if self.stacks > GROWTH * before:
                raise _too_ambiguous("the longer a text, the more ways there are to have read it", TOLERABLE.stacks)
        return Reach(self.stacks, self.ways, self.effort)

    # ---- one step

    @staticmethod
    def fresh(cells: Iterable[Cell]) -> Stacks:
        """A new window begins."""
        return dict.fromkeys(cells, 1)

    def step(self, stacks: Stacks, symbol: Symbol) -> Stacks:
        """The stacks after `symbol`. Raises TooAmbiguous."""
        after: Stacks = {}
        n = n_readers = 0
        for cell, ways in stacks.items():
            if self.takes(cell, symbol):
                n_readers += 1
                for reached in self.after(cell)[0]:
                    after[reached] = after.get(reached, 0) + ways
                    n += 1
        if self.max_readers is not None and n_readers > self.max_readers:
            raise _too_ambiguous(f"some texts can be read in more than {self.max_readers} ways at once", self.max_readers)
        self.work += n + 1
        if len(after) > 1:
            self.check(after)
        self.budget.tick()
        return after

    def takes(self, cell: Cell, symbol: Symbol) -> bool:
        if cell.parent is None:
            return False
        key = (self.matcher.position(cell), symbol)
        known = self.matches.get(key)
        if known is None:
            known = self.matches[key] = self.matcher.takes(cell, symbol)
        return known

    def after(self, cell: Cell) -> tuple[tuple[Cell, ...], int]:
        """What follows the top of a stack, and the effort of finding it."""
        known = self.steps.get(cell)
        if known is None:
            effort = self.matcher.effort(cell)
            if effort > TOLERABLE.effort:
                raise _too_much_effort()
            known = self.steps[cell] = self.matcher.successors(cell), effort
            self.work += 1 + effort
        return known

    def check(self, stacks: Stacks) -> None:
        self.stacks = max(self.stacks, len(stacks))
        if self.stacks > TOLERABLE.stacks or (len(stacks) > MANY and self.matcher.n_compared(stacks) > MAX_COMPARED):
            raise _too_many_stacks()
        self.ways = max(self.ways, sum(stacks.values()))
        self.effort = max(self.effort, sum([self.after(cell)[1] for cell in stacks if cell.parent is not None]))
        if self.ways > TOLERABLE.ways:
            raise _too_ambiguous(f"some short texts can be read in more than {TOLERABLE.ways} ways", TOLERABLE.ways)
        if self.effort > TOLERABLE.effort:
            raise _too_much_effort()

    def spend(self) -> None:
        if self.work > self.allowed:
            raise _Spent

    # ---- where to look

    def explore(self, start: Stacks) -> None:
        """Breadth first, once for each set of tops."""
        todo = deque([_Node(start, None, None)])
        self.seen.add(self.tops(start))
        while todo:
            node = todo.popleft()
            for symbol in self.symbols(node.stacks):
                self.spend()
                after = self.step(self.fresh(node.stacks), symbol)
                new = _Node(after, node, symbol)
                tops = self.tops(after)
                if tops not in self.seen:
                    self.seen.add(tops)
                    todo.append(new)
                for loop in self.loops(new, tops):
                    todo.extend(self.pump(new, loop))

    def tops(self, stacks: Stacks) -> frozenset[tuple[int, int]]:
        """What stands on the stacks, two deep; how often repetitions were done is left out."""
        position = self.matcher.position
        return frozenset([(position(cell), position(cell.parent)) if cell.parent is not None else (-1, -1) for cell in stacks])

    def loops(self, node: _Node, tops: frozenset[tuple[int, int]]) -> list[tuple[Symbol, ...]]:
        """The last symbol, and the shortest text that led from the like of `node` to it."""
        assert node.symbol is not None
        found: list[tuple[Symbol, ...]] = [(node.symbol,)]
        word: list[Symbol] = []
        at: _Node | None = node
        for _ in range(_MAX_LOOP):
            assert at is not None
            if at.symbol is None or at.parent is None:
                break
            word.append(at.symbol)
            at = at.parent
            if self.tops(at.stacks) == tops:
                if len(word) > 1:
                    found.append(tuple(word[::-1]))
                break
        return found

    def pump(self, node: _Node, word: tuple[Symbol, ...]) -> list[_Node]:
        """Walk `word` again and again, as long as the stacks get more, or count; new sets of tops on the way."""
        found: list[_Node] = []
        stacks = self.fresh(node.stacks)
        met: set[frozenset[Cell]] = set()
        most = most_ways = n_steady = n_chars = 0
        window = RUN if len(word) == 1 else WINDOW
        for turn in range(N_PUMPED // len(word)):
            spent = self.work
            for symbol in word:
                if n_chars % window == 0:
                    stacks, most_ways = self.fresh(stacks), 0
                n_chars += 1
                stacks = self.step(stacks, symbol)
            if not stacks:
                break
            key = frozenset(stacks)
            if key in met and n_chars > 2 * window:
                break
            met.add(key)
            ways = sum(stacks.values())
            grows = len(stacks) > most or ways > most_ways
            if len(stacks) > most > SOME:
                self.allowed += self.work - spent  # what grows is followed to its end
            most, most_ways = max(most, len(stacks)), max(most_ways, ways)
            n_steady = 0 if grows else n_steady + 1
            if turn == _N_DEEP and len(self.deep) < _MAX_DEEP:
                self.deep.append(stacks)
            if (tops := self.tops(stacks)) not in self.seen:
                self.seen.add(tops)
                found.append(_Node(stacks, node, None))
            elif n_steady > _N_STEADY and turn > _N_DEEP and not any(map(self.matcher.counts, stacks)):
                break
            self.spend()
        return found

    def climb_all(self, start: Stacks) -> None:
        """Greedily, from the start and from deep in recursions."""
        self.climb(start, _N_GREEDY)
        for stacks in self.deep:
            self.climb(stacks, _N_GREEDY // 3)

    def climb(self, start: Stacks, n_steps: int, wander: float = 0.0) -> None:
        """To the successor with the most stacks and ways, now and then another; as far again while the stacks get more."""
        stacks = start
        n, most = 0, len(start)
        while n < n_steps:
            self.spend()
            if n % WINDOW == 0:
                stacks = self.fresh(stacks)
            after = [reached for symbol in self.symbols(stacks) if (reached := self.step(stacks, symbol))]
            if not after:
                return
            if wander and self.rng.random() < wander:
                stacks = self.rng.choice(after)
            else:
                stacks = max(after, key=lambda reached: (len(reached), sum(reached.values()), self.rng.random()))
            n += 1
            if n == n_steps < _MAX_CLIMB and len(stacks) > most:
                n_steps, most = 2 * n_steps, len(stacks)

    def walk_sentences(self, start: Stacks) -> None:
        """Along the longest of many: recursion shows itself there."""
        matcher = self.matcher
        for n_drawn, length, n_walked in _SENTENCES:
            if matcher.least_length(matcher.start) <= length:
                drawn = [self.drawn(length) for _ in range(n_drawn)]
                for sentence in sorted(drawn, key=len)[-n_walked:]:
                    self.walk(start, sentence)

    def look_closer(self, start: Stacks) -> None:
        """Along longer sentences, and from their fullest places on; without end where there are many stacks."""
        lengths = [length for length in _LONGER if self.matcher.least_length(self.matcher.start) <= length]
        for n, length in zip(range(_MAX_ROUNDS), cycle(lengths), strict=False):
            if n >= len(lengths) and self.stacks <= SOME:
                break
            sentence = self.drawn(length)
            fullest, at = self.walk(start, sentence)
            for n_chars in range(2, min(_MAX_TURN, at) + 1):
                self.pump(_Node(fullest, None, None), tuple(map(ord, sentence[at - n_chars : at])))
            self.climb(fullest, _N_GREEDY)
            self.climb(start, _N_GREEDY, _WANDER)

    def drawn(self, length: int) -> str:
        self.budget.check_deadline()
        self.spend()
        self.work += 2 * length
        return self.matcher.random_sentence(self.rng, length)

    def walk(self, start: Stacks, text: str) -> tuple[Stacks, int]:
        """Along `text`; where there were most stacks, and after how many characters."""
        stacks = fullest = start
        at = 0
        for n, char in enumerate(text):
            self.spend()
            stacks = self.step(self.fresh(stacks) if n % WINDOW == 0 else stacks, ord(char))
            if not stacks:  # a token by name stands in the sentence
                break
            if len(stacks) >= len(fullest):
                fullest, at = stacks, n + 1
        return self.fresh(fullest), at

    # ---- with what

    def symbols(self, stacks: Stacks) -> list[Symbol]:
        """One symbol for each set of stacks that can read the same ones; those that most can read, and some others."""
        position = self.matcher.position
        tops = frozenset([position(cell) for cell in stacks if cell.parent is not None])
        found = self.symbols_of.get(tops)
        if found is None:
            by_position = {position(cell): cell for cell in stacks if cell.parent is not None}
            found = self.symbols_of[tops] = self.distinct_symbols(by_position)
        if len(found) <= _N_SYMBOLS:
            return found
        half = _N_SYMBOLS // 2
        return found[:half] + self.rng.sample(found[half:], half)

    def distinct_symbols(self, cells: dict[int, Cell]) -> list[Symbol]:
        """For stacks with these tops."""
        named: list[Token] = []
        toggles: dict[int, list[int]] = {}
        for position, cell in cells.items():
            terminal = self.matcher.terminal(cell)
            if isinstance(terminal, CharSet):
                for low, high in terminal.ranges:
                    toggles.setdefault(low, []).append(position)
                    toggles.setdefault(high + 1, []).append(position)
            elif not terminal.negated:
                named.append(terminal)
        readers: dict[frozenset[int], int] = {}
        alive: set[int] = set()
        for point in sorted(toggles):
            alive.symmetric_difference_update(toggles[point])
            if alive:
                readers.setdefault(frozenset(alive), point)
        ordered = sorted(readers.items(), key=lambda item: (-len(item[0]), item[1]))
        return [*(point for _, point in ordered), *dict.fromkeys(named)]


def _too_much_effort() -> TooAmbiguous:
    return _too_ambiguous(f"one character can take more than {TOLERABLE.effort} steps", TOLERABLE.effort)


def _too_many_stacks() -> TooAmbiguous:
    return _too_ambiguous(f"some texts can be read in more than {TOLERABLE.stacks} ways", TOLERABLE.stacks)


def _too_ambiguous(found: str, limit: int) -> TooAmbiguous:
    return TooAmbiguous(f"the grammar is too ambiguous: {found}", limit="grammar_ambiguity", value=limit)

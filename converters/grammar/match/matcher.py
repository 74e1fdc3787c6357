"""Walking text through a grammar: llama.cpp's sets of stacks, each set met once and then remembered.

A stack is a chain of shared cells, so that a deep one costs no more than its top. A state is a set of stacks; it remembers
where each character leads, so that a warm walk is one dictionary look-up a character. Memory is bounded: past `max_entries`
remembered things all is forgotten, which no state notices.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from random import Random

from converters.grammar.charset import NOTHING, CharSet
from converters.grammar.expr import Token
from converters.grammar.match.memory import Memory
from converters.grammar.match.program import END, REF, REP, TOKEN, UNBOUNDED, Program
from converters.grammar.match.sentence import Piece, SentenceWriter, join_text, shortest_from, widest_char
from converters.grammar.match.utf8 import Partial, decode_piece

MAX_ENTRIES = 200_000
MAX_COMPARED = 100_000_000
"""Frames that llama.cpp may compare after one character, where stacks are counted: each new stack with all, from the bottom."""
MAX_FORCED = 512

Frames = tuple[int, ...]
_Unfolded = tuple[tuple[Frames, ...], bool, int]


class Cell:
    """The top of a stack, and the stack below it. `least` is the length of the shortest way to empty the whole stack.

    A frame is a position plus the number of positions times how often the repetition there was done. Compared by identity.
    """

    __slots__ = ("depth", "frame", "least", "parent")

    def __init__(self, parent: Cell | None, frame: int, least: int) -> None:
        self.parent = parent
        self.frame = frame
        self.least = least
        self.depth: int = 0 if parent is None else parent.depth + 1


class State:
    """Where a walk stands. Opaque and immutable: ask the matcher that gave it. Hold it as long as you like."""

    __slots__ = ("_by_class", "_chars", "_forced", "_row", "cells", "partial")

    def __init__(self, cells: tuple[Cell, ...], partial: Partial | None) -> None:
        self.cells = cells
        self.partial = partial
        self._row: dict[str | bytes, State | None] = {}
        self._by_class: dict[int, State | None] = {}
        self._chars: CharSet | None = None
        self._forced: str | None = None


_UNKNOWN = State((), None)


class TooManyStacks(Exception):
    """A character has more readings than the matcher was made for."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What `check` found. When the text is refused, `offset` is the first character that can't follow (its length: the text
    is a beginning of a sentence), and there `allowed` characters, `tokens` or the end (`may_end`) would have been right."""

    accepted: bool
    offset: int
    allowed: CharSet
    tokens: tuple[Token, ...]
    may_end: bool


class Matcher:
    """A grammar that texts can be held against. One matcher serves any number of walks, in one thread.

    `max_stacks`: tell apart what llama.cpp tells apart (the first item of `x+` and the later ones), and raise TooManyStacks
    when it would have more than this many, or so many so deep that it would be busy for a tenth of a second or more. `memory`:
    a bound that several matchers share.
    """

    def __init__(
        self, program: Program, max_entries: int = MAX_ENTRIES, max_stacks: int | None = None, memory: Memory | None = None
    ) -> None:
        self.program = program
        self.last_asked = 0
        self._memory = memory
        self._n_positions = len(program.kind)
        self._max_stacks: int | None = None  # where a text begins there are as many as there are
        self._n_kept_apart = int(max_stacks is not None)
        self._max_entries = max_entries
        self._token_ids: dict[str, int] = {}
        self._writer = SentenceWriter(program)
        self._bottom = Cell(None, -1, 0)
        self._forget()
        entry: dict[Cell, None] = {}
        for start in program.alternatives(0):
            self._close(self._bottom, start, entry)
        self.start = self._state(tuple(entry), None)
        """The state before the first character."""
        self._max_stacks = max_stacks
        if memory is not None:
            memory.add(self)

    @staticmethod
    def from_tables(tables: bytes, max_entries: int = MAX_ENTRIES) -> Matcher:
        """The matcher of `build_tables`' bytes. Raises ValueError for other bytes."""
        return Matcher(Program.from_bytes(tables), max_entries)

    # ---- walking

    def advance(self, state: State | None, text: str) -> State | None:
        """The state after `text`, or None when it can't follow. None stays None."""
        for char in text:
            if state is None:
                return None
            after = state._row.get(char, _UNKNOWN)
            state = self._step(state, char) if after is _UNKNOWN else after
        return state

    def accepts(self, text: str) -> bool:
        """True when `text` is a sentence of the grammar."""
        state = self.advance(self.start, text)
        return state is not None and self.may_end(state)

    def check(self, text: str) -> Verdict:
        """Whether `text` is a sentence; if not, where it stops being the beginning of one."""
        state = self.start
        for offset, char in enumerate(text):
            after = self.advance(state, char)
            if after is None:
                return self._verdict(state, False, offset)
            state = after
        return self._verdict(state, self.may_end(state), len(text))

    def _verdict(self, state: State, accepted: bool, offset: int) -> Verdict:
        return Verdict(accepted, offset, self.next_chars(state), self.next_tokens(state), self.may_end(state))

    def advance_bytes(self, state: State, piece: bytes) -> State | None:
        """The state after the bytes of one token's piece, which may begin and end inside a character."""
        if piece in state._row:
            return state._row[piece]
        decoded = decode_piece(piece, state.partial)
        after = self._after_points(state, *decoded) if decoded is not None else None
        self._remember(state)
        state._row[piece] = after
        return after

    def _after_points(self, state: State, points: list[int], partial: Partial | None) -> State | None:
        after: State | None = self._state(state.cells, None)
        for point in points:
            after = self._advance_class(after, point) if after is not None else None
        if partial is None or after is None:
            return after
        if not any(self._may_become(cell, partial) for cell in after.cells):
            return None
        return self._state(after.cells, partial)

    def advance_token(self, state: State, token: int, piece: bytes) -> State | None:
        """The state after a token of the vocabulary: by its id where the grammar names tokens, by its piece elsewhere.

        Where a token's first characters lead to a place that names tokens, llama.cpp's `apply` lets it through and its
        `accept` ends the process; here the answer is None.
        """
        by_piece = self.advance_bytes(state, piece)
        if not self.program.tokens:
            return by_piece
        decoded = decode_piece(piece, state.partial)
        if decoded is None or not decoded[0]:
            return by_piece
        cells = self._after_token(state, [self._matches_id(symbol, token) for symbol in self.program.tokens])
        if not cells:
            return by_piece
        if by_piece is not None:
            cells.update(dict.fromkeys(by_piece.cells))
        return self._state(tuple(cells), decoded[1])

    def advance_symbol(self, state: State, token: str | int) -> State | None:
        """The state after a token as the grammar names it, by text or id; no characters."""
        cells = self._after_token(state, [(t.token == token) != t.negated for t in self.program.tokens])
        return self._state(tuple(cells), None) if cells else None

    def bind_tokens(self, ids: Mapping[str, int]) -> None:
        """Tell the ids of the tokens that the grammar names by text (`token_names`), for `advance_token`."""
        self._token_ids.update(ids)

    def _matches_id(self, symbol: Token, token: int) -> bool:
        named = self._token_ids.get(symbol.token) if isinstance(symbol.token, str) else symbol.token
        return (named == token) != symbol.negated

    @property
    def tokens(self) -> tuple[Token, ...]:
        """Every token that the grammar names."""
        return self.program.tokens

    # ---- asking

    def may_end(self, state: State) -> bool:
        """True when what was walked so far is a sentence."""
        return state.partial is None and self._bottom in state.cells

    def next_chars(self, state: State) -> CharSet:
        """The characters that may follow; after half a character, those it may become."""
        if state._chars is None:
            found = NOTHING
            for cell in state.cells:
                if cell is not self._bottom and self._kind(cell) != TOKEN:
                    found |= self.program.terminal(cell.frame % self._n_positions)
            bounds = state.partial.bounds if state.partial else None
            found = found & CharSet.span(*bounds) if bounds else found
            self._remember(state)
            state._chars = found
            return found
        return state._chars

    def distinct_points(self, state: State) -> list[int]:
        """One code point for each set of characters that lead to the same state; not of every one that leads to none."""
        breaks = self.program.breaks
        points: list[int] = []
        for low, high in self.next_chars(state).ranges:
            points.append(low)
            points.extend(breaks[bisect_right(breaks, low) : bisect_right(breaks, high)])
        return points

    def next_tokens(self, state: State) -> tuple[Token, ...]:
        """The tokens that may follow by name."""
        positions = [cell.frame for cell in state.cells if cell is not self._bottom and self._kind(cell) == TOKEN]
        return tuple(dict.fromkeys([self.program.tokens[self.program.arg[p]] for p in positions]))

    def forced(self, state: State) -> str:
        """The text that must follow: up to where there is a choice, or the end is one. At most MAX_FORCED characters."""
        if state._forced is not None:
            return state._forced
        text: list[str] = []
        at: State | None = state
        while at is not None and len(text) < MAX_FORCED and (char := self._only_char(at)):
            text.append(char)
            at = self.advance(at, char)
        forced = "".join(text)
        self._remember(state, 1 + len(text) // 64)
        state._forced = forced
        return forced

    def _only_char(self, state: State) -> str:
        """The only possible continuation; "" when there are more, or none."""
        if state.partial is not None:
            return ""
        point = -1
        for cell in state.cells:
            if cell is self._bottom or self._kind(cell) == TOKEN:
                return ""
            (low, high), *more = self.program.terminal(cell.frame % self._n_positions).ranges
            if more or low != high or point not in (-1, low):
                return ""
            point = low
        return chr(point)

    def least_length(self, state: State) -> int:
        """The number of characters (a token by name counts as one) of the shortest completion."""
        return min([cell.least for cell in state.cells])

    # ---- texts

    def shortest_pieces(self, state: State) -> list[Piece]:
        """The shortest completion (`least_length` symbols) as text and tokens; after half a character, of the whole one."""
        cell = min(state.cells, key=lambda cell: cell.least)
        frames: list[int] = []
        while cell.parent is not None:
            frames.append(cell.frame)
            cell = cell.parent
        return shortest_from(self.program, frames[::-1])

    @cached_property
    def widest_char(self) -> int:
        """The most bytes of UTF-8 that one character of any `shortest_pieces` has."""
        return widest_char(self.program)

    def shortest_completion(self, state: State) -> str:
        """The text of `shortest_pieces`; a token by name stands as the grammar names it."""
        return join_text(self.shortest_pieces(state))

    def random_sentence(self, rng: Random, max_length: int = 200) -> str:
        """A sentence of about at most `max_length` characters (longer only where there is none so short). Repeated calls use
        every alternative in turn."""
        return join_text(self._writer.write(rng, max_length))

    # ---- stacks, as llama.cpp has them

    def takes(self, cell: Cell, symbol: int | Token) -> bool:
        """Whether a code point, or a token as the grammar names it, may come next on the stack `cell`."""
        if cell is self._bottom:
            return False
        if isinstance(symbol, int):
            return self.program.matches(cell.frame % self._n_positions, symbol)
        token = self.program.tokens[self.program.arg[cell.frame]] if self._kind(cell) == TOKEN else None
        return token is not None and (token.token == symbol.token) != token.negated

    def terminal(self, cell: Cell) -> CharSet | Token:
        """What stands on top of a stack that isn't empty."""
        position = cell.frame % self._n_positions
        return self.program.tokens[self.program.arg[position]] if self._kind(cell) == TOKEN else self.program.terminal(position)

    def successors(self, cell: Cell) -> tuple[Cell, ...]:
        """The stacks that one stack becomes once the terminal on top of it was read."""
        cells: dict[Cell, None] = {}
        if cell.parent is not None:
            self._close(cell.parent, cell.frame + 1, cells)
        return tuple(cells)

    def effort(self, cell: Cell) -> int:
        """How many stacks llama.cpp goes through to find the successors of `cell`."""
        n, frame, below = 0, cell.frame + 1, cell.parent
        while below is not None:
            _, passes, n_seen = self._unfold(frame)
            n += n_seen
            if not passes:
                break
            frame, below = below.frame, below.parent
        return n

    @staticmethod
    def n_compared(cells: Collection[Cell]) -> int:
        """About how many frames llama.cpp compares to find that these stacks differ: they tend to be alike below."""
        return len(cells) ** 2 * max([cell.depth for cell in cells], default=0)

    def position(self, cell: Cell) -> int:
        """The position on top of a stack, without how often a repetition there was done."""
        return cell.frame % self._n_positions

    def counts(self, cell: Cell) -> bool:
        """Whether a repetition stands on top of the stack `cell`, or directly below, that was done several times."""
        several = 8 * self._n_positions
        return cell.frame >= several or (cell.parent is not None and cell.parent.frame >= several)

    def _kind(self, cell: Cell) -> int:
        return self.program.kind[cell.frame % self._n_positions]

    def _may_become(self, cell: Cell, partial: Partial) -> bool:
        bounds = partial.bounds
        if bounds is None or cell is self._bottom or self._kind(cell) == TOKEN:
            return False
        return bool(self.program.terminal(cell.frame % self._n_positions) & CharSet((bounds,)))

    def _step(self, state: State, char: str) -> State | None:
        after = self._advance_class(state, ord(char)) if state.partial is None else None
        self._remember(state)
        state._row[char] = after
        return after

    def _advance_class(self, state: State, point: int) -> State | None:
        """All code points between two neighbouring breaks lead to the same state."""
        char_class = bisect_right(self.program.breaks, point)
        if char_class not in state._by_class:
            cells: dict[Cell, None] = {}
            for cell in state.cells:
                if cell is not self._bottom and self.program.matches(cell.frame, point):
                    assert cell.parent is not None
                    self._close(cell.parent, cell.frame + 1, cells)
            if self._max_stacks is not None and self.n_compared(cells) > MAX_COMPARED:
                raise TooManyStacks
            after = self._state(tuple(cells), None) if cells else None
            self._remember(state)
            state._by_class[char_class] = after
        return state._by_class[char_class]

    def _after_token(self, state: State, matching: list[bool]) -> dict[Cell, None]:
        cells: dict[Cell, None] = {}
        if not matching:
            return cells
        for cell in state.cells:
            if cell is not self._bottom and self._kind(cell) == TOKEN and matching[self.program.arg[cell.frame]]:
                assert cell.parent is not None
                self._close(cell.parent, cell.frame + 1, cells)
        return cells

    def _close(self, below: Cell, frame: int, out: dict[Cell, None]) -> None:
        """Add to `out` the stacks that `frame` on top of `below` unfolds to, each with a terminal on top, or the empty one."""
        while True:
            unfolded, passes, _ = self._unfold(frame)
            for frames in unfolded:
                cell = below
                for pushed in frames:
                    cell = self._push(cell, pushed)
                out[cell] = None
            if self._max_stacks is not None and len(out) > self._max_stacks:
                raise TooManyStacks
            if not passes:
                return
            if below.parent is None:
                out[below] = None
                return
            frame, below = below.frame, below.parent

    def _push(self, below: Cell, frame: int) -> Cell:
        cell = self._cells.get((below, frame))
        if cell is None:
            self._cells[below, frame] = cell = Cell(below, frame, below.least + self.least_of_frame(frame))
        return cell

    def least_of_frame(self, frame: int) -> int:
        """The least number of symbols from `frame` to the end of its sequence."""
        done, position = divmod(frame, self._n_positions)
        if not done:
            return self.program.least_from(position)
        repetition = self.program.arg[position]
        missing = max(0, self.program.rep_min[repetition] - done)
        return missing * self.program.least_of[self.program.rep_rule[repetition]] + self.program.least_from(position + 1)

    def _unfold(self, frame: int) -> _Unfolded:
        """The sequences of frames (terminal last) that `frame` unfolds to, whether it may match nothing, and the effort."""
        known = self._unfolded.get(frame)
        if known is not None:
            return known
        found: dict[Frames, None] = {}
        passes = False
        todo: list[Frames] = [(frame,)]
        seen: set[Frames] = set(todo)
        while todo:
            frames = todo.pop()
            if not frames:
                passes = True
                continue
            after = self._unfold_top(frames)
            if after is None:
                found[frames] = None
                if self._max_stacks is not None and len(found) > self._max_stacks:
                    raise TooManyStacks
                continue
            for new in reversed(after):
                if new not in seen:
                    seen.add(new)
                    todo.append(new)
        self._unfolded[frame] = known = tuple(found), passes, len(seen)
        return known

    def _unfold_top(self, frames: Frames) -> list[Frames] | None:
        """The frames after one unfolding of the topmost; None when it is a terminal."""
        program = self.program
        done, position = divmod(frames[-1], self._n_positions)
        kind, rest = program.kind[position], frames[:-1]
        if kind == END:
            return [rest]
        if kind == REF:
            return self._with_alternatives(self._with_next(rest, position), program.arg[position])
        if kind != REP:
            return None
        repetition = program.arg[position]
        low, high = program.rep_min[repetition], program.rep_max[repetition]
        after = [self._with_next(rest, position)] if done >= low else []
        if high == UNBOUNDED:
            return self._repeat(rest, position, min(done + 1, low + self._n_kept_apart)) + after
        if done + 1 < high:
            return self._repeat(rest, position, done + 1) + after
        return self._with_alternatives(self._with_next(rest, position), program.rep_rule[repetition]) + after

    def _with_next(self, rest: Frames, position: int) -> Frames:
        return rest if self.program.kind[position + 1] == END else (*rest, position + 1)

    def _repeat(self, rest: Frames, position: int, done: int) -> list[Frames]:
        again = (*rest, position + done * self._n_positions)
        return self._with_alternatives(again, self.program.rep_rule[self.program.arg[position]])

    def _with_alternatives(self, rest: Frames, rule: int) -> list[Frames]:
        kind = self.program.kind
        return [rest if kind[start] == END else (*rest, start) for start in self.program.alternatives(rule)]

    # ---- memory

    def _state(self, cells: tuple[Cell, ...], partial: Partial | None) -> State:
        key = (cells[0] if len(cells) == 1 else frozenset(cells), partial)
        state = self._states.get(key)
        if state is None:
            self._states[key] = state = State(cells, partial)
        return state

    def _remember(self, state: State, weight: int = 1) -> None:
        """Make room for one more thing that `state` remembers; forget everything when there is too much."""
        self._n_entries += weight
        if self._memory is not None:
            self._memory.make_room(self, weight)
        if self.n_remembered > self._max_entries:
            self.forget()
        self._touched.add(state)

    @property
    def n_remembered(self) -> int:
        """How many things are remembered: characters' ways and stacks."""
        return self._n_entries + len(self._cells)

    def forget(self) -> None:
        """Give up everything remembered; states in somebody's hands stay good."""
        for touched in self._touched:
            touched._row.clear()
            touched._by_class.clear()
            touched._forced = touched._chars = None
        self._forget()

    def _forget(self) -> None:
        self._n_entries = 0
        self._touched: set[State] = set()
        self._cells: dict[tuple[Cell, int], Cell] = {}
        self._states: dict[tuple[Cell | frozenset[Cell], Partial | None], State] = {}
        self._unfolded: dict[int, _Unfolded] = {}

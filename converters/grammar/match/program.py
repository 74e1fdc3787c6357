"""The matcher's program: a grammar as flat arrays, and their form as bytes.

A program is a row of positions, each with a kind and an argument; the next item of a sequence is the next position, and END
closes it. A rule is a list of the positions where its alternatives start. Everything nested is a rule of its own.
"""

from __future__ import annotations

import json
import struct
import sys
from array import array
from bisect import bisect_right
from dataclasses import dataclass, field

from converters.grammar.charset import CharSet
from converters.grammar.expr import Token

END, CHAR, SET, TOKEN, REF, REP = range(6)
UNBOUNDED = 2**32 - 1
"""A repetition's maximum that is none."""
ENDLESS = 2**32 - 1
"""The least length of what can never end."""

_MAGIC = b"GSM1"
_LONGEST_REMEMBERED = 4096  # characters of one rule's shortest text
_MOST_REMEMBERED = 1_000_000  # of all rules
_HEADER = struct.Struct("<4s9I")


@dataclass(slots=True)
class Program:
    """kind[p], arg[p]: a position's kind and argument: CHAR a code point, SET an index of sets, TOKEN of `tokens`, REF of a
    rule, REP of a repetition.

    starts[first_start[r]:first_start[r + 1]]: where rule r's alternatives start; rule 0 is the entry. best_start[r]: of the one
    with the shortest sentence, of least_of[r] symbols. A repetition i has rep_rule[i], rep_min[i], rep_max[i].
    set_ranges[first_range[i]:first_range[i + 1]]: pairs of set i. breaks: every code point where some set begins or has ended.
    rule_texts: the shortest text of rules, as far as it was asked for and is short.
    """

    kind: bytes
    arg: array[int]
    first_start: array[int]
    starts: array[int]
    least_of: array[int]
    best_start: array[int]
    rep_rule: array[int]
    rep_min: array[int]
    rep_max: array[int]
    first_range: array[int]
    set_ranges: array[int]
    breaks: array[int]
    tokens: tuple[Token, ...]
    _sets: dict[int, CharSet] = field(default_factory=dict, compare=False)
    _least: dict[int, int] = field(default_factory=dict, compare=False)
    rule_texts: dict[int, list[str | Token]] = field(default_factory=dict, compare=False)
    _n_remembered: int = field(default=0, compare=False)

    def alternatives(self, rule: int) -> array[int]:
        """Where the alternatives of `rule` start."""
        return self.starts[self.first_start[rule] : self.first_start[rule + 1]]

    def least_from(self, position: int) -> int:
        """The least number of symbols from `position` to the end of its sequence."""
        known = self._least.get(position)
        if known is None:
            end = self.kind.index(END, position)
            known = 0
            for at in range(end, position - 1, -1):
                known = min(ENDLESS, known + self._least_at(at))
                self._least[at] = known
        return known

    def _least_at(self, position: int) -> int:
        kind, arg = self.kind[position], self.arg[position]
        if kind == REF:
            return self.least_of[arg]
        if kind == REP:
            return self.rep_min[arg] * self.least_of[self.rep_rule[arg]]
        return 0 if kind == END else 1

    def charset(self, index: int) -> CharSet:
        """Set number `index`."""
        if index not in self._sets:
            flat = self.set_ranges[self.first_range[index] : self.first_range[index + 1]]
            self._sets[index] = CharSet(tuple(zip(flat[::2], flat[1::2], strict=True)))
        return self._sets[index]

    def remember_text(self, rule: int, pieces: list[str | Token]) -> None:
        """Keep the shortest text of `rule`, as long as all of them together aren't too long."""
        n_chars = sum([len(piece) if isinstance(piece, str) else 1 for piece in pieces])
        if self._n_remembered + n_chars <= _MOST_REMEMBERED and n_chars <= _LONGEST_REMEMBERED:
            self._n_remembered += n_chars
            self.rule_texts[rule] = pieces

    def matches(self, position: int, point: int) -> bool:
        """True when the terminal at `position` takes the code point `point`."""
        if self.kind[position] == CHAR:
            return self.arg[position] == point
        if self.kind[position] != SET:
            return False
        index = self.arg[position]
        low, high = self.first_range[index], self.first_range[index + 1]
        # Bounds of ranges alternate, low and high: inside a range an odd number of them is at or below the point.
        at = bisect_right(self.set_ranges, point, low, high)
        return (at - low) % 2 == 1 or (at > low and self.set_ranges[at - 1] == point)

    def terminal(self, position: int) -> CharSet:
        """The characters that the terminal at `position` takes."""
        if self.kind[position] == CHAR:
            return CharSet(((self.arg[position], self.arg[position]),))
        return self.charset(self.arg[position])

    def to_bytes(self) -> bytes:
        """The program as bytes, little-endian."""
        names = json.dumps([[token.token, token.negated] for token in self.tokens]).encode() if self.tokens else b""
        header = _HEADER.pack(
            _MAGIC, len(self.kind), len(self.first_start), len(self.starts), len(self.rep_rule),
            len(self.first_range), len(self.set_ranges), len(self.breaks), len(names), 0,
        )  # fmt: skip
        parts = [header, self.kind, names]
        parts.extend([_little_endian(values).tobytes() for values in self._arrays()])
        return b"".join(parts)

    def _arrays(self) -> tuple[array[int], ...]:
        return (
            self.arg, self.first_start, self.starts, self.least_of, self.best_start, self.rep_rule, self.rep_min, self.rep_max,
            self.first_range, self.set_ranges, self.breaks,
        )  # fmt: skip

    @staticmethod
    def from_bytes(data: bytes) -> Program:
        """The inverse of `to_bytes`. Raises ValueError for anything else."""
        if data[:4] != _MAGIC:
            raise ValueError("not the tables of a matcher")
        _, n_positions, n_rules, n_starts, n_reps, n_sets, n_ranges, n_breaks, n_names, _ = _HEADER.unpack_from(data)
        at = _HEADER.size
        kind = data[at : at + n_positions]
        at += n_positions
        names = data[at : at + n_names]
        at += n_names
        arrays: list[array[int]] = []
        view = memoryview(data)
        lengths = (
            n_positions, n_rules, n_starts, n_rules - 1, n_rules - 1, n_reps, n_reps, n_reps, n_sets, n_ranges, n_breaks,
        )  # fmt: skip
        for length in lengths:
            values = array("I")
            values.frombytes(view[at : at + 4 * length])
            arrays.append(_little_endian(values))
            at += 4 * length
        tokens = tuple(Token(token, negated) for token, negated in json.loads(names)) if names else ()
        arg, first_start, starts, least_of, best_start, rep_rule, rep_min, rep_max, first_range, set_ranges, breaks = arrays
        return Program(
            kind, arg, first_start, starts, least_of, best_start, rep_rule, rep_min, rep_max,
            first_range, set_ranges, breaks, tokens,
        )  # fmt: skip


def _little_endian(values: array[int]) -> array[int]:
    if sys.byteorder == "big":
        values = values[:]
        values.byteswap()
    return values

"""Sets of Unicode code points.

The universe is every scalar value: 0 to 0x10FFFF without the surrogates. (A sampler can never produce NUL: printing a
grammar drops it, here it is an ordinary member.)
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

from converters.record import record

MAX_CODE_POINT = 0x10FFFF
_SURROGATES = (0xD800, 0xDFFF)

Range = tuple[int, int]


@record
class CharSet:
    """A set of code points as sorted, disjoint, non-adjacent inclusive ranges. Build it with `of`, `span`, `from_ranges`."""

    ranges: tuple[Range, ...] = ()

    @staticmethod
    def of(chars: str) -> CharSet:
        """The characters of `chars`."""
        return CharSet.from_ranges((ord(c), ord(c)) for c in chars)

    @staticmethod
    def span(first: int, last: int) -> CharSet:
        """Code points `first` to `last`, surrogates left out."""
        return CharSet.from_ranges([(first, last)])

    @staticmethod
    def from_ranges(ranges: Iterable[Range]) -> CharSet:
        """Ranges in any order, overlapping or not; surrogates are left out."""
        merged: list[Range] = []
        for lo, hi in sorted(_without_surrogates(ranges)):
            if merged and lo <= merged[-1][1] + 1:
                if hi > merged[-1][1]:
                    merged[-1] = (merged[-1][0], hi)
            else:
                merged.append((lo, hi))
        return CharSet(tuple(merged))

    def __contains__(self, char: int | str) -> bool:
        point = ord(char) if isinstance(char, str) else char
        i = bisect_right(self.ranges, (point, MAX_CODE_POINT)) - 1
        return i >= 0 and point <= self.ranges[i][1]

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __len__(self) -> int:
        return sum([hi - lo + 1 for lo, hi in self.ranges])

    def __iter__(self) -> Iterator[int]:
        for lo, hi in self.ranges:
            yield from range(lo, hi + 1)

    def __or__(self, other: CharSet) -> CharSet:
        if not self.ranges or not other.ranges:
            return self if self.ranges else other
        return CharSet.from_ranges(self.ranges + other.ranges)

    def __and__(self, other: CharSet) -> CharSet:
        out: list[Range] = []
        a, b, i, j = self.ranges, other.ranges, 0, 0
        while i < len(a) and j < len(b):
            lo, hi = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
            if lo <= hi:
                out.append((lo, hi))
            if a[i][1] < b[j][1]:
                i += 1
            else:
                j += 1
        return CharSet(tuple(out))

    def __invert__(self) -> CharSet:
        out: list[Range] = []
        start = 0
        for lo, hi in self.ranges:
            if start < lo:
                out.append((start, lo - 1))
            start = hi + 1
        if start <= MAX_CODE_POINT:
            out.append((start, MAX_CODE_POINT))
        return CharSet.from_ranges(out)

    def __sub__(self, other: CharSet) -> CharSet:
        return self & ~other if other.ranges else self

    def isdisjoint(self, other: CharSet) -> bool:
        """True when no code point is in both."""
        a, b, i, j = self.ranges, other.ranges, 0, 0
        while i < len(a) and j < len(b):
            if a[i][1] < b[j][0]:
                i += 1
            elif b[j][1] < a[i][0]:
                j += 1
            else:
                return False
        return True

    @property
    def is_single(self) -> bool:
        """True for one code point."""
        return len(self.ranges) == 1 and self.ranges[0][0] == self.ranges[0][1]

    @property
    def first(self) -> int:
        """The smallest code point; IndexError when empty."""
        return self.ranges[0][0]


def _without_surrogates(ranges: Iterable[Range]) -> Iterator[Range]:
    low, high = _SURROGATES
    for lo, hi in ranges:
        if hi < low or lo > high:
            if lo <= hi:
                yield lo, hi
            continue
        if lo < low:
            yield lo, low - 1
        if hi > high:
            yield high + 1, hi


NOTHING = CharSet()
ANY = CharSet.from_ranges([(0, MAX_CODE_POINT)])

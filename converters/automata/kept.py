"""What a process keeps between compiles: the same bounds, patterns, lists and characters come back in schema after schema."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from threading import Lock
from typing import Generic, TypeVar

from converters.automata.dfa import Dfa

T = TypeVar("T")


@dataclass(slots=True)
class Kept(Generic[T]):
    """Things by their sources, the longest unused dropped first. Safe to use from several threads.

    `max_size` bounds the sum of their sizes, as `size_of` counts them. One that has more than a tenth of that is never kept.
    """

    max_size: int
    size_of: Callable[[T], int]
    size: int = 0
    _kept: OrderedDict[Hashable, T] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)

    def get(self, source: Hashable, make: Callable[[], T]) -> T:
        """What is kept of `source`, made where it isn't. Raises what `make` raises."""
        with self._lock:
            if source in self._kept:
                self._kept.move_to_end(source)
                return self._kept[source]
        made = make()
        self._keep(source, made)
        return made

    def _keep(self, source: Hashable, made: T) -> None:
        size = self.size_of(made)
        if size > self.max_size // 10:
            return
        with self._lock:
            if source in self._kept:  # another thread was faster
                return
            self._kept[source] = made
            self.size += size
            while self.size > self.max_size:
                self.size -= self.size_of(self._kept.popitem(last=False)[1])


def kept_automata(max_size: int) -> Kept[Dfa]:
    """Automata. A size is their transitions and the ranges in their alphabets, about 80 bytes each."""
    return Kept(max_size, _size)


def _size(dfa: Dfa) -> int:
    return sum(map(len, dfa.rows)) + sum([len(charset.ranges) for charset in dfa.alphabet])

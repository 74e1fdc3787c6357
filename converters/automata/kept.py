"""Automata that a process keeps between compiles: the same bounds, patterns and lists come back in schema after schema."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from threading import Lock

from converters.automata.dfa import Dfa


@dataclass(slots=True)
class KeptAutomata:
    """Automata by their sources, the longest unused dropped first. Safe to use from several threads.

    `max_size` bounds the sum of their transitions and of the ranges in their alphabets, about 80 bytes each. One that has more
    than a tenth of that is never kept.
    """

    max_size: int
    size: int = 0
    _kept: OrderedDict[Hashable, Dfa] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)

    def get(self, source: Hashable, make: Callable[[], Dfa]) -> Dfa:
        """The automaton of `source`, made where it isn't kept. Raises what `make` raises."""
        with self._lock:
            if source in self._kept:
                self._kept.move_to_end(source)
                return self._kept[source]
        made = make()
        self._keep(source, made)
        return made

    def _keep(self, source: Hashable, made: Dfa) -> None:
        size = _size(made)
        if size > self.max_size // 10:
            return
        with self._lock:
            if source in self._kept:  # another thread was faster
                return
            self._kept[source] = made
            self.size += size
            while self.size > self.max_size:
                self.size -= _size(self._kept.popitem(last=False)[1])


def _size(dfa: Dfa) -> int:
    return sum(map(len, dfa.rows)) + sum([len(charset.ranges) for charset in dfa.alphabet])

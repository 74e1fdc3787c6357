"""Room for what many matchers remember together: those that were asked longest ago forget first."""

from __future__ import annotations

from threading import Lock
from typing import Protocol
from weakref import WeakSet


class Remembering(Protocol):
    """A matcher, as its memory sees it."""

    last_asked: int

    @property
    def n_remembered(self) -> int:
        """How many things it remembers."""

    def forget(self) -> None:
        """Give all of it up."""


class Memory:
    """`max_entries` bounds the sum over all matchers. They may be made in any thread, and must be asked in one."""

    def __init__(self, max_entries: int) -> None:
        self.max_entries = max_entries
        self._matchers: WeakSet[Remembering] = WeakSet()
        self._lock = Lock()
        self._clock = 0
        self._n_new = 0

    def add(self, matcher: Remembering) -> None:
        """Count `matcher` from now on, as long as somebody holds it."""
        with self._lock:
            self._matchers.add(matcher)

    @property
    def n_remembered(self) -> int:
        """Of all matchers together."""
        with self._lock:
            return sum([matcher.n_remembered for matcher in self._matchers])

    def make_room(self, matcher: Remembering, n_new: int) -> None:
        """`matcher` will remember `n_new` things more. Looks at all only when as much is new as a tenth of the room."""
        self._clock += 1
        matcher.last_asked = self._clock
        self._n_new += n_new
        if self._n_new * 10 < self.max_entries:
            return
        self._n_new = 0
        with self._lock:
            matchers = sorted(self._matchers, key=lambda other: other.last_asked)
        total = sum([other.n_remembered for other in matchers])
        for oldest in matchers:
            if total <= self.max_entries:
                return
            total -= oldest.n_remembered
            oldest.forget()
            total += oldest.n_remembered

"""Values kept in memory by id, bounded in number and bytes: the least recently used go first. Knows nothing of the values."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class BoundedStore(Generic[T]):
    """Safe to use from several threads: large requests are decoded beside the event loop."""

    max_entries: int
    max_bytes: int
    n_bytes: int = 0
    _entries: OrderedDict[str, tuple[T, int]] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, key: str, value: T, n_bytes: int) -> None:
        """Keep a value. One that is larger than all there is room for is not kept, and nothing goes for it."""
        with self._lock:
            self._drop(key)
            if n_bytes > self.max_bytes:
                return
            self._entries[key] = (value, n_bytes)
            self.n_bytes += n_bytes
            while len(self._entries) > self.max_entries or self.n_bytes > self.max_bytes:
                self._drop(next(iter(self._entries)))

    def get(self, key: str) -> T | None:
        """A value, which counts as its use."""
        with self._lock:
            if key not in self._entries:
                return None
            self._entries.move_to_end(key)
            return self._entries[key][0]

    def values(self) -> list[T]:
        """Every value, the most recently used last; no use of any."""
        with self._lock:
            return [value for value, _ in self._entries.values()]

    def delete(self, key: str) -> None:
        """Forget a value, if it is there."""
        with self._lock:
            self._drop(key)

    def _drop(self, key: str) -> None:
        if key in self._entries:
            self.n_bytes -= self._entries.pop(key)[1]

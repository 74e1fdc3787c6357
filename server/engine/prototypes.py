"""Samplers that are dear to make and cheap to clone: the last few are kept, each to be cloned from.

A DRY sampler looks through the whole vocabulary for each of its breakers, 10 ms each; a request with 128 choices needs 128.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

_N_KEPT = 8

Sampler = TypeVar("Sampler")


class Prototypes(Generic[Sampler]):
    """Safe to use from any thread."""

    def __init__(self, clone: Callable[[Sampler], Sampler], free: Callable[[Sampler], object], n_kept: int = _N_KEPT) -> None:
        self._clone = clone
        self._free = free
        self._n_kept = n_kept
        self._kept: OrderedDict[Hashable, Sampler] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, key: Hashable, make: Callable[[], Sampler]) -> Sampler:
        """A clone, for the caller to free, of what `make` makes for this key."""
        with self._lock:
            if key not in self._kept:
                self._kept[key] = make()
                if len(self._kept) > self._n_kept:
                    self._free(self._kept.popitem(last=False)[1])
            self._kept.move_to_end(key)
            return self._clone(self._kept[key])

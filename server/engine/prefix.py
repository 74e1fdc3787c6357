"""Prompts that idle slots still hold in their KV cells, so that a request which begins the same reads only the rest.

Only what was read as a prompt is kept, never what was generated: those cells come out of batches of another size, whose sums
differ in the last bits, and a reply must not depend on what ran before.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

_LEAST_REUSED = 16  # tokens; for fewer it isn't worth giving up what the slot holds
_LEAST_READ = 2  # a batch of one token has other sums than a longer one


class Prefixes:
    """What each idle slot holds, the one that was used longest ago first."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int, tuple[int, ...]] = OrderedDict()

    @property
    def slots(self) -> frozenset[int]:
        """The idle slots that hold something."""
        return frozenset(self._kept)

    @staticmethod
    def is_worth_it(prompt: tuple[int, ...]) -> bool:
        """Whether the prompt is long enough to be kept."""
        return len(prompt) >= _LEAST_REUSED

    def choose(self, prompt: tuple[int, ...], free: Sequence[int]) -> int:
        """Of the free slots the one with the most of `prompt`; else an empty one, else the one that was used longest ago."""
        best = max(free, key=lambda slot: self._n_common(slot, prompt))
        if self._n_common(best, prompt):
            return best
        empty = [slot for slot in free if slot not in self._kept]
        return empty[0] if empty else next(slot for slot in self._kept if slot in free)

    def take(self, slot: int, prompt: tuple[int, ...] = ()) -> int | None:
        """The slot is in use from now on: how many tokens of `prompt` it holds; None where it was empty."""
        if slot not in self._kept:
            return None
        n_common = self._n_common(slot, prompt)
        del self._kept[slot]
        return n_common

    def keep(self, slot: int, prompt: tuple[int, ...]) -> None:
        """The slot is idle, and holds `prompt`."""
        self._kept[slot] = prompt
        self._kept.move_to_end(slot)

    def _n_common(self, slot: int, prompt: tuple[int, ...]) -> int:
        kept = self._kept.get(slot, ())
        most = min(len(kept), len(prompt) - _LEAST_READ)
        if most < _LEAST_REUSED or kept[:_LEAST_REUSED] != prompt[:_LEAST_REUSED]:
            return 0
        return next((i for i in range(_LEAST_REUSED, most) if kept[i] != prompt[i]), most)

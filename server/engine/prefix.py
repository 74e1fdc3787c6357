"""Prompts that idle slots still hold in their KV cells, so that a request which begins the same reads only the rest.

The same prompt again needs no decode at all: the logits after it are kept too.

Only what was read as a prompt is kept, never what was generated: most of those cells come out of decodes of one token, whose
sums differ in the last bits from those of several, and a reply must not depend on what ran before.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from server.engine.backend import Logits

LEAST_REUSED = 16  # tokens; fewer aren't worth giving up what a slot holds, nor copying
_LEAST_READ = 2  # one token has other sums than several


def n_reusable(held: tuple[int, ...], prompt: tuple[int, ...]) -> int:
    """How much of `prompt` may be taken from cells that hold `held`: what both begin with, so that some is left to read."""
    most = min(len(held), len(prompt) - _LEAST_READ)
    if most < LEAST_REUSED or held[:LEAST_REUSED] != prompt[:LEAST_REUSED]:
        return 0
    if held[:most] == prompt[:most]:
        return most
    low, high = LEAST_REUSED, most  # equal up to low, not up to high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if held[low:middle] == prompt[low:middle] else (low, middle)
    return low


@dataclass(frozen=True, slots=True)
class _Kept:
    prompt: tuple[int, ...] = ()
    logits: Logits | None = None  # after the last token


_NOTHING = _Kept()


class Prefixes:
    """What each idle slot holds, the one that was used longest ago first."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int, _Kept] = OrderedDict()

    @property
    def slots(self) -> frozenset[int]:
        """The idle slots that hold something."""
        return frozenset(self._kept)

    def choose(self, prompt: tuple[int, ...], free: Sequence[int]) -> int:
        """The free slot for a request: one that holds exactly the prompt, or mostly what it begins with; else an empty one,
        to which the beginning can be copied from wherever it is; else the one that was used longest ago."""
        best = max(free, key=lambda slot: self._n_kept(slot, prompt))
        if 2 * self._n_kept(best, prompt) > self.n_held(best):
            return best
        empty = [slot for slot in free if slot not in self._kept]
        return empty[0] if empty else next(slot for slot in self._kept if slot in free)

    def logits(self, slot: int, prompt: tuple[int, ...]) -> Logits | None:
        """Those after `prompt`, where that is exactly what the idle slot holds."""
        kept = self._kept.get(slot, _NOTHING)
        return kept.logits if kept.prompt == prompt else None

    def take(self, slot: int, prompt: tuple[int, ...] = ()) -> int | None:
        """The slot is in use from now on: how many tokens of `prompt` it holds, all of them where it has their logits; None
        where it was empty."""
        if slot not in self._kept:
            return None
        n_common = self._n_kept(slot, prompt)
        del self._kept[slot]
        return n_common

    def keep(self, slot: int, prompt: tuple[int, ...], logits: Logits | None = None) -> bool:
        """The slot is idle, and holds `prompt`, which `logits` come after. False where that isn't worth keeping: too short, or
        in another slot too."""
        if len(prompt) < LEAST_REUSED or any(kept.prompt[: len(prompt)] == prompt for kept in self._kept.values()):
            return False
        self._kept[slot] = _Kept(prompt, logits)
        return True

    def find(self, prompt: tuple[int, ...]) -> tuple[int, int]:
        """The idle slot that holds most of what the prompt begins with, and how much that is; 0 tokens where none does."""
        slot = max(self._kept, key=lambda slot: self._n_reusable(slot, prompt), default=0)
        return slot, self._n_reusable(slot, prompt)

    def touch(self, slot: int) -> None:
        """What the slot holds was of use, if it is an idle one."""
        if slot in self._kept:
            self._kept.move_to_end(slot)

    def n_held(self, slot: int) -> int:
        """How many tokens the idle slot holds."""
        return len(self._kept.get(slot, _NOTHING).prompt)

    def _n_kept(self, slot: int, prompt: tuple[int, ...]) -> int:
        """How much of the prompt a request has in that slot: its logits stay there, they aren't copied to another."""
        return self._n_reusable(slot, prompt) if self.logits(slot, prompt) is None else len(prompt)

    def _n_reusable(self, slot: int, prompt: tuple[int, ...]) -> int:
        return n_reusable(self._kept.get(slot, _NOTHING).prompt, prompt)

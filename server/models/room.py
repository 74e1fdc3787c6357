"""The memory that all loaded models share: which of them go for one that is to be loaded, and who waits for that.

Those that wait are served in the order in which they came: what one of them waits for, or has got together, is no other's.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from server.errors import ModelLoading
from server.models.slot import Slot

_log = logging.getLogger(__name__)
_LOOK_AGAIN_S = 0.25  # time changes things too
RETRY_LOADING_S = 2


@dataclass(slots=True, eq=False)
class _Waiter:
    """A model that is to be loaded, and those that have to go for it."""

    slot: Slot
    needed_bytes: int
    held: list[Slot] = field(default_factory=list)


class Room:
    """`max_bytes` for the models in `slots`. `stays` are the aliases that go last; `drop` ends a model, told why."""

    def __init__(
        self, slots: Mapping[str, Slot], max_bytes: float, stays: tuple[str, ...], drop: Callable[[Slot, str], None]
    ) -> None:
        self._slots = slots
        self._max_bytes = max_bytes
        self._stays = stays
        self._drop = drop
        self._waiters: list[_Waiter] = []
        self._may_go = asyncio.Event()
        self._is_open = asyncio.Event()

    def look(self) -> None:
        """Some model may go now."""
        self._may_go.set()

    async def wait_open(self, alias: str) -> None:
        """Until no other model waits for this one to go."""
        while (slot := self._slots.get(alias)) is not None and slot.is_closed:
            self._is_open.clear()
            await _look_out(self._is_open)

    async def make(self, slot: Slot, needed_bytes: int, patience_s: float) -> None:
        """Until the model fits beside the others; the idle one that was used longest ago goes first, those that stay last.

        Where all are in use, those that have to go get nothing new to do meanwhile: else a model that is asked for without a
        break would stay for ever. Raises ModelLoading where they are in use for too long. A model that is alone always fits.
        """
        deadline = time.monotonic() + patience_s
        waiter = _Waiter(slot, needed_bytes)
        self._waiters.append(waiter)
        try:
            while self._lacks_room(waiter):
                leaving = self._who_leaves(waiter)
                if leaving and leaving[0].may_go:
                    self._drop(leaving[0], f"unloaded to make room for {slot.entry.alias}")
                    continue
                if time.monotonic() >= deadline:
                    raise self._no_room(slot)
                self._hold(waiter, leaving)
                self._may_go.clear()
                await _look_out(self._may_go)
            slot.memory_bytes = needed_bytes
        finally:
            self._waiters.remove(waiter)
            self._hold(waiter, [])
            self._may_go.set()

    def _hold(self, waiter: _Waiter, leaving: list[Slot]) -> None:
        """Nobody gets those that have to go until the model is loaded or gives up."""
        for other in leaving:
            other.n_held += 1
        for other in waiter.held:
            other.n_held -= 1
        waiter.held = leaving
        self._is_open.set()

    def _who_leaves(self, waiter: _Waiter) -> list[Slot]:
        """The models that have to go for this one, as few as that takes, those first that may. None where it takes some that
        others wait for too, which came before."""
        ahead = self._ahead(waiter)
        spoken_for = {other for one in ahead for other in one.held}
        missing_bytes = self._missing_bytes(waiter)
        leaving = []
        for other in sorted(self._rivals(waiter.slot), key=self._worth):
            if missing_bytes > 0 and other not in spoken_for:
                missing_bytes -= other.memory_bytes
                leaving.append(other)
        return [] if missing_bytes > 0 and ahead else leaving

    def _lacks_room(self, waiter: _Waiter) -> bool:
        """Whether another one would have to go. What was named at start is loaded whatever it takes together."""
        is_too_much, rivals = self._missing_bytes(waiter) > 0, self._rivals(waiter.slot)
        if is_too_much and not rivals:
            alias = waiter.slot.entry.alias
            _log.warning("model %s needs more memory than there is: about %d MiB", alias, waiter.needed_bytes >> 20)
        return is_too_much and bool(rivals)

    def _missing_bytes(self, waiter: _Waiter) -> float:
        taken = sum(other.memory_bytes for other in self._slots.values() if other is not waiter.slot)
        gathered = sum(self._gathered_bytes(other) for other in self._ahead(waiter))
        return waiter.needed_bytes + taken + gathered - self._max_bytes

    def _gathered_bytes(self, waiter: _Waiter) -> int:
        """What it needs of the memory that is free: all but that of the models which it waits for."""
        awaited = sum(other.memory_bytes for other in waiter.held if self._slots.get(other.entry.alias) is other)
        return max(0, waiter.needed_bytes - awaited)

    def _ahead(self, waiter: _Waiter) -> list[_Waiter]:
        return self._waiters[: self._waiters.index(waiter)]

    def _rivals(self, slot: Slot) -> list[Slot]:
        """The models that would go for this one: those that stay only for one that doesn't."""
        others = [other for other in self._slots.values() if other is not slot and other.memory_bytes]
        stays = slot.entry.alias in self._stays
        return [other for other in others if not (stays and other.entry.alias in self._stays)]

    def _worth(self, slot: Slot) -> tuple[bool, bool, float]:
        return not slot.may_go, slot.entry.alias in self._stays, slot.last_used

    def _no_room(self, slot: Slot) -> ModelLoading:
        names = ", ".join(other.entry.alias for other in self._rivals(slot))
        are = "are" if "," in names else "is"
        message = f"model {slot.entry.alias} has no room beside {names}, which {are} in use"
        return ModelLoading(message, param="model", retry_after_s=RETRY_LOADING_S)


async def _look_out(event: asyncio.Event) -> None:
    """Until it happens, but not for long."""
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(event.wait(), _LOOK_AGAIN_S)

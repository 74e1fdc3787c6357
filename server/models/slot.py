"""A model that somebody asked for, from then until it goes. What is decided about it is `manager`'s affair and `room`'s."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from server.models.activity import ActiveEngine
from server.models.catalogue import ModelEntry


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model that can take requests, with what models.txt says of it. `template`: a built-in one's name, or Jinja text."""

    name: str
    engine: ActiveEngine
    template: str | None = None
    codec: str | None = None

    def in_use(self) -> AbstractContextManager[None]:
        """The model stays until this is left. Raises ModelLoading where it has gone since it was handed out."""
        return self.engine.use()


@dataclass(slots=True, eq=False)
class Slot:
    """A model that somebody asked for: the task that fetches and starts it, its engine, and when it may go.

    Times are of the monotonic clock. `memory_bytes` counts from before the engine starts. `promised_until`: a request was
    given the model, and its run hasn't begun. `is_awaited`: a request was told to come back when it is loaded. `is_used`:
    something has run on it. `n_held`: models that wait for it to go.
    """

    entry: ModelEntry
    keep_alive_s: float
    loading: asyncio.Task[LoadedModel] | None = None
    engine: ActiveEngine | None = None
    model: LoadedModel | None = None
    is_fetching: bool = False
    failure: str | None = None
    memory_bytes: int = 0
    last_used: float = field(default_factory=time.monotonic)
    promised_until: float = -math.inf
    expires_at: float = math.inf
    timer: asyncio.TimerHandle | None = None
    is_awaited: bool = False
    is_used: bool = False
    n_held: int = 0

    @property
    def is_idle(self) -> bool:
        """Whether it is loaded and nothing runs on it."""
        engine = self.engine
        return self.loading is None and engine is not None and engine.is_idle

    @property
    def may_go(self) -> bool:
        """Whether nothing runs on it, nor is about to."""
        return self.is_idle and time.monotonic() >= self.promised_until

    @property
    def is_closed(self) -> bool:
        """Whether nobody gets it, as another model waits for its memory: not before it has been of use, lest models that
        take long to load are loaded in turns for nobody."""
        return self.n_held > 0 and self.is_used

    def set_timer(self, delay_s: float, expire: Callable[[Slot], None]) -> None:
        """Have `expire` called after this time, unless something changes before."""
        self.stop_timer()
        if delay_s < math.inf:
            self.expires_at = time.monotonic() + delay_s
            self.timer = asyncio.get_running_loop().call_later(delay_s, expire, self)

    def stop_timer(self) -> None:
        """It doesn't expire for now."""
        if self.timer is not None:
            self.timer.cancel()
        self.timer, self.expires_at = None, math.inf

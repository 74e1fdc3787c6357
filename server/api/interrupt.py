"""Running a request's work until it is done, its client is gone, or the server must go."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from starlette.types import Receive

from server.errors import ShuttingDown

T = TypeVar("T")


class ClientGone(Exception):
    """The client closed its connection, or reads no more: nobody waits for an answer."""


@dataclass(slots=True)
class Drain:
    """The way down: after `begin` nothing new is taken, and `timeout_s` later everything that still runs is ended."""

    timeout_s: float
    is_draining: bool = False
    expired: asyncio.Event = field(default_factory=asyncio.Event)

    def begin(self) -> None:
        """Start draining; must be called on the event loop. Twice is the same as once."""
        if not self.is_draining:
            self.is_draining = True
            asyncio.get_running_loop().call_later(self.timeout_s, self.expired.set)


async def run_interruptibly(job: Coroutine[Any, Any, T], receive: Receive, drain: Drain) -> T:
    """The job's result. Cancels it and raises ClientGone or ShuttingDown when that comes first."""
    main = asyncio.ensure_future(job)
    gone = asyncio.ensure_future(_wait_for_disconnect(receive))
    expired = asyncio.ensure_future(drain.expired.wait())
    try:
        await asyncio.wait({main, gone, expired}, return_when=asyncio.FIRST_COMPLETED)
        if main.done():
            return main.result()
        raise ClientGone if gone.done() else ShuttingDown("the server is shutting down", retry_after_s=5)
    finally:
        for task in (main, gone, expired):
            task.cancel()
        await asyncio.gather(main, gone, expired, return_exceptions=True)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass

"""The engine in threads of this process, over any backend: what tests use to have no child process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue

from server.engine.backend import Backend
from server.engine.core import Core, Inbox
from server.engine.intake import Intake
from server.engine.link import OnDeath, OnMessage
from server.engine.messages import Ready, Shutdown, ToChild, ToParent


class LocalLink:
    """A `Link` to an engine in this process. An exception in the step loop is the engine's death."""

    def __init__(self, backend: Backend, max_waiting: int, on_message: OnMessage, on_death: OnDeath) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_message = on_message
        self._on_death = on_death
        self._closing = False
        self._inbox: Inbox = SimpleQueue()
        self._intake = Intake(backend, self._inbox, self._emit)
        self._core = Core(backend, max_waiting)
        self._thread = threading.Thread(target=self._run, name="engine-steps", daemon=True)
        self._thread.start()
        self._emit(Ready(backend.info))

    def send(self, message: ToChild) -> None:
        self._intake.handle(message)

    def close(self) -> None:
        self._closing = True
        self._intake.close()
        self._inbox.put(Shutdown())
        self._thread.join()

    def _run(self) -> None:
        try:
            self._core.run(self._inbox, self._emit)
        except Exception as error:
            self._call(self._tell_death, f"{type(error).__name__}: {error}")

    def _emit(self, message: ToParent) -> None:
        self._call(self._deliver, message)

    def _call(self, function: Callable[..., None], argument: object) -> None:
        if not self._closing:
            self._loop.call_soon_threadsafe(function, argument)

    def _deliver(self, message: ToParent) -> None:
        if not self._closing:
            self._on_message(message)

    def _tell_death(self, last_words: str) -> None:
        if not self._closing:
            self._on_death(last_words)

"""Notices a call that never returns: some grammars make llama.cpp's sampler walk for ever, whatever was checked before.

Decodes aren't watched: on a slow machine they may take long, and they do end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count


class Watchdog:
    """Calls `on_hang` once with the name of a watched call that took longer than `timeout_s`, from a thread of its own.

    The time is counted in ticks of that thread, so that a machine that sleeps or starves this process doesn't count.
    """

    def __init__(self, timeout_s: float, on_hang: Callable[[str], None], tick_s: float = 1.0) -> None:
        self._n_most = max(1, round(timeout_s / tick_s))
        self._tick_s = tick_s
        self._on_hang = on_hang
        self._calls: dict[int, tuple[str, int]] = {}  # by thread: what it does, and the number of the call
        self._numbers = count(1)
        self._seen: dict[int, tuple[int, int]] = {}  # by thread: a call's number, and for how many ticks it has been seen

    def start(self) -> None:
        """Begin to watch."""
        threading.Thread(target=self._run, name="watchdog", daemon=True).start()

    @contextmanager
    def watch(self, what: str) -> Iterator[None]:
        """What is done here, in this thread, must end in time. Not to be nested."""
        thread = threading.get_ident()
        self._calls[thread] = what, next(self._numbers)
        try:
            yield
        finally:
            self._calls.pop(thread, None)

    def tick(self) -> str | None:
        """Look once: the name of a call that takes too long."""
        calls = self._calls.copy()
        seen = {}
        for thread, (_, number) in calls.items():
            before, n_ticks = self._seen.get(thread, (0, 0))
            seen[thread] = number, n_ticks + 1 if before == number else 1
        self._seen = seen
        return next((calls[thread][0] for thread, (_, n_ticks) in seen.items() if n_ticks > self._n_most), None)

    def _run(self) -> None:
        while (what := self.tick()) is None:
            time.sleep(self._tick_s)
        self._on_hang(what)


def no_watchdog() -> Watchdog:
    """One that never barks: it isn't started."""
    return Watchdog(1, lambda _: None)

"""How a fetch tells how far it is. The drawing is here too, so that nobody else imports `rich`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from server.model_status import FetchProgress

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID


class Progress(Protocol):
    """Told by a source, one file at a time: `begin`, then `advance` again and again."""

    def begin(self, name: str, done_bytes: int, total_bytes: int | None) -> None:
        """A file starts, `done_bytes` of it already here."""

    def advance(self, n_bytes: int) -> None:
        """So many more bytes are here."""


class Silent:
    """Says nothing: for tests, pipes and log files."""

    def begin(self, name: str, done_bytes: int, total_bytes: int | None) -> None:
        """See Progress."""

    def advance(self, n_bytes: int) -> None:
        """See Progress."""


class Meter:
    """Remembers how far the fetch is, for another thread to look at."""

    def __init__(self) -> None:
        self.state: FetchProgress | None = None

    def begin(self, name: str, done_bytes: int, total_bytes: int | None) -> None:
        """See Progress."""
        self.state = FetchProgress(name, done_bytes, total_bytes)

    def advance(self, n_bytes: int) -> None:
        """See Progress."""
        if self.state is not None:
            self.state = replace(self.state, done_bytes=self.state.done_bytes + n_bytes)


@contextmanager
def shown_progress() -> Iterator[Progress]:
    """A bar on stderr where that is a terminal, else silence."""
    if not sys.stderr.isatty():
        yield Silent()
        return
    bar = _Bar()
    try:
        yield bar
    finally:
        bar.close()


class _Bar:
    """A bar for each file, drawn from the first `begin` on (a source that draws its own never calls it)."""

    def __init__(self) -> None:
        self._bars: Bars | None = None
        self._task: TaskID | None = None

    def begin(self, name: str, done_bytes: int, total_bytes: int | None) -> None:
        if self._bars is None:
            self._bars = _make_bars()
            self._bars.start()
        if self._task is not None:
            self._bars.stop_task(self._task)
        self._task = self._bars.add_task(name, total=total_bytes, completed=done_bytes)

    def advance(self, n_bytes: int) -> None:
        if self._bars is not None and self._task is not None:
            self._bars.advance(self._task, n_bytes)

    def close(self) -> None:
        if self._bars is not None:
            self._bars.stop()


def _make_bars() -> Bars:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True))

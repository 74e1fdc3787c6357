"""The model process as the parent sees it: pipes, threads that serve them, its last words. No model code is imported here."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import threading
from collections import deque
from contextlib import suppress
from queue import SimpleQueue
from typing import BinaryIO, cast

from server.engine.channel import ChannelClosed, Receiver, Sender
from server.engine.link import OnDeath, OnMessage
from server.engine.messages import Load, ModelSpec, ToChild, ToParent

logger = logging.getLogger(__name__)

_COMMAND = (sys.executable, "-m", "server.engine.worker")
_N_LAST_LINES = 3
_STDERR_GRACE_S = 0.5  # how long the last lines may take to arrive after the process has ended


class ProcessLink:
    """A `Link` to a child process. Three threads serve its pipes, so that it works on every platform's event loop."""

    def __init__(self, spec: ModelSpec, on_message: OnMessage, on_death: OnDeath) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_message = on_message
        self._on_death = on_death
        self._closing = False
        self._outbox: SimpleQueue[ToChild | None] = SimpleQueue()
        self._last_lines: deque[str] = deque(maxlen=_N_LAST_LINES)
        self._process = subprocess.Popen(
            _COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_environment(),
        )
        self._threads = [
            threading.Thread(target=target, name=f"engine-{name}", daemon=True)
            for name, target in (("stderr", self._listen), ("send", self._write), ("receive", self._read))
        ]
        for thread in self._threads:
            thread.start()
        self.send(Load(spec))

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    def send(self, message: ToChild) -> None:
        self._outbox.put(message)

    def close(self) -> None:
        self._closing = True
        self._process.kill()
        self._outbox.put(None)

    # -- the threads

    def _write(self) -> None:
        pipe = cast("BinaryIO", self._process.stdin)
        sender: Sender[ToChild] = Sender(pipe)
        with suppress(ChannelClosed):
            while (message := self._outbox.get()) is not None:
                sender.send(message)
        with suppress(OSError):  # what is still buffered for a dead child
            pipe.close()

    def _listen(self) -> None:
        """Keep what the child says on stderr."""
        with cast("BinaryIO", self._process.stderr) as pipe:
            for line in pipe:
                if text := line.decode("utf-8", "replace").rstrip():
                    self._last_lines.append(text)
                    logger.debug("model process %d: %s", self.pid, text)

    def _read(self) -> None:
        with cast("BinaryIO", self._process.stdout) as pipe, suppress(ChannelClosed):
            receiver: Receiver[ToParent] = Receiver(pipe)
            while True:
                self._call(self._deliver, receiver.receive())
        self._bury()

    def _bury(self) -> None:
        """The child has closed its pipe: see it off and tell why."""
        self._process.kill()
        code = self._process.wait()
        self._outbox.put(None)
        self._threads[0].join(_STDERR_GRACE_S)
        self._call(self._tell_death, f"the model process ended with {_describe(code)}{self._last_words()}")

    def _last_words(self) -> str:
        return f"; its last words: {' / '.join(self._last_lines)}" if self._last_lines else ""

    def _call(self, function: object, argument: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, argument)  # type: ignore[arg-type]
        except RuntimeError:  # the loop is closed, nobody listens any more
            logger.debug("a message came after the event loop had closed")

    # -- on the event loop

    def _deliver(self, message: ToParent) -> None:
        if not self._closing:
            self._on_message(message)

    def _tell_death(self, last_words: str) -> None:
        if not self._closing:
            self._closing = True
            self._on_death(last_words)


def _environment() -> dict[str, str]:
    """The child imports what this process imports; when ggml aborts, it need not start a debugger first."""
    paths = [path for path in sys.path if path]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths), "GGML_NO_BACKTRACE": "1"}


def _describe(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"

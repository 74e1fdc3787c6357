"""The model process: `python -m server.engine.worker`, messages on stdin and stdout, words for people on stderr.

Three threads matter: this one runs the step loop, the reader takes messages (and ends the process at once when the parent
is gone, in the middle of a decode too), and intake's lanes make requests ready.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from queue import SimpleQueue
from typing import BinaryIO, NoReturn

from server.engine.channel import ChannelClosed, Receiver, Sender
from server.engine.gguf_file import BadModelFile, check_file
from server.engine.messages import Load, LoadFailed, Ready, ToChild, ToParent

_PARENT_GONE = 0
_LOAD_FAILED = 3
_HUNG = 4
_NICENESS = 3  # the server, which needs a moment after each token, gets that sooner than at the end of a slice of decoding


def take_over_pipes() -> tuple[BinaryIO, BinaryIO]:
    """The pipes to the parent as files of our own; whatever else prints on stdout goes to stderr from here on."""
    incoming, outgoing = os.dup(0), os.dup(1)
    if sys.platform == "win32":
        import msvcrt

        for descriptor in (incoming, outgoing):
            msvcrt.setmode(descriptor, os.O_BINARY)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    return os.fdopen(incoming, "rb"), os.fdopen(outgoing, "wb")


class Worker:
    """Ties the pipes to the engine's parts."""

    def __init__(self, receiver: Receiver[ToChild], sender: Sender[ToParent]) -> None:
        self._receiver = receiver
        self._sender = sender
        self._intake_ready = threading.Event()

    def run(self) -> None:
        """Load, then step until the parent says Shutdown or is gone."""
        first = self._receiver.receive()
        assert isinstance(first, Load)
        reader = threading.Thread(target=self._read, name="reader", daemon=True)
        reader.start()
        self._serve(first)

    def _serve(self, load: Load) -> None:
        try:
            check_file(load.spec.path)
            if load.spec.draft_path is not None:
                check_file(load.spec.draft_path)
        except BadModelFile as error:
            self._refuse(str(error))
        # imported here, so that the reader watches the parent while llama.cpp's library loads
        from server.engine.core import Core, Inbox
        from server.engine.intake import Intake
        from server.engine.llama import LlamaBackend, LoadError
        from server.engine.watchdog import Watchdog

        try:
            backend = LlamaBackend(load.spec)
        except LoadError as error:
            self._refuse(str(error))
        inbox: Inbox = SimpleQueue()
        watchdog = Watchdog(load.spec.hang_timeout_s, leave_hung)
        self._intake = Intake(backend, inbox, self._send, load.spec.fast_forward, watchdog)
        core = Core(backend, load.spec.max_waiting, watchdog, speculates=load.spec.speculation)
        watchdog.start()
        self._send(Ready(backend.info))
        self._intake_ready.set()
        core.run(inbox, self._send)

    def _refuse(self, message: str) -> NoReturn:
        self._send(LoadFailed(message))
        leave(_LOAD_FAILED)

    def _read(self) -> None:
        """The reader thread."""
        try:
            while True:
                message = self._receiver.receive()
                self._intake_ready.wait()
                self._intake.handle(message)
        except ChannelClosed:
            leave(_PARENT_GONE)

    def _send(self, message: ToParent) -> None:
        try:
            self._sender.send(message)
        except ChannelClosed:
            leave(_PARENT_GONE)


def leave_hung(what: str) -> NoReturn:
    """End the process because of a call that doesn't return; the parent tells the reason and starts another."""
    sys.stderr.write(f"{what} takes too long, the process is given up\n")
    leave(_HUNG)


def leave(code: int) -> NoReturn:
    """End the process without waiting for any thread or native code."""
    sys.stderr.flush()
    os._exit(code)


def main() -> None:
    """Entry of the model process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's affair
    if hasattr(os, "nice"):
        os.nice(_NICENESS)
    incoming, outgoing = take_over_pipes()
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(message)s")
    Worker(Receiver(incoming), Sender(outgoing)).run()
    leave(_PARENT_GONE)


if __name__ == "__main__":
    main()

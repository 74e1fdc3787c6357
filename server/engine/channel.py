"""Messages over a pair of pipes: each a length in 8 bytes, then that many bytes of pickle.

Both ends are ours and of one version, so pickle is safe here; nothing else may write into the pipes.
"""

from __future__ import annotations

import pickle
import struct
import threading
from typing import BinaryIO, Generic, TypeVar

_LENGTH = struct.Struct("<Q")

Message = TypeVar("Message")


class ChannelClosed(Exception):
    """The other end is gone."""


class Sender(Generic[Message]):
    """Writes messages, from any thread."""

    def __init__(self, pipe: BinaryIO) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()

    def send(self, message: Message) -> None:
        """Write one message. Raises ChannelClosed."""
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        try:
            with self._lock:
                self._pipe.write(_LENGTH.pack(len(data)) + data)
                self._pipe.flush()
        except (OSError, ValueError) as error:  # ValueError: the file object is closed
            raise ChannelClosed from error


class Receiver(Generic[Message]):
    """Reads messages, from one thread."""

    def __init__(self, pipe: BinaryIO) -> None:
        self._pipe = pipe

    def receive(self) -> Message:
        """Wait for the next message. Raises ChannelClosed."""
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size))
        message: Message = pickle.loads(self._read(length))
        return message

    def _read(self, size: int) -> bytes:
        try:
            data = self._pipe.read(size)
        except (OSError, ValueError) as error:
            raise ChannelClosed from error
        if len(data) < size:
            raise ChannelClosed
        return data

"""Streams of JSON lines (NDJSON), for every dialect that has them. What is inside is the dialect's."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeAlias

from server.api.sse import json_line
from server.errors import ServerError

Line: TypeAlias = dict[str, Any]

MEDIA_TYPE = "application/x-ndjson"


def frame(line: Line) -> bytes:
    """One line."""
    return json_line(line) + b"\n"


@dataclass(frozen=True, slots=True)
class LineEncoder:
    """Lines as they are, for streams that are no answers of a model. `error_body`: the dialect's shape of an error."""

    error_body: Callable[[ServerError], Line]
    media_type: str = MEDIA_TYPE
    heartbeat: bytes = b""

    def encode(self, event: Line) -> bytes:
        """The line."""
        return frame(event)

    def encode_error(self, error: ServerError) -> bytes:
        """The stream's last line."""
        return frame(self.error_body(error))


async def last_line(lines: AsyncGenerator[Line, None]) -> Line:
    """What is left of a stream for those who want no stream."""
    last: Line = {}
    async with aclosing(lines):
        async for line in lines:
            last = line
    return last

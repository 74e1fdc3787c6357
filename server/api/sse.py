"""Server-sent events, and JSON on one line, for every dialect that streams them. What is inside is the dialect's."""

from __future__ import annotations

from typing import Any

from server.json_text import dump_json

COMMENT = b": ping\n\n"  # what no client reads
_LINE_ENDS = {code: f"\\u{code:04x}" for code in (0x85, 0x2028, 0x2029)}


def frame(body: dict[str, Any], event: str | None = None) -> bytes:
    """One event with JSON data, under the name `event` if given."""
    name = b"" if event is None else f"event: {event}\n".encode("ascii")
    return name + b"data: " + json_line(body) + b"\n\n"


def json_line(body: Any) -> bytes:
    """JSON on one line. Line ends of Unicode are escaped: clients that split text into lines break at them too."""
    return dump_json(body).translate(_LINE_ENDS).encode("utf-8")

"""Reading server-sent events as a client does."""

from __future__ import annotations

import json
from typing import Any


def events(text: str) -> list[Any]:
    """The data of every event, parsed; "[DONE]" stays text."""
    assert text.endswith("\n\n")
    found = []
    for block in text.removesuffix("\n\n").split("\n\n"):
        if block.startswith(":"):  # a sign of life on a slow machine
            continue
        assert block.startswith("data: "), block
        data = block.removeprefix("data: ")
        found.append(data if data == "[DONE]" else json.loads(data))
    return found

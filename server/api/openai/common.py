"""What the chat and the completions shapes have in common: ids, the error event."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field
from typing import Any

from server.api.openai_shape import encode_usage as encode_usage
from server.api.openai_shape import error_body
from server.api.sse import frame as frame
from server.errors import ServerError

DONE = b"data: [DONE]\n\n"
SYSTEM_FINGERPRINT = "gramserve"


@dataclass(frozen=True, slots=True)
class Envelope:
    """What every chunk of one answer repeats. `object` is the shape's name, `created` in seconds since 1970."""

    prefix: str
    object: str
    id: str = ""
    created: int = field(default_factory=lambda: int(time.time()))

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", f"{self.prefix}-{secrets.token_hex(12)}")

    def wrap(self, model: str, choices: list[dict[str, Any]], usage: dict[str, Any] | None = None) -> dict[str, Any]:
        """A whole answer or a chunk; no `usage` key without usage."""
        body: dict[str, Any] = {
            "id": self.id,
            "object": self.object,
            "created": self.created,
            "model": model,
            "system_fingerprint": SYSTEM_FINGERPRINT,
            "choices": choices,
        }
        return body if usage is None else {**body, "usage": usage}


def error_frame(error: ServerError) -> bytes:
    """The event that ends a stream with an error; no [DONE] follows."""
    return frame(error_body(error))

"""Shapes that OpenAI's endpoints share: errors, usage, ids, the envelope of chunks, the text of content parts, arguments.

No endpoint's own shape here: those are in `api/openai` and `api/responses`, which import nothing of each other.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field
from typing import Any

from starlette.responses import Response

from converters.constraint import JsonValue
from server.api.respond import error_response
from server.api.sse import frame
from server.chat.types import Usage
from server.errors import ServerError, UnsupportedParameter, wrong_type
from server.json_text import InvalidJson, dump_json, parse_json_text
from server.settings import RequestLimits
from server.values import read_object, read_text

_ERROR_TYPES = {429: "rate_limit_error", 503: "unavailable_error"}
DONE = b"data: [DONE]\n\n"
SYSTEM_FINGERPRINT = "gramserve"
_TEXT_PARTS = ("text", "input_text", "output_text", "reasoning_text", "summary_text")


def error_body(error: ServerError) -> dict[str, Any]:
    """{"error": {"message", "type", "param", "code"}}: the body of an error, whole or as a stream's last event."""
    kind = _ERROR_TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "server_error")
    return {"error": {"message": error.message, "type": kind, "param": error.param, "code": error.code}}


def encode_error(error: ServerError) -> Response:
    """The response of an error, with Retry-After where it helps to wait."""
    return error_response(error, error_body(error))


def encode_usage(usage: Usage, prompt: str = "prompt", completion: str = "completion") -> dict[str, Any]:
    """Tokens of a whole answer; what was read and what was written goes by these names.

    Those of a prediction are told where there was one. They don't count twice: refused ones are no part of the completion.
    """
    predicted = {
        "accepted_prediction_tokens": usage.n_accepted_tokens,
        "rejected_prediction_tokens": usage.n_refused_tokens,
    }
    return {
        f"{prompt}_tokens": usage.n_prompt_tokens,
        f"{completion}_tokens": usage.n_completion_tokens,
        "total_tokens": usage.n_prompt_tokens + usage.n_completion_tokens,
        f"{prompt}_tokens_details": {"cached_tokens": usage.n_cached_tokens},
        f"{completion}_tokens_details": {
            "reasoning_tokens": usage.n_reasoning_tokens,
            "forced_tokens": usage.n_forced_tokens,
            **(predicted if usage.is_predicted else {}),
        },
    }


def draw_id(prefix: str) -> str:
    """An id like resp_5f2c…, unique as far as anybody can tell."""
    return f"{prefix}_{secrets.token_hex(24)}"


def content_text(value: JsonValue, path: str) -> str:
    """Text, or the joined text of its parts. Raises UnsupportedParameter for a part that is no text."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise wrong_type(path, "a string or a list of parts", value)
    return "\n".join(_part_text(part, f"{path}[{i}]") for i, part in enumerate(value))


def _part_text(value: JsonValue, path: str) -> str:
    part = read_object(value, path)
    kind = part.get("type")
    name = "refusal" if kind == "refusal" else "text"
    if kind != "refusal" and kind not in _TEXT_PARTS:
        raise UnsupportedParameter(f"{path}.type {dump_json(kind)} is not supported: only text parts are", param=f"{path}.type")
    return read_text(part, name, path)


def parse_arguments(text: str, limits: RequestLimits, path: str) -> JsonValue:
    """A call's arguments as a value, which templates want; a model's broken text stays text."""
    try:
        return parse_json_text(text, max_depth=limits.json_depth, max_values=limits.json_values, param=path)
    except InvalidJson:
        return text


@dataclass(frozen=True, slots=True)
class Envelope:
    """What every chunk of one answer repeats. `object` is the shape's name, `created` in seconds since 1970."""

    prefix: str
    object: str
    id: str = field(init=False)
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

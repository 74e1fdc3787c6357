"""Anthropic's error shape: {"type": "error", "error": {"type", "message"}, "request_id"}.

The message names the field at fault; `details` has it too, with our code for what is wrong.
"""

from __future__ import annotations

import secrets
from typing import Any

from starlette.responses import Response

from server.api.respond import json_response
from server.errors import ContextOverflow, ServerError

REQUEST_ID = "request-id"  # the header of every answer

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


def draw_request_id() -> str:
    """A request's id, unique as far as anybody can tell."""
    return f"req_{secrets.token_hex(12)}"


def error_body(error: ServerError, request_id: str) -> dict[str, Any]:
    """The body of an error, whole or as a stream's last event."""
    kind = _TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
    details = {"error_code": error.code, "param": error.param}
    return {"type": "error", "error": {"type": kind, "message": _message(error), "details": details}, "request_id": request_id}


def encode_error(error: ServerError) -> Response:
    """The response of an error, with Retry-After where it helps to wait."""
    request_id = draw_request_id()
    wait = {} if error.retry_after_s is None else {"Retry-After": str(error.retry_after_s)}
    return json_response(error_body(error, request_id), error.status, {REQUEST_ID: request_id, **wait})


def _message(error: ServerError) -> str:
    """Clients compact a conversation when they read, in these words, that its prompt is too long, and by how much."""
    if isinstance(error, ContextOverflow) and error.n_tokens is not None:
        return f"prompt is too long: {error.n_tokens} tokens > {error.n_ctx} maximum"
    is_named = error.param is None or error.param in error.message
    return error.message if is_named else f"{error.param}: {error.message}"

"""Anthropic's error shape: {"type": "error", "error": {"type", "message"}, "request_id"}.

The message names the field at fault; `details` has it too, with our code for what is wrong.
"""

from __future__ import annotations

import secrets
from typing import Any

from starlette.responses import Response

from server.api.respond import error_response, named_message
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
    """The response of an error."""
    request_id = draw_request_id()
    response = error_response(error, error_body(error, request_id))
    response.headers[REQUEST_ID] = request_id
    return response


def _message(error: ServerError) -> str:
    """Clients compact a conversation when they read, in these words, that its prompt is too long, and by how much."""
    if isinstance(error, ContextOverflow) and error.n_tokens is not None:
        return f"prompt is too long: {error.n_tokens} tokens > {error.n_ctx} maximum"
    return named_message(error)

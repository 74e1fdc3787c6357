"""OpenAI's error shape: {"error": {"message", "type", "param", "code"}}."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from server.api.respond import json_response
from server.errors import ServerError

_TYPES = {429: "rate_limit_error", 503: "unavailable_error"}


def error_body(error: ServerError) -> dict[str, Any]:
    """The body of an error, whole or as a stream's last event."""
    kind = _TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "server_error")
    return {"error": {"message": error.message, "type": kind, "param": error.param, "code": error.code}}


def encode_error(error: ServerError) -> Response:
    """The response of an error, with Retry-After where it helps to wait."""
    headers = {} if error.retry_after_s is None else {"Retry-After": str(error.retry_after_s)}
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return json_response(error_body(error), error.status, headers)

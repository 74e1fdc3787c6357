"""Ollama's error shape: {"error": "text"}, whole or as a stream's last line."""

from __future__ import annotations

from starlette.responses import Response

from server.api.respond import error_response
from server.errors import ServerError


def error_body(error: ServerError) -> dict[str, str]:
    """The body of an error. There is no place for the field at fault but the text."""
    is_named = error.param is None or error.param in error.message
    return {"error": error.message if is_named else f"{error.param}: {error.message}"}


def encode_error(error: ServerError) -> Response:
    """The response of an error."""
    return error_response(error, error_body(error))

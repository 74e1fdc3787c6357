"""The errors of the server. They carry data; each dialect's `encode_error` makes its own shape of it.

ServerError                       status, code, param
 ├ BadRequest 400                 invalid input
 │  ├ UnsupportedParameter 400    a feature that can't be honoured
 │  ├ ConstraintRejected 400      a constraint that can't be enforced
 │  └ ContextOverflow 400         prompt and max_tokens don't fit
 ├ Unauthorized 401 · ForeignOrigin 403 · ModelNotFound, ResourceNotFound, RouteNotFound 404
 ├ MethodNotAllowed 405 · BodyTooLarge 413
 ├ QueueFull 429 · ModelLoading 503 · ShuttingDown 503      with retry_after_s
 └ EngineError
    ├ InternalError 500           a bug of ours
    ├ EngineStartFailed 500       the model can't be loaded
    ├ GenerationFailed 500        this request failed, the model lives
    └ EngineDied 502              the model's process died
"""

from __future__ import annotations

from typing import Any, ClassVar


class ServerError(Exception):
    """An answer that is an error. `param` names the field at fault, `code` is the dialects' machine-readable word."""

    status: ClassVar[int] = 500
    default_code: ClassVar[str | None] = None

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code if code is not None else self.default_code
        self.retry_after_s = retry_after_s


class BadRequest(ServerError):
    """The request breaks a rule of its own dialect."""

    status = 400


class UnsupportedParameter(BadRequest):
    """The request asks for what this server can't do."""

    default_code = "unsupported_parameter"


class ConstraintRejected(BadRequest):
    """A constraint is invalid, inexpressible, empty or past a limit."""

    default_code = "invalid_constraint"


class ContextOverflow(BadRequest):
    """Prompt and max_tokens need more than a slot's context of `n_ctx` tokens; `n_tokens` of them are the prompt's."""

    default_code = "context_length_exceeded"

    def __init__(self, message: str, *, n_tokens: int | None = None, n_ctx: int | None = None, **fields: Any) -> None:
        super().__init__(message, **fields)
        self.n_tokens = n_tokens
        self.n_ctx = n_ctx


class Unauthorized(ServerError):
    """No API key, or a wrong one."""

    status = 401
    default_code = "invalid_api_key"


class ForeignOrigin(ServerError):
    """A loopback server asked from a foreign Host or Origin."""

    status = 403
    default_code = "foreign_origin"


class ModelNotFound(ServerError):
    """No model of that name."""

    status = 404
    default_code = "model_not_found"


class ResourceNotFound(ServerError):
    """Nothing of that id is kept."""

    status = 404
    default_code = "not_found"


class RouteNotFound(ServerError):
    """No such path."""

    status = 404
    default_code = "not_found"


class MethodNotAllowed(ServerError):
    """The path exists, the method doesn't."""

    status = 405
    default_code = "method_not_allowed"


class BodyTooLarge(ServerError):
    """The request body passes the limit."""

    status = 413
    default_code = "body_too_large"


class QueueFull(ServerError):
    """Too many requests wait already."""

    status = 429
    default_code = "queue_full"


class ModelLoading(ServerError):
    """The model is being loaded or restarted."""

    status = 503
    default_code = "model_loading"


class ShuttingDown(ServerError):
    """The server is going down: it takes nothing new, and has ended what ran longer than the drain."""

    status = 503
    default_code = "shutting_down"


class EngineError(ServerError):
    """Something went wrong on our side of the request."""


class EngineStartFailed(EngineError):
    """The model can't be loaded; the message has the child's last words."""

    default_code = "engine_start_failed"


class GenerationFailed(EngineError):
    """This request failed; the model goes on."""

    default_code = "generation_failed"


class EngineDied(EngineError):
    """The model's process died under this request; the next one starts a fresh process."""

    status = 502
    default_code = "engine_died"


class InternalError(EngineError):
    """A bug of ours: the log has the traceback, the answer only says so."""

    default_code = "internal_error"


def wrong_type(path: str, expected: str, value: object) -> BadRequest:
    """The error for a JSON value of another type than `expected` (say "a string") at `path`."""
    return BadRequest(f"{path} must be {expected}, not {_json_type(value)}", param=path, code="invalid_type")


def _json_type(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, str):
        return "a string"
    if isinstance(value, list | tuple):
        return "a list"
    return "an object" if isinstance(value, dict) else "a number"

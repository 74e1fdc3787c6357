"""Token ids of a request against the model's vocabulary. Knows no dialect."""

from __future__ import annotations

from collections.abc import Iterable

from server.engine.messages import ModelInfo
from server.errors import BadRequest


def check_tokens(tokens: Iterable[int], info: ModelInfo, param: str) -> None:
    """Raise BadRequest naming `param`, the place in the request, for tokens that the model doesn't have."""
    worst = max(tokens, default=0)
    if worst >= info.n_vocab:
        message = f"{param}: there is no token {worst}, the model has {info.n_vocab}"
        raise BadRequest(message, param=param, code="invalid_value")

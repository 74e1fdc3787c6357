"""Log-probabilities as OpenAI writes them, and others after it: of the model's raw distribution, before sampling changes it."""

from __future__ import annotations

from typing import Any

from server.chat.types import TokenLogprob, TokenLogprobs


def encode_logprobs(entry: TokenLogprobs) -> dict[str, Any]:
    """A token and its alternatives."""
    return {**_logprob(entry.chosen), "top_logprobs": [_logprob(other) for other in entry.top]}


def _logprob(entry: TokenLogprob) -> dict[str, Any]:
    text = entry.bytes.decode("utf-8", "replace")
    return {"token": text, "logprob": entry.logprob, "bytes": list(entry.bytes)}

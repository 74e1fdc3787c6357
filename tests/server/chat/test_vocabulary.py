"""Token ids that the model doesn't have are refused wherever a request may have some, and the refusal names the place."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.fakes import Served

FAR = 1_000_000


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        ("/v1/completions", {"prompt": [1, FAR]}, "prompt"),
        ("/v1/completions", {"prompt": "a", "logit_bias": {str(FAR): 1}}, "logit_bias"),
        ("/v1/embeddings", {"input": [[1], [FAR]]}, "input[1]"),
        ("/api/generate", {"prompt": "a", "context": [FAR], "stream": False}, "context"),
    ],
)
async def test_a_token_that_is_not_there(served: Served, path: str, fields: dict[str, Any], param: str) -> None:
    reply = await served.client.post(path, json=fields)
    error = reply.json()["error"]
    message = error if isinstance(error, str) else error["message"]
    assert reply.status_code == 400
    assert message.startswith(f"{param}: there is no token {FAR}")
    if isinstance(error, dict):
        assert (error["param"], error["code"]) == (param, "invalid_value")
    assert not served.engine.requests

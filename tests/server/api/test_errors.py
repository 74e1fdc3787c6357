"""Every error of the server through every dialect's encoder, and through the app."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from server.api.openai.errors import encode_error, error_body
from server.engine.messages import EngineEvent, EngineRequest
from server.errors import ServerError
from tests.server.api.sse import events
from tests.server.fakes import FakeEngine, serve


def classes(base: type[ServerError] = ServerError) -> Iterator[type[ServerError]]:
    yield base
    for sub in base.__subclasses__():
        yield from classes(sub)


ALL = sorted(set(classes()), key=lambda kind: kind.__name__)
TYPES = {429: "rate_limit_error", 503: "unavailable_error", 500: "server_error", 502: "server_error"}


@pytest.mark.parametrize("kind", ALL)
def test_every_error_has_the_shape(kind: type[ServerError]) -> None:
    error = kind("what went wrong", param="field", retry_after_s=3)
    assert error_body(error) == {
        "error": {
            "message": "what went wrong",
            "type": TYPES.get(kind.status, "invalid_request_error"),
            "param": "field",
            "code": kind.default_code,
        }
    }
    response = encode_error(error)
    assert response.status_code == kind.status
    assert response.headers["retry-after"] == "3"


@pytest.mark.parametrize("kind", ALL)
async def test_every_error_comes_through_the_app(kind: type[ServerError]) -> None:
    def fail(request: EngineRequest, event: EngineEvent) -> None:
        raise kind("what went wrong")

    async with serve(FakeEngine(before=fail)) as served:
        reply = await served.chat()
        assert reply.status_code == kind.status
        assert reply.json()["error"]["message"] == "what went wrong"


async def test_a_stream_ends_with_the_same_body() -> None:
    async with serve(FakeEngine(pieces=["x"], before=_fail_late)) as served:
        assert events((await served.chat(stream=True)).text)[-1] == error_body(ServerError("late"))


def _fail_late(request: EngineRequest, event: EngineEvent) -> None:
    if type(event).__name__ == "Finished":
        raise ServerError("late")


async def test_routes_and_methods() -> None:
    async with serve() as served:
        missing = await served.client.get("/v1/nothing")
        assert (missing.status_code, missing.json()["error"]["code"]) == (404, "not_found")
        wrong = await served.client.get("/v1/chat/completions")
        assert (wrong.status_code, wrong.json()["error"]["code"]) == (405, "method_not_allowed")

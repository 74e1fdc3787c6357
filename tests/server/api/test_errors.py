"""Every error of the server through every dialect's encoder, and through the app."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from starlette.responses import Response

from server.api.anthropic.errors import encode_error as encode_anthropic
from server.api.ollama.answer import encode_error as encode_ollama
from server.api.openai_shape import encode_error as encode_openai
from server.api.openai_shape import error_body
from server.engine.messages import EngineEvent, EngineRequest
from server.errors import ServerError
from tests.server.api.sse import events
from tests.server.fakes import FakeEngine, serve

OPENAI_TYPES = {429: "rate_limit_error", 503: "unavailable_error", 500: "server_error", 502: "server_error"}
ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    502: "api_error",
    503: "overloaded_error",
}


def as_openai(error: ServerError) -> dict[str, Any]:
    kind = OPENAI_TYPES.get(error.status, "invalid_request_error")
    return {"error": {"message": "what went wrong", "type": kind, "param": error.param, "code": error.default_code}}


def as_anthropic(error: ServerError) -> dict[str, Any]:
    """Its request_id is drawn anew in every one."""
    message = "what went wrong" if error.param is None else f"{error.param}: what went wrong"
    details = {"error_code": error.default_code, "param": error.param}
    kind = ANTHROPIC_TYPES.get(error.status, "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": message, "details": details}}


def as_ollama(error: ServerError) -> dict[str, Any]:
    """Only a text."""
    return {"error": "what went wrong" if error.param is None else f"{error.param}: what went wrong"}


@dataclass(frozen=True)
class Dialect:
    """A dialect's encoder, the body that it must make, and a request of it."""

    encode_error: Callable[[ServerError], Response]
    expected: Callable[[ServerError], dict[str, Any]]
    path: str
    body: dict[str, Any]


MESSAGES = [{"role": "user", "content": "hi"}]
DIALECTS = {
    "openai": Dialect(encode_openai, as_openai, "/v1/chat/completions", {"messages": MESSAGES}),
    "responses": Dialect(encode_openai, as_openai, "/v1/responses", {"input": "hi"}),
    "ollama": Dialect(encode_ollama, as_ollama, "/api/chat", {"messages": MESSAGES, "stream": False}),
    "anthropic": Dialect(encode_anthropic, as_anthropic, "/v1/messages", {"messages": MESSAGES, "max_tokens": 9}),
}


def classes(base: type[ServerError] = ServerError) -> Iterator[type[ServerError]]:
    yield base
    for sub in base.__subclasses__():
        yield from classes(sub)


ALL = sorted(set(classes()), key=lambda kind: kind.__name__)


def without_id(body: Any) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name != "request_id"}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("kind", ALL)
def test_every_error_has_the_shape(kind: type[ServerError], dialect: str) -> None:
    error = kind("what went wrong", param="field", retry_after_s=3)
    response = DIALECTS[dialect].encode_error(error)
    assert without_id(json.loads(bytes(response.body))) == DIALECTS[dialect].expected(error)
    assert response.status_code == kind.status
    assert response.headers["retry-after"] == "3"


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("kind", ALL)
async def test_every_error_comes_through_the_app(kind: type[ServerError], dialect: str) -> None:
    def fail(request: EngineRequest, event: EngineEvent) -> None:
        raise kind("what went wrong")

    async with serve(FakeEngine(before=fail)) as served:
        reply = await served.client.post(DIALECTS[dialect].path, json=DIALECTS[dialect].body)
        assert reply.status_code == kind.status
        assert "what went wrong" in json.dumps(reply.json()["error"])
        assert set(without_id(reply.json())) == set(DIALECTS[dialect].expected(kind("what went wrong")))


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

"""Clients that go away or stop reading, and the way down: over raw ASGI, since httpx has no half-dead clients."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from server.app import begin_drain
from server.engine.messages import EngineEvent, EngineRequest, TextChunk
from server.settings import Settings
from tests.server.fakes import FakeEngine, Served, serve

FAST = replace(Settings(), stall_timeout_s=0.05, drain_timeout_s=0.05)


async def endless(request: EngineRequest, event: EngineEvent) -> None:
    """The second piece never comes."""
    if isinstance(event, TextChunk) and event.text == "lo":
        await asyncio.Event().wait()


async def until(condition: Callable[[], object]) -> None:
    """Wait until it holds, a second at most."""
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it never came")


@dataclass
class Connection:
    """A client's end: `gone` closes it, `stalled` keeps every send waiting once headers and two frames are through."""

    gone: asyncio.Event = field(default_factory=asyncio.Event)
    is_stalled: bool = False
    sent: list[MutableMapping[str, Any]] = field(default_factory=list)
    _body: list[bytes] = field(default_factory=list)

    async def receive(self) -> MutableMapping[str, Any]:
        if self._body:
            return {"type": "http.request", "body": self._body.pop()}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if self.is_stalled and len(self.sent) > 2:
            await asyncio.Event().wait()
        self.sent.append(message)

    async def ask(self, served: Served, **fields: object) -> None:
        self._body = [json.dumps({"messages": [{"role": "user", "content": "hi"}], **fields}).encode()]
        scope = {
            "type": "http", "http_version": "1.1", "method": "POST", "path": "/v1/chat/completions", "raw_path": b"",
            "query_string": b"", "headers": [(b"host", b"localhost")], "scheme": "http", "root_path": "", "asgi": {},
        }  # fmt: skip
        await asyncio.wait_for(served.app(scope, self.receive, self.send), 5)

    @property
    def text(self) -> str:
        return b"".join(message.get("body", b"") for message in self.sent).decode()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_goes_away_is_cancelled(stream: bool) -> None:
    async with serve(FakeEngine(before=endless), FAST) as served:
        connection = Connection()
        asking = asyncio.create_task(connection.ask(served, stream=stream))
        await until(lambda: served.engine.n_running)
        await asyncio.sleep(0.01)
        connection.gone.set()
        await asking
        assert (served.engine.n_running, served.engine.n_cancelled) == (0, 1)


async def test_a_client_that_goes_away_before_the_first_event_is_cancelled() -> None:
    async def never(request: EngineRequest, event: EngineEvent) -> None:
        await asyncio.Event().wait()

    async with serve(FakeEngine(before=never), FAST) as served:
        connection = Connection()
        connection.gone.set()
        await connection.ask(served, stream=True)
        assert (served.engine.n_running, served.engine.n_cancelled) == (0, 1)


async def test_a_client_that_stops_reading_is_cancelled() -> None:
    async with serve(FakeEngine(pieces=["x"] * 100), FAST) as served:
        connection = Connection(is_stalled=True)
        await connection.ask(served, stream=True)
        assert served.engine.n_running == 0
        assert served.engine.n_cancelled == 1


BEATS = {
    "/v1/chat/completions": ": ping\n\n",
    "/v1/messages": 'event: ping\ndata: {"type":"ping"}\n\n',
    "/api/chat": "",
}


@pytest.mark.parametrize("path", BEATS)
async def test_a_silent_stream_shows_signs_of_life(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.api.respond.HEARTBEAT_S", 0.01)

    async def slow(request: EngineRequest, event: EngineEvent) -> None:
        if isinstance(event, TextChunk) and event.text == "lo":
            await asyncio.sleep(0.1)

    async with serve(FakeEngine(before=slow)) as served:
        body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9, "stream": True}
        silent = (await served.client.post(path, json=body)).text
        n_beats = silent.count(BEATS[path]) if BEATS[path] else 2
        assert 2 <= n_beats <= 12
        assert "Hel" in silent
        assert "lo" in silent.split("Hel")[1]


async def test_draining_ends_streams_with_an_event() -> None:
    async with serve(FakeEngine(before=endless), FAST) as served:
        connection = Connection()
        asking = asyncio.create_task(connection.ask(served, stream=True))
        await until(lambda: len(connection.sent) >= 3)
        begin_drain(served.app)
        refused = await served.chat()
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "shutting_down")
        assert "retry-after" in refused.headers
        assert (await served.client.get("/health")).status_code == 503
        await asking
        last = connection.text.strip().rsplit("\n\n", 1)[-1]
        assert json.loads(last.removeprefix("data: "))["error"]["code"] == "shutting_down"
        assert served.engine.n_cancelled == 1


async def test_draining_lets_short_answers_end() -> None:
    async def slow(request: EngineRequest, event: EngineEvent) -> None:
        await asyncio.sleep(0.005)

    async with serve(FakeEngine(before=slow), replace(Settings(), drain_timeout_s=2)) as served:
        asking = asyncio.create_task(served.chat())
        await until(lambda: served.engine.n_running)
        begin_drain(served.app)
        assert (await asking).json()["choices"][0]["message"]["content"] == "Hello"


async def test_draining_ends_whole_answers_with_a_503() -> None:
    async with serve(FakeEngine(before=endless), FAST) as served:
        asking = asyncio.create_task(served.chat())
        await until(lambda: served.engine.n_running)
        begin_drain(served.app)
        assert (await asking).status_code == 503


async def test_a_fast_stream_is_cancelled_at_any_moment() -> None:
    """A cancellation that comes in the very tick in which a frame is sent must not get lost."""
    async with serve(FakeEngine(pieces=["x"] * 5000), FAST) as served:
        for n_ticks in range(60):
            connection = Connection()
            asking = asyncio.create_task(connection.ask(served, stream=True))
            await until(lambda connection=connection: len(connection.sent) > 3)  # type: ignore[misc]
            for _ in range(n_ticks):
                await asyncio.sleep(0)
            connection.gone.set()
            await asking
        assert (served.engine.n_running, served.engine.n_cancelled) == (0, 60)

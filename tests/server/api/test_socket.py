"""The app behind uvicorn and a real socket: clients that go away or read no more."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import httpx
import uvicorn

from server.app import create_app
from server.engine.messages import EngineEvent, EngineRequest
from server.settings import Settings
from tests.server.fakes import FakeEngine, FakeManager, InlineCompiler

BODY = json.dumps({"messages": [{"role": "user", "content": "hi"}], "stream": True}).encode()
REQUEST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)


@asynccontextmanager
async def listening(engine: FakeEngine, settings: Settings) -> AsyncIterator[int]:
    app = create_app(settings, FakeManager(engine), InlineCompiler())
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1))
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    running = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        await running
        listener.close()


async def until_cancelled(engine: FakeEngine) -> None:
    for _ in range(500):
        if engine.n_cancelled:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the request still runs")


async def test_a_client_that_reads_no_more_is_cancelled() -> None:
    engine = FakeEngine(pieces=["x" * 2000] * 20_000)
    async with listening(engine, replace(Settings(), stall_timeout_s=0.2)) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        writer.write(REQUEST)
        await until_cancelled(engine)
        assert engine.n_running == 0
        writer.close()


async def test_a_client_that_closes_is_cancelled() -> None:
    async def slowly(request: EngineRequest, event: EngineEvent) -> None:
        await asyncio.sleep(0.01)

    engine = FakeEngine(pieces=["x"] * 10_000, before=slowly)
    async with listening(engine, Settings()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(REQUEST)
        await reader.readuntil(b"data: ")
        writer.close()
        await until_cancelled(engine)
        assert engine.n_running == 0


async def test_a_body_that_is_too_large_gets_its_413() -> None:
    async with listening(FakeEngine(), Settings()) as port, httpx.AsyncClient() as client:
        reply = await client.post(f"http://127.0.0.1:{port}/v1/chat/completions", content=b" " * 20_000_000)
        assert (reply.status_code, reply.json()["error"]["code"]) == (413, "body_too_large")

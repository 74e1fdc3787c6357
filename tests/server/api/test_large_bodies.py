"""Bodies of megabytes: refused or answered, and the event loop serves others meanwhile."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable
from typing import Any

import pytest

from server.settings import RequestLimits, Settings
from tests.server.fakes import Served, serve

LARGE: dict[str, Callable[[], bytes]] = {
    "brackets": lambda: b"[" * 3_000_000,
    "messages": lambda: b'{"messages":[' + b",".join([b'{"role":"user","content":"a"}'] * 60_000) + b"]}",
    "keys": lambda: b'{"messages":[{"role":"user","content":"a"}],' + b",".join(b'"k%d":0' % i for i in range(450_000)) + b"}",
    "schema": lambda: (
        b'{"messages":[{"role":"user","content":"a"}],"guided_json":{"x":[' + b",".join([b'"a"'] * 450_000) + b"]}}"
    ),
    "lists": lambda: b'{"messages":[' + b",".join([b"[]"] * 1_000_000) + b"]}",
    "ids": lambda: b'{"prompt":[' + b",".join([b"1"] * 450_000) + b"]}",
}
SLOW = ("keys", "messages", "lists")  # seconds each; the others stall a server that reads a body at once just as much


@pytest.fixture(autouse=True, scope="module")
def frozen() -> None:
    """The collector leaves out what the tests before these ones have left, as it leaves out what a server is made of.

    For good: with all tests among what it looks through again, those that come after would take seconds longer.
    """
    gc.collect()
    gc.freeze()


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.conformance if name in SLOW else ()) for name in LARGE])
async def test_others_are_served_meanwhile(served: Served, name: str) -> None:
    path = "/v1/completions" if name == "ids" else "/v1/chat/completions"
    asking = asyncio.ensure_future(served.client.post(path, content=LARGE[name]()))
    longest = 0.0
    while not asking.done():
        begun = time.process_time()  # not the clock: what else the machine does is no fault of the server
        await asyncio.sleep(0.005)
        longest = max(longest, time.process_time() - begun)
    assert asking.result().status_code in (200, 400)
    assert longest < 0.15


async def test_a_text_to_tokenize_has_a_limit(served: Served) -> None:
    reply = await served.client.post("/tokenize", json={"content": "a" * (RequestLimits().tokenize_bytes + 1)})
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "content"


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": "x" * 1000}]}, "messages"),
        ("/v1/responses/input_tokens", {"input": "x" * 1000}, "input"),
    ],
)
async def test_a_prompt_that_is_only_counted_is_bounded(path: str, fields: dict[str, Any], param: str) -> None:
    for limit, status in ((1000, 400), (2000, 200)):
        async with serve(settings=Settings(request_limits=RequestLimits(tokenize_bytes=limit))) as served:
            reply = await served.client.post(path, json=fields)
            assert reply.status_code == status, reply.text
            assert ("tokenize_bytes allows 1000 bytes" in reply.text) == (status == 400)
            assert (f"{param} is too long" in reply.text) == (status == 400)

"""The compile process: sharing, cancelling, deadlines, deaths."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from converters.compile import CompileOptions
from converters.constraint import Choice, Gbnf, Regex
from converters.errors import InvalidSource, LimitExceeded
from converters.limits import Limits
from server.compile.client import CompileClient

OPTIONS = CompileOptions()
HOSTILE = Regex("(a|b)*a(a|b){14}")  # 2^15 states: seconds of work


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client() -> AsyncIterator[CompileClient]:
    opened = CompileClient(Limits(automaton_bytes=1 << 50, compile_s=0.4), lambda busy: None, margin_s=0.3)
    await opened.start()
    yield opened
    await opened.stop()


pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_compiles_and_remembers(client: CompileClient) -> None:
    first = await client.compile(Choice(("yes", "no")), OPTIONS)
    assert "root" in first.compiled.gbnf
    assert not first.is_cached
    again = await client.compile(Choice(("yes", "no")), OPTIONS)
    assert again.is_cached
    assert again.key == first.key


async def test_errors_come_back_as_they_are(client: CompileClient) -> None:
    for _ in range(2):
        with pytest.raises(InvalidSource) as caught:
            await client.compile(Gbnf("root ::= ("), OPTIONS)
        assert caught.value.position is not None


async def test_examples(client: CompileClient) -> None:
    outcome = await client.compile(Regex("[0-9]{2,4}x?"), OPTIONS)
    shortest, *others = await client.examples(outcome, 5)
    assert len(shortest) == 2
    assert others
    assert all(re.fullmatch("[0-9]{2,4}x?", text) for text in (shortest, *others))


async def test_equal_requests_share_one_compile_and_one_may_go(client: CompileClient) -> None:
    waiting = [asyncio.create_task(client.compile(Regex("[a-z]{3}shared"), OPTIONS)) for _ in range(5)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(outcomes[0], asyncio.CancelledError)
    assert len({id(outcome.compiled) for outcome in outcomes[1:]}) == 1  # type: ignore[union-attr]


async def test_a_deadline_holds_and_the_next_compile_works(client: CompileClient) -> None:
    started = time.monotonic()
    with pytest.raises(LimitExceeded) as caught:
        await client.compile(HOSTILE, OPTIONS)
    assert caught.value.limit == "compile_s"
    assert time.monotonic() - started < 3
    assert (await client.compile(Choice(("after",)), OPTIONS)).compiled.gbnf


async def test_a_compiler_that_overstays_is_killed() -> None:
    client = CompileClient(Limits(automaton_bytes=1 << 50, compile_s=30), lambda busy: None, margin_s=-29.8)
    try:
        await client.start()
        started = time.monotonic()
        with pytest.raises(LimitExceeded, match="longer than 30 s"):
            await client.compile(HOSTILE, OPTIONS)
        assert time.monotonic() - started < 3
        assert (await client.compile(Choice(("after",)), OPTIONS)).compiled.gbnf
    finally:
        await client.stop()


async def test_a_waiting_compile_can_be_cancelled(client: CompileClient) -> None:
    running = asyncio.create_task(client.compile(HOSTILE, OPTIONS))
    await asyncio.sleep(0.05)
    waiting = asyncio.create_task(client.compile(Choice(("cancelled",)), OPTIONS))
    await asyncio.sleep(0.05)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    again = asyncio.create_task(client.compile(Choice(("cancelled",)), OPTIONS))
    with pytest.raises(LimitExceeded):
        await running
    assert not (await again).is_cached


async def test_a_dead_process_is_replaced(client: CompileClient) -> None:
    assert client._process is not None
    client._process.kill()
    assert (await client.compile(Choice(("revived",)), OPTIONS)).compiled.gbnf


async def test_busy_is_told_around_real_compiles_only() -> None:
    told: list[bool] = []
    client = CompileClient(Limits(), told.append)
    try:
        await client.compile(Choice(("a",)), OPTIONS)
        await client.compile(Choice(("a",)), OPTIONS)
        with pytest.raises(InvalidSource):
            await client.compile(Regex("("), OPTIONS)
    finally:
        await client.stop()
    assert told == [True, False, True, False]

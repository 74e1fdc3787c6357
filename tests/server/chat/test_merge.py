"""Many streams as one: order, width, errors, closing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from server.chat.merge import Source, merge


class Streams:
    """Sources that count how many of them run."""

    def __init__(self) -> None:
        self.n_running = 0
        self.n_most = 0
        self.n_taken = 0

    def source(self, items: range, error: Exception | None = None) -> Source[int]:
        async def run() -> AsyncGenerator[int, None]:
            self.n_running += 1
            self.n_most = max(self.n_most, self.n_running)
            try:
                for item in items:
                    await asyncio.sleep(0)
                    self.n_taken += 1
                    yield item
                if error is not None:
                    raise error
            finally:
                self.n_running -= 1

        return run


@pytest.mark.parametrize("n_sources", [1, 2, 7])
@pytest.mark.parametrize("width", [1, 3, 20])
async def test_everything_comes_in_each_sources_order(n_sources: int, width: int) -> None:
    streams = Streams()
    sources = [streams.source(range(5)) for _ in range(n_sources)]
    seen: dict[int, list[int]] = {}
    async with aclosing(merge(sources, width)) as merged:
        async for number, value in merged:
            seen.setdefault(number, []).append(value)
    assert seen == {number: [0, 1, 2, 3, 4] for number in range(n_sources)}
    assert streams.n_most <= width
    assert streams.n_running == 0


async def test_sources_that_run_take_turns() -> None:
    streams = Streams()
    numbers = [number async for number, _ in merge([streams.source(range(50)) for _ in range(2)], 2)]
    assert 20 < sum(number == 0 for number in numbers[:60]) < 40


@pytest.mark.parametrize("n_sources", [1, 3])
async def test_the_first_error_ends_all(n_sources: int) -> None:
    streams = Streams()
    sources = [streams.source(range(3), ValueError("no"))] + [streams.source(range(1000)) for _ in range(n_sources - 1)]

    async def read_all() -> None:
        async with aclosing(merge(sources, 3)) as merged:
            async for _ in merged:
                pass

    with pytest.raises(ValueError, match="no"):
        await read_all()
    assert streams.n_running == 0


@pytest.mark.parametrize("n_sources", [1, 3])
async def test_closing_closes_the_sources(n_sources: int) -> None:
    streams = Streams()
    async with aclosing(merge([streams.source(range(1000)) for _ in range(n_sources)], 2)) as merged:
        await anext(merged)
    assert streams.n_running == 0


async def test_a_slow_reader_holds_the_sources_back() -> None:
    streams = Streams()
    async with aclosing(merge([streams.source(range(100_000)) for _ in range(2)], 2)) as merged:
        await anext(merged)
        await asyncio.sleep(0.05)
        assert streams.n_taken < 200

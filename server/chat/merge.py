"""Several streams of events as one: a batch of prompts shares its slots fairly with everything else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

T = TypeVar("T")
Source: TypeAlias = Callable[[], AsyncGenerator[T, None]]

_N_BUFFERED = 64


@dataclass(frozen=True, slots=True)
class _Ended:
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class _Item(Generic[T]):
    source: int
    value: T


async def merge(sources: Sequence[Source[T]], width: int) -> AsyncGenerator[tuple[int, T], None]:
    """The items of all sources with their source's number, in the order in which they come; at most `width` run at a time.

    The first error of a source is raised, and closing the merger closes the sources that run. A reader that doesn't read
    stops them after a small buffer.
    """
    if len(sources) == 1:
        async with aclosing(sources[0]()) as items:
            async for value in items:
                yield 0, value
        return
    queue: asyncio.Queue[_Item[T] | _Ended] = asyncio.Queue(_N_BUFFERED)
    waiting = iter(enumerate(sources))
    tasks = [asyncio.create_task(_run_next(waiting, queue)) for _ in range(min(width, len(sources)))]
    n_running = len(tasks)
    try:
        while n_running:
            item = await queue.get()
            if isinstance(item, _Item):
                yield item.source, item.value
            elif item.error is not None:
                raise item.error
            else:
                n_running -= 1
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _run_next(waiting: Iterator[tuple[int, Source[T]]], queue: asyncio.Queue[_Item[T] | _Ended]) -> None:
    try:
        for number, source in waiting:
            async with aclosing(source()) as items:
                async for value in items:
                    await queue.put(_Item(number, value))
    except Exception as error:
        await queue.put(_Ended(error))
    else:
        await queue.put(_Ended())

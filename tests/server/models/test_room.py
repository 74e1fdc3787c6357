"""Several models that wait for the memory of others: who goes, who comes next, and that each one serves somebody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path

import pytest

from server.chat.model import LoadedModel
from server.chat.patience import wait_for_model
from server.engine.messages import EngineRequest
from server.errors import ModelLoading
from server.models.catalogue import Catalogue, parse_catalogue
from server.models.manager import Manager
from tests.server.models.garage import GGUF, Garage, roomy, until

_RUN_S = 0.02
SIZES = {"a": 1, "b": 1, "c": 1, "big": 2}


@pytest.fixture
async def garage() -> Garage:
    return Garage()


@pytest.fixture
def catalogue(tmp_path: Path) -> Catalogue:
    for name, size in SIZES.items():
        (tmp_path / f"{name}.gguf").write_bytes(GGUF.ljust(size * len(GGUF), b"\0"))
    return parse_catalogue("\n".join(f"{name} {name}.gguf" for name in SIZES), path="models.txt", base=tmp_path)


async def ask(manager: Manager, name: str) -> LoadedModel:
    """The model, asked for again and again as clients do."""
    model = None
    while model is None:
        with suppress(ModelLoading):
            model = await manager.engine(name)
    return model


async def run(model: LoadedModel, until_s: Callable[[], Awaitable[object]]) -> None:
    """A request of that length."""
    generating = model.engine.generate(EngineRequest(0, ""))
    assert isinstance(generating, AsyncGenerator)
    async with aclosing(generating) as events:
        await anext(events)
        await until_s()


@asynccontextmanager
async def asked_without_a_break(manager: Manager, *names: str) -> AsyncIterator[None]:
    """Each of these models is asked for by several clients at a time, whose requests overlap."""

    async def client(name: str, begin_s: float) -> None:
        await asyncio.sleep(begin_s)
        while True:
            await run(await ask(manager, name), lambda: asyncio.sleep(_RUN_S))

    clients = [asyncio.create_task(client(name, place * _RUN_S / 3)) for name in names for place in range(3)]
    try:
        yield
    finally:
        for task in clients:
            task.cancel()
        await asyncio.gather(*clients, return_exceptions=True)


async def test_all_that_wait_get_their_turn(catalogue: Catalogue, tmp_path: Path, garage: Garage) -> None:
    """What takes the place of a model that one waits for has to go for it too."""
    manager = roomy(catalogue, tmp_path, garage, 1, room_s=20)
    is_over = asyncio.Event()
    first = asyncio.create_task(run(await ask(manager, "a"), is_over.wait))
    await asyncio.sleep(0)
    async with asked_without_a_break(manager, "b"):
        await until(lambda: manager.state("b") == "loading")
        waiting = asyncio.create_task(ask(manager, "c"))
        await until(lambda: manager.state("c") == "loading")
        await asyncio.sleep(0.05)
        is_over.set()
        assert (await asyncio.wait_for(waiting, 5)).name == "c"
    await first
    assert not any(slot.n_held for slot in manager._slots.values())


async def test_models_are_served_in_turns(catalogue: Catalogue, tmp_path: Path, garage: Garage) -> None:
    manager = roomy(catalogue, tmp_path, garage, 1, room_s=20)
    async with asked_without_a_break(manager, "a", "b", "c"):
        await until(lambda: len(garage.made) >= 7)
    order = [Path(engine.spec.path).stem for engine in garage.made]
    assert all(len(set(three)) == 3 for three in zip(order, order[1:], order[2:], strict=False)), order


async def test_what_one_has_got_together_is_no_others(catalogue: Catalogue, tmp_path: Path, garage: Garage) -> None:
    """A model that needs the place of two gets it though a smaller one would always find its own."""
    manager = roomy(catalogue, tmp_path, garage, 2, room_s=20)
    is_over = asyncio.Event()
    first = asyncio.create_task(run(await ask(manager, "a"), is_over.wait))
    await asyncio.sleep(0)
    async with asked_without_a_break(manager, "b", "c"):
        await until(lambda: manager.state("b") == "ready" or manager.state("c") == "ready")
        waiting = asyncio.create_task(ask(manager, "big"))
        await until(lambda: manager.state("big") == "loading")
        await asyncio.sleep(0.3)
        is_over.set()
        assert (await asyncio.wait_for(waiting, 5)).name == "big"
    await first


async def test_no_more_models_have_to_go_than_it_takes(catalogue: Catalogue, tmp_path: Path, garage: Garage) -> None:
    """The idle `c` goes at once, `b` is waited for, and `a` is for anybody as before."""
    manager = roomy(catalogue, tmp_path, garage, 3, room_s=20)
    is_over = asyncio.Event()
    runs = [asyncio.create_task(run(await ask(manager, name), is_over.wait)) for name in ("a", "b")]
    await run(await ask(manager, "c"), lambda: asyncio.sleep(0))
    waiting = asyncio.create_task(ask(manager, "big"))
    await until(lambda: manager.state("c") == "stopped")
    assert (await asyncio.wait_for(manager.engine("a"), 1)).name == "a"
    late = [asyncio.create_task(ask(manager, name)) for name in ("b", "c")]
    assert not (await asyncio.wait(late, timeout=0.4))[0]
    assert len(garage.made) == 3
    is_over.set()
    assert (await asyncio.wait_for(waiting, 5)).name == "big"
    for task in (*runs, *late):
        task.cancel()


async def test_a_model_that_took_long_to_load_is_there_for_those_who_come_back(
    catalogue: Catalogue, tmp_path: Path, garage: Garage
) -> None:
    """They were told when to; another model that waits for its memory has to wait for that too."""
    manager = roomy(catalogue, tmp_path, garage, 1, room_s=20)
    garage.gate.clear()
    waiting = asyncio.create_task(wait_for_model(manager, "b", 10))
    await until(lambda: manager.state("b") == "loading")
    await asyncio.sleep(0.2)  # it has been told to come back
    other = asyncio.create_task(wait_for_model(manager, "c", 10))
    await asyncio.sleep(0.2)
    garage.gate.set()
    model = await waiting
    assert (model.name, manager.state("b"), len(garage.made)) == ("b", "ready", 1)
    await run(model, lambda: asyncio.sleep(_RUN_S))
    assert (await other).name == "c"

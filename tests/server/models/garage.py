"""Engines that start when they are let, a manager of such, and what its tests do with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from server.engine.messages import (
    EngineEvent,
    EngineRequest,
    Finished,
    FinishReason,
    ModelInfo,
    ModelSpec,
    ModelState,
    SlotState,
    Started,
)
from server.errors import EngineStartFailed
from server.models.catalogue import Catalogue
from server.models.manager import Manager
from server.models.store import Store
from server.settings import Settings

GGUF = b"GGUF\x03\x00\x00\x00" + bytes(100)


class FakeEngine:
    """An EngineClient that starts when it is let, or fails."""

    def __init__(self, spec: ModelSpec, gate: asyncio.Event, failure: str | None) -> None:
        self.spec = spec
        self.gate = gate
        self.failure = failure
        self.state: ModelState = "loading"

    @property
    def info(self) -> ModelInfo:
        return ModelInfo("m", 1, 1, 1, 1, 1, 1, "", None, "", "", False, False)

    async def start(self) -> ModelInfo:
        await self.gate.wait()
        if self.failure is not None:
            self.state = "failed"
            raise EngineStartFailed(self.failure)
        self.state = "ready"
        return self.info

    async def stop(self) -> None:
        self.state = "stopped"

    async def put_grammar(self, key: str, gbnf: str, tables: bytes) -> None:
        raise NotImplementedError

    async def generate(self, request: EngineRequest) -> AsyncIterator[EngineEvent]:
        yield Started(0, 1)
        await asyncio.sleep(0)
        yield Finished(0, 0, FinishReason.STOP, 1)

    async def tokenize(self, text: str, *, add_special: bool = False, parse_special: bool = True) -> tuple[int, ...]:
        return ()

    async def tokenize_all(self, texts: tuple[str, ...], *, add_special: bool, most: int) -> tuple[tuple[int, ...] | int, ...]:
        raise NotImplementedError

    async def detokenize(self, tokens: tuple[int, ...]) -> bytes:
        raise NotImplementedError

    async def spell(self, tokens: tuple[int, ...]) -> tuple[bytes, ...]:
        raise NotImplementedError

    async def check_grammar(self, key: str) -> None:
        raise NotImplementedError

    async def embed(self, inputs: tuple[tuple[int, ...], ...], *, is_ranking: bool = False) -> tuple[bytes, ...]:
        raise NotImplementedError

    async def slots(self) -> tuple[SlotState, ...]:
        raise NotImplementedError

    def set_busy(self, busy: bool) -> None:
        raise NotImplementedError


class Garage:
    """Makes FakeEngines and remembers them."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.failure: str | None = None
        self.made: list[FakeEngine] = []

    def make(self, alias: str, spec: ModelSpec) -> FakeEngine:
        self.made.append(FakeEngine(spec, self.gate, self.failure))
        return self.made[-1]


async def use(manager: Manager, name: str) -> None:
    """A whole request."""
    model = await manager.engine(name)
    async for _ in model.engine.generate(EngineRequest(0, "")):
        pass


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(200):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not happen")


def roomy(catalogue: Catalogue, tmp_path: Path, garage: Garage, n_models: int, room_s: float = 0.1) -> Manager:
    """A manager with memory for so many models of this test, where loading waits so long for it."""
    garage.gate.set()
    settings = Settings(max_memory_bytes=n_models * len(GGUF))
    return Manager(catalogue, Store(tmp_path / "cache"), settings, garage.make, preload=("a",), grace_s=0.1, room_s=room_s)

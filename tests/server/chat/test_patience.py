"""Waiting for a model that is being loaded, for clients that don't ask again."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from server.chat.patience import wait_for_model
from server.errors import EngineStartFailed, ModelLoading
from tests.server.fakes import FakeEngine, FakeManager, FakeModel


@dataclass
class SlowManager(FakeManager):
    """Loads its model at the n-th time that somebody asks."""

    n_refusals: int = 2
    retry_after_s: int = 0

    async def engine(self, name: str | None) -> FakeModel:
        if self.n_refusals:
            self.n_refusals -= 1
            raise ModelLoading("being loaded", retry_after_s=self.retry_after_s)
        if self.failure is not None:
            raise EngineStartFailed(self.failure)
        return await FakeManager.engine(self, name)


async def test_it_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr("server.chat.patience.asyncio.sleep", pause)
    manager = SlowManager(FakeEngine(), n_refusals=2, retry_after_s=1)
    assert (await wait_for_model(manager, "fake", 5)).name == "fake"
    assert pauses == [1, 1]


async def test_not_for_ever() -> None:
    with pytest.raises(ModelLoading):
        await wait_for_model(SlowManager(FakeEngine(), n_refusals=5, retry_after_s=30), "fake", 5)


async def test_a_model_that_can_not_be_loaded() -> None:
    with pytest.raises(EngineStartFailed):
        await wait_for_model(SlowManager(FakeEngine(), failure="no file", n_refusals=0), "fake", 5)

"""Fetching and deleting a model's files while the server runs."""

from __future__ import annotations

import threading
from contextlib import aclosing
from pathlib import Path

import pytest

from server.errors import BadRequest, EngineStartFailed, ModelNotFound
from server.model_status import FetchProgress
from server.models.catalogue import parse_catalogue
from server.models.errors import FetchFailed
from server.models.manager import Manager
from server.models.progress import Progress
from server.models.store import Store
from server.models.web import WebSource
from server.settings import Settings
from tests.server.models.garage import GGUF, Garage


@pytest.fixture
def manager(tmp_path: Path) -> Manager:
    (tmp_path / "own.gguf").write_bytes(GGUF)
    catalogue = parse_catalogue("own own.gguf\nfar https://example.org/far.gguf\n", path="models.txt", base=tmp_path)
    return Manager(catalogue, Store(tmp_path / "cache"), Settings(), Garage().make)


@pytest.fixture
def goes_on(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Half of every file comes at once, the rest when this is set."""
    event = threading.Event()

    def fetch(self: WebSource, folder: Path, progress: Progress) -> tuple[Path, ...]:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "far.gguf"
        progress.begin(path.name, 0, len(GGUF))
        progress.advance(len(GGUF) // 2)
        assert event.wait(10)
        progress.advance(len(GGUF) - len(GGUF) // 2)
        path.write_bytes(GGUF)
        return (path,)

    monkeypatch.setattr(WebSource, "fetch", fetch)
    return event


async def test_a_pull_tells_how_far_it_is(manager: Manager, goes_on: threading.Event) -> None:
    steps = []
    async for step in manager.pull("far"):
        steps.append(step)
        goes_on.set()
    assert steps[0] == FetchProgress("far.gguf", len(GGUF) // 2, len(GGUF))
    assert (await manager.describe("far")).alias == "far"
    assert manager.store.find(manager.catalogue.entries[1]) is not None
    assert [step async for step in manager.pull("far")] == []
    assert [step async for step in manager.pull("own")] == []


async def test_a_fetch_goes_on_when_nobody_listens(manager: Manager, goes_on: threading.Event) -> None:
    async with aclosing(manager.pull("far")) as steps:
        await anext(steps)
    goes_on.set()
    assert [step async for step in manager.pull("far:latest")] == []  # it waits for the other one's lock
    assert manager.store.find(manager.catalogue.entries[1]) is not None


async def test_a_failed_fetch(manager: Manager, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: WebSource, folder: Path, progress: Progress) -> tuple[Path, ...]:
        raise FetchFailed("no such host")

    monkeypatch.setattr(WebSource, "fetch", fail)
    with pytest.raises(EngineStartFailed, match="no such host"):
        _ = [step async for step in manager.pull("far")]
    with pytest.raises(ModelNotFound):
        _ = [step async for step in manager.pull("nope")]


async def test_removing(manager: Manager, goes_on: threading.Event) -> None:
    goes_on.set()
    with pytest.raises(ModelNotFound, match="not here"):
        await manager.remove("far")
    _ = [step async for step in manager.pull("far")]
    await manager.remove("far")
    assert manager.store.find(manager.catalogue.entries[1]) is None
    with pytest.raises(BadRequest, match=r"delete it yourself$"):  # a client is told no path
        await manager.remove("own")

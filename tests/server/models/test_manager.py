"""Loading by name: what waits, what is refused, what happens after a failure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from server.engine.messages import EngineEvent, EngineRequest, ModelInfo, ModelSpec, ModelState
from server.errors import EngineStartFailed, ModelLoading, ModelNotFound
from server.models.catalogue import Catalogue, parse_catalogue
from server.models.errors import FetchFailed
from server.models.manager import Manager, model_spec
from server.models.store import Store
from server.models.web import WebSource
from server.settings import RequestLimits, Settings

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
        raise NotImplementedError

    async def start(self) -> ModelInfo:
        await self.gate.wait()
        if self.failure is not None:
            self.state = "failed"
            raise EngineStartFailed(self.failure)
        self.state = "ready"
        return ModelInfo("m", 1, 1, 1, 1, 1, 1, "", None, "", "", False, False)

    async def stop(self) -> None:
        self.state = "stopped"

    async def put_grammar(self, key: str, gbnf: str, tables: bytes) -> None:
        raise NotImplementedError

    def generate(self, request: EngineRequest) -> AsyncIterator[EngineEvent]:
        raise NotImplementedError

    async def tokenize(self, text: str, *, add_special: bool = False, parse_special: bool = True) -> tuple[int, ...]:
        raise NotImplementedError

    async def detokenize(self, tokens: tuple[int, ...]) -> bytes:
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


@pytest.fixture
def catalogue(tmp_path: Path) -> Catalogue:
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(GGUF)
    text = "a a.gguf ctx=512 template=chatml\nb b.gguf codec=hermes\nc https://example.org/c.gguf\nd d.gguf\n"
    return parse_catalogue(text, path="models.txt", base=tmp_path)


@pytest.fixture
async def garage() -> Garage:
    return Garage()


@pytest.fixture
def manager(catalogue: Catalogue, tmp_path: Path, garage: Garage) -> Manager:
    return Manager(catalogue, Store(tmp_path / "cache"), Settings(), garage.make, grace_s=0.05)


async def test_the_default_is_loaded_at_start_and_known_by_four_names(manager: Manager, garage: Garage) -> None:
    assert (manager.default, manager.names()) == ("a", ("a", "b", "c", "d"))
    assert manager.state() == "stopped"
    await manager.start()
    assert manager.state() == "loading"
    with pytest.raises(ModelLoading) as caught:
        await manager.engine(None)
    assert caught.value.retry_after_s
    garage.gate.set()
    models = [await manager.engine(name) for name in (None, "", "default", "a")]
    assert {model.name for model in models} == {"a"}
    assert len(garage.made) == 1
    assert models[0].template == "chatml"
    assert garage.made[0].spec.n_ctx == 512
    assert manager.state() == "ready"
    assert manager.loaded() == (models[0],)


async def test_a_template_file_is_read_when_the_model_is_loaded(garage: Garage, tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(GGUF)
    (tmp_path / "own.jinja").write_text("{{ messages }}")
    catalogue = parse_catalogue("a a.gguf template=own.jinja", path="models.txt", base=tmp_path)
    garage.gate.set()
    model = await Manager(catalogue, Store(tmp_path / "cache"), Settings(), garage.make).engine(None)
    assert model.template == "{{ messages }}"


async def test_another_model_is_loaded_when_it_is_asked_for(manager: Manager, garage: Garage) -> None:
    garage.gate.set()
    await manager.start()
    assert manager.state("b") == "stopped"
    model = await manager.engine("b")
    assert (model.name, model.codec) == ("b", "hermes")
    await manager.engine("a")
    assert {loaded.name for loaded in manager.loaded()} == {"a", "b"}
    await manager.stop()
    assert [engine.state for engine in garage.made] == ["stopped", "stopped"]


async def test_an_unknown_name_is_named(manager: Manager) -> None:
    with pytest.raises(ModelNotFound, match="gpt-4") as caught:
        await manager.engine("gpt-4")
    assert (caught.value.status, caught.value.param, caught.value.code) == (404, "model", "model_not_found")
    with pytest.raises(ModelNotFound):
        manager.state("gpt-4")


async def test_those_who_wait_learn_of_a_failure_and_the_next_tries_again(manager: Manager, garage: Garage) -> None:
    garage.gate.set()
    garage.failure = "out of memory"
    with pytest.raises(EngineStartFailed, match="out of memory"):
        await manager.engine("a")
    assert manager.state() == "failed"
    garage.failure = None
    assert (await manager.engine("a")).name == "a"
    assert manager.state() == "ready"


async def test_many_who_ask_at_once_share_one_load(manager: Manager, garage: Garage) -> None:
    asks = [asyncio.create_task(manager.wait_loaded("b")) for _ in range(5)]
    await asyncio.sleep(0.02)
    asks[0].cancel()
    garage.gate.set()
    models = await asyncio.gather(*asks[1:])
    assert len(garage.made) == 1
    assert all(model is models[0] for model in models)


async def test_a_file_that_is_missing_is_a_failed_start(manager: Manager) -> None:
    with pytest.raises(EngineStartFailed, match=r"d\.gguf"):
        await manager.engine("d")


async def test_a_fetch_blocks_nobody(manager: Manager, garage: Garage, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    let = threading.Event()

    def fetch(source: WebSource, folder: Path, progress: object) -> tuple[Path, ...]:
        if not let.wait(5):
            raise FetchFailed("nobody let go")
        (folder / "c.gguf").write_bytes(GGUF)
        return (folder / "c.gguf",)

    monkeypatch.setattr(WebSource, "fetch", fetch)
    garage.gate.set()
    with pytest.raises(ModelLoading):
        await manager.engine("c")
    with pytest.raises(ModelLoading, match="fetched"):
        await manager.engine("c")
    assert (await manager.engine("a")).name == "a"
    let.set()
    assert (await manager.wait_loaded("c")).name == "c"


def test_the_command_line_wins_over_models_txt(catalogue: Catalogue) -> None:
    entry = catalogue.default
    assert model_spec(entry, Path("x"), Settings()).n_ctx == 512
    settings = Settings(n_ctx=1024, parallel=2, n_gpu_layers=0, n_threads=1, request_limits=RequestLimits(max_waiting=3))
    spec = model_spec(entry, Path("x"), settings)
    assert (spec.n_ctx, spec.n_slots, spec.n_gpu_layers, spec.n_threads, spec.max_waiting) == (1024, 2, 0, 1, 3)

"""Loading by name: what waits, what is refused, what happens after a failure."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from server.engine.messages import EngineRequest
from server.errors import EngineStartFailed, ModelLoading, ModelNotFound
from server.models.catalogue import Catalogue, parse_catalogue
from server.models.errors import FetchFailed
from server.models.manager import Manager, model_spec
from server.models.store import Store
from server.models.web import WebSource
from server.settings import RequestLimits, Settings
from tests.server.models.garage import GGUF, Garage, roomy, until, use
from tests.tiny_models import TinyModel, write_tiny_model


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
        await manager.wait_loaded("a")
    assert manager.state() == "failed"
    garage.failure = None
    assert (await manager.wait_loaded("a")).name == "a"
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


async def test_clients_are_not_told_where_files_lie(manager: Manager, garage: Garage, tmp_path: Path) -> None:
    garage.gate.set()
    (tmp_path / "b.gguf").write_bytes(b"hello, this is no model")
    for name, words in (("d", "no such model file: d.gguf"), ("b", "not a GGUF file: b.gguf")):
        with pytest.raises(EngineStartFailed, match=words) as caught:
            await manager.engine(name)
        assert str(tmp_path) not in str(caught.value)
        with pytest.raises(EngineStartFailed, match=words) as caught:
            _ = [step async for step in manager.pull(name)]
        assert str(tmp_path) not in str(caught.value)
    (tmp_path / "models.txt").write_text("")
    here = parse_catalogue(f"a {tmp_path / 'a.gguf'}", path="models.txt", base=tmp_path)
    told = await Manager(here, Store(tmp_path / "cache"), Settings(), garage.make).describe(None)
    assert told.source == "a.gguf"


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


# ---- going


@pytest.fixture
def short(catalogue: Catalogue, tmp_path: Path, garage: Garage) -> Manager:
    """A manager whose models stay for a moment."""
    garage.gate.set()
    return Manager(catalogue, Store(tmp_path / "cache"), Settings(keep_alive_s=0.05), garage.make, grace_s=0.05)


async def test_an_idle_model_goes_and_the_default_stays(short: Manager, garage: Garage) -> None:
    await short.start()
    await use(short, "b")
    await use(short, "a")
    await until(lambda: short.state("b") == "stopped")
    assert {Path(engine.spec.path).name: engine.state for engine in garage.made} == {"a.gguf": "ready", "b.gguf": "stopped"}
    await asyncio.sleep(0.1)
    assert short.state("a") == "ready"
    await use(short, "b")
    assert len(garage.made) == 3


async def test_a_model_that_is_in_use_stays(short: Manager) -> None:
    model = await short.engine("b")
    events = model.engine.generate(EngineRequest(0, ""))
    await anext(events)
    short.unload("b")
    await asyncio.sleep(0.1)
    assert short.state("b") == "ready"
    assert (await short.describe("b")).n_running == 1
    async for _ in events:
        pass
    await until(lambda: short.state("b") == "stopped")


async def test_a_request_that_was_given_a_model_finds_it(short: Manager) -> None:
    model = await short.engine("b")
    short.touch("b", 0)
    await model.engine.tokenize("")
    await asyncio.sleep(0.1)
    assert [event async for event in model.engine.generate(EngineRequest(0, ""))]
    await until(lambda: short.state("b") == "stopped")
    with pytest.raises(ModelLoading, match="unloaded"):
        await model.engine.tokenize("")


async def test_a_request_that_is_being_prepared_keeps_its_model(short: Manager) -> None:
    """Another one, which was given the model later, runs and ends meanwhile."""
    model = await short.engine("b")
    with model.in_use():
        short.touch("b", 0)
        await use(short, "b")
        await asyncio.sleep(0.1)
        assert [event async for event in model.engine.generate(EngineRequest(0, ""))]
    await until(lambda: short.state("b") == "stopped")
    with pytest.raises(ModelLoading, match="unloaded"), model.in_use():
        pass


async def test_how_long_a_model_stays_can_be_said(short: Manager) -> None:
    await use(short, "b")
    short.touch("b", -1)
    await asyncio.sleep(0.1)
    told = await short.describe("b")
    assert (told.state, told.expires_at_s) == ("ready", None)
    short.touch("b", 60)
    expires_at_s = (await short.describe("b")).expires_at_s
    assert expires_at_s is not None
    assert 50 < expires_at_s - time.time() < 61
    short.unload("b")
    assert short.state("b") == "stopped"
    short.unload("b")
    short.touch("c", 5)
    with pytest.raises(ModelNotFound):
        short.touch("nobody", 5)


@pytest.fixture
def three(tmp_path: Path) -> Catalogue:
    for name in ("a.gguf", "b.gguf", "c.gguf", "d.gguf"):
        (tmp_path / name).write_bytes(GGUF)
    return parse_catalogue("a a.gguf\nb b.gguf\nc c.gguf\nd d.gguf", path="models.txt", base=tmp_path)


async def test_memory_is_made_by_the_one_that_was_used_longest_ago(three: Catalogue, tmp_path: Path, garage: Garage) -> None:
    manager = roomy(three, tmp_path, garage, 3)
    await manager.start()
    for name in ("c", "b", "d"):
        await use(manager, name)
    states = {name: manager.state(name) for name in "abcd"}
    assert states == {"a": "ready", "b": "ready", "c": "stopped", "d": "ready"}
    assert sum(told.memory_bytes for told in await manager.describe_all()) == 3 * len(GGUF)


async def test_what_was_loaded_at_start_goes_last(three: Catalogue, tmp_path: Path, garage: Garage) -> None:
    manager = roomy(three, tmp_path, garage, 1)
    await manager.start()
    await use(manager, "a")
    await use(manager, "b")
    assert (manager.state("a"), manager.state("b")) == ("stopped", "ready")
    await use(manager, "a")
    assert (manager.state("a"), manager.state("b")) == ("ready", "stopped")


async def test_no_room_beside_what_runs(three: Catalogue, tmp_path: Path, garage: Garage) -> None:
    manager = roomy(three, tmp_path, garage, 1)
    running = (await manager.engine("a")).engine.generate(EngineRequest(0, ""))
    await anext(running)
    with pytest.raises(ModelLoading) as caught:
        await manager.engine("b")
    assert (caught.value.status, bool(caught.value.retry_after_s)) == (503, True)
    await until(lambda: manager.state("b") == "stopped")
    assert manager.state("a") == "ready"
    waiting = asyncio.create_task(manager.engine("b"))
    await asyncio.sleep(0.02)
    async for _ in running:
        pass
    assert (await waiting).name == "b"


async def test_a_model_that_is_asked_for_without_a_break_goes_too(three: Catalogue, tmp_path: Path, garage: Garage) -> None:
    """Each of its requests begins before the last one ends; what comes after another model's request waits behind that."""
    manager = roomy(three, tmp_path, garage, 1, room_s=20)
    running = (await manager.engine("a")).engine.generate(EngineRequest(0, ""))
    await anext(running)
    order: list[str] = []

    async def ask(name: str, done: asyncio.Event) -> None:
        while True:
            try:
                model = await manager.engine(name)
                break
            except ModelLoading:  # as clients do: they ask again
                await asyncio.sleep(0.01)
        async for _ in model.engine.generate(EngineRequest(0, "")):
            pass
        order.append(name)
        done.set()

    others, again = asyncio.Event(), asyncio.Event()
    waiting = asyncio.create_task(ask("b", others))
    await until(lambda: manager.state("b") == "loading")
    await asyncio.sleep(0.05)
    late = asyncio.create_task(ask("a", again))
    await asyncio.sleep(0.3)  # more than a request waits for
    assert order == []
    assert len(garage.made) == 1, "what runs stays"
    async for _ in running:
        pass
    await asyncio.wait_for(asyncio.gather(waiting, late), 10)
    assert order == ["b", "a"]
    assert len(garage.made) == 3
    assert not any(slot.n_held for slot in manager._slots.values())


async def test_a_model_is_free_again_when_the_other_gives_up(three: Catalogue, tmp_path: Path, garage: Garage) -> None:
    manager = roomy(three, tmp_path, garage, 1, room_s=0.2)
    running = (await manager.engine("a")).engine.generate(EngineRequest(0, ""))
    await anext(running)
    with pytest.raises(ModelLoading):
        await manager.engine("b")
    assert (await asyncio.wait_for(manager.engine("a"), 5)).name == "a"
    async for _ in running:
        pass
    assert len(garage.made) == 1


async def test_models_named_at_start_are_loaded_together_whatever_they_take(
    three: Catalogue, tmp_path: Path, garage: Garage
) -> None:
    garage.gate.set()
    settings = Settings(max_memory_bytes=1)
    manager = Manager(three, Store(tmp_path / "cache"), settings, garage.make, preload=("a", "b"), grace_s=0.05)
    await manager.start()
    await manager.wait_started()
    assert [model.name for model in manager.loaded()] == ["a", "b"]


async def test_further_names(tmp_path: Path, garage: Garage) -> None:
    (tmp_path / "a.gguf").write_bytes(GGUF)
    garage.gate.set()
    catalogue = parse_catalogue("a a.gguf aliases=gpt-4o,claude-sonnet", path="models.txt", base=tmp_path)
    manager = Manager(catalogue, Store(tmp_path / "cache"), Settings(), garage.make)
    names = [(await manager.engine(name)).name for name in ("gpt-4o", "claude-sonnet", "a:latest", "gpt-4o:latest")]
    assert names == ["a"] * 4
    assert manager.names() == ("a",)


async def test_what_is_told_of_models(manager: Manager, garage: Garage, tmp_path: Path) -> None:
    write_tiny_model(tmp_path / "b.gguf", TinyModel(chat_template="{{ messages }}", n_ctx_train=512))
    a, b, c, d = await manager.describe_all()
    assert (a.alias, a.is_default, a.state) == ("a", True, "stopped")
    assert a.details is not None
    assert (a.details.architecture, a.details.quantization, a.details.size_bytes) == ("", "unknown", len(GGUF))
    assert (c.details, d.details) == (None, None)
    assert b.details is not None
    assert (b.details.architecture, b.details.n_ctx_train, b.details.n_embd) == ("llama", 512, 64)
    assert (b.details.quantization, b.details.chat_template) == ("F32", "{{ messages }}")
    assert b.details.size_bytes == (tmp_path / "b.gguf").stat().st_size
    assert abs(4 * b.details.n_params / b.details.size_bytes - 1) < 0.2
    garage.gate.set()
    await manager.engine("b")
    told = await manager.describe("b")
    assert (told.state, told.n_ctx_slot) == ("ready", 1)
    assert told.details is b.details
    assert told.memory_bytes == b.details.size_bytes + b.details.kv_bytes(512 * 4) > b.details.size_bytes


async def test_loading_can_be_begun_without_waiting(manager: Manager, garage: Garage) -> None:
    manager.load("b")
    assert manager.state("b") == "loading"
    garage.gate.set()
    await until(lambda: manager.state("b") == "ready")
    manager.load("b")
    await asyncio.sleep(0)
    assert len(garage.made) == 1
    with pytest.raises(ModelNotFound):
        manager.load("nobody")


async def test_a_file_that_may_not_be_read_is_the_models_failure(
    manager: Manager, garage: Garage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("server.models.local.check_gguf", refuse)
    garage.gate.set()
    with pytest.raises(EngineStartFailed, match=r"b\.gguf: Permission denied"):
        await manager.engine("b")
    with pytest.raises(EngineStartFailed, match="Permission denied"):
        _ = [step async for step in manager.pull("b")]
    assert (await manager.describe("b")).details is None


async def test_a_draft_model_is_fetched_and_counted_with_the_one_that_it_drafts_for(tmp_path: Path, garage: Garage) -> None:
    target = write_tiny_model(tmp_path / "a.gguf", TinyModel(n_ctx_train=512, n_layers=2))
    small = write_tiny_model(tmp_path / "b.gguf", TinyModel(n_ctx_train=256))
    garage.gate.set()
    catalogue = parse_catalogue("a a.gguf draft=b\nb b.gguf\nv a.gguf draft=b embedding=true", path="models.txt", base=tmp_path)
    for speculation in (True, False):
        settings = Settings(speculation=speculation)
        manager = Manager(catalogue, Store(tmp_path / "cache"), settings, garage.make)
        await manager.engine("a")
        spec = garage.made[-1].spec
        assert (spec.path, spec.speculation) == (str(target), speculation)
        assert spec.draft_path == (str(small) if speculation else None)
        a, b, _ = await manager.describe_all()
        assert (a.state, b.state) == ("ready", "stopped")
        assert a.details is not None
        assert b.details is not None
        alone = a.details.size_bytes + a.details.kv_bytes(512 * 4)
        assert a.memory_bytes == alone + (b.details.size_bytes + b.details.kv_bytes(512 * 4)) * speculation
        await manager.engine("v")
        assert garage.made[-1].spec.draft_path is None


async def test_a_draft_model_that_is_missing_is_a_failed_start(tmp_path: Path, garage: Garage) -> None:
    (tmp_path / "a.gguf").write_bytes(GGUF)
    garage.gate.set()
    catalogue = parse_catalogue("a a.gguf draft=b\nb b.gguf", path="models.txt", base=tmp_path)
    with pytest.raises(EngineStartFailed, match=r"b\.gguf"):
        await Manager(catalogue, Store(tmp_path / "cache"), Settings(), garage.make).engine("a")

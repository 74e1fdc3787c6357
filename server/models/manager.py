"""The models that a server knows and the processes of those that are loaded.

Loading is by name: the default model at server start, others of models.txt when they are first asked for. A request waits
a moment for a model that is about to be ready, else it gets ModelLoading. Only this module of the package knows engines.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypeVar

from server.engine.client import EngineClient
from server.engine.messages import ModelSpec, ModelState
from server.errors import EngineStartFailed, ModelLoading, ModelNotFound
from server.models.catalogue import Catalogue, ModelEntry
from server.models.errors import ModelError
from server.models.store import Store
from server.settings import Settings

_log = logging.getLogger(__name__)
_GRACE_S = 5.0
_RETRY_LOADING_S = 2
_RETRY_FETCHING_S = 30
_ALL_LAYERS = -1
_DEFAULTS = ModelSpec(path="")

MakeEngine: TypeAlias = Callable[[str, ModelSpec], EngineClient]
"""Makes the engine of a model, not yet started, from the model's alias and how to load it."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model that can take requests, with what models.txt says of it. `template`: a built-in one's name, or Jinja text."""

    name: str
    engine: EngineClient
    template: str | None = None
    codec: str | None = None


@dataclass(slots=True)
class _Slot:
    """A model that somebody asked for: the task that fetches and starts it, and its engine as soon as there is one."""

    entry: ModelEntry
    loading: asyncio.Task[LoadedModel] | None = None
    engine: EngineClient | None = None
    model: LoadedModel | None = None
    is_fetching: bool = False
    failure: str | None = None


def model_spec(entry: ModelEntry, path: Path, settings: Settings) -> ModelSpec:
    """How to load `entry`, whose file is at `path`: the command line counts first, then models.txt, then the defaults."""
    options = entry.options
    layers = _first(settings.n_gpu_layers, options.gpu_layers)
    return ModelSpec(
        path=str(path),
        n_ctx=_first(settings.n_ctx, options.ctx),
        n_slots=_first(settings.parallel, options.parallel) or _DEFAULTS.n_slots,
        n_gpu_layers=_ALL_LAYERS if layers is None else layers,
        n_threads=_first(settings.n_threads, options.threads),
        n_batch=options.batch or _DEFAULTS.n_batch,
        embedding=options.embedding,
        max_waiting=settings.request_limits.max_waiting,
    )


def _read_template(entry: ModelEntry) -> str | None:
    path = entry.template_path
    if path is None:
        return entry.options.template
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise EngineStartFailed(f"the template of {entry.alias} can't be read: {error}") from error


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)


class Manager:
    """The catalogue's models, loaded by name. All methods run on the event loop and none blocks it.

    `preload` are the aliases that `start` loads; the first line of the catalogue is the default model.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        store: Store,
        settings: Settings,
        make_engine: MakeEngine,
        *,
        preload: tuple[str, ...] = (),
        grace_s: float = _GRACE_S,
    ) -> None:
        self._catalogue = catalogue
        self._store = store
        self._settings = settings
        self._make_engine = make_engine
        self._preload = preload or (catalogue.default.alias,)
        self._grace_s = grace_s
        self._slots: dict[str, _Slot] = {}
        self._starting: list[asyncio.Task[LoadedModel]] = []

    @property
    def default(self) -> str:
        """The name of the default model."""
        return self._catalogue.default.alias

    def names(self) -> tuple[str, ...]:
        """Every name that a request may ask for, the default first."""
        return self._catalogue.aliases

    def state(self, name: str | None = None) -> ModelState:
        """Where a model (None: the default) stands; "stopped" where nobody asked for it. Never waits. Raises ModelNotFound."""
        slot = self._slots.get(self._entry(name).alias)
        if slot is None:
            return "stopped"
        if slot.failure is not None:
            return "failed"
        return slot.engine.state if slot.model is not None and slot.engine is not None else "loading"

    def loaded(self) -> tuple[LoadedModel, ...]:
        """The models that have a live process now."""
        models = (slot.model for slot in self._slots.values())
        return tuple(model for model in models if model is not None and model.engine.state in ("ready", "restarting"))

    async def engine(self, name: str | None) -> LoadedModel:
        """The model of that name, loaded if it isn't; None, "" and "default" are the default model.

        Waits a few seconds for a process that is starting. Raises ModelNotFound, ModelLoading, EngineStartFailed.
        """
        slot = self._load(self._entry(name))
        task = slot.loading  # unset when it is done
        if task is None:
            return await self.wait_loaded(name)
        grace_s = 0.0 if slot.is_fetching else self._grace_s
        done, _ = await asyncio.wait((task,), timeout=grace_s)
        if done:
            return task.result()
        what = "is being fetched" if slot.is_fetching else "is being loaded"
        retry_after_s = _RETRY_FETCHING_S if slot.is_fetching else _RETRY_LOADING_S
        raise ModelLoading(f"model {slot.entry.alias} {what}", param="model", retry_after_s=retry_after_s)

    async def wait_loaded(self, name: str | None = None) -> LoadedModel:
        """The model of that name, however long it takes to load. Raises ModelNotFound, EngineStartFailed."""
        slot = self._load(self._entry(name))
        if slot.loading is not None:
            return await asyncio.shield(slot.loading)
        assert slot.model is not None  # _load starts a task where there is no model
        return slot.model

    async def start(self) -> None:
        """Begin to load the models that have to be there at server start; returns without waiting for them.

        The second call does nothing.
        """
        if not self._starting:
            self._starting = [task for alias in self._preload if (task := self._load(self._entry(alias)).loading) is not None]

    async def wait_started(self) -> None:
        """Until all models that `start` began to load are there. Raises the first EngineStartFailed."""
        await asyncio.gather(*(asyncio.shield(task) for task in self._starting))

    async def stop(self) -> None:
        """End every model process."""
        slots, self._slots = list(self._slots.values()), {}
        tasks = [slot.loading for slot in slots if slot.loading is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        stops = [slot.engine.stop() for slot in slots if slot.engine is not None]
        for failure in await asyncio.gather(*stops, return_exceptions=True):
            if isinstance(failure, Exception):
                _log.error("a model process didn't stop: %s", failure)

    def _entry(self, name: str | None) -> ModelEntry:
        if name in (None, "", "default"):
            return self._catalogue.default
        entry = self._catalogue.get(name) if name is not None else None
        if entry is None:
            known = ", ".join(self.names())
            raise ModelNotFound(f"model {name!r} does not exist; this server has {known}", param="model")
        return entry

    def _load(self, entry: ModelEntry) -> _Slot:
        """The model's slot, with a fresh loading task where it has neither model nor task, or where loading has failed."""
        slot = self._slots.get(entry.alias)
        if slot is None or slot.failure is not None or self._has_given_up(slot):
            slot = self._slots[entry.alias] = _Slot(entry)
            slot.loading = asyncio.create_task(self._start_model(slot), name=f"load {entry.alias}")
            slot.loading.add_done_callback(lambda task: self._settle(slot, task))
        return slot

    @staticmethod
    def _has_given_up(slot: _Slot) -> bool:
        return slot.model is not None and slot.model.engine.state in ("failed", "stopped")

    def _settle(self, slot: _Slot, task: asyncio.Task[LoadedModel]) -> None:
        """Note how loading ended. A failure is told to those who wait, and the next request tries again."""
        if task.cancelled():
            return
        failure = task.exception()
        if failure is None:
            slot.model = task.result()
            slot.loading = None
            return
        slot.failure = str(failure) or type(failure).__name__
        if task not in self._starting:  # those are told by wait_started
            _log.error("model %s can't be loaded: %s", slot.entry.alias, slot.failure)

    async def _start_model(self, slot: _Slot) -> LoadedModel:
        entry = slot.entry
        try:
            path = await _in_thread(lambda: self._store.locate(entry))  # a checksum of a big file takes seconds
            if path is None:
                slot.is_fetching = True
                path = await _in_thread(lambda: self._store.fetch(entry))
        except ModelError as error:
            raise EngineStartFailed(str(error), param="model") from error
        finally:
            slot.is_fetching = False
        slot.engine = self._make_engine(entry.alias, model_spec(entry, path, self._settings))
        template = _read_template(entry)
        await slot.engine.start()
        return LoadedModel(entry.alias, slot.engine, template, entry.options.codec)


async def _in_thread(work: Callable[[], T]) -> T:
    """The result of `work`, done in a thread that doesn't keep the process from ending (a fetch may take hours)."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, failure: BaseException | None) -> None:
        if future.done():
            return
        if failure is not None:
            future.set_exception(failure)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        try:
            outcome: tuple[T | None, BaseException | None] = (work(), None)
        except Exception as error:
            outcome = (None, error)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, *outcome)

    threading.Thread(target=run, name="fetch", daemon=True).start()
    return await future

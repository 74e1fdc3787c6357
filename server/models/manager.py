"""The models that a server knows and the processes of those that are loaded.

Loading is by name: the default model at server start, others of models.txt when they are first asked for. A request waits
a moment for a model that is about to be ready, else it gets ModelLoading. A model goes when nobody has asked for it for a
while (those loaded at start stay), or when another one needs its memory. Only this module of the package starts engines.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from server.engine.client import EngineClient
from server.engine.messages import ModelSpec, ModelState
from server.errors import BadRequest, EngineStartFailed, ModelLoading, ModelNotFound
from server.metrics import Metrics
from server.model_status import FetchProgress, ModelDetails, ModelStatus
from server.models.activity import ActiveEngine
from server.models.background import in_thread
from server.models.catalogue import Catalogue, ModelEntry
from server.models.details import read_details
from server.models.errors import ModelError
from server.models.local import LocalSource
from server.models.memory import context_of, memory_of, usable_bytes
from server.models.metadata import UnreadableHeader
from server.models.progress import Meter
from server.models.room import RETRY_LOADING_S, Room
from server.models.slot import LoadedModel, Slot
from server.models.store import Store
from server.settings import Settings

_log = logging.getLogger(__name__)
_GRACE_S = 5.0
_RETRY_FETCHING_S = 30
_PROMISE_S = 10.0  # a request that was given a model has begun to use it by then (its constraint compiles before)
_WAKE_S = 1.0  # those who wait for a model to be loaded have it by then; those who were told to come back, so much later
_LOOK_AGAIN_S = 0.25
_ROOM_S = 30.0
_ALL_LAYERS = -1
_DEFAULTS = ModelSpec(path="")

MakeEngine: TypeAlias = Callable[[str, ModelSpec], EngineClient]
"""Makes the engine of a model, not yet started, from the model's alias and how to load it."""


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
        fast_forward=settings.fast_forward,
        speculation=settings.speculation,
        flash_attention=settings.flash_attention,
        repack=settings.repack,
        hang_timeout_s=settings.hang_timeout_s,
    )


def _read_template(entry: ModelEntry) -> str | None:
    path = entry.template_path
    if path is None:
        return entry.options.template
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise EngineStartFailed(f"the template of {entry.alias}, {path.name}, can't be read: {reason}") from error


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)


class Manager:
    """The catalogue's models, loaded by name. All methods run on the event loop and none blocks it.

    `preload` are the aliases that `start` loads, and which stay; the first line of the catalogue is the default model.
    A request waits for `grace_s`; the loading that it began waits for room longer, `room_s`.
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
        room_s: float = _ROOM_S,
        metrics: Metrics | None = None,
    ) -> None:
        self.catalogue = catalogue
        self.store = store
        self.metrics = metrics or Metrics()
        self._settings = settings
        self._make_engine = make_engine
        self._preload = preload or (catalogue.default.alias,)
        self._grace_s = grace_s
        self._room_s = room_s
        self._slots: dict[str, Slot] = {}
        self._room = Room(self._slots, settings.max_memory_bytes or usable_bytes(), self._preload, self._drop)
        self._starting: list[asyncio.Task[LoadedModel]] = []
        self._stopping: set[asyncio.Task[None]] = set()
        self._details: dict[Path, tuple[tuple[int, float], ModelDetails]] = {}

    @property
    def default(self) -> str:
        """The name of the default model."""
        return self.catalogue.default.alias

    def names(self) -> tuple[str, ...]:
        """The aliases of all models, the default first. Requests may ask for further names too (`aliases=`)."""
        return self.catalogue.aliases

    def state(self, name: str | None = None) -> ModelState:
        """Where a model (None: the default) stands; "stopped" where it isn't loaded. Never waits. Raises ModelNotFound."""
        return _state(self._slots.get(self._entry(name).alias))

    def loaded(self) -> tuple[LoadedModel, ...]:
        """The models that have a live process now."""
        models = (slot.model for slot in self._slots.values())
        return tuple(model for model in models if model is not None and model.engine.state in ("ready", "restarting"))

    # -- asking for a model

    async def engine(self, name: str | None) -> LoadedModel:
        """The model of that name, loaded if it isn't; None, "" and "default" are the default model.

        Waits a few seconds for a process that is starting, or for room; behind a model that waits for this one's room, too.
        Raises ModelNotFound, ModelLoading, EngineStartFailed.
        """
        entry = self._entry(name)
        await self._room.wait_open(entry.alias)
        slot = self._load(entry)
        task = slot.loading  # unset when it is done
        if task is None:
            return await self.wait_loaded(name)
        grace_s = 0.0 if slot.is_fetching else self._grace_s
        done, _ = await asyncio.wait((task,), timeout=grace_s)
        if done:
            model = task.result()
            self._hand_out(slot)
            return model
        slot.is_awaited = True
        what = "is being fetched" if slot.is_fetching else "is being loaded"
        retry_after_s = _RETRY_FETCHING_S if slot.is_fetching else RETRY_LOADING_S
        raise ModelLoading(f"model {slot.entry.alias} {what}", param="model", retry_after_s=retry_after_s)

    async def wait_loaded(self, name: str | None = None) -> LoadedModel:
        """The model of that name, however long it takes to load. Raises ModelNotFound, ModelLoading, EngineStartFailed."""
        slot = self._load(self._entry(name))
        if slot.loading is not None:
            model = await asyncio.shield(slot.loading)
            self._hand_out(slot)
            return model
        assert slot.model is not None  # _load starts a task where there is no model
        self._hand_out(slot)
        return slot.model

    def load(self, name: str | None) -> None:
        """Begin to load a model where it isn't loaded; failures are logged. Raises ModelNotFound."""
        self._load(self._entry(name))

    def _hand_out(self, slot: Slot, promise_s: float = _PROMISE_S) -> None:
        """Somebody is about to use the model."""
        slot.last_used = time.monotonic()
        slot.promised_until = slot.last_used + promise_s
        self._await_end(slot)

    def _await_end(self, slot: Slot) -> None:
        """Have an idle model expire when it should."""
        if slot.is_idle and self._slots.get(slot.entry.alias) is slot:
            ends_at = max(slot.last_used + slot.keep_alive_s, slot.promised_until)
            slot.set_timer(max(0.0, ends_at - time.monotonic()), self._expire)

    # -- the server's life

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
        slots = list(self._slots.values())
        self._slots.clear()
        tasks = [slot.loading for slot in slots if slot.loading is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *self._stopping, return_exceptions=True)
        for slot in slots:
            slot.stop_timer()
        await asyncio.gather(*(_stop(slot.engine) for slot in slots if slot.engine is not None))

    # -- going

    def touch(self, name: str | None, keep_alive_s: float) -> None:
        """From now on the model stays this long after its last use; negative: for ever; 0: it goes when nothing runs on it.

        Nothing where it isn't loaded. Raises ModelNotFound.
        """
        slot = self._slots.get(self._entry(name).alias)
        if slot is None:
            return
        slot.keep_alive_s = keep_alive_s if keep_alive_s >= 0 else math.inf
        self._await_end(slot)

    def unload(self, name: str | None) -> None:
        """End the model's process, now or when what runs on it is done. Nothing where it isn't loaded. Raises ModelNotFound."""
        slot = self._slots.get(self._entry(name).alias)
        if slot is not None and slot.may_go:
            self._drop(slot, "unloaded")
        else:
            self.touch(name, 0.0)

    def _expire(self, slot: Slot) -> None:
        if slot.may_go and self._slots.get(slot.entry.alias) is slot:
            self._drop(slot, "idle, unloaded")
        else:
            self._await_end(slot)

    def _drop(self, slot: Slot, why: str) -> None:
        """The model goes; the next request for it loads it again."""
        assert slot.engine is not None
        del self._slots[slot.entry.alias]
        slot.stop_timer()
        _log.info("model %s: %s", slot.entry.alias, why)
        task = asyncio.create_task(_stop(slot.engine), name=f"stop {slot.entry.alias}")
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)

    def _on_change(self, slot: Slot) -> None:
        """The engine's first use has begun, or its last one is over."""
        slot.last_used = time.monotonic()
        if slot.engine is None or not slot.engine.is_idle:
            slot.is_used = True
            slot.stop_timer()
        else:
            self._await_end(slot)
            self._room.look()

    @staticmethod
    def _on_run(slot: Slot) -> None:
        """A run, or another use, has begun: what was promised is kept."""
        slot.promised_until = -math.inf

    # -- what is told of models

    async def describe(self, name: str | None) -> ModelStatus:
        """What is known of a model, loaded or not; never waits for a model. Raises ModelNotFound."""
        entry = self._entry(name)
        return self._status(entry, await in_thread(lambda: self._look_up(entry)))

    async def describe_all(self) -> tuple[ModelStatus, ...]:
        """`describe` for every model, the default first."""
        entries = self.catalogue.entries
        found = await in_thread(lambda: [self._look_up(entry) for entry in entries])
        return tuple(self._status(entry, details) for entry, details in zip(entries, found, strict=True))

    def statuses(self) -> tuple[ModelStatus, ...]:
        """`describe_all` for the models that are loaded or being loaded, without their details; at once."""
        return tuple(self._status(slot.entry, None) for slot in self._slots.values())

    def _status(self, entry: ModelEntry, details: ModelDetails | None) -> ModelStatus:
        slot = self._slots.get(entry.alias)
        engine = slot.engine if slot is not None and slot.model is not None else None
        expires_at = slot.expires_at if slot is not None else math.inf
        return ModelStatus(
            alias=entry.alias,
            source=entry.source.path.name if isinstance(entry.source, LocalSource) else entry.source.text,
            state=_state(slot),
            details=details,
            is_default=entry.alias == self.default,
            template=entry.options.template,
            codec=entry.options.codec,
            is_for_embeddings=entry.options.embedding,
            n_slots=engine.info.n_slots if engine is not None else None,
            n_ctx_slot=engine.info.n_ctx_slot if engine is not None else None,
            memory_bytes=slot.memory_bytes if slot is not None and engine is not None else 0,
            n_running=engine.n_running if engine is not None else 0,
            n_waiting=engine.n_waiting if engine is not None else 0,
            n_kv_tokens=engine.n_kv_tokens if engine is not None else 0,
            expires_at_s=None if expires_at == math.inf else time.time() + expires_at - time.monotonic(),
        )

    def _look_up(self, entry: ModelEntry) -> ModelDetails | None:
        """The details of the model's files, None where they aren't here or can't be read. Runs in a thread."""
        try:
            found = self.store.find(entry)
            return None if found is None else self._read_details(*found)
        except (ModelError, UnreadableHeader, OSError) as error:
            _log.debug("model %s: %s", entry.alias, error)
            return None

    def _read_details(self, path: Path, sha256: str | None) -> ModelDetails:
        state = path.stat()
        stamp, details = self._details.get(path, (None, None))
        if details is None or stamp != (state.st_size, state.st_mtime):
            details = read_details(path, sha256)
            self._details[path] = (state.st_size, state.st_mtime), details
        return details

    # -- fetching and deleting

    async def pull(self, name: str | None) -> AsyncGenerator[FetchProgress, None]:
        """Fetch a model's files where they aren't here, telling now and then how far it is.

        A fetch goes on, and is resumed by the next one, when nobody listens any more. Raises ModelNotFound, EngineStartFailed.
        """
        entry, meter, told = self._entry(name), Meter(), None
        fetching = asyncio.ensure_future(in_thread(lambda: self.store.fetch(entry, meter)))
        try:
            while not fetching.done():
                await asyncio.wait((fetching,), timeout=_LOOK_AGAIN_S)
                if meter.state is not None and meter.state != told:
                    told = meter.state
                    yield told
            fetching.result()
        except ModelError as error:
            raise EngineStartFailed(self._told(entry, error), param="model") from error
        finally:
            fetching.cancel()

    async def remove(self, name: str | None) -> None:
        """Unload a model and delete its files from the cache. Raises ModelNotFound where there are none, BadRequest."""
        entry = self._entry(name)
        if isinstance(entry.source, LocalSource):  # refused here, without the path that the store's error tells
            raise BadRequest(f"{entry.alias} is a file of yours, not of the cache; delete it yourself", param="model")
        try:
            if await in_thread(lambda: self.store.find(entry)) is None:
                raise ModelNotFound(f"model {name!r} not found: its files are not here", param="model")
            self.unload(name)
            await in_thread(lambda: self.store.remove(entry))
        except ModelError as error:
            raise BadRequest(self._told(entry, error), param="model") from error

    # -- loading

    def _entry(self, name: str | None) -> ModelEntry:
        if name in (None, "", "default"):
            return self.catalogue.default
        assert name is not None
        entry = self.catalogue.get(name) or self.catalogue.get(name.removesuffix(":latest"))
        if entry is None:
            known = ", ".join(self.names())
            raise ModelNotFound(f"model {name!r} not found; this server has {known}", param="model")
        return entry

    def _load(self, entry: ModelEntry) -> Slot:
        """The model's slot, with a fresh loading task where it has neither model nor task, or where loading has failed."""
        slot = self._slots.get(entry.alias)
        if slot is None or slot.failure is not None or self._has_given_up(slot):
            stays = entry.alias in self._preload
            slot = self._slots[entry.alias] = Slot(entry, math.inf if stays else self._settings.keep_alive_s)
            slot.loading = asyncio.create_task(self._start_model(slot), name=f"load {entry.alias}")
            slot.loading.add_done_callback(lambda task: self._settle(slot, task))
        return slot

    @staticmethod
    def _has_given_up(slot: Slot) -> bool:
        return slot.model is not None and slot.model.engine.state in ("failed", "stopped")

    def _settle(self, slot: Slot, task: asyncio.Task[LoadedModel]) -> None:
        """Note how loading ended. A failure is told to those who wait, and the next request tries again."""
        if task.cancelled():
            return
        failure = task.exception()
        if failure is None:
            slot.model = task.result()
            slot.loading = None
            self._hand_out(slot, RETRY_LOADING_S + _WAKE_S if slot.is_awaited else _WAKE_S)
            return
        slot.memory_bytes = 0
        if isinstance(failure, ModelLoading):  # there was no room: nothing is wrong with the model
            if self._slots.get(slot.entry.alias) is slot:
                del self._slots[slot.entry.alias]
            return
        slot.failure = str(failure) or type(failure).__name__
        if task not in self._starting:  # those are told by wait_started
            _log.error("model %s can't be loaded: %s", slot.entry.alias, slot.failure)

    async def _start_model(self, slot: Slot) -> LoadedModel:
        entry = slot.entry
        path = await self._get_file(slot, entry)
        spec = model_spec(entry, path, self._settings)
        details = await in_thread(lambda: self._look_up(entry))
        needed_bytes = memory_of(path, details, spec)
        if (draft := self._draft_of(entry)) is not None:
            draft_path = await self._get_file(slot, draft)
            draft_details = await in_thread(lambda: self._look_up(draft))
            needed_bytes += memory_of(draft_path, draft_details, replace(spec, n_ctx=context_of(details, spec)))
            spec = replace(spec, draft_path=str(draft_path))
        await self._room.make(slot, needed_bytes, self._room_s)
        engine = self._make_engine(entry.alias, spec)
        slot.engine = ActiveEngine(
            engine, self.metrics.model(entry.alias), lambda: self._on_change(slot), lambda: self._on_run(slot)
        )
        template = _read_template(entry)
        await slot.engine.start()
        return LoadedModel(entry.alias, slot.engine, template, entry.options.codec)

    def _draft_of(self, entry: ModelEntry) -> ModelEntry | None:
        """The line of the model that drafts for this one, where one is to."""
        options = entry.options
        if options.draft is None or options.embedding or not self._settings.speculation:
            return None
        return self.catalogue.get(options.draft)

    async def _get_file(self, slot: Slot, entry: ModelEntry) -> Path:
        """A file that the slot's model needs, fetched if it isn't here. Raises EngineStartFailed."""
        try:
            path = await in_thread(lambda: self.store.locate(entry))  # a checksum of a big file takes seconds
            if path is None:
                slot.is_fetching = True
                path = await in_thread(lambda: self.store.fetch(entry))
        except ModelError as error:
            raise EngineStartFailed(self._told(entry, error), param="model") from error
        finally:
            slot.is_fetching = False
        return path

    def _told(self, entry: ModelEntry, error: ModelError) -> str:
        """What clients are told: a file's name, but not where on this machine it lies."""
        source = entry.source
        folder = source.path.parent if isinstance(source, LocalSource) else self.store.folder(source)
        _log.debug("model %s: %s", entry.alias, error)
        return str(error).replace(f"{folder}{os.sep}", "").replace(str(folder), "the cache")


async def _stop(engine: EngineClient) -> None:
    try:
        await engine.stop()
    except Exception as error:
        _log.error("a model process didn't stop: %s", error)


def _state(slot: Slot | None) -> ModelState:
    if slot is None:
        return "stopped"
    if slot.failure is not None:
        return "failed"
    return slot.engine.state if slot.model is not None and slot.engine is not None else "loading"

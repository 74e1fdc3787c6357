"""The parent's side of a model: what the rest of the server may ask of an engine, and the one implementation of it.

`ProcessClient` has the engine in a child process, `LocalClient` (for tests, over any backend) in threads of this one; all but
the transport is shared. Nothing here imports llama.cpp or numpy.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from typing_extensions import assert_never

from server.engine.link import Connect, Link, OnDeath, OnMessage
from server.engine.messages import (
    Add,
    Cancel,
    CheckGrammar,
    Detokenize,
    DropGrammar,
    Embed,
    EngineEvent,
    EngineRequest,
    Failed,
    FailureKind,
    Finished,
    InspectSlots,
    LoadFailed,
    ModelInfo,
    ModelSpec,
    ModelState,
    Pieces,
    PutGrammar,
    Question,
    Ready,
    Reply,
    SetBusy,
    SlotState,
    StepOutput,
    ToChild,
    Tokenize,
    TokenizeAll,
    ToParent,
)
from server.errors import (
    BadRequest,
    ConstraintRejected,
    ContextOverflow,
    EngineDied,
    EngineStartFailed,
    GenerationFailed,
    ModelLoading,
    QueueFull,
    ServerError,
)

if TYPE_CHECKING:
    from server.engine.backend import Backend

logger = logging.getLogger(__name__)

_RETRY_AFTER_S = 1
_GRAMMAR_BYTES = 64 * 1024 * 1024  # of grammars that a child holds at most, but for those in use
_ENTRY_BYTES = 8 * 1024  # what a grammar takes beside its text and tables: its rules, matcher and names (measured: 7.4 KB)

Answer = TypeVar("Answer")


class EngineClient(Protocol):
    """One loaded model. Two forms: a child process, and in-process with a fake backend for tests.

    All methods run on the event loop and none blocks it.
    """

    @property
    def state(self) -> ModelState:
        """Where the model's process stands; never waits for it."""

    @property
    def info(self) -> ModelInfo:
        """What is known of the loaded model. Raises ModelLoading before it is ready."""

    async def start(self) -> ModelInfo:
        """Load the model. Raises EngineStartFailed with the child's last words."""

    async def stop(self) -> None:
        """End the child, at once."""

    async def put_grammar(self, key: str, gbnf: str, tables: bytes) -> None:
        """Make a grammar known under `key`; sending it twice costs nothing."""

    def generate(self, request: EngineRequest) -> AsyncIterator[EngineEvent]:
        """The request's events, Started first. Closing the iterator cancels the request.

        `request.id` is set by the client. A Failed event of the whole request is raised as its `server.errors` class
        (ContextOverflow, ConstraintRejected, QueueFull …), a dead child as EngineDied; Failed events of one choice are yielded.
        """

    async def tokenize(self, text: str, *, add_special: bool = False, parse_special: bool = True) -> tuple[int, ...]:
        """Token ids of `text`."""

    async def tokenize_all(self, texts: tuple[str, ...], *, add_special: bool, most: int) -> tuple[tuple[int, ...] | int, ...]:
        """Token ids of each text, special tokens read as such.

        A text that has more than `most` tokens for sure ends it: its entry is their least number, and nothing comes after.
        """

    async def detokenize(self, tokens: tuple[int, ...]) -> bytes:
        """The bytes that `tokens` spell, special tokens included."""

    async def spell(self, tokens: tuple[int, ...]) -> tuple[bytes, ...]:
        """The bytes that each of `tokens` spells."""

    async def check_grammar(self, key: str) -> None:
        """Raises ConstraintRejected where the grammar that was put under `key` can't be used with this model's vocabulary."""

    async def embed(self, inputs: tuple[tuple[int, ...], ...], *, is_ranking: bool = False) -> tuple[bytes, ...]:
        """A vector of each input, of length 1, as little-endian float32; with `is_ranking` one float of each framed pair.

        Cancelling the wait cancels the work.
        """

    async def slots(self) -> tuple[SlotState, ...]:
        """What each slot is at."""

    def set_busy(self, busy: bool) -> None:
        """Tell the child that something heavy runs beside it (it then decodes with one thread fewer)."""


class _Grammars:
    """The grammars that the child knows, oldest use first; bounded in bytes. Those of running requests are never dropped."""

    def __init__(self, max_bytes: int = _GRAMMAR_BYTES) -> None:
        self._max_bytes = max_bytes
        self._known: OrderedDict[str, PutGrammar] = OrderedDict()
        self._n_users: dict[str, int] = {}
        self._n_bytes = 0

    def put(self, message: PutGrammar) -> list[ToChild]:
        """What to send so that the child knows this grammar."""
        if message.key in self._known:
            self._known.move_to_end(message.key)
            return []
        self._known[message.key] = message
        self._n_bytes += _size(message)
        return [message, *self._evict(message.key)]

    def _evict(self, newest: str) -> list[ToChild]:
        dropped: list[str] = []
        for key, message in self._known.items():
            if self._n_bytes <= self._max_bytes:
                break
            if key != newest and not self._n_users.get(key):
                self._n_bytes -= _size(message)
                dropped.append(key)
        for key in dropped:
            del self._known[key]
        return [DropGrammar(key) for key in dropped]

    def use(self, keys: tuple[str, ...]) -> None:
        """A request runs with these grammars."""
        for key in keys:
            self._n_users[key] = self._n_users.get(key, 0) + 1

    def release(self, keys: tuple[str, ...]) -> None:
        """A request with these grammars is over."""
        for key in keys:
            if n_users := self._n_users.pop(key) - 1:
                self._n_users[key] = n_users

    def all(self) -> list[PutGrammar]:
        """Everything a fresh child must be told."""
        return list(self._known.values())


def _size(message: PutGrammar) -> int:
    return len(message.gbnf) + len(message.tables) + _ENTRY_BYTES


class Client:
    """An `EngineClient` over any `Link`. A child that dies while serving is replaced at once, and by the next request again.

    A request during the first load is refused with ModelLoading; one during a restart waits for it. `paths` are the files of
    the model: what is told of them, clients hear too, so without their folders.
    """

    def __init__(self, connect: Connect, paths: Sequence[str] = ()) -> None:
        self._connect = connect
        self._folders = {f"{Path(path).parent}{os.sep}" for path in paths} - {f".{os.sep}", os.sep}
        self._link: Link | None = None
        self._state: ModelState = "loading"
        self._info: ModelInfo | None = None
        self._starting: asyncio.Task[ModelInfo] | None = None
        self._loaded: asyncio.Future[ModelInfo] | None = None
        self._events: dict[int, asyncio.Queue[EngineEvent | ServerError]] = {}
        self._answers: dict[int, asyncio.Future[Reply]] = {}
        self._numbers = count(1)
        self._grammars = _Grammars()
        self._busy = False

    @property
    def state(self) -> ModelState:
        return self._state

    @property
    def info(self) -> ModelInfo:
        if self._info is None:
            raise ModelLoading("the model is still being loaded", retry_after_s=_RETRY_AFTER_S)
        return self._info

    # -- life and death

    async def start(self) -> ModelInfo:
        return await asyncio.shield(self._ensure_starting())

    def _ensure_starting(self) -> asyncio.Task[ModelInfo]:
        """The one task that starts the engine."""
        if self._starting is None or self._starting.done():
            self._starting = asyncio.create_task(self._start())
            self._starting.add_done_callback(self._log_failure)
        return self._starting

    def _log_failure(self, task: asyncio.Task[ModelInfo]) -> None:
        """A first start is told to its caller; a restart may have nobody who waits for it."""
        if not task.cancelled() and (error := task.exception()) is not None and self._info is not None:
            logger.error("the model can't be restarted: %s", error)

    async def _start(self) -> ModelInfo:
        if self._state == "ready" and self._info is not None:
            return self._info
        if self._state in ("failed", "stopped"):
            self._state = "loading" if self._info is None else "restarting"
        self._loaded = asyncio.get_running_loop().create_future()
        try:
            self._link = self._connect(self._take, self._bury)
            self._info = await self._loaded
            if self._link is None:
                raise EngineStartFailed("the model process ended as soon as it had loaded the model")
        except (EngineStartFailed, OSError) as error:
            self._disconnect("stopped" if self._state == "stopped" else "failed")
            raise EngineStartFailed(str(error)) from error
        self._state = "ready"
        for grammar in self._grammars.all():
            self._send(grammar)
        self._send(SetBusy(self._busy))
        return self._info

    async def stop(self) -> None:
        self._disconnect("stopped")
        if self._loaded is not None and not self._loaded.done():
            self._loaded.set_exception(EngineStartFailed("the model was stopped while it was being loaded"))
        self._fail_all("the model has been stopped")

    def _disconnect(self, state: ModelState) -> None:
        self._state = state
        if self._link is not None:
            self._link.close()
            self._link = None

    def _without_folders(self, text: str) -> str:
        for folder in self._folders:
            text = text.replace(folder, "")
        return text

    def _bury(self, last_words: str) -> None:
        """The engine is dead: fail what ran on it and start a fresh one."""
        last_words = self._without_folders(last_words)
        self._link = None
        if self._loaded is not None and not self._loaded.done():
            self._loaded.set_exception(EngineStartFailed(last_words))
        if self._loaded is None or self._loaded.exception() is not None:
            return  # `_start` is about to tell that loading failed
        logger.error("%s", last_words)
        self._state = "restarting"
        self._fail_all(last_words)
        self._ensure_starting()

    def _fail_all(self, reason: str) -> None:
        for queue in self._events.values():
            queue.put_nowait(EngineDied(reason))
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(EngineDied(reason))

    async def _ready(self) -> None:
        """Returns when the engine can take messages. Raises ModelLoading, EngineStartFailed, EngineDied."""
        match self._state:
            case "ready":
                return
            case "loading":
                raise ModelLoading("the model is still being loaded", retry_after_s=_RETRY_AFTER_S)
            case "restarting" | "failed":
                await self.start()
            case "stopped":
                raise EngineDied("the model has been stopped")
            case _:
                assert_never(self._state)

    # -- messages

    def _send(self, message: ToChild) -> None:
        if self._link is not None:
            self._link.send(message)

    def _take(self, message: ToParent) -> None:
        match message:
            case StepOutput():
                for event in message.events:
                    if (queue := self._events.get(event.id)) is not None:
                        queue.put_nowait(event)
            case Reply():
                answer = self._answers.get(message.question)
                if answer is not None and not answer.done():
                    answer.set_result(message)
            case Ready():
                if self._loaded is not None and not self._loaded.done():
                    self._loaded.set_result(message.info)
            case LoadFailed():
                if self._loaded is not None and not self._loaded.done():
                    self._loaded.set_exception(EngineStartFailed(self._without_folders(message.message)))
            case _:
                assert_never(message)

    async def put_grammar(self, key: str, gbnf: str, tables: bytes = b"") -> None:
        for message in self._grammars.put(PutGrammar(key, gbnf, tables)):
            if self._state == "ready":  # a child that isn't up yet is told all grammars when it is
                self._send(message)

    def set_busy(self, busy: bool) -> None:
        if busy != self._busy:
            self._busy = busy
            self._send(SetBusy(busy))

    # -- requests

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineEvent, None]:
        self._grammars.use(request.grammar_keys)
        try:
            await self._ready()
            async with aclosing(self._run(replace(request, id=next(self._numbers)))) as events:
                async for event in events:
                    yield event
        finally:
            self._grammars.release(request.grammar_keys)

    async def _run(self, request: EngineRequest) -> AsyncGenerator[EngineEvent, None]:
        queue = self._events[request.id] = asyncio.Queue()
        n_left = request.n
        is_over = False
        try:
            self._send(Add(request))
            while n_left:
                event = await queue.get()
                if isinstance(event, ServerError):
                    is_over = True
                    raise event
                if isinstance(event, Failed) and event.index is None:
                    is_over = True
                    raise as_error(event)
                if isinstance(event, Finished | Failed):
                    n_left -= 1
                yield event
            is_over = True
        finally:
            del self._events[request.id]
            if not is_over:
                self._send(Cancel(request.id))

    async def tokenize(self, text: str, *, add_special: bool = False, parse_special: bool = True) -> tuple[int, ...]:
        value = await self._ask(Tokenize(next(self._numbers), text, add_special, parse_special))
        return cast("tuple[int, ...]", value)

    async def detokenize(self, tokens: tuple[int, ...]) -> bytes:
        return cast("bytes", await self._ask(Detokenize(next(self._numbers), tokens)))

    async def tokenize_all(self, texts: tuple[str, ...], *, add_special: bool, most: int) -> tuple[tuple[int, ...] | int, ...]:
        value = await self._ask(TokenizeAll(next(self._numbers), texts, add_special, True, most))
        return cast("tuple[tuple[int, ...] | int, ...]", value)

    async def spell(self, tokens: tuple[int, ...]) -> tuple[bytes, ...]:
        return cast("tuple[bytes, ...]", await self._ask(Pieces(next(self._numbers), tokens)))

    async def check_grammar(self, key: str) -> None:
        await self._ask(CheckGrammar(next(self._numbers), key))

    async def embed(self, inputs: tuple[tuple[int, ...], ...], *, is_ranking: bool = False) -> tuple[bytes, ...]:
        question = Embed(next(self._numbers), inputs, is_ranking)
        try:
            return cast("tuple[bytes, ...]", await self._ask(question))
        except asyncio.CancelledError:
            self._send(Cancel(question.question))
            raise

    async def slots(self) -> tuple[SlotState, ...]:
        return cast("tuple[SlotState, ...]", await self._ask(InspectSlots(next(self._numbers))))

    async def _ask(self, question: Question) -> object:
        await self._ready()
        answer = self._answers[question.question] = asyncio.get_running_loop().create_future()
        self._send(question)
        try:
            reply = await answer
        finally:
            self._answers.pop(question.question, None)
        if reply.error is not None:
            raise as_error(Failed(question.question, reply.kind, reply.error))
        return reply.value


def as_error(failed: Failed) -> ServerError:
    """The error that stands for an event of failure."""
    match failed.kind:
        case FailureKind.CONTEXT_OVERFLOW:
            detail = failed.detail
            return ContextOverflow(failed.message, n_tokens=detail.get("n_prompt_tokens"), n_ctx=detail.get("n_ctx"))
        case FailureKind.CONSTRAINT_REJECTED:
            return ConstraintRejected(failed.message)
        case FailureKind.TOO_FEW_TOKENS:
            return ConstraintRejected(failed.message, param="max_tokens", code="max_tokens_too_small")
        case FailureKind.BAD_REQUEST:
            return BadRequest(failed.message)
        case FailureKind.QUEUE_FULL:
            return QueueFull(failed.message, retry_after_s=_RETRY_AFTER_S)
        case FailureKind.GENERATION_FAILED:
            return GenerationFailed(failed.message)
        case _:
            assert_never(failed.kind)


class ProcessClient(Client):
    """The model in a child process of its own."""

    def __init__(self, spec: ModelSpec) -> None:
        def connect(on_message: OnMessage, on_death: OnDeath) -> Link:
            from server.engine.process import ProcessLink

            return ProcessLink(spec, on_message, on_death)

        super().__init__(connect, [path for path in (spec.path, spec.draft_path) if path is not None])

    @property
    def pid(self) -> int | None:
        """The child's process id, None where there is no child."""
        return getattr(self._link, "pid", None)


class LocalClient(Client):
    """The engine in threads of this process, for tests."""

    def __init__(self, backend: Backend, max_waiting: int = 64) -> None:
        def connect(on_message: OnMessage, on_death: OnDeath) -> Link:
            from server.engine.local import LocalLink

            return LocalLink(backend, max_waiting, on_message, on_death)

        super().__init__(connect)

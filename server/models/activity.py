"""An engine whose use is counted: how much runs on it now, since when it is idle, and the sums for the metrics.

It is an `EngineClient` around another one. The manager needs it to know when a model may go; nothing here decides that.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from typing_extensions import assert_never

from server.engine.client import EngineClient
from server.engine.messages import (
    EngineEvent,
    EngineRequest,
    Failed,
    Finished,
    ModelInfo,
    ModelState,
    PromptScored,
    SlotState,
    Started,
    TextChunk,
)
from server.errors import EngineDied, ModelLoading
from server.metrics import ModelTotals

_RETRY_AFTER_S = 1


@dataclass(slots=True)
class _Run:
    """A request under way; times are of the monotonic clock."""

    began: float
    n_tokens: int = 0
    is_started: bool = False
    has_text: bool = False


class ActiveEngine:
    """`engine`, counted. `on_change` is called when the first use begins and when the last one ends, `on_run` at each run
    and at each `use` of some length."""

    def __init__(
        self, engine: EngineClient, totals: ModelTotals, on_change: Callable[[], None], on_run: Callable[[], None]
    ) -> None:
        self._engine = engine
        self._totals = totals
        self._on_change = on_change
        self._on_run = on_run
        self._runs: dict[int, _Run] = {}
        self._n_uses = 0
        self._is_unloaded = False

    @property
    def inner(self) -> EngineClient:
        """The engine itself."""
        return self._engine

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way."""
        return not self._n_uses

    @property
    def n_running(self) -> int:
        """Requests that have a slot."""
        return sum(run.is_started for run in self._runs.values())

    @property
    def n_waiting(self) -> int:
        """Requests that have none yet."""
        return len(self._runs) - self.n_running

    @property
    def n_kv_tokens(self) -> int:
        """Tokens that running requests hold in the KV cache: of their prompts once, and of what they wrote."""
        return sum(run.n_tokens for run in self._runs.values())

    @contextmanager
    def use(self) -> Iterator[None]:
        """It is in use until this is left, even while nothing is asked of it. Raises ModelLoading where it was unloaded."""
        with self._use():
            self._on_run()
            yield

    # -- the EngineClient

    @property
    def state(self) -> ModelState:
        return self._engine.state

    @property
    def info(self) -> ModelInfo:
        return self._engine.info

    async def start(self) -> ModelInfo:
        self._totals.n_loads += 1
        return await self._engine.start()

    async def stop(self) -> None:
        self._is_unloaded = True
        await self._engine.stop()

    async def put_grammar(self, key: str, gbnf: str, tables: bytes) -> None:
        await self._engine.put_grammar(key, gbnf, tables)

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineEvent, None]:
        with self._use():
            self._on_run()
            run = _Run(time.monotonic())
            self._runs[id(run)] = run
            self._totals.n_requests += 1
            events: AsyncIterator[EngineEvent] = self._engine.generate(request)
            try:
                async for event in events:
                    self._count(run, event)
                    yield event
            except EngineDied:
                self._totals.n_lost_requests += 1
                raise
            finally:
                del self._runs[id(run)]
                if isinstance(events, AsyncGenerator):
                    await events.aclose()

    async def tokenize(self, text: str, *, add_special: bool = False, parse_special: bool = True) -> tuple[int, ...]:
        with self._use():
            return await self._engine.tokenize(text, add_special=add_special, parse_special=parse_special)

    async def tokenize_all(self, texts: tuple[str, ...], *, add_special: bool, most: int) -> tuple[tuple[int, ...] | int, ...]:
        with self._use():
            return await self._engine.tokenize_all(texts, add_special=add_special, most=most)

    async def spell(self, tokens: tuple[int, ...]) -> tuple[bytes, ...]:
        with self._use():
            return await self._engine.spell(tokens)

    async def check_grammar(self, key: str) -> None:
        with self._use():
            await self._engine.check_grammar(key)

    async def detokenize(self, tokens: tuple[int, ...]) -> bytes:
        with self._use():
            return await self._engine.detokenize(tokens)

    async def embed(self, inputs: tuple[tuple[int, ...], ...], *, is_ranking: bool = False) -> tuple[bytes, ...]:
        with self._use():
            self._on_run()
            self._totals.n_requests += 1
            try:
                vectors = await self._engine.embed(inputs, is_ranking=is_ranking)
            except EngineDied:
                self._totals.n_lost_requests += 1
                raise
            self._totals.n_embedded_tokens += sum(map(len, inputs))
            return vectors

    async def slots(self) -> tuple[SlotState, ...]:
        return await self._engine.slots()

    def set_busy(self, busy: bool) -> None:
        self._engine.set_busy(busy)

    # -- counting

    @contextmanager
    def _use(self) -> Iterator[None]:
        """Something is under way. Raises ModelLoading where the model has been unloaded since it was handed out."""
        if self._is_unloaded:
            raise ModelLoading("the model has just been unloaded; ask again", param="model", retry_after_s=_RETRY_AFTER_S)
        self._n_uses += 1
        if self._n_uses == 1:
            self._on_change()
        try:
            yield
        finally:
            self._n_uses -= 1
            if not self._n_uses:
                self._on_change()

    def _count(self, run: _Run, event: EngineEvent) -> None:
        totals = self._totals
        match event:
            case Started():
                run.is_started = True
                run.n_tokens += event.n_prompt_tokens
                totals.n_prompt_tokens += event.n_prompt_tokens
                totals.n_cached_tokens += event.n_cached_tokens
            case TextChunk():
                run.n_tokens += event.n_tokens
                if not run.has_text:
                    run.has_text = True
                    totals.first_token_s.add(time.monotonic() - run.began)
            case Finished():
                totals.n_completion_tokens += event.n_completion_tokens
                totals.n_reasoning_tokens += event.n_reasoning_tokens
                totals.n_forced_tokens += event.n_forced_tokens
                totals.n_rejected_tokens += event.n_rejected_tokens
                totals.n_drafted_tokens += event.n_drafted_tokens
                totals.n_accepted_tokens += event.n_accepted_tokens
                totals.prompt_s += event.prompt_s if event.index == 0 else 0.0
                totals.decode_s += event.decode_s
            case PromptScored() | Failed():
                pass
            case _:
                assert_never(event)

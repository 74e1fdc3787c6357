"""What is counted of an engine's use."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass

import pytest

from server.engine.messages import EngineEvent, EngineRequest, Finished, FinishReason, Started, TextChunk
from server.errors import EngineDied
from server.metrics import ModelTotals
from server.models.activity import ActiveEngine
from tests.server.fakes import FakeEngine

SCRIPT = (
    Started(0, 7, n_cached_tokens=4),
    TextChunk(0, 0, "a", n_tokens=1),
    TextChunk(0, 1, "b", n_tokens=2),
    Finished(0, 0, FinishReason.STOP, 1, prompt_s=0.5, decode_s=1.0),
    Finished(
        0,
        1,
        FinishReason.STOP,
        2,
        n_reasoning_tokens=1,
        n_forced_tokens=2,
        n_rejected_tokens=3,
        n_drafted_tokens=5,
        n_accepted_tokens=4,
        prompt_s=0.5,
        decode_s=2.0,
    ),
)


@dataclass
class ScriptedEngine(FakeEngine):
    """Tells SCRIPT, or dies at it."""

    does_die: bool = False

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineEvent, None]:
        for event in SCRIPT:
            yield event
            if self.does_die:
                raise EngineDied("gone")

    async def embed(self, inputs: tuple[tuple[int, ...], ...], *, is_ranking: bool = False) -> tuple[bytes, ...]:
        if self.does_die:
            raise EngineDied("gone")
        return tuple(b"" for _ in inputs)


def counted(engine: FakeEngine, changes: list[str]) -> tuple[ActiveEngine, ModelTotals]:
    totals = ModelTotals()
    return ActiveEngine(engine, totals, lambda: changes.append("change"), lambda: changes.append("run")), totals


async def test_everything_is_counted_once() -> None:
    changes: list[str] = []
    engine, totals = counted(ScriptedEngine(), changes)
    events = engine.generate(EngineRequest(0, ""))
    running = [(engine.n_running, engine.n_waiting, engine.n_kv_tokens) async for _ in events]
    assert running == [(1, 0, 7), (1, 0, 8), (1, 0, 10), (1, 0, 10), (1, 0, 10)]
    assert (engine.is_idle, engine.n_running, engine.n_kv_tokens) == (True, 0, 0)
    assert changes == ["change", "run", "change"]
    assert (totals.n_requests, totals.n_prompt_tokens, totals.n_cached_tokens) == (1, 7, 4)
    assert (totals.n_completion_tokens, totals.n_reasoning_tokens) == (3, 1)
    assert (totals.n_forced_tokens, totals.n_rejected_tokens, totals.n_lost_requests) == (2, 3, 0)
    assert (totals.n_drafted_tokens, totals.n_accepted_tokens) == (5, 4)
    assert (totals.prompt_s, totals.decode_s, sum(totals.first_token_s.counts)) == (0.5, 3.0, 1)
    await engine.embed(((1, 2), (3,)))
    assert (totals.n_requests, totals.n_embedded_tokens) == (2, 3)


async def test_requests_that_a_dead_process_took_with_it() -> None:
    engine, totals = counted(ScriptedEngine(does_die=True), [])
    with pytest.raises(EngineDied):
        _ = [event async for event in engine.generate(EngineRequest(0, ""))]
    with pytest.raises(EngineDied):
        await engine.embed(((1,),))
    assert (totals.n_requests, totals.n_lost_requests, totals.n_embedded_tokens) == (2, 2, 0)
    assert engine.is_idle

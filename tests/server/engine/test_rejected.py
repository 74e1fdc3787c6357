"""How often a grammar refused a drawn token is counted, and told at the end of a reply."""

from __future__ import annotations

from pathlib import Path

from converters import compile_constraint
from converters.constraint import Regex
from server.engine.client import ProcessClient
from server.engine.messages import EngineRequest, Finished, ModelSpec, Sampling
from tests.tiny_models import write_tiny_model


async def finished(client: ProcessClient, key: str | None, temperature: float) -> Finished:
    request = EngineRequest(0, "hello", sampling=Sampling(temperature=temperature, seed=1), grammar_key=key, max_tokens=40)
    last = [event async for event in client.generate(request)][-1]
    assert isinstance(last, Finished)
    return last


async def test_refused_tokens_are_counted(tmp_path: Path) -> None:
    client = ProcessClient(ModelSpec(str(write_tiny_model(tmp_path / "m.gguf")), n_threads=1))
    await client.start()
    compiled = compile_constraint(Regex("[xyz]{20}"))
    await client.put_grammar("k", compiled.gbnf, compiled.tables)
    assert (await finished(client, None, 1.0)).n_rejected_tokens == 0
    for temperature in (0.0, 1.0):
        assert (await finished(client, "k", temperature)).n_rejected_tokens >= 5  # noise seldom says x, y or z
    await client.stop()

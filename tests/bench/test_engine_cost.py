"""What the engine and the server cost beside llama.cpp: a constrained token, a cached prompt, a request, a streamed token.

Wants a quiet machine: `pytest -s -m bench tests/bench/test_engine_cost.py`.
"""

from __future__ import annotations

import os
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from converters import JsonSchema, compile_constraint
from server.bench.scenario import SCENARIOS
from server.engine.backend import Batch
from server.engine.core import Core
from server.engine.intake import Intake
from server.engine.llama import LlamaBackend
from server.engine.messages import EngineRequest, Finished, ModelSpec, PutGrammar, Sampling, TextChunk
from tests.bench.large_vocabulary import large_vocabulary_path
from tests.default_model import default_model_path
from tests.live_server import LiveServer, body
from tests.tiny_models import TinyModel, write_tiny_model

pytestmark = pytest.mark.bench

FREE = EngineRequest(
    0,
    "<|im_start|>user\nTell me a long story about a dragon.<|im_end|>\n<|im_start|>assistant\n",
    max_tokens=128,
    sampling=Sampling(seed=7, ignore_eos=True),
)
SCHEMA = EngineRequest(
    0,
    "<|im_start|>user\nMake four characters.<|im_end|>\n<|im_start|>assistant\n",
    max_tokens=400,
    sampling=Sampling(seed=7),
    grammar_key="schema",
)
CHARACTERS: dict[str, Any] = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 20},
            "age": {"type": "integer", "minimum": 0, "maximum": 120},
            "email": {"type": "string", "pattern": "^[a-z]{3,10}@[a-z]{3,10}\\.(com|org|net)$"},
            "class": {"enum": ["warrior", "mage", "rogue"]},
        },
        "required": ["name", "age", "email", "class"],
        "additionalProperties": False,
    },
    "minItems": 4,
    "maxItems": 4,
}
CLASS = {
    "type": "object",
    "properties": {"class": {"enum": ["warrior", "mage", "rogue"]}},
    "required": ["class"],
    "additionalProperties": False,
}


class TimedBackend(LlamaBackend):
    """Knows how long it decoded."""

    decode_s = 0.0
    n_decodes = 0

    def decode(self, batch: Batch) -> None:
        begun = time.perf_counter()
        super().decode(batch)
        self.decode_s += time.perf_counter() - begun
        self.n_decodes += 1


class Bench:
    """One request after another, in this thread."""

    def __init__(self, model: Path, *, n_ctx: int, n_slots: int, fast_forward: bool, speculates: bool = False) -> None:
        self.backend = TimedBackend(ModelSpec(str(model), n_ctx=n_ctx, n_slots=n_slots))
        self.core = Core(self.backend, speculates=speculates)
        self.intake = Intake(self.backend, SimpleQueue(), lambda message: None, fast_forward)

    def run(self, request: EngineRequest) -> tuple[float, float, int]:
        """Seconds to the first text, seconds outside decodes, and tokens that were drawn."""
        job = self.intake.prepare(request)
        self.backend.decode_s = 0.0
        begun, first_s, n_drawn = time.perf_counter(), 0.0, 0
        self.core.add(job)
        while self.core.has_work:
            for event in self.core.step():
                if isinstance(event, TextChunk) and not first_s:
                    first_s = time.perf_counter() - begun
                if isinstance(event, Finished):
                    n_drawn = event.n_completion_tokens - event.n_forced_tokens
        return first_s, time.perf_counter() - begun - self.backend.decode_s, n_drawn


@pytest.mark.parametrize(("path", "most"), [(default_model_path, 0.03), (large_vocabulary_path, 0.10)], ids=["49k", "262k"])
def test_a_constrained_token_costs_little(path: Callable[[], Path], most: float) -> None:
    """At most 3 % of a free token, decode and all; 10 % where the vocabulary has 262,144 tokens."""
    bench = Bench(path(), n_ctx=1024, n_slots=1, fast_forward=False)
    compiled = compile_constraint(JsonSchema(CHARACTERS))
    bench.intake._put_grammar(PutGrammar("schema", compiled.gbnf, compiled.tables))
    ratios = []
    for _ in range(5):
        _, free_s, n_free = bench.run(FREE)
        free_decode_s = bench.backend.decode_s
        _, schema_s, n_schema = bench.run(SCHEMA)
        extra_ms = 1000 * (schema_s / n_schema - free_s / n_free)
        token_ms = 1000 * (free_s + free_decode_s) / n_free
        ratios.append(extra_ms / token_ms)
        print(
            f"\na free token {token_ms:.2f} ms ({1000 * free_s / n_free:.3f} beside decoding), constrained {extra_ms:.3f} more"
            f" ({n_schema} drawn)"
        )
    print(f"median {100 * statistics.median(ratios):.1f} %")
    assert statistics.median(ratios) <= most


def test_a_reply_takes_as_long_as_its_decodes(default_model: Path) -> None:
    """What the scenarios of `gramserve bench` ask for: the time that the engine can't save, and its part of the whole."""
    bench = Bench(default_model, n_ctx=1024, n_slots=1, fast_forward=True, speculates=True)
    for name in ("free", "schema", "keys"):
        scenario = SCENARIOS[name]
        schema = scenario.fields.get("response_format", {}).get("json_schema", {}).get("schema")
        if schema is not None:
            compiled = compile_constraint(JsonSchema(schema))
            bench.intake._put_grammar(PutGrammar(name, compiled.gbnf, compiled.tables))
        shares, whole_s = [], []
        for seed in range(5):
            request = EngineRequest(
                0,
                f"<|im_start|>user\n[{seed}] {scenario.prompt}<|im_end|>\n<|im_start|>assistant\n",
                max_tokens=scenario.max_tokens,
                sampling=Sampling(seed=seed, temperature=0.8),
                grammar_key=None if schema is None else name,
            )
            bench.backend.n_decodes = 0
            _, beside_s, _ = bench.run(request)
            whole_s.append(beside_s + bench.backend.decode_s)
            shares.append(bench.backend.decode_s / whole_s[-1])
        print(
            f"\n{name}: {statistics.median(whole_s):.3f} s, {100 * statistics.median(shares):.1f} % of it in"
            f" {bench.backend.n_decodes} decodes"
        )
        assert statistics.median(shares) > 0.9


def test_a_cached_prompt_is_soon_answered(default_model: Path) -> None:
    """2,000 tokens of prompt that a slot holds: the first token in at most 0.15 of the time."""
    bench = Bench(default_model, n_ctx=2304, n_slots=2, fast_forward=True)
    ratios = []
    for number in range(3):
        prompt = tuple(1000 + (37 * i * (number + 1)) % 20000 for i in range(2000))
        requests = [EngineRequest(0, (*prompt, *range(500 + n, 510 + n)), max_tokens=2) for n in range(2)]
        uncached_s, cached_s = (bench.run(request)[0] for request in requests)
        ratios.append(cached_s / uncached_s)
        print(f"\nfirst token after {uncached_s:.2f} s, cached {cached_s:.3f} s, ratio {ratios[-1]:.3f}")
    assert statistics.median(ratios) <= 0.15


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_what_a_request_costs_outside_llama_cpp(tmp_path: Path) -> None:
    """CPU time of the server's process with a model that takes none: under 3 ms a request, 0.25 ms a streamed token."""
    model = tmp_path / "tiny.gguf"
    write_tiny_model(model, TinyModel(vocabulary="bpe", chat_template="{% for m in messages %}{{ m.content }}{% endfor %}"))
    with LiveServer(model, "--parallel", "4", "--ctx", "2048", "--threads", "1") as server:
        schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": CLASS}}
        server.chat(max_tokens=300, response_format=schema)
        n_requests = 100
        whole_ms = _cpu_ms(server, lambda: [server.chat(max_tokens=300, response_format=schema) for _ in range(n_requests)])
        print(f"\na request: {whole_ms / n_requests:.2f} ms")
        n_tokens = 1500
        stream_ms = _cpu_ms(server, lambda: _stream_all(server, n_tokens, 1)) / n_tokens
        four_ms = _cpu_ms(server, lambda: _stream_all(server, n_tokens, 4)) / (4 * n_tokens)
        print(f"a streamed token: {stream_ms:.3f} ms alone, {four_ms:.3f} ms with four streams")
        assert whole_ms / n_requests < 3
        assert max(stream_ms, four_ms) < 0.25


def _stream_all(server: LiveServer, n_tokens: int, n_clients: int) -> None:
    def stream() -> None:
        with server.client.stream(
            "POST", "/v1/chat/completions", json=body("the cat", stream=True, max_tokens=n_tokens, ignore_eos=True)
        ) as reply:
            for _ in reply.iter_raw():
                pass

    threads = [threading.Thread(target=stream) for _ in range(n_clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _cpu_ms(server: LiveServer, action: Callable[[], object]) -> float:
    """CPU time that the server's own process takes meanwhile."""

    def now() -> float:
        fields = Path(f"/proc/{server.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return 1000 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    begun = now()
    action()
    return now() - begun

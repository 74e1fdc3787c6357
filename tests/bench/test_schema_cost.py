"""What schemas of a public corpus cost: compiling, llama.cpp's parse of the text, many tools at once, memory, walking.

Every STEP-th schema; GRAMSERVE_BENCH_STEP=1 takes them all. Prints the figures; only the bounds that don't depend on a quiet
machine are asserted.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from converters import ConversionError, JsonSchema, compile_constraint
from converters.constraint import Tool, ToolCalls
from converters.grammar.match import Matcher
from converters.limits import Limits
from converters.options import CompileOptions
from tests.bench import compile_memory
from tests.oracle import Oracle

pytestmark = pytest.mark.bench

CORPUS = Path(__file__).parents[3] / "shared" / "data" / "maskbench-dev.jsonl.gz"
STEP = int(os.environ.get("GRAMSERVE_BENCH_STEP", "20"))
DEADLINE_MS = 2000
FREE = "root ::= [^\\x00]*"
N_TOOLS = 60
MAX_MEMORY_MIB = 300
MAX_WALK_RATIO = 2.0


def _entries() -> list[dict[str, Any]]:
    if not CORPUS.exists():
        pytest.skip("the corpus is not part of the repository")
    with gzip.open(CORPUS, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for i, line in enumerate(lines) if i % STEP == 0]


def _figures(values: Sequence[float]) -> str:
    ordered = sorted(values)
    points = ((name, ordered[min(len(ordered) - 1, int(len(ordered) * share))]) for name, share in _SHARES)
    return " ".join(f"{name} {value:.1f}" for name, value in points)


_SHARES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0))


def test_compile_and_parse(model_oracle: Oracle) -> None:
    wall, cpu, parse = [], [], []
    for entry in _entries():
        started, busy = time.perf_counter(), time.process_time()
        try:
            gbnf = compile_constraint(JsonSchema(entry["schema"])).gbnf
        except ConversionError:
            gbnf = ""
        wall.append((time.perf_counter() - started) * 1000)
        cpu.append((time.process_time() - busy) * 1000)
        if gbnf:
            parsed = model_oracle.parse(gbnf)
            assert parsed.ok, entry["id"]
            parse.append(parsed.ms)
    print(f"\n{len(wall)} schemas: compile ms {_figures(wall)} (CPU {_figures(cpu)}); llama.cpp's parse ms {_figures(parse)}")
    assert max(cpu) <= DEADLINE_MS


def test_compile_memory() -> None:
    if not CORPUS.exists():
        pytest.skip("the corpus is not part of the repository")
    command = [sys.executable, "-m", compile_memory.__name__, str(CORPUS), str(STEP)]
    run = subprocess.run(command, capture_output=True, check=True, text=True, cwd=Path(__file__).parents[2])
    told = json.loads(run.stdout)
    print(
        f"\n{told['n']} schemas compiled in a process that does nothing else: peak {told['peak']:.0f} MiB (schema"
        f" {told['dearest']}), {told['start']:.0f} before the first, {told['end']:.0f} held after the last"
    )
    assert told["peak"] < MAX_MEMORY_MIB


def test_many_tools_at_once() -> None:
    schemas = [entry["schema"] for entry in _entries()]
    fitting = [s for s in schemas if isinstance(s, dict) and s.get("type") == "object" and 700 < len(json.dumps(s)) < 3600]
    tools = tuple(Tool(f"tool_{i}", schema) for i, schema in enumerate(filter(_compiles, fitting)))[:N_TOOLS]
    size = sum(len(json.dumps(tool.parameters)) for tool in tools)
    started, busy = time.perf_counter(), time.process_time()
    compiled = compile_constraint(ToolCalls(tools, "hermes"), CompileOptions(limits=Limits(compile_s=20)))
    taken, cpu = time.perf_counter() - started, time.process_time() - busy
    print(
        f"\n{len(tools)} tools, {size} bytes of schemas: {taken:.2f} s (CPU {cpu:.2f}), grammar of {len(compiled.gbnf)} bytes"
    )
    matcher = Matcher.from_tables(compiled.tables)
    opened = [
        matcher.advance(matcher.start, f'<tool_call>\n{{"name": "{name}", "a') for name in (*[t.name for t in tools], "x")
    ]
    assert len(opened) > 1
    assert [state is not None for state in opened] == [True] * len(tools) + [False]


def _compiles(schema: dict[str, Any]) -> bool:
    try:
        compile_constraint(JsonSchema(schema))
    except ConversionError:
        return False
    return True


def test_walking_costs_little(model_oracle: Oracle) -> None:
    constrained, free = [], []
    for entry in _entries():
        text = next((json.dumps(t["data"], ensure_ascii=False) for t in entry["tests"] if t["valid"]), None)
        try:
            gbnf = compile_constraint(JsonSchema(entry["schema"])).gbnf
        except ConversionError:
            continue
        if text is not None and len(text) < 4000:
            costs = model_oracle.check_costs(gbnf, text)
            constrained += costs
            free += model_oracle.check_costs(FREE, text)[: len(costs)]
    ratio = sum(constrained) / sum(free)
    print(f"\n{len(free)} tokens: a question costs {ratio:.2f} times that of any text; µs {_figures(constrained)}")
    assert ratio <= MAX_WALK_RATIO

"""Forced calls of many tool schemas, judged through the `openai` package: whole, streamed, at three temperatures.

Every call names a tool that may be called, its arguments parse and validate, the stream's deltas pass the package's
accumulator, and both modes say the same for a seed. `python -m tests.clients.test_forced_calls [SCHEMAS] [--done FILE]` takes
many schemas and prints counts; FILE keeps what is done, so that a run that was stopped goes on from there.
$GRAMSERVE_TEST_MODEL may be a tiny model, whose tokens are single bytes.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletionMessage

from converters import ConversionError, compile_constraint
from converters.constraint import Tool, ToolCalls
from converters.grammar.match import Matcher
from tests.conformance.schema_judge import Judge
from tests.conformance.test_schema_soundness import CORPUS
from tests.default_model import default_model_path
from tests.live_server import LiveServer

Calls: TypeAlias = list[tuple[str, str]]
"""Name and arguments of each call."""

SOURCES = ("Glaiveai", "BFCL", "MCPspec")
TEMPERATURES = (0.0, 0.7, 1.5)
MOST_BYTES = 300  # of a schema: two of them and the template fit a slot of 1024 tokens
MOST_CHARACTERS = 130  # of the shortest call
MAX_TOKENS = 64


@dataclass(frozen=True, slots=True)
class Row:
    """One schema of the corpus as a tool."""

    name: str
    schema: Mapping[str, Any]

    @property
    def shown(self) -> dict[str, Any]:
        return {"type": "function", "function": {"name": self.name, "parameters": self.schema}}


def rows(n: int) -> list[Row]:
    """`n` schemas, as many of each source as there are, spread over the corpus."""
    known: dict[str, list[Row]] = {source: [] for source in SOURCES}
    with gzip.open(CORPUS, "rt", encoding="utf-8") as lines:
        for entry in map(json.loads, lines):
            source = next((word for word in SOURCES if entry["id"].startswith(word)), None)
            if source is not None and len(json.dumps(entry["schema"])) <= MOST_BYTES:
                known[source].append(Row(re.sub(r"^.*---|(_[0-9a-f]{8})?(\.json)?$", "", entry["id"])[:64], entry["schema"]))
    left, chosen = list(known.values()), list[Row]()
    for i, found in enumerate(sorted(left, key=len)):
        n_own = (n - len(chosen)) // (len(left) - i)
        step = max(len(found) // max(n_own, 1), 1)
        chosen += [row for row in found[::step] if is_short(row)][:n_own]
    return chosen


def is_short(row: Row) -> bool:
    """Whether there is an exact grammar for the tool, with a call that fits."""
    try:
        compiled = compile_constraint(ToolCalls((Tool(row.name, row.schema),), "hermes"))
    except ConversionError:
        return False
    matcher = Matcher.from_tables(compiled.tables)
    return matcher.least_length(matcher.start) <= MOST_CHARACTERS


def requests(row: Row, tools: Sequence[Row], max_tokens: int) -> Iterator[dict[str, Any]]:
    """One request for each temperature, each with another way of forcing a call."""
    shown = [tool.shown for tool in tools]
    named = {"type": "function", "function": {"name": row.name}}
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [named]}}
    forced: tuple[dict[str, Any], ...] = (
        {"tool_choice": "required", "parallel_tool_calls": False},
        {"tool_choice": named},
        {"tool_choice": allowed},
    )
    messages = [{"role": "user", "content": f"Use the tool {row.name} with arguments of your own."}]
    for seed, (temperature, choice) in enumerate(zip(TEMPERATURES, forced, strict=True)):
        fields = {"model": "default", "messages": messages, "tools": shown, **choice, "max_tokens": max_tokens}
        yield {**fields, "temperature": temperature, "seed": seed, "extra_body": {"on_length": "stop"}}


def whole(client: OpenAI, request: Mapping[str, Any]) -> Calls:
    (choice,) = client.chat.completions.create(**request).choices
    assert choice.finish_reason == "tool_calls", choice
    return calls(choice.message)


def streamed(client: OpenAI, request: Mapping[str, Any]) -> Calls:
    """The calls that the package accumulates; its events' pieces make the same arguments."""
    pieces: Counter[int] = Counter()
    with client.chat.completions.stream(**request) as stream:
        for event in stream:
            if event.type == "tool_calls.function.arguments.delta":
                pieces[event.index] += len(event.arguments_delta)
        (choice,) = stream.get_final_completion().choices
    assert choice.finish_reason == "tool_calls", choice
    found = calls(choice.message)
    assert [pieces[i] for i in range(len(found))] == [len(arguments) for _, arguments in found]
    return found


def calls(message: ChatCompletionMessage) -> Calls:
    found: Calls = []
    assert message.tool_calls
    assert len({call.id for call in message.tool_calls}) == len(message.tool_calls)
    for call in message.tool_calls:
        assert call.type == "function"
        found.append((call.function.name, call.function.arguments))
    return found


@dataclass(frozen=True, slots=True)
class Checked:
    """What one schema showed."""

    name: str
    counts: Counter[str]
    problems: Sequence[str]


def check(client: OpenAI, row: Row, tools: Sequence[Row], max_tokens: int) -> Checked:
    """Every request for one of the tools in both modes."""
    counts: Counter[str] = Counter(schemas=1)
    problems: list[str] = []
    judges = {tool.name: Judge(tool.schema) for tool in tools}
    assert len(judges) == len(tools)
    for request in requests(row, tools, max_tokens):
        try:
            both = whole(client, request), streamed(client, request)
        except AssertionError as error:
            problems.append(f"{row.name} at {request['temperature']}: {error!r}")
            continue
        counts["replies"] += 2
        if both[0] != both[1]:
            problems.append(f"{row.name} at {request['temperature']}: {both[0]} whole, {both[1]} streamed")
        if request["tool_choice"] != "required" and {name for name, _ in both[0]} != {row.name}:
            problems.append(f"{row.name} isn't the tool that was called: {both[0]}")
        for name, arguments in (*both[0], *both[1]):
            counts["calls"] += 1
            problems += [f"{name}: {arguments[-200:]} {error}" for error in judges[name].errors(arguments)]
    return Checked(row.name, counts, problems)


def check_all(url: str, n: int, max_tokens: int = MAX_TOKENS, done: frozenset[str] = frozenset()) -> Iterator[Checked]:
    """`n` schemas but those done, two in a request, four requests at a time: a call is the same beside others."""
    chosen = rows(n)
    pairs = [chosen[i : i + 2] for i in range(0, len(chosen), 2)]
    with OpenAI(base_url=f"{url}/v1", api_key="sesame", max_retries=0, timeout=1800) as client, ThreadPoolExecutor(4) as pool:
        todo = [(row, pair) for pair in pairs for row in pair if row.name not in done]
        for job in as_completed([pool.submit(check, client, row, pair, max_tokens) for row, pair in todo]):
            yield job.result()


@pytest.mark.client
@pytest.mark.skipif(not CORPUS.exists(), reason="the corpus isn't here")
def test_forced_calls(live_server: LiveServer) -> None:
    counts: Counter[str] = Counter()
    for found in check_all(live_server.url, 4):
        assert not found.problems
        counts += found.counts
    assert counts["schemas"] == 4
    assert counts["replies"] == 4 * 2 * len(TEMPERATURES)
    assert counts["calls"] >= counts["replies"]


def known(path: Path | None) -> dict[str, Counter[str]]:
    """What an earlier run counted for each schema without a problem."""
    lines = path.read_text(encoding="utf-8").splitlines() if path is not None and path.exists() else []
    return {entry["name"]: Counter(entry["counts"]) for entry in map(json.loads, lines) if not entry["problems"]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("schemas", type=int, nargs="?", default=50)
    parser.add_argument("--max-tokens", type=int, default=MAX_TOKENS)
    parser.add_argument("--done", type=Path, metavar="FILE")
    options = parser.parse_args()
    before = known(options.done)
    total = sum(before.values(), Counter[str]())
    with LiveServer(default_model_path(), "--parallel", "4", "--threads", "1", "--api-key", "sesame") as server:
        for found in check_all(server.url, options.schemas, options.max_tokens, frozenset(before)):
            if options.done is not None:
                entry = {"name": found.name, "counts": found.counts, "problems": list(found.problems)}
                with options.done.open("a", encoding="utf-8") as log:
                    log.write(json.dumps(entry) + "\n")
            total += found.counts
            total["problems"] += len(found.problems)
            print(dict(total), *found.problems, sep="\n", flush=True)


if __name__ == "__main__":
    main()

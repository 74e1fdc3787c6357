"""Requests made up from the server's own OpenAPI document, over a fake engine: no 500, and errors in their dialect's shape.

Run alone for another number of requests: `python -m tests.conformance.test_openapi 20000 [SEED]`.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import jsonschema
import pytest

from server.api.document import error_schema
from server.api.openapi import CONSTRAINTS
from server.engine.messages import RankFrame
from tests.server.fakes import FakeEngine, Served, serve, with_info

pytestmark = pytest.mark.conformance

N_REQUESTS = 5000
_MAY_BE_503 = ("model_loading", "shutting_down")
_WEIGHTS = {
    **dict.fromkeys(("/v1/chat/completions", "/v1/messages", "/v1/responses", "/api/chat"), 6),
    **dict.fromkeys(("/v1/completions", "/api/generate", "/v1/constraints/compile"), 4),
}
"""How much more often a path is asked than others."""

_N_TURNS = 4  # each with other fields
_SHARE_KEPT = 0.3  # of a body's optional fields
_REGEXES = ["[a-z]+", "Hello|Bye", "(", "a{1,5}\\d*", "\\p{L}+", "(?i)hello", "(a)\\1", "^x$", "[^\\x00-\\x1f]{0,9}"]
_GBNFS = ['root ::= "a" b\nb ::= [0-9]+', 'root ::= "Hello"', "root ::= x", 'root ::= root "a" | "b"', "root ::= ("]
_LARKS = ['start: "a" B\nB: /[0-9]+/', "start: %json {}", 'start: "x"i start?', "start: nobody"]
_SAMPLES: dict[str, list[str]] = {
    **dict.fromkeys(("guided_regex", "regex"), _REGEXES),
    **dict.fromkeys(("grammar", "ebnf"), _GBNFS),
    **dict.fromkeys(("guided_grammar", "constraint"), _GBNFS + _LARKS + _REGEXES),
    "guided_json": ['{"type": "integer"}', "{}", "[", '{"type": "object", "properties": {"a": {"type": "string"}}}'],
}
"""Texts of constraints that nobody finds by drawing characters."""

_N_OTHERS = 3  # requests to a path without body and parameters


@dataclass(slots=True)
class Report:
    """What came back."""

    statuses: Counter[int] = field(default_factory=Counter)
    by_path: dict[str, Counter[int]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def add(self, method: str, path: str, request: dict[str, Any], reply: httpx.Response) -> None:
        """Judge one reply."""
        self.statuses[reply.status_code] += 1
        self.by_path.setdefault(f"{method} {path}", Counter())[reply.status_code] += 1
        if (problem := _judge(path, reply)) is not None:
            self.problems.append(f"{method} {path} {json.dumps(request)[:2000]} -> {reply.status_code} {problem}")


def _judge(path: str, reply: httpx.Response) -> str | None:
    """What is wrong with a reply."""
    if reply.status_code < 400:
        return None if _is_sound(reply) else f"not of its media type: {reply.text[:200]}"
    try:
        body = reply.json()
        jsonschema.validate(body, error_schema(path))
    except (ValueError, jsonschema.ValidationError) as error:
        return f"not the dialect's error: {error} {reply.text[:200]}"
    return f"{reply.text[:400]}" if reply.status_code >= 500 and not _is_expected(reply) else None


def _is_expected(reply: httpx.Response) -> bool:
    return reply.status_code == 503 and any(word in reply.text for word in _MAY_BE_503)


def _is_sound(reply: httpx.Response) -> bool:
    kind = reply.headers.get("content-type", "").partition(";")[0]
    if kind == "application/json":
        return reply.text == "" or reply.json() is not None
    if kind == "application/x-ndjson":
        return all(isinstance(json.loads(line), dict) for line in reply.text.splitlines())
    if kind == "text/event-stream":
        lines = [line[6:] for line in reply.text.split("\n") if line.startswith("data: ")]
        return all(line == "[DONE]" or isinstance(json.loads(line), dict) for line in lines)
    return kind in ("text/plain", "")


def cases(document: dict[str, Any], n_requests: int, seed: int) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Method, path of the document, and arguments for httpx: some that fit the document, some that don't."""
    import schemathesis
    from schemathesis import GenerationMode
    from schemathesis.core.result import Ok

    operations = []
    for result in schemathesis.openapi.from_dict(document).get_all_operations():
        assert isinstance(result, Ok), result
        operations.append(result.ok())
    heavy = [operation for operation in operations if operation.body or operation.path_parameters or operation.query]
    total = sum(_WEIGHTS.get(operation.path, 1) for operation in heavy)
    for operation in operations:
        share = n_requests * _WEIGHTS.get(operation.path, 1) // total if operation in heavy else _N_OTHERS
        modes = list(GenerationMode) if operation.body else [GenerationMode("positive")]  # any text is a fine parameter
        for mode in modes:
            for case in draw(operation.as_strategy(generation_mode=mode), max(1, -(-share // len(modes))), seed):
                arguments = case.as_transport_kwargs(base_url="http://127.0.0.1:8080")
                yield operation.method.upper(), operation.path, {k: v for k, v in arguments.items() if v is not None}


def close(schema: Any) -> None:
    """No fields but the named ones, in place: unknown ones are ignored anyway, and drawing them takes most of the time."""
    for value in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        close(value)
    if isinstance(schema, dict) and "properties" in schema and isinstance(schema.get("type"), str):
        schema.setdefault("additionalProperties", False)


def narrow(body: dict[str, Any], rng: random.Random, *, needs_constraint: bool) -> None:
    """Keep some of a body's optional fields, in place, and at most one constraint: with all, there are conflicts mostly."""
    required, fields = body.setdefault("required", []), body["properties"]
    constraint = rng.choice([*_SAMPLES] if needs_constraint else [*_SAMPLES, *CONSTRAINTS, None])
    if needs_constraint:
        required.append(constraint)
    for name in list(fields):
        is_kept = name == constraint if name in CONSTRAINTS else rng.random() < _SHARE_KEPT
        if not is_kept and name not in required:
            del fields[name]
    if constraint is not None and constraint in fields and constraint in _SAMPLES:
        fields[constraint] = {"anyOf": [{"enum": _SAMPLES[constraint]}, fields[constraint]]}
    if "model" in fields:
        fields["model"] = {"enum": ["fake", "default", "", None, "dir/other", "nobody"]}


def narrowed(document: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """A document that asks for less."""
    copy: dict[str, Any] = json.loads(json.dumps(document))
    for path, operations in copy["paths"].items():
        for operation in operations.values():
            if "requestBody" in operation:
                body = operation["requestBody"]["content"]["application/json"]["schema"]
                if "properties" in body:
                    narrow(body, rng, needs_constraint=path == "/v1/constraints/compile")
    close(copy["paths"])
    return copy


def draw(strategy: Any, count: int, seed: int) -> list[Any]:
    """So many values of a strategy."""
    import hypothesis
    from hypothesis import HealthCheck, Phase, given, settings

    drawn: list[Any] = []

    @hypothesis.seed(seed)
    @settings(
        max_examples=count, database=None, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @given(strategy)
    def collect(value: Any) -> None:
        drawn.append(value)

    collect()
    return drawn


_ARGUMENTS = {"params": "params", "headers": "headers", "json": "json", "data": "content"}
"""What schemathesis says for `requests`, and what httpx calls it."""


async def ask(served: Served, method: str, arguments: dict[str, Any]) -> httpx.Response:
    """The reply to one request."""
    given = {_ARGUMENTS[name]: value for name, value in arguments.items() if name in _ARGUMENTS}
    return await served.client.request(method, arguments["url"], **given)


async def run(n_requests: int, seed: int) -> Report:
    """Ask, and judge all replies."""
    report = Report()
    async with serve(FakeEngine(info=with_info(rank_frame=RankFrame((1,), (2,), (3,))))) as served:
        for turn in range(_N_TURNS):
            document = narrowed(served.app.openapi(), random.Random(seed * _N_TURNS + turn))
            for method, path, arguments in cases(document, -(-n_requests // _N_TURNS), seed + turn):
                report.add(method, path, arguments, await ask(served, method, arguments))
    return report


@pytest.mark.timeout(1800)  # a minute and a half of CPU
def test_no_made_up_request_is_a_server_error() -> None:
    pytest.importorskip("schemathesis")
    report = asyncio.run(run(N_REQUESTS + N_REQUESTS // 20, seed=1))  # some of the generators end before they are asked to
    print(f"\n{report.statuses.total()} requests: {dict(report.statuses)}")
    assert not report.problems, "\n".join(report.problems[:20])
    assert report.statuses.total() >= N_REQUESTS
    assert report.statuses[200] > N_REQUESTS // 5


if __name__ == "__main__":
    begun = time.monotonic()
    found = asyncio.run(run(int(sys.argv[1]), seed=int(sys.argv[2]) if len(sys.argv) > 2 else 1))
    for operation, statuses in found.by_path.items():
        print(f"{operation}: {dict(statuses)}")
    print(f"{found.statuses.total()} requests in {time.monotonic() - begun:.0f} s: {dict(found.statuses)}")
    print("\n".join(found.problems) or "no problems")
    sys.exit(bool(found.problems))

"""The server under load, in trouble and at its end, with the default model."""

from __future__ import annotations

import itertools
import os
import re
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import pytest

from tests.live_server import LiveServer, body, is_alive

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(sys.platform == "win32", reason="signals and ps"),
]

Entry: TypeAlias = tuple[dict[str, Any], str]  # a request's constraint fields, and what its texts match

EIGHT: list[Entry] = [
    ({"guided_choice": ["yes, certainly, and always", "no, never, and not once"]}, "yes, .*|no, .*"),
    ({"guided_regex": "[a-z]{30,40}"}, "[a-z]{30,40}"),
    ({"guided_regex": "([0-9]{4}-[0-9]{2}-[0-9]{2} ){4}"}, "([0-9]{4}-[0-9]{2}-[0-9]{2} ){4}"),
    ({"grammar": 'root ::= ("ab" | "cd"){20}'}, "(ab|cd){20}"),
    (
        {"guided_json": {"type": "array", "items": {"enum": [2023, 7, 19]}, "minItems": 9, "maxItems": 9}},
        r"\[((2023|7|19)(\.0)?(, ?)?){9}\]",
    ),
    ({"structured_outputs": {"regex": "[A-Z][a-z]{5,9}( [a-z]{3,7}){5}"}}, "[A-Z][a-z]{5,9}( [a-z]{3,7}){5}"),
    ({"guided_grammar": 'start: WORD (" " WORD)~7\nWORD: /[a-z]{2,6}/'}, "[a-z]{2,6}( [a-z]{2,6}){7}"),
    ({"json_schema": {"type": "string", "minLength": 30, "maxLength": 40, "pattern": "^[a-z ]*$"}}, '"[a-z ]{30,40}"'),
]


def run_one(server: LiveServer, fields: dict[str, Any], prompt: str = "hi") -> tuple[list[str], int]:
    """Two texts of one request, and the number of their tokens."""
    request = body(prompt, n=2, temperature=1, seed=3, max_tokens=400, **fields)
    reply = server.client.post("/v1/chat/completions", json=request).json()
    return [choice["message"]["content"] for choice in reply["choices"]], reply["usage"]["completion_tokens"]


def compile_all(server: LiveServer, entries: list[Entry] = EIGHT) -> None:
    """Have all constraints compiled before, so that only decoding is compared."""
    for fields, _ in entries:
        assert server.client.post("/v1/constraints/compile", json=fields).status_code == 200


def run_together(server: LiveServer, prompt: str = "hi", entries: list[Entry] = EIGHT) -> list[tuple[list[str], int]]:
    """All requests at once."""
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda i: run_one(server, entries[i][0], f"{i} {prompt}"), range(len(entries))))


def check_texts(replies: list[tuple[list[str], int]], entries: list[Entry] = EIGHT) -> None:
    for (texts, _), (_, pattern) in zip(replies, entries, strict=True):
        assert len(texts) == 2
        assert all(re.fullmatch(pattern, text) for text in texts), texts


def test_eight_clients_with_eight_constraints(measured_server: LiveServer) -> None:
    compile_all(measured_server)
    check_texts(run_together(measured_server))


HOSTILE = "[a-z]*[acegikmoqsuwy][a-z]{13}(0|[A-Z]*[ACEGIKMOQSUWY][A-Z]{13})"
"""Compiles for longer than the deadline where only that holds it."""


def gaps_beside_a_compile(server: LiveServer) -> list[float]:
    """The seconds between the chunks of a stream while a hostile regex compiles to its deadline, and is refused."""
    times: list[float] = []
    refused: list[tuple[float, float, int]] = []

    is_running = threading.Event()

    def compile_hostile() -> None:
        is_running.wait(60)
        started = time.monotonic()
        reply = httpx.post(f"{server.url}/v1/chat/completions", json=body(guided_regex=HOSTILE), timeout=30)
        refused.append((started, time.monotonic(), reply.status_code))

    thread = threading.Thread(target=compile_hostile)
    thread.start()
    for at, event in server.stream(prompt="Tell a long story.", max_tokens=350, ignore_eos=True):
        if event != "[DONE]" and event["choices"][0]["delta"].get("content"):
            times.append(at)
        if len(times) == 20:
            is_running.set()
    thread.join()
    ((started, ended, status),) = refused
    gaps = [(after - before, before) for before, after in itertools.pairwise(times)]
    during = [gap for gap, at in gaps if started <= at <= ended]
    print(f"\ncompile {ended - started:.2f} s ({status}); {len(during)} gaps during it, longest {max(during):.3f} s; ")
    print(f"longest of all {max(gap for gap, _ in gaps):.3f} s")
    assert status == 400
    assert ended - started > 1.9
    assert len(during) > 10
    return during


def test_a_two_second_compile_beside_a_stream(measured_server: LiveServer) -> None:
    assert max(gaps_beside_a_compile(measured_server)) < 0.15


def test_a_killed_model_process(default_model: Path) -> None:
    with LiveServer(default_model, "--parallel", "2", "--ctx", "512", "--threads", "1") as server:
        health: list[tuple[float, int]] = []
        stop = threading.Event()

        def watch() -> None:
            while not stop.wait(0.02):
                started = time.monotonic()
                status = httpx.get(f"{server.url}/health", timeout=5).status_code
                health.append((time.monotonic() - started, status))

        watcher = threading.Thread(target=watch)
        watcher.start()
        events = []
        first_pid = 0
        for _, event in server.stream(prompt="Tell a long story.", max_tokens=300, ignore_eos=True):
            events.append(event)
            if len(events) == 10:
                first_pid = server.kill_model()
        assert events[-1]["error"]["code"] == "engine_died"
        assert server.chat(max_tokens=3, ignore_eos=True)["usage"]["completion_tokens"] == 3
        stop.set()
        watcher.join()
        assert server.children("server.engine") != [first_pid]
        assert {status for _, status in health} <= {200, 503}
        print(f"\n{len(health)} health checks, slowest {max(seconds for seconds, _ in health):.3f} s")
        assert max(seconds for seconds, _ in health) < 1


def test_a_killed_server_leaves_no_children(default_model: Path) -> None:
    with LiveServer(default_model, "--parallel", "2", "--ctx", "512", "--threads", "1") as server:
        stream = server.stream(prompt="Tell a long story.", max_tokens=300, ignore_eos=True)
        for _ in range(5):
            next(stream)
        children = server.children()
        assert len(children) >= 2
        server.process.kill()
        deadline = time.monotonic() + 2
        while time.monotonic() < deadline and any(map(is_alive, children)):
            time.sleep(0.05)
        assert not [pid for pid in children if is_alive(pid)]
        stream.close()


def test_sigterm_ends_a_stream_with_an_event(default_model: Path) -> None:
    with LiveServer(default_model, "--parallel", "2", "--ctx", "2048", "--threads", "1", "--drain-timeout", "0.5") as server:
        events = []
        for _, event in server.stream(prompt="Tell a long story.", max_tokens=1500, ignore_eos=True):
            events.append(event)
            if len(events) == 10:
                os.kill(server.process.pid, signal.SIGTERM)
        assert events[-1]["error"]["code"] == "shutting_down"
        assert server.process.wait(10) == 0


def test_a_client_that_goes_away_frees_its_slot(live_server: LiveServer) -> None:
    for _ in range(20):
        stream = live_server.stream(prompt="Tell a long story.", max_tokens=900, ignore_eos=True)
        next(stream)
        stream.close()
    started = time.monotonic()  # what was left behind would take minutes
    assert live_server.chat(max_tokens=5, ignore_eos=True)["usage"]["completion_tokens"] == 5
    assert time.monotonic() - started < 20


MALFORMED: list[tuple[dict[str, Any], str]] = [
    ({"grammar": "root ::= (" + "(" * 20_000 + '"a"' + ")" * 20_001}, "grammar"),
    ({"grammar": 'root ::= y root "a"\ny ::= x\nx ::= "" | "q"'}, "grammar"),
    ({"grammar": "root ::= <|nothing|>"}, "grammar"),
    ({"grammar": "root ::= <[99999999]>"}, "grammar"),
    ({"logit_bias": {"999999": 1}}, "logit_bias"),
    ({"messages": [{"role": "user", "content": "word " * 3000}]}, "messages"),
    ({"max_tokens": 2_000_000_000}, "max_tokens"),
]


@pytest.mark.parametrize(("fields", "param"), MALFORMED, ids=[str(fields)[:30] for fields, _ in MALFORMED])
def test_requests_that_only_the_model_can_refuse(live_server: LiveServer, fields: dict[str, Any], param: str) -> None:
    reply = live_server.client.post("/v1/chat/completions", json={**body(max_tokens=4), **fields})
    assert reply.status_code == 400, reply.text
    assert param in (reply.json()["error"]["param"] or reply.json()["error"]["message"])
    assert live_server.chat(max_tokens=2)["choices"]


def test_bodies_that_are_too_large_or_too_deep(live_server: LiveServer) -> None:
    large = live_server.client.post("/v1/chat/completions", content=b'{"x":"' + b"a" * 20_000_000 + b'"}')
    assert (large.status_code, large.json()["error"]["code"]) == (413, "body_too_large")
    deep = live_server.client.post("/v1/chat/completions", content=b"[" * 100_000)
    assert (deep.status_code, deep.json()["error"]["code"]) == (400, "json_too_deep")
    foreign = live_server.client.post("/v1/chat/completions", json=body(), headers={"Origin": "https://evil.example"})
    assert foreign.status_code == 403
    assert live_server.chat(max_tokens=2)["choices"]

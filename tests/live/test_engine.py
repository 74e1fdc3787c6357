"""The engine with the default model: shapes, seeds, smooth streams, and a child that is killed under it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from itertools import pairwise
from pathlib import Path

import pytest
import pytest_asyncio

from server.engine.client import ProcessClient
from server.engine.messages import EngineEvent, EngineRequest, ModelSpec, Sampling, TextChunk
from server.errors import EngineDied

pytestmark = [pytest.mark.live, pytest.mark.asyncio(loop_scope="module")]

CHAT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
HOT = Sampling(temperature=1.5)

# name: grammar, and what every sentence of it matches
SHAPES = {
    "date": ('root ::= [0-9]{4} "-" [0-9]{2} "-" [0-9]{2}', r"\d{4}-\d\d-\d\d"),
    "choice": ('root ::= "red" | "green" | "blue" | "I do not know"', r"red|green|blue|I do not know"),
    "words": ('root ::= [a-z]{3,12} (" " [a-z]{1,12}){3,5} "."', r"[a-z]{3,12}( [a-z]{1,12}){3,5}\."),
    "email": ('root ::= [a-z]{2,12} "@" [a-z]{2,12} "." [a-z]{2,3}', r"[a-z]{2,12}@[a-z]{2,12}\.[a-z]{2,3}"),
    "list": ('root ::= "[" [1-9] [0-9]{0,3} (", " [1-9] [0-9]{0,3}){5} "]"', r"\[\d{1,4}(, \d{1,4}){5}\]"),
    "bits": ("root ::= [01]{24}", r"[01]{24}"),
    "kanji": ('root ::= [日本語中文字]{2,4} "。"?', r"[日本語中文字]{2,4}。?"),
    "object": (
        r'root ::= "{\"name\": \"" [a-zA-Z ]{1,24} "\", \"age\": " ("0" | [1-9] [0-9]{0,2}) "}"',
        r'\{"name": "[a-zA-Z ]{1,24}", "age": \d{1,3}\}',
    ),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(default_model: Path) -> AsyncIterator[ProcessClient]:
    opened = ProcessClient(ModelSpec(str(default_model), n_ctx=2048, n_slots=16))
    await opened.start()
    for name, (gbnf, _) in SHAPES.items():
        await opened.put_grammar(name, gbnf)
    yield opened
    await opened.stop()


async def events_of(client: ProcessClient, request: EngineRequest) -> list[EngineEvent]:
    async with aclosing(client.generate(request)) as events:
        return [event async for event in events]


async def texts_of(client: ProcessClient, request: EngineRequest) -> list[str]:
    chunks = [event for event in await events_of(client, request) if isinstance(event, TextChunk)]
    return ["".join(chunk.text for chunk in chunks if chunk.index == index) for index in range(request.n)]


async def arrivals_of(client: ProcessClient, request: EngineRequest) -> list[float]:
    """When each piece of text came."""
    async with aclosing(client.generate(request)) as events:
        return [time.monotonic() async for event in events if isinstance(event, TextChunk)]


def kill(pid: int) -> None:
    """End a process as hard as the platform can."""
    os.kill(pid, getattr(signal, "SIGKILL", signal.SIGTERM))


def ask(question: str, **fields: object) -> EngineRequest:
    return EngineRequest(0, CHAT.format(question), **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", SHAPES)
async def test_twenty_of_twenty_have_the_shape(client: ProcessClient, name: str) -> None:
    texts = await texts_of(client, ask("Answer as you like.", n=20, grammar_key=name, sampling=HOT))
    assert [text for text in texts if not re.fullmatch(SHAPES[name][1], text)] == []


async def test_eight_shapes_at_once_with_two_choices_each(client: ProcessClient) -> None:
    requests = [ask("Go on.", n=2, grammar_key=name, sampling=HOT) for name in SHAPES]
    for name, texts in zip(SHAPES, await asyncio.gather(*(texts_of(client, request) for request in requests)), strict=True):
        assert all(re.fullmatch(SHAPES[name][1], text) for text in texts), (name, texts)
        if name == "object":
            assert all(set(json.loads(text)) == {"name", "age"} for text in texts)


async def test_the_same_seed_gives_the_same_text_alone_and_beside_others(client: ProcessClient) -> None:
    request = ask("Tell me about the sea.", n=2, max_tokens=48, sampling=Sampling(seed=3))
    alone = await texts_of(client, request)
    others = [ask(f"Count from {i}. " * (10 * i + 1), max_tokens=40, sampling=Sampling(seed=i)) for i in range(4)]
    beside, *_ = await asyncio.gather(texts_of(client, request), *(texts_of(client, other) for other in others))
    assert beside == alone


async def test_greedy_goes_on_as_it_should(client: ProcessClient) -> None:
    (text,) = await texts_of(client, ask("What is the capital of France?", max_tokens=24, sampling=Sampling(temperature=0)))
    assert "Paris" in text


async def test_a_long_prompt_does_not_stall_a_running_stream(client: ProcessClient) -> None:
    # long enough for a quick machine, which writes 60 tokens before the long prompt comes
    story = ask("Write a story.", max_tokens=400, sampling=Sampling(ignore_eos=True))
    running = asyncio.create_task(arrivals_of(client, story))
    await asyncio.sleep(0.5)
    begun = time.monotonic()
    await texts_of(client, ask("word " * 300, max_tokens=1))
    ended = time.monotonic()
    arrivals = await running
    gaps = [later - earlier for earlier, later in pairwise(arrivals)]
    assert max(gaps) < max(0.3, (ended - begun) / 3), "one batch of the prompt at a time"
    meanwhile = [at for at in arrivals if begun < at < ended]
    assert len(meanwhile) > 5, "the stream goes on between the batches of the prompt"


async def test_a_killed_child_is_replaced(client: ProcessClient) -> None:
    running = asyncio.create_task(texts_of(client, ask("Write a story.", max_tokens=400, sampling=Sampling(ignore_eos=True))))
    await asyncio.sleep(0.5)
    assert client.pid is not None
    kill(client.pid)
    with pytest.raises(EngineDied):
        await running
    assert client.state == "restarting"
    (text,) = await texts_of(client, ask("When?", grammar_key="date"))
    assert re.fullmatch(SHAPES["date"][1], text)

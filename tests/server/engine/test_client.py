"""The client over both transports: threads of this process with a scripted model, and a child process with a tiny real one."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest
import pytest_asyncio

from server.engine.client import _ENTRY_BYTES, Client, LocalClient, ProcessClient, _Grammars
from server.engine.messages import (
    DropGrammar,
    EngineRequest,
    Failed,
    Finished,
    FinishReason,
    ModelSpec,
    ModelState,
    PutGrammar,
    Sampling,
    Started,
    TextChunk,
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
)
from tests.server.engine.fake_backend import FakeBackend

on_one_loop = pytest.mark.asyncio(loop_scope="module")

DATE = 'root ::= [0-9]{4} "-" [0-9]{2} "-" [0-9]{2}'
LONG = EngineRequest(0, "a long reply", max_tokens=1500, sampling=Sampling(ignore_eos=True))


async def complete(client: Client, request: EngineRequest) -> list[str]:
    """The texts of a request's choices; a choice that failed has its message."""
    texts = [""] * request.n
    async with aclosing(client.generate(request)) as events:
        async for event in events:
            match event:
                case TextChunk():
                    texts[event.index] += event.text
                case Failed():
                    texts[event.index or 0] = event.message
                case _:
                    pass
    return texts


def kill(pid: int) -> None:
    """End a process as hard as the platform can."""
    os.kill(pid, getattr(signal, "SIGKILL", signal.SIGTERM))


async def until(condition: object, timeout_s: float = 5.0) -> None:
    """Wait until `condition()` holds."""
    assert callable(condition)
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        await asyncio.sleep(0.01)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def child(tiny_bpe: Path) -> AsyncIterator[ProcessClient]:
    client = ProcessClient(ModelSpec(str(tiny_bpe), n_ctx=2048, n_threads=1))
    await client.start()
    yield client
    await client.stop()


def local(backend: FakeBackend | None = None, max_waiting: int = 64) -> LocalClient:
    return LocalClient(backend or FakeBackend(script=lambda seed: f"text {seed}"), max_waiting)


def state_of(client: Client) -> ModelState:
    """Asked anew: of an attribute, mypy remembers what it was compared with."""
    return client.state


# ---- what both are


async def test_before_it_is_loaded_a_client_says_so() -> None:
    client = local()
    assert state_of(client) == "loading"
    with pytest.raises(ModelLoading) as refused:
        await complete(client, EngineRequest(0, "p"))
    assert refused.value.retry_after_s
    with pytest.raises(ModelLoading):
        _ = client.info
    await client.start()
    assert (state_of(client), client.info.name) == ("ready", "fake")
    await client.stop()
    assert state_of(client) == "stopped"
    with pytest.raises(EngineDied):
        await complete(client, EngineRequest(0, "p"))


async def test_requests_run_side_by_side_and_keep_apart() -> None:
    client = local()
    await client.start()
    requests = [EngineRequest(0, "p", n=2, max_tokens=20, sampling=Sampling(seed=10 * i)) for i in range(8)]
    texts = await asyncio.gather(*(complete(client, request) for request in requests))
    assert texts == [[f"text {10 * i}", f"text {10 * i + 1}"] for i in range(8)]
    await client.stop()


async def test_errors_before_the_start_are_raised_as_what_they_are() -> None:
    client = local(FakeBackend(n_slots=1, script=lambda seed: "x" * 999, token_s=0.001), max_waiting=0)
    await client.start()
    await client.put_grammar("refused", "!")
    for request, error in (
        (EngineRequest(0, "p" * 100), ContextOverflow),
        (EngineRequest(0, "p", grammar_key="refused"), ConstraintRejected),
        (EngineRequest(0, (-5,)), BadRequest),
        (EngineRequest(0, "p", grammar_key="unknown"), GenerationFailed),
    ):
        with pytest.raises(error):
            await complete(client, request)
    running = asyncio.create_task(complete(client, EngineRequest(0, "p")))
    await asyncio.sleep(0.01)
    with pytest.raises(QueueFull) as full:
        await complete(client, EngineRequest(0, "p"))
    assert full.value.retry_after_s
    await running
    await client.stop()


async def test_closing_the_iterator_cancels() -> None:
    backend = FakeBackend(script=lambda seed: "x" * 999, token_s=0.001)
    client = local(backend)
    await client.start()
    async with aclosing(client.generate(EngineRequest(0, "p"))) as events:
        async for event in events:
            if isinstance(event, TextChunk):
                break
    await until(lambda: backend.n_cells == 0)
    assert client._events == {}
    await client.stop()


async def test_a_request_cancelled_while_it_is_made_ready_never_runs() -> None:
    backend = FakeBackend()
    client = local(backend)
    await client.start()
    events = client.generate(EngineRequest(0, "p"))
    task = asyncio.ensure_future(events.__anext__())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await events.aclose()
    await asyncio.sleep(0.05)
    assert backend.n_cells == 0
    assert await complete(client, EngineRequest(0, "p", max_tokens=1)) == ["x"]
    await client.stop()


async def test_an_exception_in_the_step_loop_is_the_engines_death() -> None:
    backend = FakeBackend()
    client = local(backend)
    await client.start()
    backend.n_batch = 0  # the fake asserts on it
    with pytest.raises(EngineDied):
        await complete(client, EngineRequest(0, "p"))
    backend.n_batch = 64
    backend.cells.clear()
    assert await complete(client, EngineRequest(0, "p", max_tokens=2)) == ["xx"]
    await client.stop()


def test_grammars_in_use_are_never_dropped() -> None:
    known = _Grammars(max_bytes=10 + 2 * _ENTRY_BYTES)
    assert known.put(PutGrammar("a", "12345")) == [PutGrammar("a", "12345")]
    assert known.put(PutGrammar("a", "12345")) == []
    known.use(("a",))
    assert known.put(PutGrammar("b", "12345")) == [PutGrammar("b", "12345")]
    assert known.put(PutGrammar("c", "12345"))[1:] == [DropGrammar("b")]
    known.release(("a",))
    assert known.put(PutGrammar("d", "12345"))[1:] == [DropGrammar("a")]
    assert [message.key for message in known.all()] == ["c", "d"]


def test_small_grammars_take_room_too() -> None:
    known = _Grammars()
    n_put = sum(bool(known.put(PutGrammar(str(i), "root ::= [a]"))) for i in range(20_000))
    assert n_put == 20_000
    assert len(known.all()) < 10_000, "7 KB each in the child: 20,000 of 150 bytes would be 150 MB, and there would be no end"


# ---- a child process


@on_one_loop
async def test_a_child_answers(child: ProcessClient) -> None:
    assert child.info.n_vocab > 400
    tokens = await child.tokenize("hello world<|im_end|>")
    assert await child.detokenize(tokens) == b"hello world<|im_end|>"
    assert len(await child.tokenize("<|im_end|>", parse_special=False)) > 1
    with pytest.raises(BadRequest, match="99999"):
        await child.detokenize((99999,))


@on_one_loop
async def test_every_choice_has_the_shape_that_was_asked_for(child: ProcessClient) -> None:
    await child.put_grammar("date", DATE)
    await child.put_grammar("word", 'root ::= "yes" | "no" | "日本"')
    sampling = Sampling(temperature=1.5)
    dates, words = await asyncio.gather(
        complete(child, EngineRequest(0, "When?", n=6, grammar_key="date", sampling=sampling)),
        complete(child, EngineRequest(0, "Is it?", n=6, grammar_key="word", sampling=sampling)),
    )
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", text) for text in dates)
    assert set(words) <= {"yes", "no", "日本"}


@on_one_loop
async def test_the_same_seed_gives_the_same_text_alone_and_beside_others(child: ProcessClient) -> None:
    request = EngineRequest(0, "tell me", n=2, max_tokens=40, sampling=Sampling(seed=11))
    alone = await complete(child, request)
    others = [EngineRequest(0, f"other {i}", max_tokens=60) for i in range(3)]
    beside, *_ = await asyncio.gather(complete(child, request), *(complete(child, other) for other in others))
    assert alone == beside
    assert alone[0] != alone[1]


@on_one_loop
async def test_tokenizing_does_not_wait_for_a_running_request(child: ProcessClient) -> None:
    async with aclosing(child.generate(LONG)) as events:
        async for event in events:
            if isinstance(event, TextChunk):
                break
        begun = time.monotonic()
        assert await child.tokenize("hello")
        assert time.monotonic() - begun < 0.2


@on_one_loop
async def test_a_killed_child_ends_its_streams_and_is_replaced(child: ProcessClient) -> None:
    await child.put_grammar("date", DATE)
    first = child.pid
    streams = [asyncio.create_task(complete(child, LONG)) for _ in range(3)]
    await asyncio.sleep(0.05)
    assert first is not None
    kill(first)
    results = await asyncio.gather(*streams, return_exceptions=True)
    assert [type(result) for result in results] == [EngineDied] * 3
    assert state_of(child) == "restarting"
    (text,) = await complete(child, EngineRequest(0, "When?", grammar_key="date"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", text)
    assert state_of(child) == "ready"
    assert child.pid not in (None, first)


async def test_a_child_killed_while_it_reads_a_prompt_or_answers_a_question(tiny_bpe: Path) -> None:
    client = ProcessClient(ModelSpec(str(tiny_bpe), n_ctx=100_000, n_slots=1, n_threads=1))
    await client.start()
    request = EngineRequest(0, tuple(range(32, 100)) * 1400, max_tokens=1)  # takes seconds to read

    async def started() -> None:
        async with aclosing(client.generate(request)) as events:
            async for event in events:
                if isinstance(event, Started) and client.pid is not None:
                    kill(client.pid)

    with pytest.raises(EngineDied, match="signal 9" if os.name == "posix" else "ended"):
        await started()
    assert len(await complete(client, EngineRequest(0, "hello", max_tokens=3))) == 1
    await client.stop()


@pytest.fixture
def cut_model(tiny_bpe: Path, tmp_path: Path) -> Path:
    """A model file that ends in the middle."""
    path = tmp_path / "cut.gguf"
    path.write_bytes(tiny_bpe.read_bytes()[:200_000])
    return path


@pytest.mark.parametrize("kind", ["missing", "cut"])
async def test_what_can_not_be_loaded_is_named(kind: str, cut_model: Path, tmp_path: Path) -> None:
    path = cut_model if kind == "cut" else tmp_path / "missing.gguf"
    client = ProcessClient(ModelSpec(str(path)))
    with pytest.raises(EngineStartFailed, match=re.escape(path.name)) as caught:
        await client.start()
    assert str(tmp_path) not in str(caught.value)
    assert client.state == "failed"
    with pytest.raises(EngineStartFailed):
        await complete(client, EngineRequest(0, "p"))
    await client.stop()


async def test_a_child_that_is_killed_while_it_loads_is_a_failed_start(tiny_bpe: Path) -> None:
    client = ProcessClient(ModelSpec(str(tiny_bpe)))
    starting = asyncio.create_task(client.start())
    await until(lambda: client.pid is not None)
    assert client.pid is not None
    kill(client.pid)
    with pytest.raises(EngineStartFailed):
        await starting
    assert state_of(client) == "failed"
    await client.start()
    assert state_of(client) == "ready"
    await client.stop()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rsplit(")", 1)[1].split()[0] != "Z"


async def test_a_client_stopped_while_it_loads_stays_stopped(tiny_bpe: Path) -> None:
    client = ProcessClient(ModelSpec(str(tiny_bpe)))
    starting = asyncio.create_task(client.start())
    await until(lambda: client.pid is not None)
    await client.stop()
    with pytest.raises(EngineStartFailed):
        await starting
    assert (client.state, client.pid) == ("stopped", None)


PARENT = """
import asyncio, sys
from server.engine.client import ProcessClient
from server.engine.messages import EngineRequest, ModelSpec, Sampling

async def main():
    client = ProcessClient(ModelSpec(sys.argv[1], n_ctx=100_000, n_slots=1, n_threads=1))
    await client.start()
    prompt = tuple(range(32, 100)) * (1400 if sys.argv[2] == "prefill" else 1)
    async for event in client.generate(EngineRequest(0, prompt, sampling=Sampling(ignore_eos=True))):
        print(client.pid, flush=True)

asyncio.run(main())
"""


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL is POSIX's")
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_no_child_is_left_when_the_parent_is_killed(phase: str, tiny_bpe: Path) -> None:
    root = Path(__file__).parents[3]
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tiny_bpe), phase], stdout=subprocess.PIPE, text=True, cwd=root)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert is_alive(pid)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 2
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not is_alive(pid)


def test_the_parent_imports_neither_llama_cpp_nor_numpy() -> None:
    code = "import server.engine.client, server.engine.process, sys; print({'llama_cpp', 'numpy'} & set(sys.modules))"
    root = Path(__file__).parents[3]
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root, check=True)
    assert run.stdout.strip() == "set()"


@on_one_loop
async def test_finished_tells_how_it_ended(child: ProcessClient) -> None:
    async with aclosing(child.generate(EngineRequest(0, "p", max_tokens=3, sampling=Sampling(ignore_eos=True)))) as events:
        (finished,) = [event async for event in events if isinstance(event, Finished)]
    assert (finished.reason, finished.n_completion_tokens) == (FinishReason.LENGTH, 3)
    assert finished.prompt_s > 0

"""Vectors: pooling, batches, pieces, turns and cancels over a scripted model; and real ones of tiny GGUF files."""

from __future__ import annotations

import asyncio
from array import array
from pathlib import Path

import numpy as np
import pytest
from gguf import PoolingType

from server.engine.client import LocalClient, ProcessClient
from server.engine.embedding import Embedder, EmbedJob
from server.engine.messages import EngineRequest, FailureKind, Finished, ModelSpec, Pooling, Reply, TextChunk
from server.errors import BadRequest, ContextOverflow, GenerationFailed
from tests.server.engine.fake_backend import FakeBackend
from tests.tiny_encoder import write_tiny_encoder
from tests.tiny_models import TinyModel, write_tiny_model


def floats(vector: bytes) -> list[float]:
    return list(array("f", vector))


def unit(*values: float) -> list[float]:
    vector = np.array(values)
    return list(vector / np.linalg.norm(vector))


class Told:
    """What an embedder told."""

    def __init__(self) -> None:
        self.replies: list[Reply] = []

    def __call__(self, reply: object) -> None:
        assert isinstance(reply, Reply)
        self.replies.append(reply)


def run(backend: FakeBackend, *jobs: tuple[tuple[int, ...], ...], is_ranking: bool = False) -> list[Reply]:
    """The replies to the jobs, in the order in which they came."""
    told, embedder = Told(), Embedder(backend)
    for question, inputs in enumerate(jobs):
        embedder.add(EmbedJob(question, inputs, is_ranking, told))
    for _ in range(1000):
        if not embedder.has_work:
            return told.replies
        embedder.step(is_alone=True)
    raise AssertionError("it doesn't end")


def vectors(reply: Reply) -> list[list[float]]:
    assert reply.error is None
    assert isinstance(reply.value, tuple)
    return [floats(vector) for vector in reply.value]


@pytest.mark.parametrize(("pooling", "expected"), [("mean", (14, 3)), ("cls", (3, 0)), ("last", (6, 2))])
def test_pooling(pooling: Pooling, expected: tuple[float, float]) -> None:
    (reply,) = run(FakeBackend(pooling=pooling), ((3, 5, 6),))
    assert vectors(reply) == [pytest.approx(unit(*expected))]


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_an_input_in_pieces_has_the_vector_of_the_whole(pooling: Pooling) -> None:
    tokens = tuple(range(1, 90))
    slow = FakeBackend(n_ctx_slot=100, pooling=pooling, token_s=0.002)
    told, embedder = Told(), Embedder(slow)
    embedder.add(EmbedJob(1, (tokens, (1, 2)), False, told))
    while embedder.has_work:
        embedder.step(is_alone=False)
    assert len(slow.embeddings[0].batches) > 2
    (whole,) = run(FakeBackend(n_ctx_slot=100, pooling=pooling), (tokens,))
    assert vectors(told.replies[0])[0] == pytest.approx(vectors(whole)[0])


def test_short_inputs_share_decodes() -> None:
    backend = FakeBackend()
    inputs = tuple((token, token + 1) for token in range(40))
    (reply,) = run(backend, inputs)
    assert vectors(reply) == [pytest.approx(unit(2 * token + 1, 1)) for token in range(40)]
    assert [len(batch) for batch in backend.embeddings[0].batches] == [32, 32, 16]


def test_a_model_that_writes_nothing_sees_inputs_whole() -> None:
    backend = FakeBackend(n_ctx_slot=1000, can_generate=False, token_s=0.0001)
    (reply,) = run(backend, ((1,) * 700, (1, 1)))
    assert len(vectors(reply)) == 2
    (context,) = backend.embeddings
    assert context.is_pooled
    assert len(context.batches[0]) >= 700
    assert context.n_batch >= 700


def test_a_longer_input_gets_a_bigger_context() -> None:
    backend = FakeBackend(n_ctx_slot=1000)
    run(backend, ((1,) * 10,), ((1,) * 900,), ((1,) * 10,))
    first, second = backend.embeddings
    assert (first.is_free, second.is_free, second.n_ctx) == (True, False, 1024)


def test_ranks() -> None:
    (reply,) = run(FakeBackend(pooling="rank"), ((1, 2, 3), (4, 5)), is_ranking=True)
    assert vectors(reply) == [[6.0], [9.0]]


def test_jobs_take_turns() -> None:
    many = tuple((1,) * 60 for _ in range(30))
    replies = run(FakeBackend(n_ctx_slot=100), many, ((1, 2),))
    assert [reply.question for reply in replies] == [1, 0]


def test_a_decode_that_fails_costs_its_job() -> None:
    replies = run(FakeBackend(), ((1, 99),), ((1, 2),))
    assert [(reply.question, reply.error is None) for reply in replies] == [(0, False), (1, True)]
    assert replies[0].kind is FailureKind.GENERATION_FAILED


def test_a_bug_costs_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    def advance(self: Embedder, job: EmbedJob, budget: int) -> None:
        if job.question == 0:
            raise IndexError("seven")
        job.vectors = [b""] * len(job.inputs)

    monkeypatch.setattr(Embedder, "_advance", advance)
    replies = run(FakeBackend(), ((1, 2),), ((1, 2),))
    assert [reply.error for reply in replies] == ["the vectors can't be made: IndexError: seven", None]
    assert replies[0].kind is FailureKind.GENERATION_FAILED


def test_a_full_queue_and_a_cancel() -> None:
    told, embedder = Told(), Embedder(FakeBackend(), max_waiting=1)
    embedder.add(EmbedJob(1, ((1,),), False, told))
    embedder.add(EmbedJob(2, ((1,),), False, told))
    assert [(reply.question, reply.kind) for reply in told.replies] == [(2, FailureKind.QUEUE_FULL)]
    embedder.cancel(1)
    assert not embedder.has_work
    embedder.add(EmbedJob(3, (), False, told))
    assert told.replies[-1] == Reply(3, ())


async def test_through_a_client_beside_a_reply() -> None:
    client = LocalClient(FakeBackend(n_ctx_slot=200, token_s=0.0005, script=lambda seed: "x" * 60))
    await client.start()
    kinds: list[type] = []

    async def reply() -> None:
        kinds.extend([type(event) async for event in client.generate(EngineRequest(0, "hi"))])

    replying = asyncio.create_task(reply())
    found = await client.embed(tuple((1,) * 150 for _ in range(8)))
    assert len(found) == 8
    await replying
    assert kinds.count(TextChunk) == 60
    assert kinds[-1] is Finished
    with pytest.raises(ContextOverflow, match="401 tokens"):
        await client.embed(((1,) * 401,))
    with pytest.raises(BadRequest, match="7777"):
        await client.embed(((7777,),))
    with pytest.raises(GenerationFailed):
        await client.embed(((99,),))
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(client.embed(tuple((1,) * 150 for _ in range(1000))), 0.05)
    assert len(await asyncio.wait_for(client.embed(((1,),)), 20)) == 1
    slots = await client.slots()
    assert [slot.request for slot in slots] == [None] * 4
    await client.stop()


# ---- llama.cpp


async def test_a_real_model_that_writes_text_too(tmp_path: Path) -> None:
    client = ProcessClient(ModelSpec(str(write_tiny_model(tmp_path / "m.gguf", TinyModel())), n_ctx=1024, n_threads=1))
    info = await client.start()
    assert (info.can_generate, info.n_embd, info.n_ctx_embed) == (True, 64, 1024)
    inputs = [await client.tokenize(text) for text in ("hello world", "the cat is red", "hello world")]
    first, second, third = [floats(vector) for vector in await client.embed(tuple(inputs))]
    assert sum(value * value for value in first) == pytest.approx(1)
    assert first == pytest.approx(third, abs=1e-4)
    assert first != pytest.approx(second, abs=1e-2)
    (alone,) = await client.embed((inputs[1],))
    assert floats(alone) == pytest.approx(second, abs=1e-3)
    long = tuple(range(20, 120)) * 9
    ((whole,), events) = await asyncio.gather(client.embed((long,)), collect(client))
    assert sum(value * value for value in floats(whole)) == pytest.approx(1)
    assert isinstance(events[-1], Finished)
    await client.stop()


async def test_a_real_model_that_is_only_for_vectors(tmp_path: Path) -> None:
    path = str(write_tiny_model(tmp_path / "m.gguf", TinyModel(n_layers=2)))
    found = []
    for embedding in (False, True):
        client = ProcessClient(ModelSpec(path, n_threads=1, embedding=embedding))
        info = await client.start()
        assert (info.can_generate, info.is_causal, info.n_ctx_embed) == (not embedding, True, 2048)
        found.append(floats((await client.embed((tuple(range(300, 400)) * 8,)))[0]))
        if embedding:
            with pytest.raises(BadRequest, match="writes no text"):
                await collect(client)
        await client.stop()
    assert found[0] == pytest.approx(found[1], abs=1e-4)


async def collect(client: ProcessClient) -> list[object]:
    return [event async for event in client.generate(EngineRequest(0, "hello", max_tokens=5))]


async def test_a_real_encoder_and_a_real_ranker(tmp_path: Path) -> None:
    client = ProcessClient(ModelSpec(str(write_tiny_encoder(tmp_path / "e.gguf")), n_threads=1))
    info = await client.start()
    assert (info.can_generate, info.n_embd, info.n_ctx_embed, info.pooling, info.rank_frame) == (False, 32, 64, "mean", None)
    inputs = tuple([await client.tokenize(text, add_special=True) for text in ("the cat sat on the mat", "a dog")])
    both = await client.embed(inputs)
    assert [floats(vector) for vector in both] == [
        pytest.approx(floats((await client.embed((tokens,)))[0]), abs=1e-5) for tokens in inputs
    ]
    assert len(await client.embed(tuple((2, 5 + i % 10, 3) for i in range(50)))) == 50
    with pytest.raises(ContextOverflow):
        await client.embed(((5,) * 65,))
    with pytest.raises(BadRequest, match="writes no text"):
        await collect(client)
    await client.stop()

    ranker = ProcessClient(ModelSpec(str(write_tiny_encoder(tmp_path / "r.gguf", PoolingType.RANK)), n_threads=1))
    frame = (await ranker.start()).rank_frame
    assert frame is not None
    pairs = [(*frame.before, 5, 6, *frame.between, *document, *frame.after) for document in ((6, 7), (9,), (6, 7))]
    scores = [floats(score) for score in await ranker.embed(tuple(pairs), is_ranking=True)]
    assert [len(score) for score in scores] == [1, 1, 1]
    assert scores[0] == pytest.approx(scores[2], abs=1e-5)
    assert scores[0] != pytest.approx(scores[1], abs=1e-3)
    await ranker.stop()

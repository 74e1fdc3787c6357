"""/v1/embeddings and /v1/rerank over a fake engine: shapes, limits, and what is refused."""

from __future__ import annotations

import base64
import struct
from dataclasses import replace
from typing import Any

import pytest

from server.engine.messages import RankFrame
from tests.server.fakes import INFO, FakeEngine, Served, serve

VECTOR = pytest.approx([0.6, 0.8])
RANKER = replace(INFO, can_generate=False, pooling="rank", rank_frame=RankFrame((1,), (2, 3), (4,)))


async def embed(served: Served, **fields: Any) -> Any:
    reply = await served.client.post("/v1/embeddings", json=fields)
    assert reply.status_code == 200, reply.text
    return reply.json()


async def test_a_text(served: Served) -> None:
    body = await embed(served, input="abc")
    assert body == {
        "object": "list",
        "data": [{"object": "embedding", "index": 0, "embedding": VECTOR}],
        "model": "fake",
        "usage": {"prompt_tokens": 3, "total_tokens": 3},
    }


@pytest.mark.parametrize(
    ("value", "inputs"),
    [
        (["ab", "c"], ((97, 98), (99,))),
        ([5, 6], ((5, 6),)),
        ([[5, 6], [7]], ((5, 6), (7,))),
        (["a", [7]], ((97,), (7,))),
    ],
)
async def test_forms_of_input(served: Served, value: list[Any], inputs: tuple[tuple[int, ...], ...]) -> None:
    body = await embed(served, input=value, model="fake", user="me", dimensions=2)
    assert [entry["index"] for entry in body["data"]] == list(range(len(inputs)))
    assert served.engine.embedded == [inputs]
    assert body["usage"]["prompt_tokens"] == sum(map(len, inputs))


async def test_base64_is_little_endian_float32(served: Served) -> None:
    body = await embed(served, input=["a", "b"], encoding_format="base64")
    for entry in body["data"]:
        assert struct.unpack("<2f", base64.b64decode(entry["embedding"])) == VECTOR


async def test_numbers_are_the_same_float32(served: Served) -> None:
    numbers = (await embed(served, input="a"))["data"][0]["embedding"]
    assert struct.pack("<2f", *numbers) == struct.pack("<2f", 0.6, 0.8)


async def test_many_inputs(served: Served) -> None:
    body = await embed(served, input=["x"] * 2048)
    assert [entry["index"] for entry in body["data"]] == list(range(2048))


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "input"),
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": ["x"] * 2049}, "input"),
        ({"input": ""}, "input"),
        ({"input": ["a", ""]}, "input[1]"),
        ({"input": [[1], []]}, "input[1]"),
        ({"input": 5}, "input"),
        ({"input": {"text": "a"}}, "input"),
        ({"input": ["a", 5]}, "input[1]"),
        ({"input": ["a", None]}, "input[1]"),
        ({"input": [True]}, "input[0]"),
        ({"input": [[1, "a"]]}, "input[0][1]"),
        ({"input": [-1]}, "input[0]"),
        ({"input": [1000]}, "input"),
        ({"input": [[2**31]]}, "input[0][0]"),
        ({"input": ["a", "b" * 257]}, "input[1]"),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format"),
        ({"input": "a", "encoding_format": 1}, "encoding_format"),
        ({"input": "a", "dimensions": 1}, "dimensions"),
        ({"input": "a", "dimensions": 0}, "dimensions"),
        ({"input": "a", "dimensions": "2"}, "dimensions"),
        ({"input": "a", "model": 1}, "model"),
        ({"input": "a", "user": 1}, "user"),
    ],
)
async def test_what_is_refused(served: Served, fields: dict[str, Any], param: str) -> None:
    reply = await served.client.post("/v1/embeddings", json=fields)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)


async def test_an_unknown_model(served: Served) -> None:
    reply = await served.client.post("/v1/embeddings", json={"input": "a", "model": "nobody"})
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "model_not_found")


# ---- ranks


async def test_ranks() -> None:
    async with serve(FakeEngine(info=RANKER)) as served:
        fields = {"query": "q", "documents": ["a", {"text": "bbb"}, "cc"], "top_n": 2, "return_documents": True}
        for path in ("/v1/rerank", "/rerank", "/v1/reranking"):
            body = (await served.client.post(path, json=fields)).json()
            assert body["results"] == [
                {"index": 1, "relevance_score": 8.0, "document": {"text": "bbb"}},
                {"index": 2, "relevance_score": 7.0, "document": {"text": "cc"}},
            ]
            assert (body["model"], body["usage"]["prompt_tokens"]) == ("fake", 21)
        assert served.engine.embedded[0][0] == (1, 113, 2, 3, 97, 4)
        everything = (await served.client.post("/v1/rerank", json={"query": "q", "documents": ["a", "b"]})).json()
        assert [result["index"] for result in everything["results"]] == [0, 1]
        refused = await served.client.post("/v1/embeddings", json={"input": "a"})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "model")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"documents": ["a"]}, "query"),
        ({"query": 1, "documents": ["a"]}, "query"),
        ({"query": "q"}, "documents"),
        ({"query": "q", "documents": []}, "documents"),
        ({"query": "q", "documents": "a"}, "documents"),
        ({"query": "q", "documents": ["a", 1]}, "documents[1]"),
        ({"query": "q", "documents": [{"title": "a"}]}, "documents[0]"),
        ({"query": "q", "documents": ["a", "b" * 252]}, "documents[1]"),
        ({"query": "q", "documents": ["a"], "top_n": 0}, "top_n"),
        ({"query": "q", "documents": ["a"], "top_n": "1"}, "top_n"),
        ({"query": "q", "documents": ["a"], "return_documents": 1}, "return_documents"),
        ({"query": "q", "documents": ["a"], "model": []}, "model"),
    ],
)
async def test_what_a_rank_refuses(fields: dict[str, Any], param: str) -> None:
    async with serve(FakeEngine(info=RANKER)) as served:
        reply = await served.client.post("/v1/rerank", json=fields)
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)


async def test_a_model_that_cannot_rank(served: Served) -> None:
    reply = await served.client.post("/v1/rerank", json={"query": "q", "documents": ["a"]})
    error = reply.json()["error"]
    assert (reply.status_code, error["param"], error["code"]) == (400, "model", "unsupported_parameter")
    assert "rerank" in error["message"]

"""The official `openai` package asks for embeddings: it wants base64 by default and decodes it, sync and async."""

from __future__ import annotations

import math

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from tests.live_server import LiveServer

pytestmark = pytest.mark.client

TEXTS = ["The cat sleeps on the sofa.", "A cat is asleep on a couch.", "Interest rates rose by half a percent."]


def cosine(one: list[float], other: list[float]) -> float:
    return math.sumprod(one, other) if hasattr(math, "sumprod") else sum(a * b for a, b in zip(one, other, strict=True))


def test_embeddings(live_server: LiveServer) -> None:
    with OpenAI(base_url=f"{live_server.url}/v1", api_key="sesame", max_retries=0) as client:
        asked = client.embeddings.create(model="default", input=TEXTS)
        assert [entry.index for entry in asked.data] == [0, 1, 2]
        vectors = [entry.embedding for entry in asked.data]
        assert all(cosine(vector, vector) == pytest.approx(1, abs=1e-5) for vector in vectors)
        assert cosine(vectors[0], vectors[1]) > cosine(vectors[0], vectors[2])
        assert asked.usage.prompt_tokens == asked.usage.total_tokens > len(TEXTS)
        numbers = client.embeddings.create(model="default", input=TEXTS[0], encoding_format="float")
        assert numbers.data[0].embedding == pytest.approx(vectors[0], abs=1e-3)
        tokens = live_server.client.post(
            "/tokenize", json={"content": TEXTS[0], "add_special": True}, headers={"Authorization": "Bearer sesame"}
        ).json()["tokens"]
        by_tokens = client.embeddings.create(model="default", input=tokens)
        assert by_tokens.data[0].embedding == pytest.approx(numbers.data[0].embedding, abs=1e-6)
        assert client.embeddings.create(model="default", input=TEXTS[0], dimensions=len(vectors[0])).data
        with pytest.raises(openai.BadRequestError) as caught:
            client.embeddings.create(model="default", input=TEXTS[0], dimensions=8)
        assert caught.value.param == "dimensions"
        with pytest.raises(openai.BadRequestError) as caught:
            client.embeddings.create(model="default", input=["fine", "too long " * 2000])
        assert caught.value.param == "input[1]"


async def test_async_embeddings(live_server: LiveServer) -> None:
    async with AsyncOpenAI(base_url=f"{live_server.url}/v1", api_key="sesame", max_retries=0) as client:
        asked = await client.embeddings.create(model="default", input=TEXTS)
        assert len({len(entry.embedding) for entry in asked.data}) == 1
        listed = [model async for model in client.models.list()]
        assert listed[0].id

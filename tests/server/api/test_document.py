"""The OpenAPI document: every route is in it, and what it says of requests is what the routes take."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from server.api.document import error_schema
from server.api.native.routes import TokenizeFields
from server.api.vectors.embeddings import EmbeddingFields
from server.api.vectors.rerank import RankFields
from server.app import create_app
from server.settings import Settings
from tests.server.fakes import FakeEngine, FakeManager, InlineCompiler, Served

NO_BODY = ("/v1/responses/{response_id}/cancel",)
HI = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    found: dict[str, Any] = create_app(Settings(), FakeManager(FakeEngine()), InlineCompiler()).openapi()
    return found


def body_schema(document: dict[str, Any], path: str, method: str = "post") -> dict[str, Any]:
    schema: dict[str, Any] = document["paths"][path][method]["requestBody"]["content"]["application/json"]["schema"]
    return schema


async def test_it_is_served(served: Served) -> None:
    reply = await served.client.get("/openapi.json")
    assert reply.status_code == 200
    assert reply.json()["openapi"].startswith("3.1")


def test_every_route_that_takes_a_body_says_what_is_in_it(document: dict[str, Any]) -> None:
    posts = [path for path, operations in document["paths"].items() if "post" in operations and path not in NO_BODY]
    assert len(posts) > 15
    assert all(body_schema(document, path) for path in posts)
    jsonschema.Draft202012Validator.check_schema(body_schema(document, "/v1/constraints/compile"))


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/chat/completions", {"messages": HI, "temperature": 0, "stop": "x", "logit_bias": {"5": 1}, "max_tokens": 3}),
        ("/v1/chat/completions", {"messages": HI, "stream_options": {"include_usage": True}, "stream": True, "seed": None}),
        ("/v1/chat/completions", {"messages": HI, "response_format": {"type": "json_schema", "json_schema": {"schema": {}}}}),
        ("/v1/completions", {"prompt": [[1, 2], [3]], "guided_choice": ["Hello"], "echo": True}),
        ("/v1/embeddings", {"input": ["a", "b"], "encoding_format": "base64"}),
        ("/v1/responses", {"input": "hi", "max_output_tokens": 5}),
        ("/v1/messages", {"messages": HI, "max_tokens": 5, "stop_sequences": ["x"], "system": [{"type": "text", "text": "s"}]}),
        ("/api/chat", {"messages": HI, "options": {"num_predict": 5, "stop": ["x"]}, "keep_alive": "5m", "think": False}),
        ("/api/generate", {"prompt": "hi", "format": "json", "keep_alive": 0}),
        ("/v1/messages", {"messages": HI, "max_tokens": 5, "output_config": {"effort": "max"}}),
        ("/v1/completions", {"prompt": "a", "guided_json": {"const": 1}, "formats": "assert", "whitespace": "default"}),
        ("/tokenize", {"content": "a", "with_pieces": True}),
    ],
)
async def test_what_fits_is_taken(served: Served, document: dict[str, Any], path: str, fields: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator(body_schema(document, path)).validate(fields)  # not `validate`, which checks the schema
    assert (await served.client.post(path, json=fields)).status_code == 200


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/chat/completions", {"messages": HI, "temperature": -1}),
        ("/v1/chat/completions", {"messages": HI, "logit_bias": {"5": 101}}),
        ("/v1/chat/completions", {"messages": [{"role": "robot", "content": "hi"}]}),
        ("/v1/completions", {"prompt": "a", "guided_choice": []}),
        ("/v1/embeddings", {"encoding_format": "float"}),
        ("/v1/responses", {"input": 5}),
        ("/v1/messages", {"messages": HI}),
        ("/v1/completions", {"prompt": "a", "guided_json": {"const": 1}, "formats": "assertion"}),
        ("/api/chat", {"messages": HI, "options": {"top_k": "many"}}),
    ],
)
async def test_what_does_not_fit_is_refused_in_the_documented_shape(
    served: Served, document: dict[str, Any], path: str, fields: dict[str, Any]
) -> None:
    assert not jsonschema.Draft202012Validator(body_schema(document, path)).is_valid(fields)
    reply = await served.client.post(path, json=fields)
    assert reply.status_code == 400
    jsonschema.validate(reply.json(), error_schema(path))


def test_bodies_have_the_fields_that_routes_read(document: dict[str, Any]) -> None:
    """Of the routes whose bodies aren't said by their fields alone."""
    for path, model, more in (
        ("/tokenize", TokenizeFields, set()),
        ("/v1/rerank", RankFields, {"documents"}),
        ("/v1/embeddings", EmbeddingFields, {"input"}),
    ):
        assert set(body_schema(document, path)["properties"]) == set(model.model_fields) | more
    for path, required in (("/tokenize", ["content"]), ("/v1/rerank", ["query", "documents"]), ("/detokenize", ["tokens"])):
        assert body_schema(document, path)["required"] == required


def test_each_api_has_its_own_names_for_stop_strings(document: dict[str, Any]) -> None:
    """A field that a route would ignore is in no document of it."""
    for path, name, other in (
        ("/v1/messages", "stop_sequences", "stop"),
        ("/v1/responses", "stop", "stop_sequences"),
        ("/v1/embeddings", "dimensions", "stop"),
    ):
        fields = body_schema(document, path)["properties"]
        assert name in fields
        assert other not in fields

"""Every constraint field on every endpoint that generates: held alike, refused alike, in the shape of the endpoint's API."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.server.fakes import FakeEngine, InlineCompiler, serve

USER = [{"role": "user", "content": "hi"}]
ENDPOINTS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": USER},
    "/v1/completions": {"prompt": "hi"},
    "/v1/messages": {"messages": USER, "max_tokens": 50},
    "/v1/responses": {"input": "hi"},
    "/api/chat": {"messages": USER},
    "/api/generate": {"prompt": "hi"},
}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
GBNF = 'root ::= "a"'
FIELDS: list[dict[str, Any]] = [
    {"guided_choice": ["a", "b"]},
    {"guided_regex": "a"},
    {"guided_grammar": GBNF},
    {"guided_json": SCHEMA},
    {"structured_outputs": {"choice": ["a"]}},
    {"structured_outputs": {"regex": "a"}},
    {"structured_outputs": {"json": SCHEMA}},
    {"structured_outputs": {"grammar": 'start: "a"'}},
    {"structured_outputs": {"structural_tag": {"tag": "t", "schema": SCHEMA}}},
    {"structured_outputs": {"json_object": True}},
    {"response_format": {"type": "json_object"}},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}},
    {"response_format": {"type": "grammar", "grammar": GBNF}},
    {"json_schema": SCHEMA},
    {"grammar": GBNF},
    {"constraint": "a"},
    {"constraint": 'start: "a"', "constraint_type": "lark"},
    {"regex": "a"},
    {"ebnf": GBNF},
    {"format": "json"},
    {"format": SCHEMA},
    {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
    {"text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}}},
]
REFUSED: list[tuple[dict[str, Any], str]] = [
    # fields, words of the message
    ({"guided_regex": "("}, "guided_regex: "),
    ({"guided_regex": "a", "grammar": GBNF}, "only one of structured_outputs, response_format, or constraint may be set"),
    ({"structured_outputs": {}}, "one of choice, regex, json, grammar, or structural_tag must be set"),
    ({"guided_xml": "a"}, "guided_xml is not a field that this server knows"),
    ({"regex": "a" * 4097}, "regex is too long: 4097 bytes, where regex_bytes allows 4096 bytes"),
    ({"guided_json": {"type": "array", "uniqueItems": True}}, "guided_json.uniqueItems: "),
    ({"extra_body": {"guided_json": {"$ref": "#/nowhere"}}}, "extra_body.guided_json.$ref: "),
]
TOOL = {"name": "get_it", "parameters": {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}}
WRAPPED = {"type": "function", "function": TOOL}
TOOLS: dict[str, tuple[dict[str, Any], str]] = {
    # endpoint: a forced call of a tool that can't be expressed, and the param of the refusal
    "/v1/chat/completions": ({"tools": [WRAPPED], "tool_choice": "required"}, "tools[0].function.parameters"),
    "/v1/messages": ({"tools": [{"name": "get_it", "input_schema": TOOL["parameters"]}], "tool_choice": {"type": "any"}},
                     "tools[0].input_schema"),
    "/v1/responses": ({"tools": [{"type": "function", **TOOL}], "tool_choice": "required"}, "tools[0].parameters"),
    "/api/chat": ({"tools": [WRAPPED], "tool_choice": "required"}, "tools[0].function.parameters"),
}  # fmt: skip


@pytest.fixture(scope="module")
def compiler() -> InlineCompiler:
    """What one endpoint's request has had compiled needs no compiling for the others'."""
    return InlineCompiler()


STREAMED = ("/v1/chat/completions", "/api/chat")
"""Where a fast test streams too: one of server-sent events, one of lines."""


@pytest.mark.parametrize(
    ("endpoint", "stream"),
    [
        pytest.param(
            endpoint, stream, id=f"{endpoint}-{'stream' if stream else 'whole'}",
            marks=pytest.mark.conformance if stream and endpoint not in STREAMED else (),
        )
        for endpoint in ENDPOINTS
        for stream in (False, True)
    ],
)  # fmt: skip
async def test_every_field_holds_on_every_endpoint(endpoint: str, stream: bool, compiler: InlineCompiler) -> None:
    async with serve(FakeEngine(pieces=["a"]), compiler=compiler) as served:
        for fields in FIELDS:
            reply = await served.client.post(endpoint, json={**ENDPOINTS[endpoint], **fields, "stream": stream})
            assert reply.status_code == 200, (fields, reply.text)
            request = served.engine.requests[-1]
            assert request.grammar_key in served.engine.grammars, fields
            inside = await served.client.post(endpoint, json={**ENDPOINTS[endpoint], "extra_body": fields, "stream": stream})
            assert inside.status_code == 200, (fields, inside.text)
            assert served.engine.requests[-1].grammar_key == request.grammar_key
        assert len(served.engine.requests) == 2 * len(FIELDS)


@pytest.mark.parametrize("endpoint", ENDPOINTS)
async def test_every_refusal_is_in_the_shape_of_the_api(endpoint: str) -> None:
    async with serve() as served:
        for fields, words in REFUSED:
            for stream in (False, True):
                reply = await served.client.post(endpoint, json={**ENDPOINTS[endpoint], **fields, "stream": stream})
                assert reply.status_code == 400, (fields, reply.text)
                error = reply.json()["error"]
                assert isinstance(error, str) == endpoint.startswith("/api/")
                assert words in (error if isinstance(error, str) else error["message"])
        assert served.engine.requests == []


OWN_WRAPPERS = {"/v1/messages": "output_config", "/v1/responses": "text"}
"""The objects that have a format in them, by the API whose field it is: to the others the name says nothing."""


@pytest.mark.parametrize("endpoint", ENDPOINTS)
async def test_a_wrapper_that_is_no_object_is_wrong_only_where_it_is_a_field(endpoint: str) -> None:
    async with serve(FakeEngine(pieces=["a"])) as served:
        for name in OWN_WRAPPERS.values():
            values: tuple[object, ...] = ("hi", 5, True, [{}])
            for value in values:
                body = {**ENDPOINTS[endpoint], name: value, "stream": False}
                reply = await served.client.post(endpoint, json=body)
                assert reply.status_code == (400 if OWN_WRAPPERS.get(endpoint) == name else 200), (body, reply.text)
                if reply.status_code == 400:
                    assert f"{name} must be an object" in reply.text


@pytest.mark.parametrize("endpoint", TOOLS)
async def test_tools_are_held_refused_and_relaxed_on_every_endpoint(endpoint: str) -> None:
    fields, place = TOOLS[endpoint]
    async with serve() as served:
        refused = await served.client.post(endpoint, json={**ENDPOINTS[endpoint], **fields, "stream": False})
        assert refused.status_code == 400
        assert f"{place}.properties.a.uniqueItems: " in refused.text
        reply = await served.client.post(endpoint, json={**ENDPOINTS[endpoint], **fields, "lenient": True, "stream": False})
        assert reply.status_code == 200, reply.text
        (entry,) = json.loads(reply.headers["X-Constraint-Warnings"])
        assert entry["path"] == "/" + place.replace("[", "/").replace("]", "").replace(".", "/") + "/properties/a/uniqueItems"
        assert served.engine.requests[-1].grammar_key in served.engine.grammars

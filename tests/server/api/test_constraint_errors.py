"""Every refusal that the specification words, through HTTP: status, text, field, code; and what a lenient request is told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.server.fakes import Served

NAMED: dict[str, Any] = {"type": "function", "function": {"name": "get_it", "parameters": {"type": "object", "properties": {}}}}
OTHER = {"type": "function", "function": {"name": "nope"}}
SCHEMA = {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}}
GRAMMAR = 'root ::= "a"'

REFUSED: list[tuple[dict[str, Any], str, str, str | None]] = [
    # fields, words of the message, param, code
    ({"structured_outputs": {"choice": ["a", "b"]}, "response_format": SCHEMA},
     "only one of structured_outputs, response_format, or constraint may be set; "
     "this request sets structured_outputs and response_format",
     "response_format.json_schema.schema", "conflicting_constraints"),
    ({"json_schema": {}, "response_format": SCHEMA},
     "only one of structured_outputs, response_format, or constraint may be set; "
     "this request sets response_format and json_schema", "json_schema", "conflicting_constraints"),
    ({"structured_outputs": {}}, "one of choice, regex, json, grammar, or structural_tag must be set",
     "structured_outputs", None),
    ({"structured_outputs": {"regex": "a", "choice": ["a"]}},
     "only one of choice, regex, json, grammar, or structural_tag must be set", "structured_outputs.choice",
     "conflicting_constraints"),
    ({"response_format": {"type": "xml"}},
     "response_format type 'xml' is not supported: only json_schema and json_object are supported (and ",
     "response_format.type", None),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema is missing",
     "response_format.json_schema", None),
    ({"guided_regex": "a" * 4097}, "guided_regex is too long: 4097 bytes, where regex_bytes allows 4096 bytes",
     "guided_regex", "limit_exceeded"),
    ({"guided_grammar": GRAMMAR + " " * 16384},
     "guided_grammar is too long: 16396 bytes, where grammar_bytes allows 16384 bytes (16 KiB)",
     "guided_grammar", "limit_exceeded"),
    ({"guided_json": {"title": "a" * 16384}},
     "guided_json is too long: 16396 bytes, where schema_bytes allows 16384 bytes (16 KiB)",
     "guided_json", "limit_exceeded"),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"title": "a" * 16384}}}},
     "response_format.json_schema.schema is too long: 16396 bytes, where schema_bytes allows 16384 bytes (16 KiB)",
     "response_format.json_schema.schema", "limit_exceeded"),
    ({"guided_choice": ["a"] * 10_001}, "guided_choice has 10001 options, where n_choice_options allows 10000",
     "guided_choice", "limit_exceeded"),
    ({"tools": [{**NAMED, "function": {**NAMED["function"], "description": "a" * 262144}}]},
     "where tools_bytes allows 262144 bytes", "tools", "limit_exceeded"),
    ({"guided_regex": "(a|b)*a(a|b){17}"}, "[automaton_bytes = 262144]", "guided_regex", "limit_exceeded"),
    ({"guided_json": {"type": "string", "pattern": "(a|b)*a(a|b){17}"}}, "[automaton_bytes = 262144]",
     "guided_json.pattern", "limit_exceeded"),
    ({"tools": [NAMED], "tool_choice": OTHER}, "tool_choice names 'nope', which is not in tools",
     "tool_choice", "unknown_tool"),
    ({"tools": [NAMED], "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [OTHER]}}},
     "tool_choice names 'nope', which is not in tools", "tool_choice", "unknown_tool"),
    ({"tools": [NAMED], "function_call": {"name": "nope"}}, "function_call names 'nope', which is not in tools",
     "function_call", "unknown_tool"),
    ({"guided_json": {"type": "array", "uniqueItems": True}}, "guided_json.uniqueItems: ", "guided_json.uniqueItems",
     "unsupported_constraint"),
    ({"guided_json": False}, "guided_json: ", "guided_json", "unsatisfiable_constraint"),
    ({"guided_regex": "("}, "guided_regex: ", "guided_regex", "invalid_constraint"),
    ({"text": {"format": {"type": "xml"}}}, "text.format type 'xml' is not supported", "text.format.type", None),
    ({"text": {"format": {"type": "json_schema", "schema": {"properties": {"a": {"type": 5}}}}}}, "must be",
     "text.format.schema.properties.a.type", "invalid_constraint"),
    ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema is missing",
     "output_config.format.schema", None),
    ({"guided_json": {"$schema": 5}}, "$schema must be a string", "guided_json.$schema", "invalid_constraint"),
    ({"guided_json": {}, "whitespace_pattern": "("}, "whitespace_pattern: ", "whitespace_pattern", "invalid_constraint"),
    ({"guided_json": {}, "guided_whitespace_pattern": "a"}, "must match only spaces", "guided_whitespace_pattern",
     "invalid_constraint"),
    ({"guided_json": {}, "extra_body": {"whitespace_pattern": "a"}}, "must match only spaces",
     "extra_body.whitespace_pattern", "invalid_constraint"),
    ({"structured_outputs": {"json": {}, "whitespace_pattern": "(x)"}}, "must match only spaces",
     "structured_outputs.whitespace_pattern", "invalid_constraint"),
    ({"tools": [NAMED], "tool_choice": "required", "whitespace_pattern": "x"}, "must match only spaces",
     "whitespace_pattern", "invalid_constraint"),
    ({"guided_xml": "a"}, "guided_xml is not a field that this server knows", "guided_xml", "unknown_constraint_field"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "words", "param", "code"), REFUSED, ids=[str(row[0])[:40] for row in REFUSED])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_refusal_says_what_and_where(
    served: Served, fields: dict[str, Any], words: str, param: str, code: str | None, stream: bool
) -> None:
    reply = await served.chat(**fields, stream=stream)
    assert reply.status_code == 400, reply.text
    error = reply.json()["error"]
    assert words in error["message"]
    assert (error["param"], error["code"], error["type"]) == (param, code, "invalid_request_error")
    assert served.engine.requests == []


UNIQUE = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
LOOSE = {"type": "object", "properties": {"a": UNIQUE, "ü/b": {"type": "string", "pattern": r"(a)\1"}}}
POINTERS = ["/properties/a/uniqueItems", "/properties/ü~1b/pattern"]


async def test_a_lenient_report_lists_what_was_relaxed_by_json_pointer(served: Served) -> None:
    refused = await served.client.post("/v1/constraints/compile", json={"guided_json": LOOSE})
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "unsupported_constraint"
    report = (await served.client.post("/v1/constraints/compile", json={"guided_json": LOOSE, "lenient": True})).json()
    assert sorted(entry["path"] for entry in report["relaxed"]) == POINTERS
    assert all(entry["reason"] for entry in report["relaxed"])
    assert all(isinstance(json.loads(text), dict) for text in [report["shortest"], *report["random"]])


@pytest.mark.parametrize("stream", [False, True])
async def test_a_lenient_answer_tells_it_in_the_header(served: Served, stream: bool) -> None:
    assert (await served.chat(guided_json=LOOSE)).status_code == 400
    reply = await served.chat(guided_json=LOOSE, lenient=True, stream=stream)
    assert reply.status_code == 200
    header = reply.headers["X-Constraint-Warnings"]
    assert header.isascii()
    assert sorted(entry["path"] for entry in json.loads(header)) == POINTERS
    assert all(entry["message"].startswith("relaxed: ") for entry in json.loads(header))
    exact = await served.chat(guided_json={"type": "integer"}, lenient=True, stream=stream)
    assert "X-Constraint-Warnings" not in exact.headers


TOOL = {"type": "function", "function": {"name": "get_it", "parameters": {"properties": {"a": UNIQUE}, "required": ["a"]}}}
FORCED = {"tools": [NAMED | {"function": {"name": "other"}}, TOOL], "tool_choice": "required", "parallel_tool_calls": False}


async def test_the_report_of_forced_calls(served: Served) -> None:
    parameters = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["n"]}
    tool = {"type": "function", "function": {"name": "get_it", "parameters": parameters}}
    fields = {"tools": [tool], "tool_choice": {"type": "function", "function": {"name": "get_it"}}}
    report = (await served.client.post("/v1/constraints/compile", json={**fields, "guided_regex": "a"})).json()
    assert (report["source"], report["kind"], report["relaxed"]) == ("tool_choice", "tool", [])
    for text in [report["shortest"], *report["random"]]:
        call = json.loads(text.removeprefix("<tool_call>").removesuffix("</tool_call>"))
        assert call["name"] == "get_it"
        assert 1 <= call["arguments"]["n"] <= 9
    without_force = await served.client.post("/v1/constraints/compile", json={"tools": [tool]})
    assert without_force.status_code == 400
    unknown = await served.client.post("/v1/constraints/compile", json={"tools": [tool], "tool_choice": OTHER})
    assert unknown.json()["error"]["code"] == "unknown_tool"


async def test_a_lenient_request_relaxes_its_tools(served: Served) -> None:
    refused = await served.chat(**FORCED)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "tools[1].function.parameters.properties.a.uniqueItems"
    report = (await served.client.post("/v1/constraints/compile", json={**FORCED, "lenient": True})).json()
    assert [entry["path"] for entry in report["relaxed"]] == ["/tools/1/function/parameters/properties/a/uniqueItems"]
    reply = await served.chat(**FORCED, lenient=True)
    assert reply.status_code == 200
    (entry,) = json.loads(reply.headers["X-Constraint-Warnings"])
    assert entry["path"] == "/tools/1/function/parameters/properties/a/uniqueItems"


async def test_a_lenient_request_relaxes_its_constraint_beside_tools(served: Served) -> None:
    fields = {"tools": [TOOL], "guided_json": UNIQUE}
    assert (await served.chat(**fields)).status_code == 400
    reply = await served.chat(**fields, lenient=True)
    assert reply.status_code == 200
    paths = [entry["path"] for entry in json.loads(reply.headers["X-Constraint-Warnings"])]
    assert sorted(paths) == ["/tools/0/function/parameters/properties/a/uniqueItems", "/uniqueItems"]


ALLOWED = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "function", "name": "get_it"}]}}
TAG = {"begin": "<a>", "end": "</a>"}


def custom(syntax: str, definition: str) -> dict[str, Any]:
    form = {"type": "grammar", "grammar": {"syntax": syntax, "definition": definition}}
    return {"type": "custom", "custom": {"name": "write", "format": form}}


EVERYWHERE: list[tuple[dict[str, Any], str, str]] = [
    # fields, the error's param, the relaxation's path
    ({"tools": FORCED["tools"], "tool_choice": ALLOWED}, "tools[1].function.parameters.properties.a.uniqueItems",
     "/tools/1/function/parameters/properties/a/uniqueItems"),
    ({"tools": FORCED["tools"]}, "tools[1].function.parameters.properties.a.uniqueItems",
     "/tools/1/function/parameters/properties/a/uniqueItems"),
    ({"extra_body": {"functions": [TOOL["function"]]}, "function_call": {"name": "get_it"}},
     "extra_body.functions[0].parameters.properties.a.uniqueItems",
     "/extra_body/functions/0/parameters/properties/a/uniqueItems"),
    ({"tools": [custom("regex", r"(a)\1")], "tool_choice": "required"}, "tools[0].custom.format.grammar.definition",
     "/tools/0/custom/format/grammar/definition"),
    ({"tools": [custom("lark", f"start: %json {json.dumps(UNIQUE)}")], "tool_choice": "required"},
     "tools[0].custom.format.grammar.definition.uniqueItems", "/tools/0/custom/format/grammar/definition/uniqueItems"),
    ({"structured_outputs": {"structural_tag": {"tag": "t", "schema": UNIQUE}}},
     "structured_outputs.structural_tag.schema.uniqueItems", "/schema/uniqueItems"),
    ({"response_format": {"type": "structural_tag", "structures": [TAG, {**TAG, "begin": "<b>", "schema": UNIQUE}],
                          "triggers": ["<"]}}, "response_format.structures[1].schema.uniqueItems",
     "/structures/1/schema/uniqueItems"),
    ({"response_format": {"type": "structural_tag", "format": {"type": "qwen_xml_parameter", "json_schema": {
        "type": "object", "properties": {"a": UNIQUE}, "required": ["a"]}}}},
     "response_format.format.json_schema.properties.a.uniqueItems", "/format/json_schema/properties/a/uniqueItems"),
    ({"guided_grammar": f"start: %json {json.dumps(UNIQUE)}"}, "guided_grammar.uniqueItems", "/uniqueItems"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "param", "path"), EVERYWHERE, ids=[row[1] for row in EVERYWHERE])
async def test_schemas_are_refused_and_relaxed_wherever_they_stand(
    served: Served, fields: dict[str, Any], param: str, path: str
) -> None:
    refused = await served.chat(**fields)
    assert refused.status_code == 400, refused.text
    assert (refused.json()["error"]["param"], refused.json()["error"]["code"]) == (param, "unsupported_constraint")
    reply = await served.chat(**fields, lenient=True)
    assert reply.status_code == 200, reply.text
    entries = json.loads(reply.headers["X-Constraint-Warnings"])
    assert [entry["path"] for entry in entries if entry["message"].startswith("relaxed: ")] == [path]
    assert any(request.grammar_keys for request in served.engine.requests)


async def test_many_culprits_cost_one_more_lowering_of_their_own_schema_each(served: Served) -> None:
    """24 tools, each with two keywords that can't be expressed, inside the time that one compile may take."""
    parameters = {"type": "object", "properties": {"a": UNIQUE, "b": {"type": "string", "pattern": r"(a)\1"}}}
    tools = [{"type": "function", "function": {"name": f"t{i}", "parameters": parameters}} for i in range(24)]
    reply = await served.client.post(
        "/v1/constraints/compile", json={"tools": tools, "tool_choice": "required", "lenient": True}
    )
    assert reply.status_code == 200, reply.text
    assert len(reply.json()["relaxed"]) == 48


async def test_the_header_is_whole_json_of_at_most_4_kib(served: Served) -> None:
    schema = {"type": "object", "properties": {f"ключ-{i}" + "я" * 60: UNIQUE for i in range(12)}}
    reply = await served.chat(guided_json=schema, lenient=True)
    assert reply.status_code == 200, reply.text
    header = reply.headers["X-Constraint-Warnings"]
    assert header.isascii()
    assert 2000 < len(header) <= 4096
    *kept, rest = json.loads(header)
    assert [entry["path"] for entry in kept] == [f"/properties/ключ-{i}{'я' * 60}/uniqueItems" for i in range(len(kept))]
    assert rest == {"message": f"{12 - len(kept)} more"}

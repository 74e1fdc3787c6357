"""Choice of a format, what tools may look like, the errors that name the culprit, and the cost of many tools."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from converters.compile import CompileOptions, cache_key, compile_constraint
from converters.constraint import FreeText, Gbnf, JsonValue, Lark, Regex, Tool, ToolCalls, ToolInput
from converters.errors import ConversionError, InvalidSource, Unsatisfiable, UnsupportedFeature
from converters.grammar.match import Matcher
from converters.limits import Limits
from converters.tools.codec import Call
from converters.tools.codecs import CODECS, codec_for_template, knows_tools
from converters.tools.custom import arguments_of_input, function_of_custom
from converters.tools.parameters import text_keys
from tests.converters.tools.reading import calls_of, read, value_of
from tests.oracle import Oracle

REPORTS = Path(__file__).parents[4] / "shared" / "cases" / "reports.jsonl"


@pytest.mark.parametrize(
    ("template", "codec"),
    [
        ("{% if tools %}<tools>…</tools><tool_call>{% endif %}", "hermes"),
        ("{{ tools }}<tool_call>\n<function=example>", "qwen3_coder"),
        ("{{ tools }}[TOOL_CALLS] [", "mistral"),
        ("{{ tools }}[TOOL_CALLS]{{ name }}[ARGS]", "mistral_args"),
        ("{{ tools }}<|python_tag|>", "llama3"),
        ('<|start_header_id|>{{ tools }}{"name": function name, "parameters": …}', "llama3"),
        ("<|im_start|>{{ m.role }}", "hermes"),
        ("<start_of_turn>{{ m.role }}", "json"),
        ("{{ tools }}<tool_call>name<arg_key>k</arg_key>", None),
        ("{{ tools }}<|tool_call>call:", None),
        (None, None),
    ],
)
def test_the_template_tells_the_format(template: str | None, codec: str | None) -> None:
    found = codec_for_template(template)
    assert (found.name if found is not None else None) == codec


def test_a_template_knows_tools_or_not() -> None:
    assert knows_tools("{%- if tools %}")
    assert not knows_tools("<|im_start|>{{ message.toolset }}")


@pytest.mark.parametrize("codec", CODECS)
def test_tools_are_described_in_the_format(codec: str) -> None:
    """The description holds every tool's JSON, and the history's texts are what the parser reads."""
    tools: list[dict[str, JsonValue]] = [
        {"type": "function", "function": {"name": "né", "description": "x\ny", "parameters": {}}}
    ]
    text = CODECS[codec].describe_tools(tools)
    assert json.loads(next(line for line in text.splitlines() if '"né"' in line)) == tools[0]
    assert any(opening.text in text for opening in CODECS[codec].openings)
    assert "20 °C" in CODECS[codec].write_result("né", "20 °C")
    (call,) = calls_of(read(codec, [Tool("né")], [CODECS[codec].write_calls([Call("né", "{}")])]))
    assert (call.name, call.arguments) == ("né", "{}")


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("arguments", ["", "{", "[1]", "null", "x </parameter>"])
def test_a_history_with_broken_arguments_can_be_shown(codec: str, arguments: str) -> None:
    assert arguments in CODECS[codec].write_calls([Call("f", arguments)])


@pytest.mark.parametrize("given", [FreeText(), Regex("[0-9]+"), Lark("start: /x/"), Gbnf('root ::= "x"')])
def test_a_custom_tool_is_shown_as_a_function_of_its_input(given: ToolInput) -> None:
    """Arguments of that function are what the formats write, and its description says the rule."""
    shown: Any = function_of_custom("f", "does f", given)
    jsonschema.validate(json.loads(arguments_of_input("12")), shown["function"]["parameters"])
    assert (shown["function"]["name"], shown["function"]["description"]) == ("f", "does f")
    for rule in (getattr(given, field, "") for field in ("pattern", "text")):
        assert rule in json.dumps(shown).replace('\\"', '"')


NO_OBJECT: JsonValue = {
    "type": "object", "properties": {"y": {}, "z": {}}, "required": ["y", "z"],
    "oneOf": [{"required": ["y"]}, {"required": ["z"]}],
}  # fmt: skip
BAD_TYPE: JsonValue = {"type": "object", "properties": {"a": {"type": "strng"}}}


@pytest.mark.parametrize(
    ("tools", "error", "path"),
    [
        ([], InvalidSource, None),
        ([Tool("")], InvalidSource, "/0/name"),
        ([Tool("\ud800")], InvalidSource, "/0/name"),
        ([Tool("a"), Tool("b"), Tool("a")], InvalidSource, "/2/name"),
        ([Tool("a"), Tool("bad", BAD_TYPE)], InvalidSource, "/1/parameters/properties/a/type"),
        ([Tool("a", [1])], InvalidSource, "/0/parameters"),
        ([Tool("a", {"type": "string"})], InvalidSource, "/0/parameters/type"),
        ([Tool("a", {"type": ["string", "null"]})], InvalidSource, "/0/parameters/type"),
        ([Tool("a", {"properties": {"x": False}, "required": ["x"]})], Unsatisfiable, "/0/parameters"),
        ([Tool("b"), Tool("a", {"properties": {"x": NO_OBJECT}, "required": ["x"]})], Unsatisfiable, "/1/parameters"),
        ([Tool("a", input=Regex("a("))], InvalidSource, "/0/input"),
        ([Tool("a"), Tool("b", input=Regex("[^\\s\\S]"))], Unsatisfiable, "/1/input"),
        ([Tool("a", input=Lark("start: nope"))], InvalidSource, "/0/input"),
        ([Tool("a", input=Gbnf("root ::= <think>"))], UnsupportedFeature, "/0/input"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("codec", ["hermes", "qwen3_coder"])
def test_errors_name_the_tool(codec: str, tools: list[Tool], error: type[ConversionError], path: str | None) -> None:
    with pytest.raises(error) as caught:
        compile_constraint(ToolCalls(tuple(tools), codec))
    assert caught.value.path == path


@pytest.mark.parametrize(
    ("codec", "tool"),
    [
        ("mistral_args", Tool("a[ARGS]")),
        ("mistral_args", Tool(" a")),
        ("qwen3_coder", Tool("a>b")),
        ("qwen3_coder", Tool("a\nb")),
        ("qwen3_coder", Tool("a", {"properties": {"x>": {}}})),
        ("qwen3_coder", Tool("a", {"minProperties": 1, "properties": {"x": {}, "y": {}}})),
    ],
)
def test_what_a_format_can_not_write_is_refused(codec: str, tool: Tool) -> None:
    with pytest.raises(UnsupportedFeature) as caught:
        compile_constraint(ToolCalls((Tool("first"), tool), codec))
    assert (caught.value.path or "").startswith("/1")
    compile_constraint(ToolCalls((tool,), "hermes"))


def test_an_unknown_format_or_opening_is_an_error() -> None:
    for constraint in (ToolCalls((Tool("a"),), "xyz"), ToolCalls((Tool("a"),), "hermes", opening="[TOOL_CALLS]")):
        with pytest.raises(InvalidSource):
            compile_constraint(constraint)


@pytest.mark.parametrize(
    "parameters", [None, {}, True, {"type": "object"}, {"properties": []}, {"type": "object", "properties": {}, "required": []}]
)
@pytest.mark.parametrize("codec", CODECS)
def test_no_parameters_are_an_empty_object(codec: str, parameters: JsonValue) -> None:
    matcher = Matcher.from_tables(compile_constraint(ToolCalls((Tool("f", parameters),), codec)).tables)
    sentence = matcher.random_sentence(random.Random(0))
    (call,) = calls_of(read(codec, [Tool("f", parameters)], [sentence]))[:1]
    assert (call.name, call.arguments) == ("f", "{}")
    rest = matcher.advance(matcher.start, sentence)
    assert rest is not None
    assert matcher.may_end(rest)


def test_objects_are_closed_unless_they_say_otherwise() -> None:
    schema: JsonValue = {"properties": {"a": {"type": "object", "properties": {"b": {}}}, "c": {"additionalProperties": True}}}
    for codec in ("hermes", "qwen3_coder"):
        matcher = Matcher.from_tables(compile_constraint(ToolCalls((Tool("f", schema),), codec)).tables)
        expected = {'{"a": {"x": 1}}': False, '{"x": 1}': False, '{"a": {"b": 1}}': True, '{"c": {"x": 1}}': True}
        for arguments, accepted in expected.items():
            assert matcher.accepts(CODECS[codec].write_calls([Call("f", arguments)])) == accepted


_NAMED: dict[str, JsonValue] = {"patternProperties": {"^x": {"type": "integer"}, "^y": {"type": "string"}}}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("schema", "accepted", "rejected"),
    [
        (_NAMED, ["{}", '{"x": 1}', '{"x1": 1, "x2": 2}'], ['{"z": 1}', '{"x": null}', '{"x": 1, "z": 1}']),
        ({**_NAMED, "properties": {"a": {"type": "null"}, "x": {"minimum": 3}}, "required": ["a"]},
         ['{"a": null}', '{"a": null, "x": 3, "x1": 0}'], ["{}", '{"a": null, "x": 2}', '{"a": null, "b": 1}']),
        ({**_NAMED, "minProperties": 1}, ['{"x": 1}', '{"x": 1, "x1": 2}'], ["{}", '{"z": 1}']),
        ({"properties": {"a": {"type": "object", **_NAMED}}}, ['{"a": {"x": 1, "y": "b"}}'], ['{"a": {"z": 1}}', '{"x": 1}']),
    ],
)  # fmt: skip
def test_closed_objects_have_the_keys_of_patterns(
    codec: str, schema: JsonValue, accepted: list[str], rejected: list[str]
) -> None:
    tool = Tool("f", schema)
    matcher = Matcher.from_tables(compile_constraint(ToolCalls((tool,), codec)).tables)
    for arguments in accepted:
        text = CODECS[codec].write_calls([Call("f", arguments)])
        assert matcher.accepts(text)
        assert calls_of(read(codec, [tool], [text]))[0].arguments == arguments
    for arguments in rejected:
        assert not matcher.accepts(CODECS[codec].write_calls([Call("f", arguments)]))


@pytest.mark.parametrize("codec", CODECS)
def test_listed_integers_are_digits(codec: str) -> None:
    properties: JsonValue = {
        "n": {"type": "integer", "enum": [1.0, 2.0]},
        "w": {"enum": [1.0, 2.5]},
        "f": {"not": {"type": "integer"}, "enum": [1.0, 2.5]},
    }
    listed: JsonValue = {"enum": [{"n": 1.0}, {"w": 1.0}, {"f": 2.5}], "properties": {"n": {"type": "integer"}}}
    for schema in ({"properties": properties}, listed):
        matcher = Matcher.from_tables(compile_constraint(ToolCalls((Tool("f", schema),), codec)).tables)
        for arguments in ('{"n": 1}', '{"w": 1}', '{"w": 1.0}', '{"f": 2.5}'):
            assert matcher.accepts(CODECS[codec].write_calls([Call("f", arguments)]))
        for arguments in ('{"n": 1.0}', '{"f": 1.0}', '{"f": 1}', '{"w": 2}'):
            assert not matcher.accepts(CODECS[codec].write_calls([Call("f", arguments)]))


def test_listed_parameters_in_xml() -> None:
    tool = Tool("f", {"enum": [{"x": 1.5, "y": "é"}, {}, {"y": "</parameter>"}, 3], "properties": {"y": {"type": "string"}}})
    matcher = Matcher.from_tables(compile_constraint(ToolCalls((tool,), "qwen3_coder")).tables)
    for arguments, accepted in {
        '{"x": 1.5, "y": "é"}': True,
        "{}": True,
        '{"y": "</parameter>"}': False,
        '{"x": 1}': False,
    }.items():
        text = CODECS["qwen3_coder"].write_calls([Call("f", arguments)])
        assert matcher.accepts(text) == accepted
        if accepted:
            assert calls_of(read("qwen3_coder", [tool], [text]))[0].arguments == arguments


def test_open_parameters_in_xml() -> None:
    tool = Tool("f", {"properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "integer"}})
    matcher = Matcher.from_tables(compile_constraint(ToolCalls((tool,), "qwen3_coder")).tables)
    for arguments, accepted in {'{"a": "1", "b": 2}': True, '{"b": 2}': True, '{"a": "x", "b": "y"}': False}.items():
        text = CODECS["qwen3_coder"].write_calls([Call("f", arguments)])
        assert matcher.accepts(text) == accepted
        if accepted:
            assert calls_of(read("qwen3_coder", [tool], [text]))[0].arguments == arguments


@pytest.mark.parametrize(
    ("schema", "is_text"),
    [
        ({"type": "string"}, True),
        ({"type": ["string"]}, True),
        ({"type": ["string", "null"]}, False),
        ({"enum": ["a", "b"]}, True),
        ({"enum": ["a", 1]}, False),
        ({"const": "a"}, False),
        ({"$ref": "#/$defs/S"}, True),
        ({"$ref": "#/$defs/L"}, False),
        ({"allOf": [{"type": "string"}, {"minLength": 2}]}, True),
        ({"anyOf": [{"type": "string"}, {"enum": ["x"]}]}, True),
        ({"anyOf": [{"type": "string"}, {"type": "array"}]}, False),
        ({}, False),
    ],
)
def test_which_parameters_are_plain_text(schema: JsonValue, is_text: bool) -> None:
    tool = Tool("f", {"$defs": {"S": {"type": "string"}, "L": {"$ref": "#/$defs/L"}}, "properties": {"k": schema}})
    assert text_keys(tool) == (frozenset("k") if is_text else frozenset())


def test_equal_texts_of_different_kinds_have_different_keys() -> None:
    keys = {
        cache_key(ToolCalls((Tool("f", input=given),), "hermes"))
        for given in (Lark("x"), Gbnf("x"), Regex("x"), FreeText(), None)
    }
    keys |= {cache_key(ToolCalls((Tool("f"),), "hermes", content=given)) for given in (Lark("x"), Gbnf("x"))}
    assert len(keys) == 7


def many_tools(n: int) -> list[Tool]:
    """Tools with some 1.7 KB of schema each."""
    rng = random.Random(7)
    kinds: list[dict[str, JsonValue]] = [
        {"type": "string", "maxLength": 500}, {"type": "integer", "minimum": 0}, {"type": "boolean"},
        {"type": "array", "items": {"type": "string"}}, {"enum": ["asc", "desc", "none"]},
        {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "number"}}, "required": ["a"]},
    ]  # fmt: skip
    tools = []
    for i in range(n):
        properties: dict[str, JsonValue] = {
            f"p{k}_{rng.randint(0, 99)}": {**rng.choice(kinds), "description": "d" * 120} for k in range(9)
        }
        tools.append(
            Tool(f"server_{i % 5}.tool_{i}", {"type": "object", "properties": properties, "required": sorted(properties)[:3]})
        )
    return tools


@pytest.mark.parametrize("codec", ["hermes", "qwen3_coder"])
def test_many_tools_compile_within_a_second(codec: str) -> None:
    tools = many_tools(60)
    assert len(json.dumps([tool.parameters for tool in tools])) > 90_000
    started = time.process_time()
    compiled = compile_constraint(ToolCalls(tuple(tools), codec), CompileOptions(limits=Limits(compile_s=60)))
    assert time.process_time() - started < 1  # measured 0.35 s; the machine may be busy, so not by the clock on the wall
    assert Matcher.from_tables(compiled.tables).random_sentence(random.Random(0))


# ---- public reports


def report_cases() -> list[Any]:
    if not REPORTS.exists():
        return []
    cases = [json.loads(line) for line in REPORTS.read_text(encoding="utf-8").splitlines()]
    return [pytest.param(case, id=case["id"]) for case in cases if case["kind"] == "tool-calling"]


def tool_of(given: dict[str, Any]) -> Tool:
    function = given.get("function", given)
    return Tool(function["name"], function.get("parameters"))


@pytest.mark.parametrize("case", report_cases())
@pytest.mark.parametrize("codec", ["hermes", "qwen3_coder"])
def test_report(codec: str, case: dict[str, Any], oracle: Oracle) -> None:
    """The tools of public bug reports: compiled, or refused with their place; what the grammar writes is valid calls."""
    chat = case["request"]["chat"]
    tools = [tool_of(given) for given in chat.get("tools") or chat.get("functions") or []]
    constraint = ToolCalls(tuple(tools), codec, parallel=chat.get("parallel_tool_calls", True))
    if case["id"] in ("tc-required-no-tools", "tc-one-bad-tool", "tc-dup-names"):
        with pytest.raises(InvalidSource) as caught:
            compile_constraint(constraint)
        assert (caught.value.path or "") == {
            "tc-one-bad-tool": "/1/parameters/properties/a/type",
            "tc-dup-names": "/1/name",
        }.get(case["id"], "")
        return
    compiled = compile_constraint(constraint)
    matcher = Matcher.from_tables(compiled.tables)
    sentences = [matcher.random_sentence(random.Random(seed), max_length=80) for seed in range(4)]
    assert all(oracle.accepts(compiled.gbnf, sentences))
    schemas: dict[str, Any] = {tool.name: tool.parameters for tool in tools}
    for sentence in sentences:
        calls = calls_of(read(codec, tools, [sentence]))
        assert calls
        assert constraint.parallel or len(calls) == 1
        for call in calls:
            schema = schemas[call.name] or {}
            if schema.get("properties") != []:
                jsonschema.validate(value_of(call.arguments), schema)
